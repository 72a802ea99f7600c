//! The first process: it listens, gives every connection a spawner of its own, reaps, and ends with its lease.
//!
//! One thread around `poll`. It never reads what a peer sends. When a connection ends, its spawner kills what it
//! started; a spawner that does not come to its end, or that a command killed, is killed and its tree by the first
//! process. A peer sees the end of its connection only when nothing is left of it.

use crate::session::{Reaped, reap, wait_for};
use crate::{sys, tree};
use hmz_api::link::LinkKey;
use hmz_wire::peer_of;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most connections at once; a further one is closed.
const MAX_CONNECTIONS: usize = 256;

/// Most of them from inside.
const MAX_INSIDE: usize = 128;

/// How long a spawner has to kill what it started, once its peer is gone.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How often a tree that is being killed is looked at.
const KILL_LOOK: Duration = Duration::from_millis(10);

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    /// It was started as something else.
    #[error("it must be the first process of a container")]
    NotFirst,
    /// Its socket cannot be made.
    #[error("its socket {path}: {source}")]
    Socket {
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused something every kernel gives.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<nix::Error> for InitError {
    fn from(e: nix::Error) -> Self {
        Self::Io(e.into())
    }
}

/// A connection's spawner.
#[derive(Debug)]
struct Connection {
    pid: i32,
    /// The peer's socket, held so that its end is seen here too; `None` where its end is not the session's.
    socket: Option<UnixStream>,
    /// Hears when the peer is an owner, and the key a peer gave the box.
    told: OwnedFd,
    owner: bool,
    hung_up: Option<Instant>,
    /// The spawner has ended without having killed all it started.
    dead: bool,
}

impl Connection {
    /// Hears what its process tells.
    fn hear(&mut self, keyhole: Option<&mut Keyhole>) {
        let mut words = [0; 64];
        let Ok(len @ 1..) = rustix::io::read(&self.told, &mut words) else { return };
        match words[..len].split_first() {
            Some((b'k', rest)) => {
                let key = rest.first_chunk::<32>().map(|key| LinkKey::new(*key));
                let Some(keyhole) = keyhole else { return };
                if keyhole.key.is_none() && !keyhole.closed {
                    keyhole.key = key;
                } else if keyhole.key != key {
                    // two came first, with different keys
                    sys::kill(self.pid, libc::SIGKILL);
                }
                self.owner |= rest.get(32) == Some(&b'o');
            }
            _ => self.owner = true,
        }
    }
}

/// Which process it is that comes back from [`run`].
#[derive(Debug)]
pub(crate) enum Role {
    /// The first one, at its end. What still runs then the kernel kills with it.
    First,
    /// A new spawner, with its connection and where it tells of an owner. It holds nothing of the first process's.
    Spawner(UnixStream, OwnedFd),
    /// A process for a peer of this pid namespace, which has to prove the box's key.
    Opener(UnixStream, OwnedFd, Keyhole),
}

/// What is known of the box's key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keyhole {
    /// The key, once a peer has given it.
    pub(crate) key: Option<LinkKey>,
    /// Whether somebody came in by the mounted socket before: commands of theirs may run, and must not give it one.
    pub(crate) closed: bool,
}

/// Becomes a user for good: a process that is another one's, or has another's rights, cannot serve as his.
pub(crate) fn become_user(uid: u32, gid: u32) -> Result<(), InitError> {
    let (uid, gid) = (nix::unistd::Uid::from_raw(uid), nix::unistd::Gid::from_raw(gid));
    if nix::unistd::geteuid() == uid && nix::unistd::getegid() == gid {
        return Ok(());
    }
    nix::unistd::setgroups(&[gid])?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    Ok(())
}

/// Makes this process one whose memory nobody reads, whose orphans come to it, and which no signal interrupts.
pub(crate) fn prepare() -> Result<(), InitError> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    sys::default_signals();
    SigSet::all().thread_block()?;
    Ok(inherit_nothing()?)
}

/// Listens at `socket` and works until the lease is over or it is told to end from outside. With `channel` it takes peers
/// from inside too. `listens` is called once somebody could come. Returns in every spawner as well.
pub(crate) fn run(socket: &Path, lease: Option<Duration>, channel: bool, listens: impl FnOnce()) -> Result<Role, InitError> {
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        return Err(InitError::NotFirst);
    }
    prepare()?;
    let mut all = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        all.add(signal);
    }
    let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let listener = listen(socket).map_err(|source| InitError::Socket { path: socket.display().to_string(), source })?;
    listens();
    let mut connections: Vec<Connection> = Vec::new();
    let mut keyhole = channel.then(Keyhole::default);
    let mut owned = Instant::now();
    loop {
        let now = Instant::now();
        if connections.iter().any(|c| c.owner) {
            owned = now;
        } else if lease.is_some_and(|lease| now.duration_since(owned) >= lease) {
            return Ok(Role::First);
        }
        let events = look(&signals, &listener, &connections, wait(&connections, lease, owned, now))?;
        if events.signals && told_to_end(&signals)? {
            return Ok(Role::First);
        }
        for (connection, (hung_up, told)) in connections.iter_mut().zip(events.connections) {
            if hung_up {
                connection.hung_up = Some(Instant::now());
            }
            if told {
                connection.hear(keyhole.as_mut());
            }
        }
        bury(&mut connections)?;
        if events.asked
            && let Some(role) = accept(&listener, &mut connections, keyhole.as_mut())
        {
            return Ok(role);
        }
    }
}

/// What a wait ended with.
struct Events {
    signals: bool,
    asked: bool,
    /// Of each connection: whether its peer hung up, and whether its spawner told something.
    connections: Vec<(bool, bool)>,
}

