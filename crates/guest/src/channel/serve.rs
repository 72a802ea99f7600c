//! The guest where it is not the first process: on a host that is reached by ssh, in a container that is not ours.
//!
//! What is executed there is a relay for the session it begins or goes on with. The session itself is held by a process of
//! its own, which outlives a cut stream; the relay that began it reaps it. There is nobody to hold a key between sessions, so each brings its own.

use super::{HostError, Opener, hold, pass_on, relay};
use crate::sys;
use hmz_wire::channel::handshake::{self, Opening};
use rustix::stdio::{stdin, stdout};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Serves the opener on the standard streams. Returns in the session's own process too.
///
/// # Errors
/// When there is no opener there, or the session cannot be held.
pub(crate) fn serve() -> Result<(), HostError> {
    crate::init::prepare()?;
    // a session that has its own key is the only one that knows it
    let opening: Opening = handshake::hear(&mut Standard, |open| open.stream > 0)?;
    let (ours, theirs) = UnixStream::pair()?;
    let opener = Opener { stream: theirs, opening };
    if opener.begins() {
        let Some(host) = sys::fork()? else {
            drop(ours);
            return session(opener);
        };
        drop(opener);
        relay::copy(&ours)?;
        // the session sees its stream cut
        drop(ours);
        return outlive(host);
    }
    // what it says of it is in the stream
    let _ = pass_on(opener);
    relay::copy(&ours)
}

/// Waits for a session's process, whose parent this is: the first process of a container that is not ours may reap nobody. A
/// session that is over has ended with its stream; one whose stream was cut lives on, and whoever executed us sees the end of
/// the standard streams now and not then.
fn outlive(host: i32) -> Result<(), HostError> {
    forget_streams()?;
    loop {
        match nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(host), None) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// The process that holds the session: of no terminal, no streams and no group but its own.
fn session(opener: Opener) -> Result<(), HostError> {
    nix::unistd::setsid()?;
    let null = forget_streams()?;
    hold(opener, None, null)
}

/// Puts nothing in the place of the standard streams; what they are now.
fn forget_streams() -> Result<OwnedFd, HostError> {
    let null = OwnedFd::from(std::fs::File::options().read(true).write(true).open("/dev/null")?);
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(null)
}

/// The standard streams, without a buffer.
struct Standard;

impl Read for Standard {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(stdin(), buffer)?)
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(rustix::io::write(stdout(), bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
