//! The spawner of one connection: it greets, puts up the session's fence, starts commands, and tells of their ends.
//!
//! It is a process of its own and a subreaper, so that whatever a command leaves behind becomes its child and nothing
//! leaves its tree; when the connection ends it kills that tree until nothing is left, and ends. It has one thread and
//! may block on its own connection for [`PATIENCE`]; no other connection notices.

use crate::fence::{self, Held};
use crate::programs::Programs;
use crate::spawn::{self, Environ, Wrapper};
use crate::{sys, tree};
use hmz_standin::protocol::{ALIVE, EXITED, SIGNALED, Verdict};
use hmz_wire::{Fence, FromGuest, Reader, Spawn, Status, ToGuest, VERSION, Welcome, WireError, Writer, split};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::process::{WaitOptions, getpid, wait};
use rustix::pty::OpenptFlags;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a peer may stop in the middle of a frame, or not read, before the connection is dropped.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most commands of a connection that have not ended with all they left behind.
const MAX_COMMANDS: usize = 4096;

/// How often processes that outlived their command are looked at, besides whenever something ends.
const LINGER_LOOK: Duration = Duration::from_secs(1);

/// How long the word that a command has started may wait for company: one that ends at once is told of in one message.
const HELD_BACK: Duration = Duration::from_millis(1);

/// How often those that are being killed are.
const KILL_LOOK: Duration = Duration::from_millis(10);

/// Why a session ended before its peer ended it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The channel failed or the peer broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The kernel refused something every kernel gives.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for SessionError {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Io(e.into())
    }
}

impl From<nix::Error> for SessionError {
    fn from(e: nix::Error) -> Self {
        Self::Io(e.into())
    }
}

/// A command, and what it left behind.
#[derive(Debug)]
struct Command {
    pid: i32,
    /// When it was started, where that is measured.
    began: Option<Instant>,
    /// The socket of the stand-in that waits for its end, when it is told from here.
    standin: Option<OwnedFd>,
    /// Whether it has ended itself.
    ended: bool,
    /// Whether all of it is being killed.
    closing: bool,
    /// The sessions its processes were seen in: one that lost its parent is still known by its session.
    sessions: HashSet<i32>,
}

#[derive(Debug)]
struct Session {
    me: i32,
    reader: Reader,
    writer: Writer,
    own: Environ,
    wrapper: Wrapper,
    programs: Programs,
    commands: HashMap<u64, Command>,
    /// The commands that have not ended, by pid.
    running: HashMap<i32, u64>,
    /// When all processes were looked at last.
    looked: Instant,
    /// What is to be told with the next message.
    unsaid: Vec<FromGuest>,
    /// Whether it is told how long commands ran.
    measures: bool,
}

/// Serves a connection until it ends, then kills all it started; nothing of it is left when this succeeds. `told` hears
/// one byte when the peer owns the box.
pub(crate) fn serve(stream: UnixStream, told: OwnedFd) -> Result<(), SessionError> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_no_new_privs()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (own, wrapper) = Environ::own();
    let programs = Programs::of(own.get(b"PATH"));
    let (reader, writer) = split(stream)?;
    let me = getpid().as_raw_nonzero().get();
    let (commands, running, looked, unsaid) = (HashMap::new(), HashMap::new(), Instant::now(), Vec::new());
    let measures = false;
    let mut session = Session { me, reader, writer, own, wrapper, programs, commands, running, looked, unsaid, measures };
    // how the connection ended makes no difference: a peer that broke it off hears no more
    if let Ok(true) = session.greet(&told) {
        let _ = session.work();
    }
    session.end()
}

impl Session {
    /// Answers the first message; whether there is a session.
    fn greet(&mut self, told: &OwnedFd) -> Result<bool, SessionError> {
        let Some((first, _)) = self.reader.recv::<ToGuest>()? else { return Ok(false) };
        let ToGuest::Hello { version, owner, fence } = first else {
            return Err(WireError::Protocol("the first message is no hello").into());
        };
        let held = match refusal(version, fence.as_ref()) {
            Ok(held) => held,
            Err(why) => {
                self.writer.send(&FromGuest::Refused(why), &[])?;
                return Ok(false);
            }
        };
        if owner {
            rustix::io::write(told, b"o")?;
        }
        let welcome = Welcome {
            version: VERSION,
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
            env: self.own.0.iter().map(|(n, v)| (n.clone().into(), v.clone().into())).collect(),
            programs: self.programs.names(),
            fence: held.word().to_owned(),
        };
        self.writer.send(&FromGuest::Welcome(Box::new(welcome)), &[])?;
        Ok(true)
    }

