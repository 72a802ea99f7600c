//! The side that works in a box: connects, proves the guest, starts commands and hears of their ends.
//!
//! Blocking, with one reader thread a connection. Before a byte is sent the socket's peer must be the box's own pid 1;
//! an impostor that replaced the socket file in the box is refused.

use crate::awaited;
use crate::channel::{Ask, Channel, Source};
use crate::ran::{self, Asked};
use crate::{Fence, FromGuest, MAX_FDS, Reader, Spawn, Status, ToGuest, VERSION, Welcome, WireError, Writer, peer_of, split};
use hmz_api::journal::Outcome;
use hmz_api::link::{Link, LinkKey};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

/// How long a guest may take to answer a `Hello`, and to take a frame. What listens may be an impostor, or stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// The signal that says that a terminal's size changed.
const SIGWINCH: i32 = 28;

/// Why a box cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The channel failed.
    #[error(transparent)]
    Wire(WireError),
    /// The socket's peer is not the box's pid 1.
    #[error("the socket of the box is not its guest's: its peer is process {found}, and the box's first process is {wanted}")]
    Impostor {
        /// The peer's pid.
        found: i32,
        /// The box's pid 1.
        wanted: i32,
    },
    /// The guest said no.
    #[error("the box's guest refused: {0}")]
    Refused(String),
    /// The guest is gone.
    #[error("the box's guest is gone")]
    Gone,
    /// What carries the stream to the box complained.
    #[error("the way to the box failed: {0}")]
    Carrier(String),
    /// There is no box: it did not come up.
    #[error("{message}")]
    NotStarted {
        /// Why, in one sentence.
        message: String,
        /// How a run ends by it.
        outcome: Outcome,
    },
    /// It did not answer in time.
    #[error("the box's guest does not answer")]
    Silent,
}

impl From<WireError> for ClientError {
    /// Who sends may find the socket closed a moment before who hears has said so: both are told the same.
    fn from(error: WireError) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
        match error {
            WireError::Io(e) if matches!(e.kind(), BrokenPipe | ConnectionReset | NotConnected) => Self::Gone,
            other => Self::Wire(other),
        }
    }
}

impl From<std::io::Error> for ClientError {
    fn from(e: std::io::Error) -> Self {
        WireError::Io(e).into()
    }
}

/// What happens to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEvent {
    /// Its exec succeeded.
    Started,
    /// It could not be started, with this errno.
    Failed(i32),
    /// It ended; whether processes of its session live on.
    Exited(Status, bool),
    /// The same of one whose stand-in was told it by the guest.
    Told(bool),
    /// The last process of its session has ended.
    Empty,
    /// The channel broke: nothing more will be heard, and the guest kills what it started.
    Lost,
}

/// Where a command is on its way from `Spawn` to `Empty`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    /// The first two of one whose end the guest tells.
    AskedFor,
    StartedFor,
    Started,
    Exited,
}

/// Takes a command's events, in the thread that hears the guest.
type Hear = Box<dyn FnMut(CommandEvent) + Send>;

struct Listener {
    stage: Stage,
    hear: Hear,
    /// Until it is told how long it ran.
    asked: Option<Asked>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Stage {
    /// The stage after an event; `Some(None)` when it was the last one, `None` when it cannot come in this stage. So a
    /// command has at most three events, whatever a guest sends.
    fn after(self, event: CommandEvent) -> Option<Option<Self>> {
        match (self, event) {
            (Self::Asked, CommandEvent::Started) => Some(Some(Self::Started)),
            (Self::AskedFor, CommandEvent::Started) => Some(Some(Self::StartedFor)),
            (Self::Asked | Self::AskedFor, CommandEvent::Failed(_))
            | (Self::Started | Self::StartedFor, CommandEvent::Exited(_, false))
            | (Self::StartedFor, CommandEvent::Told(false))
            | (Self::Exited, CommandEvent::Empty) => Some(None),
            (Self::Started | Self::StartedFor, CommandEvent::Exited(_, true)) | (Self::StartedFor, CommandEvent::Told(true)) => {
                Some(Some(Self::Exited))
            }
            _ => None,
        }
    }
}

/// A terminal of the box's: the side that is held here and the side a command gets; or the errno of there being none.
type Terminal = Result<(OwnedFd, OwnedFd), i32>;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// One listener a command; `None` once the channel is lost.
    commands: Mutex<Option<HashMap<u64, Listener>>>,
    /// Told when the channel is lost.
    lost: Condvar,
    programs: Mutex<Arc<Vec<String>>>,
    /// Who waits for a terminal, in the order of the asking; nobody once the channel is lost.
    terminals: Mutex<VecDeque<Sender<Terminal>>>,
}