fn look<'a>(
    signals: &'a SignalFd,
    listener: &'a UnixListener,
    connections: &'a [Connection],
    limit: Option<Duration>,
) -> Result<Events, InitError> {
    let mut polled = vec![PollFd::new(signals, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
    let mut places = Vec::with_capacity(connections.len());
    for connection in connections {
        // each is asked only while it has something new to say, or the loop would spin
        let mut place = |fd: rustix::fd::BorrowedFd<'a>, flags, wanted: bool| {
            wanted.then(|| {
                polled.push(PollFd::from_borrowed_fd(fd, flags));
                polled.len() - 1
            })
        };
        places.push((
            connection
                .socket
                .as_ref()
                .and_then(|socket| place(socket.as_fd(), PollFlags::RDHUP, connection.hung_up.is_none() && !connection.dead)),
            place(connection.told.as_fd(), PollFlags::IN, !connection.owner && connection.hung_up.is_none() && !connection.dead),
        ));
    }
    wait_for(&mut polled, limit)?;
    let ready = |place: Option<usize>, flags: PollFlags| place.is_some_and(|i| polled[i].revents().intersects(flags));
    Ok(Events {
        signals: !polled[0].revents().is_empty(),
        asked: !polled[1].revents().is_empty(),
        connections: places
            .iter()
            .map(|&(socket, told)| {
                (ready(socket, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR), ready(told, PollFlags::IN))
            })
            .collect(),
    })
}

/// How long nothing needs to be looked at.
fn wait(connections: &[Connection], lease: Option<Duration>, owned: Instant, now: Instant) -> Option<Duration> {
    if connections.iter().any(|c| c.dead) {
        return Some(KILL_LOOK);
    }
    let lease = lease.filter(|_| !connections.iter().any(|c| c.owner)).map(|lease| owned + lease);
    let ends = connections.iter().filter_map(|c| c.hung_up).map(|at| at + END_LIMIT);
    // rounded up: a wait that ends just before its time would spin
    ends.chain(lease).min().map(|at| at.saturating_duration_since(now) + Duration::from_millis(1))
}

/// Whether a signal from outside says so. The box's own processes may signal their first process, and are not heeded:
/// the kernel would not deliver theirs to a first process that has no handler either.
fn told_to_end(signals: &SignalFd) -> Result<bool, InitError> {
    let mut told = false;
    while let Some(info) = signals.read_signal()? {
        told |= info.ssi_signo != Signal::SIGCHLD as u32 && info.ssi_pid == 0;
    }
    Ok(told)
}

/// Reaps all that has ended, and sees to it that nothing is left of a connection that has.
fn bury(connections: &mut Vec<Connection>) -> Result<(), InitError> {
    while let Reaped::One(pid, status) = reap()? {
        if let Some(at) = connections.iter().position(|c| c.pid == pid) {
            if status == hmz_wire::Status::Exited(0) {
                connections.swap_remove(at);
            } else {
                connections[at].dead = true;
                connections[at].owner = false;
            }
        }
    }
    for connection in connections.iter().filter(|c| !c.dead) {
        if connection.hung_up.is_some_and(|at| at.elapsed() >= END_LIMIT) {
            sys::kill(connection.pid, libc::SIGKILL);
        }
    }
    if connections.iter().any(|c| c.dead) {
        // what a dead spawner leaves becomes our child; a living one's tree is its own. So do the orphans of the
        // daemon's own exec: they cannot be told apart, and nothing may stay
        let spared: HashSet<i32> = connections.iter().filter(|c| !c.dead).map(|c| c.pid).collect();
        if !tree::kill_below(1, &spared) {
            connections.retain(|c| !c.dead);
        }
    }
    Ok(())
}

/// Takes all who wait, from outside and of our user or root, and from inside where there is a keyhole; closes the others at
/// once.
///
/// In the process of a new connection it returns that connection.
fn accept(listener: &UnixListener, connections: &mut Vec<Connection>, mut keyhole: Option<&mut Keyhole>) -> Option<Role> {
    while let Ok((stream, _)) = listener.accept() {
        let own = rustix::process::geteuid().as_raw();
        let Some(peer) = peer_of(&stream).ok().filter(|peer| peer.uid == own || peer.uid == 0) else { continue };
        let outside = peer.pid == 0;
        // whoever is inside cannot keep those out who are not
        let inside = connections.iter().filter(|c| c.socket.is_none()).count();
        if (!outside && (keyhole.is_none() || inside >= MAX_INSIDE)) || connections.len() >= MAX_CONNECTIONS {
            continue;
        }
        if outside && let Some(keyhole) = &mut keyhole {
            keyhole.closed = true;
        }
        let (Ok((told, tell)), Ok(socket)) = (pipe_with(PipeFlags::CLOEXEC), stream.try_clone()) else { continue };
        let socket = outside.then_some(socket);
        match sys::fork() {
            Ok(Some(pid)) => connections.push(Connection { pid, socket, told, owner: false, hung_up: None, dead: false }),
            Ok(None) if outside => return Some(Role::Spawner(stream, tell)),
            Ok(None) => return Some(Role::Opener(stream, tell, keyhole.cloned().unwrap_or_default())),
            // no further process: its peer sees the end of the connection
            Err(_) => {}
        }
    }
    None
}

/// Binds the socket in place of a stale one, for our user alone.
///
/// It is bound once. A box that removes or replaces the file loses nothing but new connections: those that are there
/// go on, and whoever comes later finds nothing or an impostor, which it tells by its pid.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let old = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let bound = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = bound?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes every descriptor we were started with close-on-exec.
fn inherit_nothing() -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        if let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            sys::close_on_exec(fd);
        }
    }
    Ok(())
}
