//! The redirected commands: hears each stand-in, has the box run its command, and tells it how that ended.
//!
//! Two threads serve all of them, and neither waits for any: [`Sessions::attend`] hears the stand-ins, and the thread that
//! hears the box tells them. What may block (a complaint to a command's standard error, a stream that is copied) is given
//! to a thread of its own. A command most often costs each of the two one waking and no other.

use crate::AnchorError;
use crate::descriptors::Borders;
use crate::hello::{Heard, Hearing, Introduction};
use crate::policy::Target;
use crate::shared::Left;
use crate::workers::Workers;
use hmz_standin::protocol::{ALIVE, EMPTY, EXITED, SIGNALED, Verdict};
use hmz_wire::{Bytes, Client, CommandEvent, Spawn, Status};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes taken from a stand-in at once: nearly always all it says.
const PIECE: usize = 64 << 10;

/// What serving stand-ins needs.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// The box.
    client: Client,
    /// What may cross.
    borders: Borders,
    /// Names of variables that may cross; a trailing `*` matches any ending.
    env_allow: Vec<String>,
    /// The directories both sides have.
    shared: Vec<PathBuf>,
    /// What commands leave for the CLI, where it has to be brought over.
    left: Option<Left>,
    /// The threads for what may block.
    workers: Arc<Workers>,
    /// Tells which stand-in says something.
    epoll: OwnedFd,
    /// The stand-ins that are heard, by their numbers there.
    heard: Mutex<HashMap<u64, Arc<StandIn>>>,
    next: AtomicU64,
}

/// One stand-in.
#[derive(Debug)]
struct StandIn {
    number: u64,
    socket: UnixStream,
    target: Target,
    /// Of the thread that hears it.
    phase: Mutex<Phase>,
}

#[derive(Debug)]
enum Phase {
    /// It introduces itself.
    Speaks(Hearing),
    /// Its command was asked for, under this id; the beginning of a signal's number.
    Waits(u64, Vec<u8>),
}