impl Shared {
    fn new() -> Self {
        Self { commands: Mutex::new(Some(HashMap::new())), ..Self::default() }
    }

    /// What is known of a command whose guest says how long it ran; once.
    pub(crate) fn measured(&self, id: u64) -> Option<Asked> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.get_mut(&id)?.asked.take()
    }

    pub(crate) fn set_programs(&self, names: Vec<String>) {
        *self.programs.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }
}

/// The way messages go.
#[derive(Debug)]
enum Route {
    /// Descriptors cross themselves.
    Direct(Writer),
    /// Everything is copied.
    Channel(Arc<Channel>),
}

/// A connection to a box's guest. When the last clone is dropped, everything it started in the box is killed.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    route: Route,
    shared: Arc<Shared>,
    welcome: Welcome,
    next: AtomicU64,
    /// Whether the guest was asked to measure.
    measures: Once,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.route.shutdown();
    }
}

impl Route {
    fn send(&self, message: ToGuest) -> Result<(), ClientError> {
        match self {
            Self::Direct(writer) => Ok(writer.send(&message, &[])?),
            Self::Channel(channel) => match message {
                ToGuest::Signal { id, signal } if signal == SIGWINCH && channel.resize(id)? => Ok(()),
                ToGuest::Signal { id, signal } => channel.ask(&Ask::Signal { id, signal }),
                ToGuest::Close { id } => channel.ask(&Ask::Close { id }),
                ToGuest::Measure => channel.ask(&Ask::Measure),
                // said by the channel itself
                ToGuest::Hello { .. } | ToGuest::Spawn(_) | ToGuest::SpawnFor(_) | ToGuest::Ping(_) | ToGuest::OpenTerminal => {
                    Ok(())
                }
            },
        }
    }

    /// Neither waits: the guest does the killing when it sees the end.
    fn shutdown(&self) {
        match self {
            Self::Direct(writer) => writer.shutdown(),
            Self::Channel(channel) => channel.close(),
        }
    }
}

/// A command in the box.
#[derive(Debug)]
pub struct Command {
    /// Its id on the connection.
    pub id: u64,
    events: Receiver<CommandEvent>,
    client: Client,
}

impl Client {
    /// Connects to a box's guest by the way that is given; one that is only being started is waited for. `owner`: this connection keeps a leased box alive.
    ///
    /// # Errors
    /// When it cannot be reached, is not the box's, refuses or is silent.
    pub fn open(link: &Link, owner: bool, fence: Option<Fence>) -> Result<Self, ClientError> {
        match link {
            Link::Awaited { file, role } => {
                Self::open(&awaited::await_box(Path::new(file), role, awaited::LIMIT)?.link, owner, fence)
            }
            Link::Direct { socket, pid } => Self::connect(Path::new(socket), *pid, owner, fence),
            Link::Stream(link) => {
                Self::begin_channel(Source::Dial(Box::new(link.dial.clone())), (link.key.clone(), link.window()), owner, fence)
            }
        }
    }

    /// Opens the session of a guest at the other end of `stream`, which is the only one of its life. It is lost when that
    /// ends, or when nothing is heard for `window`.
    ///
    /// # Errors
    /// When the guest does not prove itself, refuses or is silent.
    pub fn over(stream: UnixStream, key: LinkKey, window: Duration, fence: Option<Fence>) -> Result<Self, ClientError> {
        Self::begin_channel(Source::Held(Mutex::new(Some(stream))), (key, window), false, fence)
    }

    fn begin_channel(source: Source, way: (LinkKey, Duration), owner: bool, fence: Option<Fence>) -> Result<Self, ClientError> {
        let shared = Arc::new(Shared::new());
        let (channel, welcome) = Channel::begin(source, way, owner, fence, Arc::clone(&shared))?;
        check(&welcome)?;
        Ok(Self::of(Route::Channel(channel), shared, welcome))
    }

