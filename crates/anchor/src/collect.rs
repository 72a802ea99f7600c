//! Reads a pipe to its end, or to what is in it when its writer is known to be done; keeps a bounded beginning.

use crate::AnchorError;
use crate::pump::MAX_PIPE;
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

    /// What was read, once the pipe has ended or nothing is left in it of what was there by now; and whether there was more
    /// than was kept. Who writes on is not waited for.
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
    // what a writer that is done has left is at most what its pipe holds
    let mut rest = MAX_PIPE;
    loop {
        let mut fds = [PollFd::new(pipe, PollFlags::IN), PollFd::new(done, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
            Ok(_) => {}
        }
        let is_done = !fds[1].revents().is_empty();
        if fds[0].revents().is_empty() || (is_done && rest == 0) {
            // nothing is in the pipe, or nothing of the writer that is done
            break;
        }
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                let room = keep.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&buffer[..room]);
                more |= room < n;
                if is_done {
                    rest = rest.saturating_sub(n);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    (kept, more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::time::Duration;

    #[test]
    fn who_writes_on_is_not_waited_for() {
        // it is never empty, as the pipe of a process that was left behind and writes all the time
        let full = rustix::fs::open("/dev/zero", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let collector = Collector::start(full, 10).expect("a thread");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(collector.finish()));
        let (kept, more) = told.recv_timeout(Duration::from_secs(60)).expect("its end");
        assert_eq!((kept, more), (vec![0; 10], true));
    }
}