    /// Until the peer ends the connection.
    fn work(&mut self) -> Result<(), SessionError> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        loop {
            // one millisecond more: a wait that ends just before its time would be one for nothing
            let wait = self.interval().map(|i| i.saturating_sub(self.looked.elapsed()) + Duration::from_millis(1));
            let wait = if self.unsaid.is_empty() { wait } else { Some(wait.map_or(HELD_BACK, |wait| wait.min(HELD_BACK))) };
            let (asked, ended) = {
                let mut polled = [PollFd::new(self.reader.stream(), PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
                wait_for(&mut polled, wait)?;
                (!polled[0].revents().is_empty(), !polled[1].revents().is_empty())
            };
            if ended {
                // there is one at most: a second is not told of before the first is read
                let _ = children.read_signal()?;
            }
            // ends first: what a signal of the peer's is meant for is known by then
            self.look()?;
            self.say()?;
            if asked {
                match self.reader.recv::<ToGuest>()? {
                    Some((message, fds)) => self.answer(message, fds)?,
                    None => return Ok(()),
                }
            }
        }
    }

    /// Tells what is to be told.
    fn say(&mut self) -> Result<(), SessionError> {
        if !self.unsaid.is_empty() {
            self.writer.send_all(&self.unsaid)?;
            self.unsaid.clear();
        }
        Ok(())
    }

    /// How often all processes are to be looked at now.
    fn interval(&self) -> Option<Duration> {
        if self.commands.values().any(|c| c.closing) {
            Some(KILL_LOOK)
        } else if self.commands.len() > self.running.len() {
            Some(LINGER_LOOK)
        } else {
            None
        }
    }

    fn answer(&mut self, message: ToGuest, mut fds: Vec<OwnedFd>) -> Result<(), SessionError> {
        match message {
            ToGuest::Hello { .. } => return Err(WireError::Protocol("a second hello").into()),
            ToGuest::Spawn(spawn) => self.spawn(&spawn, fds, None)?,
            ToGuest::SpawnFor(spawn) => {
                // one that did not fit this process's table is missed with the others
                let standin = if fds.len() > spawn.fds.len() { fds.pop() } else { None };
                self.spawn(&spawn, fds, standin)?;
            }
            ToGuest::Signal { id, signal } => self.signal(id, signal),
            ToGuest::Close { id } => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.closing = true;
                    self.look_after(false);
                }
            }
            ToGuest::Measure => self.measures = true,
            ToGuest::Ping(n) => {
                self.unsaid.push(FromGuest::Pong(n));
                self.say()?;
            }
            ToGuest::OpenTerminal => {
                // what is to be told comes before it
                self.say()?;
                match terminal() {
                    Ok((theirs, slave)) => self.writer.send(&FromGuest::Terminal, &[theirs.as_fd(), slave.as_fd()])?,
                    Err(e) => self.writer.send(&FromGuest::NoTerminal(e.raw_os_error()), &[])?,
                }
            }
        }
        Ok(())
    }

    fn spawn(&mut self, spawn: &Spawn, fds: Vec<OwnedFd>, standin: Option<OwnedFd>) -> Result<(), SessionError> {
        let id = spawn.id;
        if self.commands.contains_key(&id) {
            return Err(WireError::Protocol("an id that is used twice").into());
        }
        let began = self.measures.then(Instant::now);
        let started = if self.commands.len() >= MAX_COMMANDS {
            Err(libc::EAGAIN)
        } else {
            spawn::start(spawn, &fds, &self.own, &self.wrapper, &self.programs)
        };
        match started {
            Err(errno) => {
                self.unsaid.push(FromGuest::SpawnFailed { id, errno });
                self.say()?;
            }
            Ok(pid) => {
                for command in self.commands.values_mut() {
                    // a number used again is another session
                    command.sessions.remove(&pid);
                }
                let command = Command { pid, began, standin, ended: false, closing: false, sessions: HashSet::from([pid]) };
                self.commands.insert(id, command);
                self.running.insert(pid, id);
                self.unsaid.push(FromGuest::Started { id });
            }
        }
        Ok(())
    }

    /// Signals a command's group. After its own end its number could be another's: then only while one of the group is
    /// seen, which keeps the number.
    fn signal(&self, id: u64, signal: i32) {
        let Some(command) = self.commands.get(&id) else { return };
        if !(1..=sys::MAX_SIGNAL).contains(&signal) {
            return;
        }
        let group = |p: &tree::Process| p.group == command.pid && p.session == command.pid;
        let members = || tree::below(self.me, &HashSet::new(), &tree::all()).into_iter().filter(group);
        if command.ended && !members().any(|p| p.pid != command.pid) {
            return;
        }
        sys::kill(-command.pid, signal);
        if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
            // a session of its own is an orphan's, where these stop nobody; whoever sent it decided that it shall
            for process in members().filter(|p| tree::has_default(p.pid, signal)) {
                sys::kill(process.pid, libc::SIGSTOP);
            }
        }
    }

    /// Reaps what has ended, tells of it, and looks after what is left.
    fn look(&mut self) -> Result<(), SessionError> {
        let mut ended = Vec::new();
        let mut adopted = false;
        let none_left = loop {
            match reap()? {
                Reaped::One(pid, status) => match self.running.remove(&pid) {
                    Some(id) => ended.push((id, status)),
                    None => adopted = true,
                },
                Reaped::NotYet => break false,
                Reaped::NoChild => break true,
            }
        };
        if !ended.is_empty() {
            self.tell(ended, none_left);
        }
        if adopted || self.interval().is_some_and(|interval| self.looked.elapsed() >= interval) {
            self.look_after(true);
        }
        Ok(())
    }

    /// Tells of commands that have ended, and whether they left anything behind. `none_left`: this process has no child.
    fn tell(&mut self, ended: Vec<(u64, Status)>, none_left: bool) {
        let changed = self.programs.changed();
        if changed {
            self.unsaid.push(FromGuest::Programs(self.programs.names()));
        }
        for (id, _) in &ended {
            if let Some(command) = self.commands.get_mut(id) {
                command.ended = true;
            }
        }
        // the common case in one read: when all children are commands that run, nobody left anything behind
        let nothing_left = none_left
            || tree::children(self.me).is_some_and(|children| children.iter().all(|pid| self.running.contains_key(pid)));
        let alive = if nothing_left { HashSet::new() } else { self.survivors() };
        for (id, status) in ended {
            let alive = alive.contains(&id);
            let (standin, took) = match self.commands.get_mut(&id) {
                Some(command) => (command.standin.take(), command.began.map(|began| began.elapsed())),
                None => (None, None),
            };
            // what comes next may be one of the new names, so the peer has to know them first
            let told = !changed && standin.is_some_and(|socket| tell_standin(&socket, status, alive));
            if let Some(took) = took {
                let nanos = took.as_nanos().try_into().unwrap_or(u64::MAX);
                self.unsaid.push(FromGuest::Ran { id, status, nanos });
            }
            self.unsaid.push(if told { FromGuest::Told { id, alive } } else { FromGuest::Exited { id, status, alive } });
            if !alive {
                self.commands.remove(&id);
            }
        }
        // whoever was told goes on meanwhile
        if !changed && self.programs.replaced() {
            self.unsaid.push(FromGuest::Programs(self.programs.names()));
        }
    }

    /// Kills on what is to be killed; tells, when `tell`, of commands whose last process is gone.
    fn look_after(&mut self, tell: bool) {
        let members = self.members();
        let mut gone = Vec::new();
        for (id, command) in &self.commands {
            let alive = members.get(id);
            if command.closing {
                for process in alive.into_iter().flatten() {
                    sys::kill(process.pid, libc::SIGKILL);
                }
            }
            if command.ended && alive.is_none() {
                gone.push(*id);
            }
        }
        if tell {
            for id in gone {
                self.commands.remove(&id);
                self.unsaid.push(FromGuest::Empty { id });
            }
        }
    }

    /// The commands of which a process lives.
    fn survivors(&mut self) -> HashSet<u64> {
        self.members().into_keys().collect()
    }

    /// The living processes of each command: those of its sessions, and all below one of them.
    fn members(&mut self) -> HashMap<u64, Vec<tree::Process>> {
        self.looked = Instant::now();
        let all = tree::below(self.me, &HashSet::new(), &tree::all());
        let mut owner: HashMap<i32, u64> = HashMap::new();
        let mut of_session: HashMap<i32, u64> =
            self.commands.iter().flat_map(|(id, c)| c.sessions.iter().map(|s| (*s, *id))).collect();
        // what left every session unseen can only be its who is alone
        let only = if self.commands.len() == 1 { self.commands.keys().next().copied() } else { None };
        let mut found: HashMap<u64, Vec<tree::Process>> = HashMap::new();
        // `below` names parents before their children, so a second round is for sessions first seen in this look
        for _ in 0..2 {
            for process in &all {
                let by_session = of_session.get(&process.session);
                if let Some(id) = by_session.or_else(|| owner.get(&process.parent)).copied().or(only) {
                    owner.insert(process.pid, id);
                    of_session.insert(process.session, id);
                }
            }
        }
        for command in self.commands.values_mut() {
            command.sessions.clear();
            command.sessions.insert(command.pid);
        }
        for process in all.into_iter().filter(|p| !p.dead) {
            let Some(id) = owner.get(&process.pid) else { continue };
            if let Some(command) = self.commands.get_mut(id) {
                command.sessions.insert(process.session);
                found.entry(*id).or_default().push(process);
            }
        }
        found
    }

    /// Kills all that was started, until nothing is left.
    fn end(self) -> Result<(), SessionError> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        let children = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        loop {
            tree::kill_below(self.me, &HashSet::new());
            loop {
                match reap()? {
                    Reaped::One(..) => {}
                    Reaped::NotYet => break,
                    // no child is left, and so nothing: what loses its parent becomes a child
                    Reaped::NoChild => return Ok(()),
                }
            }
            wait_for(&mut [PollFd::new(&children, PollFlags::IN)], Some(KILL_LOOK))?;
            while children.read_signal()?.is_some() {}
        }
    }
}

