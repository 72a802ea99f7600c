//! One redirected command: hears its stand-in, has the box run it, and tells the stand-in how it ended.

use crate::AnchorError;
use crate::descriptors::Borders;
use crate::policy::Target;
use crate::workers::Workers;
use hmz_standin::protocol::{ALIVE, EMPTY, EXITED, Hello, MAGIC, MAX_BLOCK, MAX_CWD, MAX_FDS, SIGNALED};
use hmz_wire::{Bytes, Client, CommandEvent, Spawn, Status};
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What serving a stand-in needs.
pub(crate) struct Sessions {
    /// The box.
    pub(crate) client: Client,
    /// What may cross.
    pub(crate) borders: Borders,
    /// Names of variables that may cross; a trailing `*` matches any ending.
    pub(crate) env_allow: Vec<String>,
    /// The directories both sides have.
    pub(crate) shared: Vec<PathBuf>,
    /// The threads that serve.
    pub(crate) workers: Arc<Workers>,
}

/// What a stand-in said.
struct Introduction {
    argv: Vec<Bytes>,
    env: Vec<Bytes>,
    cwd: Vec<u8>,
    umask: u32,
    blocked: u64,
    ignored: u64,
    ctty: Option<i32>,
    fds: Vec<(i32, OwnedFd)>,
}

impl Sessions {
    /// Serves the stand-in at the other end of `socket` in another thread.
    pub(crate) fn begin(self: &Arc<Self>, socket: UnixStream, target: Target) {
        let own = Arc::clone(self);
        // without a thread the socket closes, which the stand-in takes for our end
        let _ = self.workers.give(move || own.serve(&socket, target));
    }

    fn serve(&self, socket: &UnixStream, target: Target) {
        // one that never spoke was killed, or its exec failed
        let Some(said) = introduction(socket) else { return };
        let name = String::from_utf8_lossy(&target.program).into_owned();
        let mut errors = said.fds.iter().find(|(n, _)| *n == 2).and_then(|(_, fd)| fd.try_clone().ok());
        if let Err(e) = self.run(socket, target, said, &mut errors) {
            complain(errors.as_ref(), &format!("{name}: {e}"));
            tell(socket, SIGNALED, libc::SIGKILL as u32);
        }
    }

