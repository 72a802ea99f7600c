//! Reads a pipe to its end, or to what is in it when its writer is known to be done; keeps a bounded beginning.

use crate::AnchorError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that reads.
#[derive(Debug)]
pub(crate) struct Collector {
    done: Arc<OwnedFd>,
    thread: JoinHandle<(Vec<u8>, bool)>,
}

impl Collector {
    /// Starts to read `pipe`, of which no more than `keep` bytes are kept.
    pub(crate) fn start(pipe: OwnedFd, keep: usize) -> Result<Self, AnchorError> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(AnchorError::errno("make an eventfd"))?);
        let woken = Arc::clone(&done);
        let thread = std::thread::Builder::new()
            .name("collect".into())
            .spawn(move || collect(&pipe, &woken, keep))
            .map_err(AnchorError::io("start a thread"))?;
        Ok(Self { done, thread })
    }

    /// What was read, once the pipe has ended or nothing is left in it; and whether there was more than was kept.
    pub(crate) fn finish(self) -> (Vec<u8>, bool) {
        // an eventfd that is not full takes a write at once
        let _ = rustix::io::write(&*self.done, &1u64.to_ne_bytes());
        self.thread.join().unwrap_or_default()
    }
}

fn collect(pipe: &OwnedFd, done: &OwnedFd, keep: usize) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    let mut more = false;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let mut fds = [PollFd::new(pipe, PollFlags::IN), PollFd::new(done, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
            Ok(_) => {}
        }
        if fds[0].revents().is_empty() {
            // nothing is in the pipe, and its writer is done
            break;
        }
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                let room = keep.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&buffer[..room]);
                more |= room < n;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    (kept, more)
}