/// Tells a stand-in the end of its command. False when it has to be told by its supervisor.
fn tell_standin(socket: &OwnedFd, status: Status, alive: bool) -> bool {
    let (kind, value) = match status {
        Status::Exited(code) => (EXITED, code),
        Status::Signaled(signal) => (SIGNALED, signal),
    };
    let verdict = Verdict { kind: if alive { kind | ALIVE } else { kind }, value: value as u32 };
    let sent = rustix::net::send(socket, &verdict.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    // a part of it is none: there is room for the whole, or it is gone
    sent.is_ok()
}

/// A terminal of the box's own devpts, so that it has a name there: both its sides.
fn terminal() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    // by the terminal itself: what the box has at a path may be anything
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}

/// Whether the session may be, and how its fence holds.
fn refusal(version: u32, fence: Option<&Fence>) -> Result<Held, String> {
    if version != VERSION {
        return Err(format!("it speaks version {VERSION}, and was spoken to in version {version}"));
    }
    let Some(fence) = fence else { return Ok(Held::None) };
    let held = fence::put_up(fence).map_err(|e| format!("the fence of the session cannot be put up: {e}"))?;
    if fence.required && held != Held::Full {
        return Err(format!("the kernel of the box cannot hold the fence of the session ({})", held.word()));
    }
    Ok(held)
}

/// What a look for ended children found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This child, and how it ended.
    One(i32, Status),
    /// All that are left live.
    NotYet,
    /// None is left.
    NoChild,
}

/// One child that has ended.
pub(crate) fn reap() -> std::io::Result<Reaped> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(Reaped::NoChild),
            Err(e) => return Err(e.into()),
            Ok(None) => return Ok(Reaped::NotYet),
            Ok(Some((pid, status))) => {
                let status = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Status::Exited(code),
                    (_, Some(signal)) => Status::Signaled(signal),
                    // neither stops nor continuations were asked for
                    (None, None) => continue,
                };
                return Ok(Reaped::One(pid.as_raw_nonzero().get(), status));
            }
        }
    }
}

/// Waits for one of them or `limit`.
pub(crate) fn wait_for(polled: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<(), std::io::Error> {
    let limit = limit.and_then(|d| Timespec::try_from(d).ok());
    match poll(polled, limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