    /// Connects to the guest at `socket`, whose pid 1 is `pid` as this process sees it.
    ///
    /// # Errors
    /// When the socket is not there, its peer is another process, or the guest refuses or is silent.
    pub fn connect(socket: &Path, pid: i32, owner: bool, fence: Option<Fence>) -> Result<Self, ClientError> {
        let stream = reach(socket)?;
        let peer = peer_of(&stream)?;
        if peer.pid != pid {
            return Err(ClientError::Impostor { found: peer.pid, wanted: pid });
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut reader, writer) = split(stream)?;
        writer.send(&ToGuest::Hello { version: VERSION, owner, fence }, &[])?;
        let welcome = match reader.recv::<FromGuest>() {
            Ok(Some((FromGuest::Welcome(welcome), _))) => *welcome,
            Ok(Some((FromGuest::Refused(why), _))) => return Err(ClientError::Refused(why)),
            Ok(Some(_)) => return Err(WireError::Protocol("the guest's first word is no welcome").into()),
            Ok(None) => return Err(ClientError::Gone),
            Err(WireError::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock => return Err(ClientError::Silent),
            Err(e) => return Err(e.into()),
        };
        check(&welcome)?;
        reader.stream().set_read_timeout(None)?;
        let mut welcome = welcome;
        welcome.programs = names_only(std::mem::take(&mut welcome.programs));
        let shared = Arc::new(Shared::new());
        shared.set_programs(welcome.programs.clone());
        let heard = Arc::clone(&shared);
        std::thread::Builder::new().name("box".into()).spawn(move || hear(reader, &heard))?;
        Ok(Self::of(Route::Direct(writer), shared, welcome))
    }

    fn of(route: Route, shared: Arc<Shared>, welcome: Welcome) -> Self {
        let (next, measures) = (AtomicU64::new(1), Once::new());
        Self { inner: Arc::new(Inner { route, shared, welcome, next, measures }) }
    }

    /// What the guest said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.inner.welcome
    }

