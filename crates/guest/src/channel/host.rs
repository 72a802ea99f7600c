//! The host of a session: copies between its stream and what its commands have, and says what the spawner says.
//!
//! One thread around `poll`; nothing here waits on a peer or on a command. What is not taken is not read: a command that
//! writes faster than its reader reads is stopped by its own pipe. When no word has come for the session's window, or its
//! peer says so, all it started is killed, and nothing is left of it when this returns.

use super::HostError;
use super::door::{Door, Opener, PATIENCE};
use super::streams::{self, Stream};
use crate::session::{Reaped, reap, wait_for};
use crate::{session, sys, tree};
use hmz_api::link::LinkKey;
use hmz_wire::channel::frame::{Decoder, MAX_DATA, StreamId};
use hmz_wire::channel::handshake::{Verdict, conclude};
use hmz_wire::channel::mux::{Event, Mux};
use hmz_wire::channel::{Ask, ChannelError, MAX_STREAMS, SpawnStreams, Tell, decode, encode};
use hmz_wire::{FromGuest, Reader, Spawn, ToGuest, VERSION, Writer, split};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The shortest and the longest window a session may have.
const WINDOWS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);

/// How much is read from the stream at once.
const READ: usize = 64 << 10;

/// How often what is being killed is looked at.
const KILL_LOOK: Duration = Duration::from_millis(10);

/// The stream of the moment.
struct Link {
    socket: UnixStream,
    decoder: Decoder,
    /// A frame that is being written; nothing overtakes the rest of it.
    out: Vec<u8>,
    written: usize,
}

struct Host {
    link: Option<Link>,
    mux: Mux,
    key: LinkKey,
    session: [u8; 16],
    /// The number of the last stream.
    stream: u32,
    window: Duration,
    /// When a word came last.
    heard: Instant,
    ears: Reader,
    mouth: Writer,
    door: Door,
    greeted: bool,
    /// The peer has said that it is over.
    over: bool,
    commands: HashMap<u64, Command>,
}

/// The streams of a command, and whether it has ended; it is forgotten when both are over.
struct Command {
    streams: Vec<Stream>,
    ended: bool,
}

/// Begins the session of an opener and holds it until it is over; nothing of it is left then. `known` is the box's key, when
/// it has one and may not be given another; `told` hears of a new key and of an owner.
///
/// # Errors
/// When the opener proves nothing, or the kernel refuses what every kernel gives. Nothing was started.
pub(crate) fn hold(opener: Opener, known: Option<&LinkKey>, told: OwnedFd) -> Result<(), HostError> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_no_new_privs()?;
    let Opener { mut stream, opening } = opener;
    let key = match opening.key(known) {
        Ok(key) => key,
        Err(e) => {
            conclude(&mut stream, &Verdict::Refused(e.to_string()))?;
            return Err(e.into());
        }
    };
    if known.is_none() {
        let mut word = vec![b'k'];
        word.extend_from_slice(key.bytes());
        rustix::io::write(&told, &word)?;
    }
    let door = Door::open(&opening.open.session)?;
    let (ours, theirs) = UnixStream::pair()?;
    let (ears, mouth) = split(ours)?;
    conclude(&mut stream, &opening.accept(&key, 0)?)?;
    let link = Link::new(stream)?;
    let Some(spawner) = sys::fork()? else {
        drop((ears, mouth, door, link));
        let good = session::serve(theirs, told).is_ok();
        std::process::exit(i32::from(!good));
    };
    drop((theirs, told));
    // the commands are the spawner's, and have the limits it has
    more_descriptors();
    let mut host = Host {
        link: Some(link),
        mux: Mux::default(),
        key,
        session: opening.open.session,
        stream: 0,
        window: PATIENCE,
        heard: Instant::now(),
        ears,
        mouth,
        door,
        greeted: false,
        over: false,
        commands: HashMap::new(),
    };
    // how it ended makes no difference to what has to be done
    let _ = host.work();
    host.end(spawner)
}

impl Link {
    fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, decoder: Decoder::default(), out: Vec::new(), written: 0 })
    }
}

/// What a look found to do.
struct Ready {
    link: bool,
    spawner: bool,
    door: bool,
    /// Of each stream that was asked: whether it can be read, written, or is closed on the command's side.
    streams: Vec<(u64, usize, PollFlags, bool)>,
}

