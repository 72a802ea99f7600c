//! The guest where it is not the first process: on a host that is reached by ssh, in a container that is not ours.
//!
//! What is executed there is a relay for the session it begins or goes on with. The session itself is held by a process of
//! its own, which outlives a cut stream. There is nobody to hold a key between sessions, so each brings its own.

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
        if sys::fork()?.is_none() {
            drop(ours);
            return session(opener);
        }
        drop(opener);
    } else {
        // what it says of it is in the stream
        let _ = pass_on(opener);
    }
    relay::copy(&ours)
}

/// The process that holds the session: of no terminal, no streams and no group but its own.
fn session(opener: Opener) -> Result<(), HostError> {
    nix::unistd::setsid()?;
    let null = OwnedFd::from(std::fs::File::options().read(true).write(true).open("/dev/null")?);
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    hold(opener, None, null)
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
