//! The side of a channel that works in the box: it opens streams, goes on over another when one is cut, and says when all is
//! lost. One thread writes, one reads; each descriptor that is copied has a thread of its own (`pump`).
//!
//! Nothing in it is trusted: what the guest sends is checked by the mux, and a lie loses the session.

use super::dial::Dialed;
use super::frame::{Decoder, StreamId};
use super::handshake::{self, CHANNEL_VERSION, Open};
use super::mux::{Event, Mux};
use super::pump::{self, Here};
use super::{Ask, ChannelError, Size, Tell, decode, encode};
use crate::client::{Shared, lose, names_only, tell};
use crate::{ClientError, CommandEvent, Fence, Spawn, Welcome, WireError, ran};
use hmz_api::link::{Dial, LinkKey};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the first stream may take to be opened, and a guest to say its first word: a daemon may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long each step of opening a further one may take.
const REDIAL: Duration = Duration::from_secs(10);

/// How long the end of a session is waited for: then the guest finds out by itself.
const FAREWELL: Duration = Duration::from_secs(5);

/// Control frames that may wait, in bytes; a further command is not sent before there are fewer.
const MAX_WAITING: usize = 16 << 20;

/// How much is read from the stream at once.
const READ: usize = 64 << 10;

/// What is known of a stream that is received.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Bytes that are not written out yet; at most the window.
    pub(crate) waiting: VecDeque<Vec<u8>>,
    /// No more come.
    pub(crate) ended: bool,
    /// Bytes that were written out.
    pub(crate) written: u64,
    /// Told when there is something of this to do.
    pub(crate) change: Arc<Condvar>,
}

/// What is known of a stream that is sent.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Told when there is room, or none will be.
    pub(crate) change: Arc<Condvar>,
    /// Written to when the stream is over, for whoever waits for bytes to send.
    pub(crate) over: Arc<OwnedFd>,
}

/// The end of a command, which is passed on when what it wrote has been written out.
#[derive(Debug)]
struct Ending {
    event: CommandEvent,
    written: Vec<(u8, u64)>,
    /// Whether its last process has ended meanwhile.
    empty: bool,
}

/// A terminal of a command here.
#[derive(Debug)]
struct Terminal {
    index: u8,
    here: Arc<Here>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) mux: Mux,
    pub(crate) inbound: HashMap<StreamId, Inbound>,
    pub(crate) outbound: HashMap<StreamId, Outbound>,
    endings: HashMap<u64, Ending>,
    terminals: HashMap<u64, Terminal>,
    /// Events to be passed on, in their order.
    due: VecDeque<(u64, CommandEvent)>,
    /// The stream of the moment, to cut it.
    cut: Option<UnixStream>,
    heard: Option<Instant>,
    welcome: Option<Result<Welcome, String>>,
    /// Nothing more is to be done.
    pub(crate) lost: bool,
    /// We are done with it.
    closing: bool,
    /// Somebody waits for fewer control frames.
    control_was_full: bool,
}

/// Where the streams of a session come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Each is opened afresh.
    Dial(Box<Dial>),
    /// There is one, which is taken once: with it the session ends.
    Held(Mutex<Option<UnixStream>>),
}

/// A session over streams.
#[derive(Debug)]
pub(crate) struct Channel {
    source: Source,
    key: LinkKey,
    /// How long it outlives a stream.
    window: Duration,
    session: [u8; 16],
    inner: Mutex<Inner>,
    /// Told when there is something to send, or the stream is cut.
    wake: Condvar,
    /// Told when control frames were sent, when the guest has said its first word, and when all is over.
    news: Condvar,
    /// Held while events are passed on, so that they keep their order.
    telling: Mutex<()>,
    shared: Arc<Shared>,
}