    /// `errors` is the command's standard error while it has not started.
    fn run(
        &self,
        socket: &UnixStream,
        target: Target,
        said: Introduction,
        errors: &mut Option<OwnedFd>,
    ) -> Result<(), AnchorError> {
        let crossing = self.borders.cross(said.fds, self.client.is_copied())?;
        let spawn = Spawn {
            id: 0,
            program: target.program.clone(),
            by_name: target.by_name,
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
        let command = self.client.spawn(spawn, &borrowed)?;
        drop(borrowed);
        // our copies would keep pipes open
        drop(crossing.fds);
        let id = command.id;
        let (client, ears) = (self.client.clone(), socket.try_clone().map_err(AnchorError::io("duplicate a descriptor"))?);
        self.workers.give(move || forward(&client, id, ears)).map_err(AnchorError::io("start a thread"))?;
        loop {
            match command.next() {
                // who waits for the end of that stream waits for the command alone
                CommandEvent::Started => *errors = None,
                CommandEvent::Failed(errno) => {
                    let (status, text) = self.failure(errno, &target, &said.cwd);
                    complain(errors.as_ref(), &text);
                    tell(socket, EXITED, status);
                    return Ok(());
                }
                CommandEvent::Exited(status, alive) => {
                    for pump in &crossing.pumps {
                        pump.flush();
                    }
                    let (kind, value) = verdict(status);
                    tell(socket, if alive { kind | ALIVE } else { kind }, value);
                    if !alive {
                        return Ok(());
                    }
                }
                CommandEvent::Empty => {
                    tell(socket, EMPTY, 0);
                    return Ok(());
                }
                CommandEvent::Lost => {
                    complain(errors.as_ref(), "the box is gone");
                    tell(socket, SIGNALED, libc::SIGKILL as u32);
                    return Ok(());
                }
            }
        }
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

/// How a stand-in ends for a command that ended so. A guest is not believed that one died of a signal that kills nobody.
fn verdict(status: Status) -> (u32, u32) {
    match status {
        Status::Exited(status) => (EXITED, (status & 0xff) as u32),
        Status::Signaled(
            libc::SIGCHLD
            | libc::SIGCONT
            | libc::SIGSTOP
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
            | libc::SIGURG
            | libc::SIGWINCH,
        ) => (EXITED, 128),
        Status::Signaled(signal) => (SIGNALED, signal.clamp(1, 64) as u32),
    }
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

/// Forwards signals until the stand-in and its holder are gone, and then has the command's session killed: nobody waits
/// for it any more. A command that has ended is not in the guest's list, and closing it is nothing.
fn forward(client: &Client, id: u64, mut socket: UnixStream) {
    let mut signal = [0u8; 4];
    while socket.read_exact(&mut signal).is_ok() {
        let signal = u32::from_ne_bytes(signal);
        if (1..=64).contains(&signal) && client.signal(id, signal as i32).is_err() {
            return;
        }
    }
    // a guest that is gone has killed it
    let _ = client.close(id);
}

fn tell(socket: &UnixStream, kind: u32, value: u32) {
    let mut words = [0u8; 8];
    words[..4].copy_from_slice(&kind.to_ne_bytes());
    words[4..].copy_from_slice(&value.to_ne_bytes());
    // a stand-in that is gone need not be told
    let _ = rustix::net::send(socket, &words, SendFlags::NOSIGNAL);
}

/// Reads what a stand-in says first. `None` when it says nothing, or what no stand-in says.
fn introduction(socket: &UnixStream) -> Option<Introduction> {
    let mut head = [0u8; size_of::<Hello>()];
    let mut fds = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut head)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(got) if got.bytes > 0 => break got.bytes,
            _ => return None,
        }
    };
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
            fds.extend(rights);
        }
    }
    let mut rest = socket;
    rest.read_exact(&mut head[got..]).ok()?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (nfds, argc, cwd_len, block_len) = (word(4) as usize, word(8) as usize, word(32) as usize, word(36) as usize);
    if word(0) != MAGIC || nfds != fds.len() || cwd_len > MAX_CWD || block_len > MAX_BLOCK {
        return None;
    }
    let numbers = (0..nfds).map(|i| word(size_of::<Hello>() - 4 * MAX_FDS + 4 * i) as i32);
    let fds = numbers.zip(fds).filter(|(n, _)| *n >= 0).collect();
    let mut cwd = vec![0; cwd_len];
    rest.read_exact(&mut cwd).ok()?;
    let mut block = vec![0; block_len];
    rest.read_exact(&mut block).ok()?;
    let block = block.strip_suffix(b"\0").unwrap_or(&block);
    let mut strings = block.split(|&b| b == 0).map(Bytes::from);
    let argv: Vec<Bytes> = strings.by_ref().take(argc).collect();
    let ctty = word(40) as i32;
    Some(Introduction {
        argv,
        env: strings.collect(),
        cwd,
        umask: word(12) & 0o777,
        blocked: long(16),
        ignored: long(24),
        ctty: (ctty >= 0).then_some(ctty),
        fds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn rules_of_variables() {
        assert!(matches_rule("TERM", "TERM") && matches_rule("LC_*", "LC_ALL") && matches_rule("*", "X"));
        assert!(!matches_rule("TERM", "TERMINFO") && !matches_rule("LC_*", "LANG") && !matches_rule("A*B", "AXB"));
    }

    #[test]
    fn a_guest_cannot_stop_a_stand_in() {
        assert_eq!(verdict(Status::Exited(3)), (EXITED, 3));
        assert_eq!(verdict(Status::Exited(-1)), (EXITED, 255));
        assert_eq!(verdict(Status::Signaled(libc::SIGTERM)), (SIGNALED, 15));
        assert_eq!(verdict(Status::Signaled(libc::SIGSTOP)), (EXITED, 128));
        assert_eq!(verdict(Status::Signaled(0)), (SIGNALED, 1));
        assert_eq!(verdict(Status::Signaled(i32::MAX)), (SIGNALED, 64));
    }

    fn heard(bytes: &[u8]) -> Option<Introduction> {
        let (ours, mut theirs) = UnixStream::pair().ok()?;
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || theirs.write_all(&bytes));
        let said = introduction(&ours);
        drop(ours);
        let _ = writer.join();
        said
    }

    fn hello(words: &[(usize, u32)], rest: &[u8]) -> Vec<u8> {
        let mut head = vec![0u8; size_of::<Hello>()];
        for (at, word) in words {
            head[*at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        head.extend_from_slice(rest);
        head
    }

    #[test]
    fn what_a_stand_in_says() {
        let said =
            heard(&hello(&[(0, MAGIC), (8, 2), (12, 0o7022), (16, 5), (32, 2), (36, 10), (40, u32::MAX)], b"/xa\0b c\0D=e\0"));
        let said = said.expect("an introduction");
        assert_eq!(said.argv, [Bytes::from(&b"a"[..]), Bytes::from(&b"b c"[..])]);
        assert_eq!(said.env, [Bytes::from(&b"D=e"[..])]);
        assert_eq!((said.cwd.as_slice(), said.umask, said.blocked, said.ctty), (&b"/x"[..], 0o022, 5, None));
    }

    #[test]
    fn what_no_stand_in_says() {
        assert!(heard(b"").is_none() && heard(b"short").is_none());
        assert!(heard(&hello(&[(0, MAGIC + 1)], b"")).is_none());
        // descriptors that did not come, lengths beyond all bounds, and an end in the middle
        assert!(heard(&hello(&[(0, MAGIC), (4, 1)], b"")).is_none());
        assert!(heard(&hello(&[(0, MAGIC), (32, u32::MAX)], b"")).is_none());
        assert!(heard(&hello(&[(0, MAGIC), (36, u32::MAX)], b"")).is_none());
        assert!(heard(&hello(&[(0, MAGIC), (36, 10)], b"few")).is_none());
    }
}
