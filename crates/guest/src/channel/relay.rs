//! The relay: what is executed in the box beside its first process, and copies between its standard streams and the first
//! process's socket. It knows no secret and looks at no byte.
//!
//! The socket's other end must be the box's first process: a command may have put another in its place.

use super::HostError;
use crate::session::wait_for;
use hmz_wire::peer_of;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes copied at once.
const CHUNK: usize = 64 << 10;

/// Copies until one of them ends.
///
/// # Errors
/// When the guest is not there, or what is there is not the guest.
pub(crate) fn connect(socket: &Path) -> Result<(), HostError> {
    nix::sys::prctl::set_dumpable(false)?;
    let stream = UnixStream::connect(socket)?;
    if peer_of(&stream)?.pid != 1 {
        return Err(HostError::Refused("the socket of the box is not its guest's"));
    }
    copy(&stream)
}

/// Copies between the standard streams and a socket. The end of either is the end of both.
pub(crate) fn copy(socket: &UnixStream) -> Result<(), HostError> {
    socket.set_nonblocking(true)?;
    for stream in [stdin(), stdout()] {
        // nobody else has them: what executed us made them for us
        fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
    }
    let mut there = Way::new(stdin(), socket.as_fd());
    let mut back = Way::new(socket.as_fd(), stdout());
    loop {
        let (to_guest, from_guest) = {
            let mut polled = [there.poll(), back.poll()];
            wait_for(&mut polled, None)?;
            (!polled[0].revents().is_empty(), !polled[1].revents().is_empty())
        };
        if (to_guest && !there.step()) || (from_guest && !back.step()) {
            return Ok(());
        }
    }
}

/// One direction: it waits to read, or to write what it has read.
struct Way<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    buffer: Vec<u8>,
    at: usize,
    len: usize,
}

impl<'a> Way<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> Self {
        Self { from, to, buffer: vec![0; CHUNK], at: 0, len: 0 }
    }

    fn poll(&self) -> PollFd<'a> {
        if self.at < self.len {
            PollFd::from_borrowed_fd(self.to, PollFlags::OUT)
        } else {
            PollFd::from_borrowed_fd(self.from, PollFlags::IN)
        }
    }

    /// Reads or writes once; false at the end.
    fn step(&mut self) -> bool {
        if self.at < self.len {
            match rustix::io::write(self.to, &self.buffer[self.at..self.len]) {
                Ok(n) => self.at += n,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return false,
            }
            return true;
        }
        match rustix::io::read(self.from, &mut self.buffer) {
            Ok(0) => false,
            Ok(n) => {
                (self.at, self.len) = (0, n);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }
}
