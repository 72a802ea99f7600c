//! The guardian: one thread that starts the supervisor, waits for it or for the end of whoever started us, and sees to it
//! that no process of the session is left.

use crate::sys::{self, Forked};
use crate::{AnchorError, supervisor, tree};
use hmz_wire::Status;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, OwnedFd};

/// Runs a session and returns how the CLI ended.
pub(crate) fn run() -> Result<Status, AnchorError> {
    let lifeline = sys::take_fd(crate::launch::LIFELINE)
        .ok_or_else(|| AnchorError::Refused("a supervisor is started by hmz itself: it has no lifeline".into()))?;
    sys::cloexec_from(3).map_err(AnchorError::io("close descriptors"))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(AnchorError::nix("become a subreaper"))?;
    let mut heard = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTTOU] {
        heard.add(signal);
    }
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&heard), None).map_err(AnchorError::nix("block signals"))?;
    let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC).map_err(AnchorError::nix("hear signals"))?;
    let (leash, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let (report, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let child = match sys::fork().map_err(AnchorError::io("fork"))? {
        Forked::Child => {
            drop((lifeline, signals, ours, report));
            supervise(leash, &theirs)
        }
        Forked::Parent(pid) => pid,
    };
    drop((leash, theirs));
    supervisor::leave_streams()?;
    let ended = attend(&lifeline, &signals, &ours, child);
    // the supervisor sweeps when it ends well, so most often nothing is there
    tree::sweep();
    if rustix::termios::isatty(rustix::stdio::stdin()) {
        // the CLI was the terminal's foreground; SIGTTOU is blocked, so this asks nobody. A group that was made outside of
        // this pid namespace has no number here, and so cannot be named
        if let Some(own) = rustix::process::Pid::from_raw(nix::unistd::getpgrp().as_raw()) {
            let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), own);
        }
    }
    ended?;
    told(&report).ok_or_else(|| AnchorError::Refused("the session was ended".into()))
}

/// The supervisor's process: its report is the status, and its errors are said on standard error.
fn supervise(leash: OwnedFd, report: &OwnedFd) -> ! {
    let status = supervisor::run(leash).unwrap_or_else(|e| {
        eprintln!("hmz supervisor: error: {e}");
        Status::Exited(i32::from(hmz_api::Error::from(e).exit_code()))
    });
    let (kind, value) = match status {
        Status::Exited(status) => (0u8, status as u8),
        Status::Signaled(signal) => (1u8, signal as u8),
    };
    // a guardian that is gone need not be told
    let _ = rustix::io::write(report, &[kind, value]);
    std::process::exit(0);
}

/// Until the supervisor or the lifeline has ended.
fn attend(lifeline: &OwnedFd, signals: &SignalFd, leash: &OwnedFd, supervisor: i32) -> Result<(), AnchorError> {
    loop {
        let heard = signals.as_fd();
        let mut fds = [PollFd::new(lifeline, PollFlags::IN), PollFd::from_borrowed_fd(heard, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => drop(other.map_err(AnchorError::errno("wait"))?),
        }
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        while let Ok(Some(info)) = signals.read_signal() {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) => {
                    if reap(supervisor) {
                        return Ok(());
                    }
                }
                Ok(Signal::SIGTTOU) | Err(_) => {}
                // a supervisor that is ending hears nothing more
                Ok(signal) => drop(rustix::io::write(leash, &[signal as u8])),
            }
            let mut more = [PollFd::from_borrowed_fd(heard, PollFlags::IN)];
            if poll(&mut more, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(0) == 0 {
                break;
            }
        }
    }
}

/// Reaps what has ended; whether the supervisor was among it.
fn reap(supervisor: i32) -> bool {
    let mut gone = false;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => gone |= pid.as_raw() == supervisor,
            Ok(WaitStatus::StillAlive) | Err(_) => return gone,
            Ok(_) => {}
        }
    }
}

/// The report, when there is one.
fn told(report: &OwnedFd) -> Option<Status> {
    let mut words = [0u8; 2];
    match rustix::io::read(report, &mut words) {
        Ok(2) if words[0] == 0 => Some(Status::Exited(i32::from(words[1]))),
        Ok(2) => Some(Status::Signaled(i32::from(words[1]))),
        _ => None,
    }
}
