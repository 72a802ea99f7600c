//! From the fork to the CLI's exec: fenced, filtered, with three descriptors and nothing else of ours.

use crate::filter::Ticket;
use crate::{AnchorError, SupervisorConfig, fence, filter, sys};
use hmz_wire::{Reader, Writer};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// What the child says before it waits for the word to go.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Everything holds; the filter's listener rides along. Whether what it has heard waits for the answer alone.
    Ready(bool),
    /// It does not, and nothing was started.
    Refused(String),
    /// From the supervisor: go.
    Go,
}

/// Becomes the CLI. Never returns to the caller's code.
pub(crate) fn run(config: &SupervisorConfig, own: &[PathBuf], ticket: Ticket, mut ears: Reader, mouth: &Writer) -> ! {
    let error = match prepare(config, own, ticket, &mut ears, mouth) {
        Ok(never) => match never {},
        Err(e) => e,
    };
    // before the word to go the supervisor hears it, afterwards only standard error is left
    if mouth.send(&Word::Refused(error.to_string()), &[]).is_err() {
        eprintln!("hmz: {error}");
    }
    std::process::exit(127);
}

fn prepare(
    config: &SupervisorConfig,
    own: &[PathBuf],
    ticket: Ticket,
    ears: &mut Reader,
    mouth: &Writer,
) -> Result<Infallible, AnchorError> {
    // the supervisor's end, by whatever way, is ours; a grandchild is its sweep's
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(AnchorError::nix("watch the supervisor"))?;
    if rustix::termios::isatty(rustix::stdio::stdin()) {
        // the terminal's session stays, and the CLI is its foreground
        nix::unistd::setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(0))
            .map_err(AnchorError::nix("make a process group"))?;
        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), rustix::process::getpid());
    } else {
        nix::unistd::setsid().map_err(AnchorError::nix("make a session"))?;
    }
    std::env::set_current_dir(&config.cwd)
        .map_err(|e| AnchorError::Refused(format!("the agent cannot start in {}: {e}", config.cwd.display())))?;
    sys::cloexec_from(3).map_err(AnchorError::io("close descriptors"))?;
    nix::sys::prctl::set_no_new_privs().map_err(AnchorError::nix("give up new privileges"))?;
    fence::enter(config, own)?;
    let (listener, waits) = sys::install_filter(&filter::program(ticket)).map_err(|e| {
        AnchorError::Refused(format!("the agent's commands cannot be redirected: this kernel gives no seccomp listener ({e})"))
    })?;
    mouth.send(&Word::Ready(waits), &[listener.as_fd()]).map_err(hmz_wire::ClientError::from)?;
    drop(listener);
    match ears.recv::<Word>() {
        Ok(Some((Word::Go, _))) => {}
        // the supervisor has said why, or is gone
        _ => std::process::exit(1),
    }
    sys::default_signals();
    unblock_signals()?;
    let mut command = std::process::Command::new(&config.program);
    if let Some((first, rest)) = config.argv.split_first() {
        command.arg0(first).args(rest);
    }
    let error = command.env_clear().envs(&config.env).exec();
    Err(AnchorError::Refused(format!("the agent {} cannot be started: {error}", config.program.display())))
}

fn unblock_signals() -> Result<(), AnchorError> {
    let none = nix::sys::signal::SigSet::empty();
    none.thread_set_mask().map_err(AnchorError::nix("unblock signals"))
}
