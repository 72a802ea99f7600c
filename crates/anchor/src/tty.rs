//! `hmz sh`: a command in a box with the caller's terminal, or with its three streams.
//!
//! The caller's own terminal never goes into the box, where a process could type into it (TIOCSTI). With a terminal the
//! command gets one of the box's own, which has a name there, and the bytes are copied; without, its streams cross as a
//! session's descriptors do.

use crate::AnchorError;
use crate::descriptors::Borders;
use hmz_api::launch::BoxAddress;
use hmz_wire::{Bytes, Client, ClientError, Command, Spawn, Status};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// How a command ended, or why it is not known; `Err(errno)` inside when it could not be started.
type Ended = Result<Result<Status, i32>, ClientError>;

/// Runs `argv` in the box's workdir and waits for its end; without arguments a login shell, `bash` where the box has one,
/// else `sh`. With `tty` the command is on a terminal of its own, of the size and the settings of the caller's, which is
/// raw meanwhile and as it was before when this returns. SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the command.
///
/// Those signals are blocked in the calling thread from here on: call it from a process's only thread.
///
/// # Errors
/// When the box cannot be worked in, the command cannot be started, or `tty` is asked for and standard input is no terminal.
pub fn shell(address: &BoxAddress, argv: Vec<Bytes>, tty: bool) -> Result<Status, AnchorError> {
    if tty && !isatty(stdin()) {
        return Err(AnchorError::Refused("standard input is no terminal".into()));
    }
    // before the first thread is made, which has the same mask
    let signals = signals()?;
    let client = Client::open(&address.link, false, None)?;
    let argv = if argv.is_empty() { login_shell(&client) } else { argv };
    let mut spawn = Spawn {
        id: 0,
        program: argv.first().cloned().unwrap_or_default(),
        by_name: false,
        argv,
        env: variables(),
        cwd: Bytes::from(address.workdir.as_bytes()),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: vec![0, 1, 2],
        ctty: None,
    };
    let program = String::from_utf8_lossy(&spawn.program).into_owned();
    let ended = if tty {
        spawn.ctty = Some(0);
        on_terminal(&client, spawn, &signals)
    } else {
        on_streams(&client, address, spawn, &signals)
    };
    client.finish();
    match ended? {
        Ok(status) => Ok(status),
        Err(errno) => Err(AnchorError::Spawn { program, source: std::io::Error::from_raw_os_error(errno) }),
    }
}

fn login_shell(client: &Client) -> Vec<Bytes> {
    let name = if client.programs().iter().any(|p| p == "bash") { "bash" } else { "sh" };
    vec![Bytes::from(name.as_bytes()), Bytes::from(&b"-l"[..])]
}

/// What a terminal's programs need to know of the caller's side.
fn variables() -> Vec<(Bytes, Bytes)> {
    let term = std::env::var_os("TERM").unwrap_or_default();
    if term.is_empty() { Vec::new() } else { vec![(Bytes::from(&b"TERM"[..]), Bytes::from(term.as_bytes()))] }
}

fn signals() -> Result<SignalFd, AnchorError> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH] {
        set.add(signal);
    }
    set.thread_block().map_err(AnchorError::nix("block signals"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    SignalFd::with_flags(&set, flags).map_err(AnchorError::nix("hear signals"))
}

/// A thread that waits for a command, and what it wakes.
struct Waiter {
    id: u64,
    woken: Arc<OwnedFd>,
    ended: Receiver<Ended>,
}

impl Waiter {
    fn new(command: Command) -> Result<Self, AnchorError> {
        let woken = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(AnchorError::errno("make an eventfd"))?);
        let (sender, ended) = channel();
        let (id, wake) = (command.id, Arc::clone(&woken));
        let work = move || {
            // a receiver that is gone does not care
            let _ = sender.send(command.wait());
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        };
        std::thread::Builder::new().name("waiter".into()).spawn(work).map_err(AnchorError::io("start a thread"))?;
        Ok(Self { id, woken, ended })
    }

    /// The end, when it has come.
    fn take(&self) -> Option<Result<Result<Status, i32>, AnchorError>> {
        match self.ended.try_recv() {
            Ok(ended) => Some(ended.map_err(AnchorError::from)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(ClientError::Gone.into())),
        }
    }
}

/// Forwards what has been heard; a change of the window is `resize`'s.
fn forward(signals: &SignalFd, client: &Client, id: u64, mut resize: impl FnMut()) -> Result<(), AnchorError> {
    while let Ok(Some(info)) = signals.read_signal() {
        if info.ssi_signo == Signal::SIGWINCH as u32 {
            resize();
        } else {
            client.signal(id, info.ssi_signo as i32)?;
        }
    }
    Ok(())
}