impl Host {
    fn work(&mut self) -> Result<(), HostError> {
        let mut buffer = vec![0; READ.max(MAX_DATA)];
        loop {
            self.send();
            let left = self.window.saturating_sub(self.heard.elapsed());
            if left.is_zero() || (self.over && self.link.as_ref().is_none_or(|link| link.out.is_empty())) {
                return Ok(());
            }
            let ready = self.look(left)?;
            if ready.door {
                self.take_stream()?;
            }
            if ready.link {
                self.hear(&mut buffer)?;
            }
            for (command, at, flags, read) in ready.streams {
                let Some(stream) = self.commands.get_mut(&command).and_then(|command| command.streams.get_mut(at)) else {
                    continue;
                };
                if flags.contains(PollFlags::OUT) {
                    stream.write(&mut self.mux);
                }
                if read && flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    stream.read(&mut buffer, &mut self.mux);
                } else if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
                    stream.broken(&mut self.mux);
                }
            }
            if ready.spawner {
                match self.ears.recv::<FromGuest>()? {
                    Some((word, _)) => self.pass(word)?,
                    // it was killed, and what it started with it
                    None => return Ok(()),
                }
            }
            self.commands.retain(|_, command| !(command.ended && command.streams.iter().all(Stream::is_over)));
        }
    }

    fn look(&self, limit: Duration) -> Result<Ready, HostError> {
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.ears.stream().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.door.as_fd(), PollFlags::IN),
        ];
        if let Some(link) = &self.link {
            let waits = link.written < link.out.len();
            polled.push(PollFd::new(&link.socket, if waits { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }));
        }
        let first = polled.len();
        let mut places = Vec::new();
        for (id, command) in &self.commands {
            for (at, stream) in command.streams.iter().enumerate() {
                let Some((end, read, write)) = stream.interest(&self.mux) else { continue };
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, read);
                flags.set(PollFlags::OUT, write);
                polled.push(PollFd::from_borrowed_fd(end, flags));
                places.push((*id, at, read));
            }
        }
        // a millisecond more: a wait that ends just before its time would be one for nothing
        wait_for(&mut polled, Some(limit + Duration::from_millis(1)))?;
        let is_ready = |at: usize| !polled[at].revents().is_empty();
        let streams = places.into_iter().zip(&polled[first..]).map(|((command, at, read), fd)| (command, at, fd.revents(), read));
        Ok(Ready {
            link: self.link.is_some() && polled[2].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            spawner: is_ready(0),
            door: is_ready(1),
            streams: streams.filter(|(_, _, flags, _)| !flags.is_empty()).collect(),
        })
    }

    /// Writes to the stream what it takes, one frame after the other.
    fn send(&mut self) {
        let Some(link) = &mut self.link else { return };
        loop {
            if link.written == link.out.len() {
                link.written = 0;
                match self.mux.next(Instant::now()) {
                    Some(bytes) => link.out = bytes,
                    None => {
                        link.out.clear();
                        return;
                    }
                }
            }
            match rustix::io::write(&link.socket, &link.out[link.written..]) {
                Ok(n) => link.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.link = None;
                    return;
                }
            }
        }
    }

    /// Reads from the stream. One that ends is a cut; a lie ends the session.
    fn hear(&mut self, buffer: &mut [u8]) -> Result<(), HostError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        match rustix::io::read(&link.socket, &mut *buffer) {
            Ok(n) if n > 0 => link.decoder.feed(&buffer[..n]),
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(_) | Err(_) => {
                self.link = None;
                return Ok(());
            }
        }
        self.heard = Instant::now();
        while let Some(link) = &mut self.link
            && let Some(frame) = link.decoder.take()?
        {
            let event = self.mux.receive(frame, self.heard)?;
            self.act(event)?;
        }
        self.mux.acknowledge();
        Ok(())
    }

    fn act(&mut self, event: Option<Event>) -> Result<(), HostError> {
        match event {
            Some(Event::Message(body)) => self.answer(decode(&body)?)?,
            Some(Event::Data(id, bytes)) => match find(&mut self.commands, id) {
                Some(stream) => stream.give(bytes, &mut self.mux),
                None => self.mux.consumed(id, bytes.len()),
            },
            Some(Event::End(id)) => {
                if let Some(stream) = find(&mut self.commands, id) {
                    stream.finish(&mut self.mux);
                }
            }
            Some(Event::Stop(id)) => {
                if let Some(stream) = find(&mut self.commands, id) {
                    stream.unwanted();
                }
            }
            Some(Event::Room(_) | Event::Pong(_)) | None => {}
        }
        Ok(())
    }

    fn answer(&mut self, ask: Ask) -> Result<(), HostError> {
        match ask {
            Ask::Hello { owner, fence, window_ms } => {
                if std::mem::replace(&mut self.greeted, true) {
                    return Err(ChannelError::Protocol("a second hello").into());
                }
                self.window = Duration::from_millis(window_ms).clamp(*WINDOWS.start(), *WINDOWS.end());
                self.mouth.send(&ToGuest::Hello { version: VERSION, owner, fence }, &[])?;
            }
            _ if !self.greeted => return Err(ChannelError::Protocol("the first message is no hello").into()),
            Ask::Spawn(spawn, specs) => self.spawn(*spawn, &specs)?,
            Ask::Signal { id, signal } => self.mouth.send(&ToGuest::Signal { id, signal }, &[])?,
            Ask::Close { id } => self.mouth.send(&ToGuest::Close { id }, &[])?,
            Ask::Resize { id, index, size } => {
                if let Some(stream) = find(&mut self.commands, StreamId { command: id, index }) {
                    stream.resize(size);
                }
            }
            Ask::Bye => self.over = true,
            Ask::Measure => self.mouth.send(&ToGuest::Measure, &[])?,
        }
        Ok(())
    }

    fn spawn(&mut self, mut spawn: Spawn, specs: &SpawnStreams) -> Result<(), HostError> {
        let id = spawn.id;
        let numbers: usize = specs.iter().map(|spec| spec.numbers.len()).sum();
        if specs.len() > MAX_STREAMS || numbers > hmz_wire::MAX_FDS || self.commands.contains_key(&id) {
            return Err(ChannelError::Protocol("a command no peer starts").into());
        }
        let (streams, given) = match streams::open(id, specs, &mut self.mux) {
            Ok(opened) => opened,
            Err(errno) => return self.tell(&Tell::SpawnFailed { id, errno }),
        };
        spawn.fds = given.iter().map(|(number, _)| *number).collect();
        let fds: Vec<_> = given.iter().map(|(_, fd)| fd.as_fd()).collect();
        self.mouth.send(&ToGuest::Spawn(spawn), &fds)?;
        self.commands.insert(id, Command { streams, ended: false });
        Ok(())
    }

    /// Says what the spawner said.
    fn pass(&mut self, word: FromGuest) -> Result<(), HostError> {
        let tell = match word {
            FromGuest::Welcome(welcome) => Tell::Welcome(welcome),
            FromGuest::Refused(why) => {
                self.over = true;
                Tell::Refused(why)
            }
            FromGuest::Started { id } => Tell::Started { id },
            FromGuest::SpawnFailed { id, errno } => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.ended = true;
                }
                Tell::SpawnFailed { id, errno }
            }
            FromGuest::Exited { id, status, alive } => {
                let mut written = Vec::new();
                if let Some(command) = self.commands.get_mut(&id) {
                    command.ended = true;
                    written.extend(command.streams.iter().filter_map(|s| Some((s.id().index, s.written_by_command()?))));
                }
                Tell::Exited { id, status, alive, written }
            }
            FromGuest::Empty { id } => Tell::Empty { id },
            FromGuest::Programs(names) => Tell::Programs(names),
            FromGuest::Ran { id, status, nanos } => Tell::Ran { id, status, nanos },
            // never asked for
            FromGuest::Told { .. } | FromGuest::Pong(_) | FromGuest::Terminal | FromGuest::NoTerminal(_) => return Ok(()),
        };
        self.tell(&tell)
    }

    fn tell(&mut self, tell: &Tell) -> Result<(), HostError> {
        Ok(self.mux.message(encode(tell)?)?)
    }

    /// Goes on over a stream that came to the door, when its opener has the key.
    fn take_stream(&mut self) -> Result<(), HostError> {
        let Some(Opener { mut stream, opening }) = self.door.next() else { return Ok(()) };
        stream.set_nonblocking(true)?;
        let good =
            opening.open.session == self.session && opening.open.stream > self.stream && opening.key(Some(&self.key)).is_ok();
        if !good {
            // whoever it is need not hear it
            let _ = conclude(&mut stream, &Verdict::Refused(ChannelError::Unproved.to_string()));
            return Ok(());
        }
        self.stream = opening.open.stream;
        self.link = None;
        let accepted = opening.accept(&self.key, self.mux.received())?;
        self.mux.restart(opening.open.received)?;
        if conclude(&mut stream, &accepted).is_ok() {
            self.link = Some(Link::new(stream)?);
            self.heard = Instant::now();
        }
        Ok(())
    }

    /// Has the spawner kill all it started, and kills what it did not.
    fn end(self, spawner: i32) -> Result<(), HostError> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        self.mouth.shutdown();
        // what is written to a pipe of ours is written to nobody now
        drop(self.commands);
        let begin = Instant::now();
        let mut ended = false;
        loop {
            loop {
                match reap()? {
                    Reaped::One(pid, _) => ended |= pid == spawner,
                    Reaped::NotYet => break,
                    // nothing is left; the end of the stream says so
                    Reaped::NoChild => return Ok(()),
                }
            }
            if ended || begin.elapsed() >= PATIENCE / 2 {
                sys::kill(spawner, if ended { 0 } else { libc::SIGKILL });
                tree::kill_below(rustix::process::getpid().as_raw_nonzero().get(), &HashSet::new());
            }
            wait_for(&mut [PollFd::new(&children, PollFlags::IN)], Some(KILL_LOOK))?;
            while children.read_signal()?.is_some() {}
        }
    }
}

fn find(commands: &mut HashMap<u64, Command>, id: StreamId) -> Option<&mut Stream> {
    commands.get_mut(&id.command)?.streams.iter_mut().find(|stream| stream.id() == id)
}

/// As many as this process may have: each command takes a few.
fn more_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // with fewer, fewer commands can be started at once, and that is told
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