/// A command's standard error while it has not started: who waits for the end of that stream waits for the command alone.
type Errors = Arc<Mutex<Option<OwnedFd>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// Serves the stand-ins of one CLI from now on.
    ///
    /// # Errors
    /// When the kernel has no room for what that needs.
    pub(crate) fn start(
        client: Client,
        borders: Borders,
        env_allow: Vec<String>,
        shared: Vec<PathBuf>,
        left: Option<Left>,
    ) -> Result<Arc<Self>, AnchorError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(AnchorError::errno("make an epoll"))?;
        let (workers, heard, next) = (Arc::default(), Mutex::default(), AtomicU64::new(0));
        let sessions = Arc::new(Self { client, borders, env_allow, shared, left, workers, epoll, heard, next });
        let own = Arc::clone(&sessions);
        let ears = std::thread::Builder::new().name("stand-ins".into());
        ears.spawn(move || own.attend()).map_err(AnchorError::io("start a thread"))?;
        Ok(sessions)
    }

    /// Serves the stand-in at the other end of `socket`, from the moment it speaks.
    pub(crate) fn begin(&self, socket: UnixStream, target: Target) {
        self.attend_to(&self.stand_in(socket, target));
    }

    /// Serves the stand-in that will be at the other end of `socket`, and has told all but its signals before it is there.
    pub(crate) fn begin_told(self: &Arc<Self>, socket: UnixStream, target: Target, told: Introduction) {
        let one = self.stand_in(socket, target);
        // held before it is heard: its end may be there already, and is the end of what is asked for here
        let mut phase = lock(&one.phase);
        if self.attend_to(&one)
            && let Some((id, signals)) = self.run(&one, told)
        {
            *phase = Phase::Waits(id, signals);
        }
    }

    fn stand_in(&self, socket: UnixStream, target: Target) -> Arc<StandIn> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Arc::new(StandIn { number, socket, target, phase: Mutex::new(Phase::Speaks(Hearing::default())) })
    }

    /// Hears it from now on. Without room for one more its socket closes, which it takes for our end.
    fn attend_to(&self, one: &Arc<StandIn>) -> bool {
        lock(&self.heard).insert(one.number, Arc::clone(one));
        let added = epoll::add(&self.epoll, &one.socket, epoll::EventData::new_u64(one.number), epoll::EventFlags::IN);
        if added.is_err() {
            lock(&self.heard).remove(&one.number);
        }
        added.is_ok()
    }

    /// Hears the stand-ins until the process ends.
    fn attend(self: &Arc<Self>) {
        let mut events = Vec::with_capacity(64);
        let mut buffer = vec![0; PIECE];
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                let one = lock(&self.heard).get(&event.data.u64()).cloned();
                // one that was told its command's end meanwhile has nothing more to say
                if let Some(one) = one {
                    self.hear(&one, &mut buffer);
                }
            }
        }
    }

    /// Hears no more of it.
    fn forget(&self, one: &StandIn) {
        if lock(&self.heard).remove(&one.number).is_some() {
            // its socket may be held for what is still to be told
            let _ = epoll::delete(&self.epoll, &one.socket);
        }
    }

    fn hear(self: &Arc<Self>, one: &Arc<StandIn>, buffer: &mut [u8]) {
        let mut phase = lock(&one.phase);
        match &mut *phase {
            Phase::Speaks(hearing) => match hearing.hear(&one.socket, buffer) {
                Heard::More => {}
                // one that never spoke was killed, or its exec failed
                Heard::Nothing => self.forget(one),
                Heard::Whole(said) => {
                    if let Some((id, mut signals)) = self.run(one, *said) {
                        self.forward(id, &mut signals);
                        *phase = Phase::Waits(id, signals);
                    }
                }
            },
            Phase::Waits(id, signals) => match rustix::net::recv(&one.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok((_, n @ 1..)) => {
                    signals.extend_from_slice(&buffer[..n]);
                    self.forward(*id, signals);
                }
                // it and its holder are gone: nobody waits for the command any more. Closing one that has ended is nothing,
                // and a guest that is gone has killed it
                Ok((_, 0)) | Err(_) => {
                    self.forget(one);
                    let _ = self.client.close(*id);
                }
            },
        }
    }

    /// Passes on the signals that are there in full.
    fn forward(&self, id: u64, signals: &mut Vec<u8>) {
        let whole = signals.len() / 4 * 4;
        for number in signals[..whole].chunks_exact(4) {
            let number = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            if (1..=64).contains(&number) {
                // a guest that is gone is told of by its end
                let _ = self.client.signal(id, number as i32);
            }
        }
        signals.drain(..whole);
    }

    /// Has the box run its command. The command's id, and what the stand-in said after its introduction; `None` when it
    /// came to nothing, which the stand-in is told.
    fn run(self: &Arc<Self>, one: &Arc<StandIn>, mut said: Introduction) -> Option<(u64, Vec<u8>)> {
        let errors = said.fds.iter().find(|(n, _)| *n == 2).and_then(|(_, fd)| fd.try_clone().ok());
        let errors = Arc::new(Mutex::new(errors));
        let rest = std::mem::take(&mut said.rest);
        match self.spawn(one, said, &errors) {
            Ok(id) => Some((id, rest)),
            Err(e) => {
                let name = String::from_utf8_lossy(&one.target.program).into_owned();
                self.end(one, &errors, format!("{name}: {e}"), SIGNALED, libc::SIGKILL as u32);
                None
            }
        }
    }

    fn spawn(self: &Arc<Self>, one: &Arc<StandIn>, said: Introduction, errors: &Errors) -> Result<u64, AnchorError> {
        let left = self.left.as_ref().and_then(|left| Some((left.clone(), left.file(&said.argv)?)));
        let crossing = self.borders.cross(said.fds, self.client.is_copied())?;
        let spawn = Spawn {
            id: 0,
            program: one.target.program.clone(),
            by_name: one.target.by_name,
            argv: said.argv,
            env: self.allowed(&said.env),
            cwd: Bytes::from(said.cwd.clone()),
            umask: said.umask,
            blocked: said.blocked,
            ignored: said.ignored,
            ctty: said.ctty.filter(|n| crossing.numbers.contains(n)),
            fds: crossing.numbers,
        };
        let borrowed: Vec<_> = crossing.fds.iter().map(AsFd::as_fd).collect();
        let (own, told, errors) = (Arc::clone(self), Arc::clone(one), Arc::clone(errors));
        let tell = move |event| own.tell(&told, &errors, &said.cwd, event);
        if crossing.pumps.is_empty() && left.is_none() {
            // nothing comes between its end and the stand-in's
            return Ok(self.client.spawn_for(one.socket.as_fd(), spawn, &borrowed, tell)?);
        }
        // what is copied is waited for, and so in a thread of its own, where its events stay in their order
        let (sender, events) = channel();
        let (pumps, client) = (crossing.pumps, self.client.clone());
        let work = move || {
            for event in events {
                if matches!(event, CommandEvent::Exited(..)) {
                    for pump in &pumps {
                        pump.flush();
                    }
                }
                if let (CommandEvent::Exited(Status::Exited(0), _), Some((left, file))) = (&event, &left) {
                    left.bring(&client, file);
                }
                tell(event);
            }
        };
        self.workers.give(work).map_err(AnchorError::io("start a thread"))?;
        let hear = move |event| {
            // that thread waits until this is dropped
            let _ = sender.send(event);
        };
        Ok(self.client.spawn_heard(spawn, &borrowed, hear)?)
    }

    /// Tells a stand-in what became of its command. Does not block.
    fn tell(self: &Arc<Self>, one: &Arc<StandIn>, errors: &Errors, cwd: &[u8], event: CommandEvent) {
        match event {
            CommandEvent::Started => *lock(errors) = None,
            CommandEvent::Failed(errno) => {
                let (status, text) = self.failure(errno, &one.target, cwd);
                self.end(one, errors, text, EXITED, status);
            }
            CommandEvent::Exited(status, alive) => {
                if !alive {
                    self.forget(one);
                }
                tell(&one.socket, verdict(status, alive));
            }
            CommandEvent::Told(true) => {}
            CommandEvent::Told(false) => self.forget(one),
            CommandEvent::Empty => {
                self.forget(one);
                tell(&one.socket, Verdict { kind: EMPTY, value: 0 });
            }
            CommandEvent::Lost => self.end(one, errors, "the box is gone".to_owned(), SIGNALED, libc::SIGKILL as u32),
        }
    }

    /// Ends a stand-in whose command came to nothing, after a complaint.
    fn end(&self, one: &Arc<StandIn>, errors: &Errors, text: String, kind: u32, value: u32) {
        self.forget(one);
        let (one, errors) = (Arc::clone(one), lock(errors).take());
        let work = move || {
            complain(errors.as_ref(), &text);
            drop(errors);
            tell(&one.socket, Verdict { kind, value });
        };
        // without a thread the socket closes, which the stand-in takes for our end
        let _ = self.workers.give(work);
    }

    /// What a shell would report for a command that could not be started, and why. A directory only this machine has is
    /// told apart from a program the box lacks.
    fn failure(&self, errno: i32, target: &Target, cwd: &[u8]) -> (u32, String) {
        let why = std::io::Error::from_raw_os_error(errno);
        let cwd = Path::new(std::ffi::OsStr::from_bytes(cwd));
        let is_shared = self.shared.iter().any(|dir| cwd.starts_with(dir));
        if !is_shared && target.by_name && matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES) {
            return (126, format!("the box has no directory {}", cwd.display()));
        }
        let status = if errno == libc::ENOENT { 127 } else { 126 };
        (status, format!("{}: {why}", String::from_utf8_lossy(&target.program)))
    }

    /// The variables that may go along.
    fn allowed(&self, env: &[Bytes]) -> Vec<(Bytes, Bytes)> {
        let pairs = env.iter().filter_map(|one| {
            let at = one.iter().position(|&b| b == b'=')?;
            let name = std::str::from_utf8(&one[..at]).ok()?;
            let goes = !matches!(name, "PATH" | "HOME") && self.env_allow.iter().any(|rule| matches_rule(rule, name));
            goes.then(|| (Bytes::from(&one[..at]), Bytes::from(&one[at + 1..])))
        });
        pairs.collect()
    }
}

