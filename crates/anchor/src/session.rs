//! One redirected command: hears its stand-in, has the box run it, and tells the stand-in how it ended.

use crate::AnchorError;
use crate::descriptors::Borders;
use crate::policy::Target;
use hmz_standin::protocol::{ALIVE, EMPTY, EXITED, Hello, MAGIC, MAX_BLOCK, MAX_CWD, MAX_FDS, SIGNALED};
use hmz_wire::{Bytes, Client, CommandEvent, Spawn, Status};
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use std::cell::RefCell;
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
    /// Serves the stand-in at the other end of `socket` in a thread of its own.
    pub(crate) fn begin(self: &Arc<Self>, socket: UnixStream, target: Target) {
        let own = Arc::clone(self);
        // without a thread the socket closes, which the stand-in takes for our end
        let _ =
            std::thread::Builder::new().name("command".into()).stack_size(256 << 10).spawn(move || own.serve(&socket, target));
    }

    fn serve(&self, socket: &UnixStream, target: Target) {
        // one that never spoke was killed, or its exec failed
        let Some(said) = introduction(socket) else { return };
        let said_of_it = String::from_utf8_lossy(&target.program).into_owned();
        let errors = RefCell::new(said.fds.iter().find(|(n, _)| *n == 2).and_then(|(_, fd)| fd.try_clone().ok()));
        let complain = |text: &str| {
            if let Some(fd) = &*errors.borrow() {
                let _ = rustix::io::write(fd, format!("hmz: {text}\n").as_bytes());
            }
        };
        // whoever reads the command's errors waits for their end, which what it left behind does not hold up
        let hush = || drop(errors.take());
        match self.run(socket, target, said, &complain, &hush) {
            Ok(()) => {}
            Err(e) => {
                complain(&format!("{said_of_it}: {e}"));
                tell(socket, SIGNALED, libc::SIGKILL as u32);
            }
        }
    }

    fn run(
        &self,
        socket: &UnixStream,
        target: Target,
        said: Introduction,
        complain: &dyn Fn(&str),
        hush: &dyn Fn(),
    ) -> Result<(), AnchorError> {
        let crossing = self.borders.cross(said.fds)?;
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
        let listener = std::thread::Builder::new().name("signals".into()).stack_size(128 << 10);
        listener.spawn(move || forward(&client, id, ears)).map_err(AnchorError::io("start a thread"))?;
        loop {
            match command.next() {
                CommandEvent::Started => {}
                CommandEvent::Failed(errno) => {
                    let (status, text) = self.failure(errno, &target, &said.cwd);
                    complain(&text);
                    tell(socket, EXITED, status);
                    return Ok(());
                }
                CommandEvent::Exited(status, alive) => {
                    hush();
                    for pump in &crossing.pumps {
                        pump.flush();
                    }
                    let (kind, value) = match status {
                        Status::Exited(status) => (EXITED, (status & 0xff) as u32),
                        Status::Signaled(signal) => (SIGNALED, signal.clamp(1, 64) as u32),
                    };
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
                    complain("the box is gone");
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