    /// Names of the programs on the box's PATH, as last told.
    pub fn programs(&self) -> Arc<Vec<String>> {
        Arc::clone(&self.inner.shared.programs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a command; `spawn.id` is chosen here. The first event is `Started` or `Failed`.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn spawn(&self, spawn: Spawn, fds: &[BorrowedFd<'_>]) -> Result<Command, ClientError> {
        let (sender, events) = channel();
        let hear = move |event| {
            // one that was dropped does not care
            let _ = sender.send(event);
        };
        let id = self.spawn_heard(spawn, fds, hear)?;
        Ok(Command { id, events, client: self.clone() })
    }

    /// Starts a command and gives its events to `hear`, which may be called before this returns; its id. `hear` is called in
    /// the thread that hears the guest, or over a stream in one that copies, and every command of this connection waits for
    /// it: it must not block.
    ///
    /// # Errors
    /// When the guest is gone. `hear` is then not called, or with `Lost` alone.
    pub fn spawn_heard(
        &self,
        spawn: Spawn,
        fds: &[BorrowedFd<'_>],
        hear: impl FnMut(CommandEvent) + Send + 'static,
    ) -> Result<u64, ClientError> {
        self.begin(spawn, fds, None, Box::new(hear))
    }

    /// The same for a stand-in, whose socket the guest is given to tell it the end: whoever waits for it waits for one process
    /// less. Then the end is [`CommandEvent::Told`]; where it is [`CommandEvent::Exited`] all the same, the stand-in is still
    /// to be told. Over a stream, and with as many descriptors as a frame carries, it is always that.
    ///
    /// # Errors
    /// As [`Self::spawn_heard`].
    pub fn spawn_for(
        &self,
        socket: BorrowedFd<'_>,
        spawn: Spawn,
        fds: &[BorrowedFd<'_>],
        hear: impl FnMut(CommandEvent) + Send + 'static,
    ) -> Result<u64, ClientError> {
        let fits = !self.is_copied() && fds.len() < MAX_FDS;
        self.begin(spawn, fds, fits.then_some(socket), Box::new(hear))
    }

    fn begin(
        &self,
        mut spawn: Spawn,
        fds: &[BorrowedFd<'_>],
        socket: Option<BorrowedFd<'_>>,
        hear: Hear,
    ) -> Result<u64, ClientError> {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        spawn.id = id;
        let asked = Asked::of(&spawn.program);
        if asked.is_some() {
            // a guest that is gone is told of by what comes next
            self.inner.measures.call_once(|| drop(self.inner.route.send(ToGuest::Measure)));
        }
        let stage = if socket.is_some() { Stage::AskedFor } else { Stage::Asked };
        match &mut *self.inner.shared.commands.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(commands) => commands.insert(id, Listener { stage, hear, asked }),
            None => return Err(ClientError::Gone),
        };
        let sent = match (&self.inner.route, socket) {
            (Route::Direct(writer), None) => writer.send(&ToGuest::Spawn(spawn), fds).map_err(ClientError::from),
            (Route::Direct(writer), Some(socket)) => {
                let fds: Vec<_> = fds.iter().copied().chain([socket]).collect();
                writer.send(&ToGuest::SpawnFor(spawn), &fds).map_err(ClientError::from)
            }
            (Route::Channel(channel), _) => channel.spawn(spawn, fds),
        };
        if let Err(e) = sent {
            if let Some(commands) = &mut *self.inner.shared.commands.lock().unwrap_or_else(PoisonError::into_inner) {
                commands.remove(&id);
            }
            return Err(e);
        }
        Ok(id)
    }

    /// A terminal made in the box, where it has a name: the side to be held here and the side a command gets. `Err(errno)`
    /// inside when the box has none to give, as over a stream, where each terminal a command gets has one there made for it.
    /// What comes is not looked at: a guest may send any descriptor.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn terminal(&self) -> Result<Result<(OwnedFd, OwnedFd), i32>, ClientError> {
        let Route::Direct(writer) = &self.inner.route else {
            return Ok(Err(rustix::io::Errno::OPNOTSUPP.raw_os_error()));
        };
        let (sender, answer) = channel();
        {
            // answers come in the order of the asking
            let mut waiting = self.inner.shared.terminals.lock().unwrap_or_else(PoisonError::into_inner);
            if self.inner.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                return Err(ClientError::Gone);
            }
            writer.send(&ToGuest::OpenTerminal, &[])?;
            waiting.push_back(sender);
        }
        answer.recv().map_err(|_| ClientError::Gone)
    }

    /// Signals the process group of command `id`.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn signal(&self, id: u64, signal: i32) -> Result<(), ClientError> {
        self.inner.route.send(ToGuest::Signal { id, signal })
    }

    /// Has the whole session of command `id` killed.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn close(&self, id: u64) -> Result<(), ClientError> {
        self.inner.route.send(ToGuest::Close { id })
    }

    /// Blocks until the channel is lost, be it that the guest is gone or that [`Client::shutdown`] was called.
    pub fn wait_lost(&self) {
        let mut commands = self.inner.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        while commands.is_some() {
            commands = self.inner.shared.lost.wait(commands).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the connection, as the last drop does. Does not wait.
    pub fn shutdown(&self) {
        self.inner.route.shutdown();
    }

    /// Ends the connection before this process ends. A socket tells that by itself; over a stream the guest has to be told,
    /// and that is waited for, for some seconds at most.
    pub fn finish(&self) {
        match &self.inner.route {
            Route::Direct(writer) => writer.shutdown(),
            Route::Channel(channel) => channel.finish(),
        }
    }

    /// Whether descriptors are copied instead of crossing themselves.
    pub fn is_copied(&self) -> bool {
        matches!(self.inner.route, Route::Channel(_))
    }

    /// The size of the command's terminal here may have changed. One that crossed itself has told already.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn resized(&self, id: u64) -> Result<(), ClientError> {
        match &self.inner.route {
            Route::Direct(_) => Ok(()),
            Route::Channel(channel) => channel.resize(id).map(drop),
        }
    }
}

impl Command {
    /// The next event; blocks.
    pub fn next(&self) -> CommandEvent {
        self.events.recv().unwrap_or(CommandEvent::Lost)
    }

    /// The next event within `limit`; `None` when there was none.
    pub fn next_within(&self, limit: Duration) -> Option<CommandEvent> {
        match self.events.recv_timeout(limit) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(CommandEvent::Lost),
        }
    }

    /// Waits until it has ended; `Ok(Err(errno))` when it could not be started.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn wait(&self) -> Result<Result<Status, i32>, ClientError> {
        loop {
            match self.next() {
                CommandEvent::Started | CommandEvent::Empty => {}
                CommandEvent::Failed(errno) => return Ok(Err(errno)),
                CommandEvent::Exited(status, _) => return Ok(Ok(status)),
                // told to whoever asked for that alone
                CommandEvent::Lost | CommandEvent::Told(_) => return Err(ClientError::Gone),
            }
        }
    }