/// What a stand-in is told of a command that ended so.
fn verdict(status: Status, alive: bool) -> Verdict {
    let (kind, value) = match status {
        Status::Exited(status) => (EXITED, status),
        Status::Signaled(signal) => (SIGNALED, signal),
    };
    // a value that is none is judged by the stand-in
    Verdict { kind: if alive { kind | ALIVE } else { kind }, value: value as u32 }
}

fn complain(errors: Option<&OwnedFd>, text: &str) {
    if let Some(fd) = errors {
        // one that is closed hears nothing
        let _ = rustix::io::write(fd, format!("hmz: {text}\n").as_bytes());
    }
}

fn matches_rule(rule: &str, name: &str) -> bool {
    rule.strip_suffix('*').map_or(rule == name, |head| name.starts_with(head))
}

fn tell(socket: &UnixStream, verdict: Verdict) {
    // a stand-in that is gone need not be told, and there is room: it is told twice at most
    let _ = rustix::net::send(socket, &verdict.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_variables() {
        assert!(matches_rule("TERM", "TERM") && matches_rule("LC_*", "LC_ALL") && matches_rule("*", "X"));
        assert!(!matches_rule("TERM", "TERMINFO") && !matches_rule("LC_*", "LANG") && !matches_rule("A*B", "AXB"));
    }
}
