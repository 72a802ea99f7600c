//! Copies bytes for a command where its descriptor itself may not cross: one thread a stream, and never a change to the
//! descriptor, which others share.

use crate::AnchorError;
use hmz_wire::write_all;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most bytes a pipe of ours holds: nobody made it larger than the kernel makes it.
pub(crate) const MAX_PIPE: usize = 64 << 10;

/// A stream that is being copied.
#[derive(Debug)]
pub(crate) struct Pump {
    /// Written to when the command has ended.
    ended: Arc<OwnedFd>,
    /// Hears when nothing the command wrote before its end is left to copy; `None` for a command's input.
    drained: Option<Receiver<()>>,
}

impl Pump {
    /// Copies what the command writes to `to`; returns the end the command gets.
    pub(crate) fn output(to: OwnedFd) -> Result<(Self, OwnedFd), AnchorError> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
        let (sender, drained) = channel();
        let ended = start("pump-out", move |ended| output(&ours, &to, ended, &sender))?;
        Ok((Self { ended, drained: Some(drained) }, theirs))
    }

    /// Copies `from` for the command to read, ahead of it by no more than a pipe holds; returns the end it gets.
    pub(crate) fn input(from: OwnedFd) -> Result<(Self, OwnedFd), AnchorError> {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
        let ended = start("pump-in", move |ended| input(&from, &ours, ended))?;
        Ok((Self { ended, drained: None }, theirs))
    }

    /// Waits until what an ended command wrote has been copied. Copying goes on for whoever else holds the stream.
    pub(crate) fn flush(&self) {
        if let Some(drained) = &self.drained {
            self.end();
            // a thread that has gone has nothing left
            let _ = drained.recv();
        }
    }

    /// Stops an input.
    fn end(&self) {
        // an eventfd that is not full takes a write at once
        let _ = rustix::io::write(&*self.ended, &1u64.to_ne_bytes());
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if self.drained.is_none() {
            self.end();
        }
    }
}

fn start(name: &str, work: impl FnOnce(&OwnedFd) + Send + 'static) -> Result<Arc<OwnedFd>, AnchorError> {
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(AnchorError::errno("make an eventfd"))?);
    let own = Arc::clone(&ended);
    let spawned = std::thread::Builder::new().name(name.into()).spawn(move || work(&own));
    spawned.map_err(AnchorError::io("start a thread"))?;
    Ok(ended)
}

fn output(from: &OwnedFd, to: &OwnedFd, ended: &OwnedFd, drained: &Sender<()>) {
    let mut buffer = vec![0u8; 64 << 10];
    let mut over = false;
    // what an ended command wrote is at most what its pipe holds; who writes on behind it is not waited for
    let mut rest = MAX_PIPE;
    loop {
        let mut fds = [PollFd::new(from, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        let watched = if over { &mut fds[..1] } else { &mut fds[..] };
        match poll(watched, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let ended = !over && !fds[1].revents().is_empty();
        if fds[0].revents().is_empty() || (ended && rest == 0) {
            // the command has ended and its pipe is empty; a process it left behind may still write
            over = true;
            let _ = drained.send(());
            continue;
        }
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                if ended {
                    rest = rest.saturating_sub(n);
                }
                if write_all(to, &buffer[..n]).is_err() {
                    // closing our end is what tells the command
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn input(from: &OwnedFd, to: &OwnedFd, ended: &OwnedFd) {
    let mut buffer = vec![0u8; 16 << 10];
    loop {
        // nothing is taken from the source before the command's pipe has room
        let mut room = [PollFd::new(to, PollFlags::OUT), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut room, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if !room[1].revents().is_empty() || room[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return;
        }
        // an error on the pipe is reported unasked: the command's end is closed
        let mut fds = [PollFd::new(from, PollFlags::IN), PollFd::new(ended, PollFlags::IN), PollFd::new(to, PollFlags::empty())];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if !fds[1].revents().is_empty() || !fds[2].revents().is_empty() {
            return;
        }
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                if write_all(to, &buffer[..n]).is_err() {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
