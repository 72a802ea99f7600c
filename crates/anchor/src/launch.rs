//! Starts a supervisor, or a proxy, from another process: the runner, or `hmz anchor`.

use command_fds::{CommandFdExt, FdMapping};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The descriptor on which a supervisor finds its lifeline.
pub const LIFELINE: i32 = 3;

/// A supervisor or a proxy that is ready to be spawned.
#[derive(Debug)]
pub struct Supervised {
    /// `hmz supervisor` or `hmz proxy` with an empty environment. The caller sets stdio (the configuration's frame is the first that is
    /// written to its standard input) and spawns it once.
    pub command: Command,
    /// Keep it as long as the session shall live: when it is dropped, or its holder dies, everything ends.
    pub lifeline: OwnedFd,
}

/// A command that runs `exe` as a supervisor.
///
/// # Errors
/// When no pipe can be made.
pub fn supervised(exe: &Path) -> io::Result<Supervised> {
    with_lifeline(exe, "supervisor")
}

/// A command that runs `exe` as a proxy.
///
/// # Errors
/// When no pipe can be made.
pub fn proxied(exe: &Path) -> io::Result<Supervised> {
    with_lifeline(exe, "proxy")
}

/// A command that runs `exe` as a relay.
///
/// # Errors
/// When no pipe can be made.
pub fn relayed(exe: &Path) -> io::Result<Supervised> {
    with_lifeline(exe, "relay")
}

fn with_lifeline(exe: &Path, verb: &str) -> io::Result<Supervised> {
    let (theirs, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut command = Command::new(exe);
    command.arg0("hmz").arg(verb).env_clear();
    command.fd_mappings(vec![FdMapping { parent_fd: theirs, child_fd: LIFELINE }]).map_err(io::Error::other)?;
    Ok(Supervised { command, lifeline })
}
