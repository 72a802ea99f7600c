//! The proxy: what a CLI that runs in a box is here. It holds the session's connection, gives the CLI its own three streams,
//! passes on the signals it is sent, and ends as the CLI ended, once nothing of it is left in the box.
//!
//! Whoever started it holds the other end of its lifeline. When that closes, or the proxy dies, the connection ends, and
//! the guest kills all that was started over it.

use crate::config::{self, BoxedConfig, Unbuffered};
use crate::{AnchorError, end_as, log, supervisor, sys};
use hmz_wire::{Bytes, Client, ClientError, CommandEvent, Spawn, Status};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long what is left of a session may take to end in the box; the guest goes on killing it when it takes longer.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The hidden verb `hmz proxy`: must be called before the process has a second thread. Reads its configuration's frame from
/// descriptor 0, whose rest is the CLI's standard input; descriptor 3 is the lifeline.
///
/// Ends as the CLI ended: with its status, or by its signal.
pub fn main() -> ExitCode {
    end_as("proxy", run())
}

/// What a proxy hears.
pub(crate) enum Heard {
    Event(CommandEvent),
    /// It was sent this signal.
    Signal(i32),
    /// Nobody holds the lifeline any more.
    Alone,
}

fn run() -> Result<Status, AnchorError> {
    let lifeline = sys::take_fd(crate::launch::LIFELINE)
        .ok_or_else(|| AnchorError::Refused("a proxy is started by hmz itself: it has no lifeline".into()))?;
    sys::cloexec_from(3).map_err(AnchorError::io("close descriptors"))?;
    let signals = signals()?;
    let config: BoxedConfig = config::read(&mut Unbuffered)?;
    let _log = log::session("proxy", &config.place.environment);
    only_pipes()?;
    let client = supervisor::fenced(&config.place, &config.write)?;
    let (tell, heard) = channel();
    let id = spawn(&client, of(&config), &[], tell.clone())?;
    leave_streams()?;
    let ears = std::thread::Builder::new().name("signals".into());
    ears.spawn(move || listen(&lifeline, &signals, &tell)).map_err(AnchorError::io("start a thread"))?;
    tracing::info!(program = config.program, "the agent's CLI was started in its box");
    let ended = attend(&client, id, &config.program, &heard);
    tracing::info!(?ended, "the agent's CLI ended");
    client.finish();
    ended
}

/// The signals that are passed on, blocked from now on.
pub(crate) fn signals() -> Result<SignalFd, AnchorError> {
    let mut heard = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        heard.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&heard), None).map_err(AnchorError::nix("block signals"))?;
    SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC).map_err(AnchorError::nix("hear signals"))
}

/// Sees that the three streams are pipes: nothing else is given to a box.
pub(crate) fn only_pipes() -> Result<(), AnchorError> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let is_pipe = |fd| rustix::fs::fstat(fd).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
    if streams.into_iter().all(is_pipe) {
        return Ok(());
    }
    Err(AnchorError::Refused("a proxy is started by hmz itself: its streams are no pipes".into()))
}

/// The CLI, with its three streams.
fn of(config: &BoxedConfig) -> Spawn {
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    Spawn {
        id: 0,
        program: bytes(&config.program),
        by_name: false,
        argv: config.argv.iter().map(|word| bytes(word)).collect(),
        env: config.env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        cwd: Bytes::from(config.cwd.as_os_str().as_bytes()),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: vec![0, 1, 2],
        ctty: None,
    }
}

/// Has the box start what has this process's three streams, and `more`; its id on the connection.
pub(crate) fn spawn(client: &Client, what: Spawn, more: &[BorrowedFd<'_>], tell: Sender<Heard>) -> Result<u64, AnchorError> {
    let mut fds = vec![rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    fds.extend_from_slice(more);
    let hear = move |event| {
        // whoever heard has ended
        let _ = tell.send(Heard::Event(event));
    };
    Ok(client.spawn_heard(what, &fds, hear)?)
}

/// Lets go of the three streams: their other ends see it when the CLI closes them.
pub(crate) fn leave_streams() -> Result<(), AnchorError> {
    supervisor::leave_streams()
}

/// Tells of signals and of the end of the lifeline.
pub(crate) fn listen(lifeline: &OwnedFd, signals: &SignalFd, tell: &Sender<Heard>) {
    loop {
        let mut fds = [PollFd::new(lifeline, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let (alone, signalled) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if alone {
            // whoever heard has ended
            let _ = tell.send(Heard::Alone);
            return;
        }
        if signalled
            && let Ok(Some(info)) = signals.read_signal()
            && tell.send(Heard::Signal(info.ssi_signo as i32)).is_err()
        {
            return;
        }
    }
}

/// Until the CLI has ended and nothing of it is left.
pub(crate) fn attend(client: &Client, id: u64, program: &str, heard: &Receiver<Heard>) -> Result<Status, AnchorError> {
    let gone = || AnchorError::Box(ClientError::Gone);
    // once it has ended, or is to: how it ended, and by when nothing may be left
    let mut ended: Option<Status> = None;
    let mut due: Option<Instant> = None;
    loop {
        let next = match due {
            None => heard.recv().map_err(|_| gone())?,
            Some(due) => match heard.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return ended.ok_or_else(gone),
            },
        };
        match next {
            Heard::Event(CommandEvent::Started) => {}
            Heard::Event(CommandEvent::Failed(errno)) => {
                let source = std::io::Error::from_raw_os_error(errno);
                return Err(AnchorError::Spawn { program: program.to_owned(), source });
            }
            Heard::Event(CommandEvent::Exited(status, false)) => return Ok(status),
            Heard::Event(CommandEvent::Exited(status, true)) => {
                ended = Some(status);
                due.get_or_insert_with(|| Instant::now() + END_LIMIT);
                client.close(id)?;
            }
            Heard::Event(CommandEvent::Empty) => return ended.ok_or_else(gone),
            Heard::Event(CommandEvent::Lost | CommandEvent::Told(_)) => return ended.ok_or_else(gone),
            Heard::Signal(signal) => client.signal(id, signal)?,
            Heard::Alone => {
                due.get_or_insert_with(|| Instant::now() + END_LIMIT);
                client.close(id)?;
            }
        }
    }
}