impl Channel {
    /// Begins a session.
    ///
    /// # Errors
    /// When no stream can be opened, or the guest does not prove itself, refuses or is silent.
    pub(crate) fn begin(
        source: Source,
        (key, window): (LinkKey, Duration),
        owner: bool,
        fence: Option<Fence>,
        shared: Arc<Shared>,
    ) -> Result<(Arc<Self>, Welcome), ClientError> {
        let own = Arc::new(Self {
            source,
            key,
            window,
            session: handshake::random()?,
            inner: Mutex::default(),
            wake: Condvar::new(),
            news: Condvar::new(),
            telling: Mutex::new(()),
            shared,
        });
        let first = own.dial(0, PATIENCE)?;
        own.inner()
            .mux
            .message(encode(&Ask::Hello { owner, fence, window_ms: window.as_millis() as u64 }).map_err(WireError::from)?)
            .map_err(WireError::from)?;
        let driver = Arc::clone(&own);
        std::thread::Builder::new().name("channel".into()).spawn(move || driver.drive(first))?;
        let (mut inner, end) = (own.inner(), Instant::now() + PATIENCE);
        let said = loop {
            if let Some(said) = inner.welcome.take() {
                break said;
            }
            let left = end.saturating_duration_since(Instant::now());
            if inner.lost || left.is_zero() {
                let error = if inner.lost { ClientError::Gone } else { ClientError::Silent };
                drop(inner);
                own.close();
                return Err(error);
            }
            inner = own.news.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(inner);
        match said {
            Ok(welcome) => Ok((own, welcome)),
            Err(why) => {
                own.close();
                Err(ClientError::Refused(why))
            }
        }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the writer look at what there is to send.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the session is over, or the message is too large.
    pub(crate) fn ask(&self, ask: &Ask) -> Result<(), ClientError> {
        self.ask_with(ask, |_| Ok(()))
    }

    /// Sends a message behind what `before` changes; a message that is too large changes nothing.
    fn ask_with(&self, ask: &Ask, before: impl FnOnce(&mut Inner) -> Result<(), ClientError>) -> Result<(), ClientError> {
        let body = encode(ask).map_err(WireError::from)?;
        if body.len() > super::frame::MAX_MESSAGE {
            return Err(WireError::Protocol("a message that is too large").into());
        }
        let mut inner = self.inner();
        while inner.mux.control_waiting() > MAX_WAITING && !inner.lost {
            inner.control_was_full = true;
            inner = self.news.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if inner.lost || inner.closing {
            return Err(ClientError::Gone);
        }
        before(&mut inner)?;
        inner.mux.message(body).map_err(WireError::from)?;
        drop(inner);
        self.wake();
        Ok(())
    }

    /// Starts a command with these descriptors; its id is chosen by the caller, who hears of it.
    ///
    /// # Errors
    /// When the session is over, or a descriptor cannot be looked at. The command is not started then.
    pub(crate) fn spawn(self: &Arc<Self>, mut spawn: Spawn, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let id = spawn.id;
        let numbers = std::mem::take(&mut spawn.fds);
        if numbers.len() != fds.len() {
            return Err(WireError::Protocol("descriptors without numbers").into());
        }
        let streams = pump::sort(&numbers, fds)?;
        // it leads a session of its own, and what is typed on its terminal is understood there
        if let Some(number) = streams.terminal() {
            spawn.ctty.get_or_insert(number);
        }
        self.ask_with(&Ask::Spawn(Box::new(spawn), streams.specs.clone()), |inner| streams.open(inner, id))?;
        streams.start(self, id);
        Ok(())
    }

    /// Tells the box the size of a command's terminal; whether it has one.
    pub(crate) fn resize(&self, command: u64) -> Result<bool, ClientError> {
        let found = self.inner().terminals.get(&command).map(|t| (t.index, Arc::clone(&t.here)));
        let Some((index, here)) = found else { return Ok(false) };
        // one that is gone has no size
        if let Ok(size) = Size::of(&here.fd) {
            self.ask(&Ask::Resize { id: command, index, size })?;
        }
        Ok(true)
    }

    /// Makes the descriptor that wakes an input's thread.
    pub(crate) fn bell() -> std::io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Ends the session: what it started is killed.
    pub(crate) fn close(&self) {
        let mut inner = self.inner();
        if !inner.closing && !inner.lost {
            inner.closing = true;
            // a message this short is never too long
            let _ = encode(&Ask::Bye).and_then(|bye| inner.mux.message(bye));
            self.wake.notify_one();
        }
    }

    /// The same, and waits until nothing is left of it, for at most [`FAREWELL`].
    pub(crate) fn finish(&self) {
        self.close();
        let (mut inner, end) = (self.inner(), Instant::now() + FAREWELL);
        while !inner.lost {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.news.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens stream `number`, each step within `patience`; the mux goes on over it.
    fn dial(&self, number: u32, patience: Duration) -> Result<Dialed, ClientError> {
        let mut dialed = match &self.source {
            Source::Dial(dial) => Dialed::open(dial, patience)?,
            Source::Held(stream) => {
                let held = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
                Dialed::held(held.ok_or(ClientError::Gone)?, patience)?
            }
        };
        dialed.set_patience(patience)?;
        let received = self.inner().mux.received();
        let open =
            Open { version: CHANNEL_VERSION, session: self.session, stream: number, nonce: handshake::random()?, received };
        let theirs = match handshake::open(&mut dialed, &self.key, &open) {
            Ok(theirs) => theirs,
            Err(e) => return Err(reason(e, dialed)),
        };
        self.inner().mux.restart(theirs).map_err(WireError::from)?;
        // what reads looks this often whether the other side is still heard
        dialed.set_patience((self.window / 12).max(Duration::from_millis(10)))?;
        Ok(dialed)
    }

    /// Writes, and opens further streams, until all is over.
    fn drive(self: Arc<Self>, first: Dialed) {
        let mut next = Some(first);
        let mut number = 0u32;
        while let Some(dialed) = next.take() {
            self.carry(dialed);
            next = self.dial_again(&mut number);
        }
        self.give_up();
    }

    /// Carries the session over one stream until that is cut.
    fn carry(self: &Arc<Self>, dialed: Dialed) {
        let (Ok(mut out), Ok(cut)) = (dialed.other(), dialed.other()) else { return };
        {
            let mut inner = self.inner();
            inner.cut = Some(cut);
            inner.heard = Some(Instant::now());
        }
        let reader = Arc::clone(self);
        let reading = std::thread::Builder::new().name("channel-in".into()).spawn(move || reader.read(dialed));
        let Ok(reading) = reading else { return };
        let mut pinged = Instant::now();
        let mut inner = self.inner();
        while inner.cut.is_some() && !inner.lost {
            let now = Instant::now();
            if let Some(bytes) = inner.mux.next(now) {
                if inner.control_was_full && inner.mux.control_waiting() <= MAX_WAITING {
                    inner.control_was_full = false;
                    self.news.notify_all();
                }
                if let Some(id) = inner.mux.made_room()
                    && let Some(outbound) = inner.outbound.get(&id)
                {
                    outbound.change.notify_all();
                }
                drop(inner);
                let sent = out.write_all(&bytes);
                inner = self.inner();
                if sent.is_err() {
                    break;
                }
                continue;
            }
            let quiet = self.window / 6;
            if now.duration_since(pinged) >= quiet {
                pinged = now;
                inner.mux.ping(0);
                continue;
            }
            inner = self.wake.wait_timeout(inner, quiet).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(cut) = inner.cut.take() {
            // it ends the reader
            let _ = cut.shutdown(std::net::Shutdown::Both);
        }
        drop(inner);
        // a reader that panicked has ended too
        let _ = reading.join();
    }

    /// Another stream, within what is left of the window; `None`: there is none, and the session is lost.
    fn dial_again(&self, number: &mut u32) -> Option<Dialed> {
        loop {
            let mut inner = self.inner();
            let silent = inner.heard.map_or(Duration::ZERO, |heard| heard.elapsed());
            let left = self.window.saturating_sub(silent);
            if inner.lost || inner.closing || left.is_zero() {
                return None;
            }
            // not at once again: what cut it may last, and a daemon must not be asked without end
            if *number > 0 {
                let pause = (self.window / 40).min(left);
                inner = self.wake.wait_timeout(inner, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(inner);
            *number += 1;
            match self.dial(*number, left.clamp(Duration::from_millis(10), REDIAL)) {
                Ok(dialed) => return Some(dialed),
                // a guest that says no will not say yes
                Err(ClientError::Refused(_) | ClientError::Wire(WireError::Protocol(_)) | ClientError::Gone) => return None,
                Err(_) => {}
            }
        }
    }

    /// All is lost: everybody hears it.
    pub(crate) fn give_up(&self) {
        let mut inner = self.inner();
        if !std::mem::replace(&mut inner.lost, true) {
            if let Some(cut) = inner.cut.take() {
                let _ = cut.shutdown(std::net::Shutdown::Both);
            }
            for inbound in inner.inbound.values() {
                inbound.change.notify_all();
            }
            for outbound in inner.outbound.values() {
                outbound.end();
            }
            inner.due.clear();
            inner.terminals.clear();
            inner.endings.clear();
        }
        drop(inner);
        self.wake.notify_all();
        self.news.notify_all();
        // behind what is being passed on
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        lose(&self.shared);
    }

    /// Reads until the stream is cut, or silent for a third of the window.
    fn read(&self, mut dialed: Dialed) {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; READ];
        loop {
            match dialed.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    decoder.feed(&buffer[..n]);
                    if self.take(&mut decoder).is_err() {
                        self.give_up();
                        return;
                    }
                    self.pass_on();
                    self.wake();
                }
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {
                    if self.inner().heard.is_some_and(|heard| heard.elapsed() >= self.window / 3) {
                        break;
                    }
                }
                _ => break,
            }
        }
        if let Some(cut) = self.inner().cut.take() {
            // a writer that waits for room is woken by it
            let _ = cut.shutdown(std::net::Shutdown::Both);
        }
        self.wake.notify_all();
    }

    fn take(&self, decoder: &mut Decoder) -> Result<(), ChannelError> {
        let mut inner = self.inner();
        let now = Instant::now();
        inner.heard = Some(now);
        while let Some(frame) = decoder.take()? {
            match inner.mux.receive(frame, now)? {
                Some(Event::Message(body)) => self.hear(&mut inner, decode(&body)?)?,
                Some(Event::Data(id, bytes)) => match inner.inbound.get_mut(&id) {
                    Some(inbound) => {
                        inbound.waiting.push_back(bytes);
                        inbound.change.notify_all();
                    }
                    None => inner.mux.consumed(id, bytes.len()),
                },
                Some(Event::End(id)) => {
                    if let Some(inbound) = inner.inbound.get_mut(&id) {
                        inbound.ended = true;
                        inbound.change.notify_all();
                    }
                }
                Some(Event::Stop(id)) => {
                    if let Some(outbound) = inner.outbound.get(&id) {
                        outbound.end();
                    }
                }
                Some(Event::Room(id)) => {
                    if let Some(outbound) = inner.outbound.get(&id) {
                        outbound.change.notify_all();
                    }
                }
                Some(Event::Pong(_)) | None => {}
            }
        }
        inner.mux.acknowledge();
        Ok(())
    }

    fn hear(&self, inner: &mut Inner, tell: Tell) -> Result<(), ChannelError> {
        match tell {
            Tell::Welcome(mut welcome) => {
                welcome.programs = names_only(welcome.programs);
                self.shared.set_programs(welcome.programs.clone());
                inner.welcome = Some(Ok(*welcome));
                self.news.notify_all();
            }
            Tell::Refused(why) => {
                inner.welcome = Some(Err(why));
                self.news.notify_all();
            }
            Tell::Programs(names) => self.shared.set_programs(names_only(names)),
            Tell::Ran { id, status, nanos } => ran::tell(&self.shared, id, status, nanos),
            Tell::Started { id } => inner.due.push_back((id, CommandEvent::Started)),
            Tell::SpawnFailed { id, errno } => {
                inner.terminals.remove(&id);
                inner.due.push_back((id, CommandEvent::Failed(errno)));
            }
            Tell::Exited { id, status, alive, written } => {
                if written.len() > super::MAX_STREAMS {
                    return Err(ChannelError::Protocol("more streams than a command has"));
                }
                let event = CommandEvent::Exited(status, alive);
                if inner.endings.insert(id, Ending { event, written, empty: false }).is_some() {
                    return Err(ChannelError::Protocol("a command that ended twice"));
                }
                inner.settle(id);
            }
            Tell::Empty { id } => match inner.endings.get_mut(&id) {
                Some(ending) => ending.empty = true,
                None => inner.due.push_back((id, CommandEvent::Empty)),
            },
        }
        Ok(())
    }

    /// Passes events on. Not with the lock held: whoever hears may ask for more.
    pub(crate) fn pass_on(&self) {
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lied = false;
        loop {
            let next = self.inner().due.pop_front();
            let Some((id, event)) = next else { break };
            if !tell(&self.shared, id, event) {
                lied = true;
                break;
            }
        }
        drop(telling);
        if lied {
            self.give_up();
        }
    }
}

impl Outbound {
    fn end(&self) {
        self.change.notify_all();
        // an eventfd that is not full takes a write at once
        let _ = rustix::io::write(&*self.over, &1u64.to_ne_bytes());
    }
}

impl Inner {
    /// Remembers the terminal of a command, whose size may change. A command has one at most that matters: the first.
    pub(crate) fn remember(&mut self, id: StreamId, here: &Arc<Here>) {
        self.terminals.entry(id.command).or_insert_with(|| Terminal { index: id.index, here: Arc::clone(here) });
    }

    /// Has the end of a command passed on, once what it wrote has been written out or is wanted by nobody.
    pub(crate) fn settle(&mut self, command: u64) {
        let Some(ending) = self.endings.get(&command) else { return };
        let waits = ending.written.iter().any(|(index, total)| {
            let inbound = self.inbound.get(&StreamId { command, index: *index });
            inbound.is_some_and(|inbound| inbound.written < *total)
        });
        if waits {
            return;
        }
        if let Some(ending) = self.endings.remove(&command) {
            self.terminals.remove(&command);
            self.due.push_back((command, ending.event));
            if ending.empty {
                self.due.push_back((command, CommandEvent::Empty));
            }
        }
    }
}

/// Why a stream could not be opened, with what its carrier said of it.
fn reason(error: ChannelError, dialed: Dialed) -> ClientError {
    match error {
        ChannelError::Refused(why) => ClientError::Refused(why),
        ChannelError::Unproved => ClientError::Refused(error.to_string()),
        ChannelError::Cut(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            ClientError::Silent
        }
        ChannelError::Cut(e) => {
            let complaint = dialed.complaint();
            if complaint.is_empty() { WireError::Io(e).into() } else { ClientError::Carrier(complaint) }
        }
        ChannelError::Protocol(what) => {
            let complaint = dialed.complaint();
            if complaint.is_empty() { WireError::Protocol(what).into() } else { ClientError::Carrier(complaint) }
        }
    }
}