    /// Signals its process group.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn signal(&self, signal: i32) -> Result<(), ClientError> {
        self.client.signal(self.id, signal)
    }

    /// Has its whole session killed.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn close(&self) -> Result<(), ClientError> {
        self.client.close(self.id)
    }
}

fn hear(mut reader: Reader, shared: &Shared) {
    // descriptors a guest sends are dropped at once: but for a terminal's it has none to give
    while let Ok(Some((message, fds))) = reader.wait().and_then(|()| reader.recv::<FromGuest>()) {
        let (id, event) = match message {
            FromGuest::Started { id } => (id, CommandEvent::Started),
            FromGuest::SpawnFailed { id, errno } => (id, CommandEvent::Failed(errno)),
            FromGuest::Exited { id, status, alive } => (id, CommandEvent::Exited(status, alive)),
            FromGuest::Told { id, alive } => (id, CommandEvent::Told(alive)),
            FromGuest::Empty { id } => (id, CommandEvent::Empty),
            FromGuest::Programs(names) => {
                shared.set_programs(names_only(names));
                continue;
            }
            FromGuest::Pong(_) => continue,
            FromGuest::Ran { id, status, nanos } => {
                ran::tell(shared, id, status, nanos);
                continue;
            }
            FromGuest::Terminal | FromGuest::NoTerminal(_) => {
                let waiting = shared.terminals.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let mut fds = fds.into_iter();
                let terminal = match (message, fds.next(), fds.next()) {
                    (FromGuest::NoTerminal(errno), ..) => Err(errno),
                    (_, Some(ours), Some(theirs)) => Ok((ours, theirs)),
                    _ => break,
                };
                // nobody asked
                let Some(waiting) = waiting else { break };
                // one that was dropped does not care
                let _ = waiting.send(terminal);
                continue;
            }
            // said once, before
            FromGuest::Welcome(_) | FromGuest::Refused(_) => break,
        };
        if !tell(shared, id, event) {
            break;
        }
    }
    // a guest that broke the protocol is not spoken to any more
    let _ = reader.stream().shutdown(std::net::Shutdown::Both);
    lose(shared);
}

/// Nothing more is heard: everybody is told.
pub(crate) fn lose(shared: &Shared) {
    let left = shared.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
    // dropping the senders is what tells whoever waits for a terminal
    shared.terminals.lock().unwrap_or_else(PoisonError::into_inner).clear();
    shared.lost.notify_all();
    for mut listener in left.into_iter().flat_map(HashMap::into_values) {
        (listener.hear)(CommandEvent::Lost);
    }
}

/// Passes an event on; false when no guest of ours would have sent it.
/// One call after the other, and [`lose`] not meanwhile: whoever calls sees to that.
pub(crate) fn tell(shared: &Shared, id: u64, event: CommandEvent) -> bool {
    let commands = || shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
    // taken out: whoever hears may start another command
    let Some(mut listener) = commands().as_mut().and_then(|commands| commands.remove(&id)) else { return false };
    let Some(next) = listener.stage.after(event) else { return false };
    (listener.hear)(event);
    if let Some(stage) = next {
        listener.stage = stage;
        // nobody says meanwhile that the channel is lost
        commands().as_mut().map(|commands| commands.insert(id, listener));
    }
    true
}

fn check(welcome: &Welcome) -> Result<(), ClientError> {
    if welcome.version == VERSION {
        return Ok(());
    }
    Err(ClientError::Refused(format!("it speaks version {} and we {VERSION}", welcome.version)))
}

/// Connects, for at most [`PATIENCE`]: a socket whose listener takes nobody would hold us for ever.
fn reach(socket: &Path) -> Result<UnixStream, ClientError> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(std::io::Error::from)?;
    sockopt::set_socket_timeout(&made, sockopt::Timeout::Send, Some(PATIENCE)).map_err(std::io::Error::from)?;
    let address = SocketAddrUnix::new(socket).map_err(std::io::Error::from)?;
    match connect(&made, &address) {
        Ok(()) => Ok(UnixStream::from(made)),
        Err(rustix::io::Errno::AGAIN) => Err(ClientError::Silent),
        Err(e) => Err(std::io::Error::from(e).into()),
    }
}

/// A guest's word for what is on PATH is taken for names, never for paths.
pub(crate) fn names_only(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']));
    names
}