fn wait(fds: &mut [PollFd<'_>]) -> Result<(), AnchorError> {
    loop {
        match poll(fds, None) {
            Err(Errno::INTR) => {}
            other => return other.map(drop).map_err(AnchorError::errno("wait")),
        }
    }
}

fn on_streams(
    client: &Client,
    address: &BoxAddress,
    mut spawn: Spawn,
    signals: &SignalFd,
) -> Result<Result<Status, i32>, AnchorError> {
    let real = |dir: &String| std::fs::canonicalize(dir).map_err(AnchorError::io("find a directory of the box"));
    // what is copied crosses whatever the box has of it
    let both = if client.is_copied() { Vec::new() } else { vec![&address.workdir, &address.scratch] };
    let shared: Vec<PathBuf> = both.into_iter().map(real).collect::<Result<_, _>>()?;
    let borders = Borders::new(&shared, std::process::id() as i32)?;
    let own = [stdin().try_clone_to_owned(), stdout().try_clone_to_owned(), rustix::stdio::stderr().try_clone_to_owned()];
    let given = (0..).zip(own).filter_map(|(n, fd)| fd.ok().map(|fd| (n, fd))).collect();
    let crossing = borders.cross(given, client.is_copied())?;
    spawn.fds = crossing.numbers;
    let borrowed: Vec<_> = crossing.fds.iter().map(AsFd::as_fd).collect();
    let waiter = Waiter::new(client.spawn(spawn, &borrowed)?)?;
    drop(borrowed);
    drop(crossing.fds);
    loop {
        wait(&mut [PollFd::new(&*waiter.woken, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)])?;
        if let Some(ended) = waiter.take() {
            for pump in &crossing.pumps {
                pump.flush();
            }
            return ended;
        }
        forward(signals, client, waiter.id, || {})?;
    }
}

/// The caller's terminal in raw mode, until it is dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> Result<Self, AnchorError> {
        let before = tcgetattr(stdin()).map_err(AnchorError::errno("read the terminal's settings"))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Drain, &raw).map_err(AnchorError::errno("set the terminal"))?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // a terminal that is gone has no settings
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// A terminal: the side we hold, which does not block, and the side the command gets. A box that has none to give gets one
/// of this machine's, which works as well but has no name there.
fn pair(client: &Client) -> Result<(OwnedFd, OwnedFd), AnchorError> {
    let (ours, theirs) = match client.terminal()? {
        Ok((ours, theirs)) if isatty(&ours) && isatty(&theirs) => (ours, theirs),
        _ => own_pair()?,
    };
    // nobody else has this side's description
    rustix::io::ioctl_fionbio(&ours, true).map_err(AnchorError::errno("set the terminal"))?;
    Ok((ours, theirs))
}

fn own_pair() -> Result<(OwnedFd, OwnedFd), AnchorError> {
    const WHAT: &str = "make a terminal";
    let ours =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).map_err(AnchorError::errno(WHAT))?;
    rustix::pty::grantpt(&ours).map_err(AnchorError::errno(WHAT))?;
    rustix::pty::unlockpt(&ours).map_err(AnchorError::errno(WHAT))?;
    let name = rustix::pty::ptsname(&ours, Vec::new()).map_err(AnchorError::errno(WHAT))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(OsStr::from_bytes(name.as_bytes()), flags, Mode::empty()).map_err(AnchorError::errno(WHAT))?;
    Ok((ours, theirs))
}

fn on_terminal(client: &Client, spawn: Spawn, signals: &SignalFd) -> Result<Result<Status, i32>, AnchorError> {
    let (ours, theirs) = pair(client)?;
    let settings = tcgetattr(stdin()).map_err(AnchorError::errno("read the terminal's settings"))?;
    tcsetattr(&theirs, OptionalActions::Now, &settings).map_err(AnchorError::errno("set the terminal"))?;
    let resize = || {
        if let Ok(size) = tcgetwinsize(stdin()) {
            // a terminal that is gone has no size
            let _ = tcsetwinsize(&ours, size);
        }
    };
    resize();
    let fd = theirs.as_fd();
    let waiter = Waiter::new(client.spawn(spawn, &[fd, fd, fd])?)?;
    drop(theirs);
    let _raw = Raw::enter()?;
    let mut typed: Vec<u8> = Vec::new();
    let mut input_over = false;
    let mut output_over = false;
    loop {
        let want = if typed.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let terminal = if output_over { PollFlags::empty() } else { want };
        let own_input = stdin();
        let mut fds = vec![PollFd::new(&*waiter.woken, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if !output_over {
            fds.push(PollFd::new(&ours, terminal));
        }
        if typed.is_empty() && !input_over {
            fds.push(PollFd::new(&own_input, PollFlags::IN));
        }
        wait(&mut fds)?;
        let readable = typed.is_empty() && !input_over && fds.last().is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        forward(signals, client, waiter.id, || {
            resize();
            // a box that is gone has no terminal
            let _ = client.resized(waiter.id);
        })?;
        output_over |= !show(&ours)?;
        if readable {
            let mut buffer = [0u8; 4096];
            match rustix::io::read(stdin(), &mut buffer) {
                Ok(0) => input_over = true,
                Ok(n) => typed.extend_from_slice(&buffer[..n]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => input_over = true,
            }
            if input_over {
                // the caller's terminal is gone: what a terminal's end means to those on it
                client.signal(waiter.id, libc::SIGHUP)?;
            }
        }
        if !typed.is_empty() {
            match rustix::io::write(&ours, &typed) {
                Ok(n) => drop(typed.drain(..n)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // nobody is on the command's side any more
                Err(_) => typed.clear(),
            }
        }
        if let Some(ended) = waiter.take() {
            show(&ours)?;
            return ended;
        }
    }
}

/// Copies what is there to standard output; false when the command's side is closed.
fn show(ours: &OwnedFd) -> Result<bool, AnchorError> {
    let mut buffer = [0u8; 16 << 10];
    loop {
        match rustix::io::read(ours, &mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => print(&buffer[..n])?,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(_) => return Ok(false),
        }
    }
}

fn print(mut bytes: &[u8]) -> Result<(), AnchorError> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let forever: Option<&Timespec> = None;
                let _ = poll(&mut [PollFd::new(&stdout(), PollFlags::OUT)], forever);
            }
            Err(e) => return Err(AnchorError::errno("write to the terminal")(e)),
        }
    }
    Ok(())
}
