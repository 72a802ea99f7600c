//! Threads for what may block, used again: making one costs more than most of what they do.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// How many wait for work; more than that end when they are done.
const IDLE: usize = 16;

/// A thread's stack, in bytes.
const STACK: usize = 256 << 10;

/// A piece of work.
type Job = Box<dyn FnOnce() + Send>;

/// The threads that wait for work.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Vec<Sender<Job>>>);

impl Workers {
    /// Has a thread do it, one that waits or a new one.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn give(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut job: Job = Box::new(work);
        loop {
            let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(idle) = idle else { break };
            // one that ended meanwhile gives the work back
            match idle.send(job) {
                Ok(()) => return Ok(()),
                Err(returned) => job = returned.0,
            }
        }
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("command".into()).stack_size(STACK);
        thread.spawn(move || own.work(job)).map(drop)
    }

    fn work(&self, first: Job) {
        let (sender, receiver) = channel();
        let mut job = first;
        loop {
            job();
            let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() >= IDLE {
                return;
            }
            idle.push(sender.clone());
            drop(idle);
            match receiver.recv() {
                Ok(next) => job = next,
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_used_again_and_two_work_at_once() {
        let workers = Arc::new(Workers::default());
        let (tell, told) = channel();
        let ask = |barrier: Option<Arc<std::sync::Barrier>>| {
            let tell = tell.clone();
            let work = move || {
                if let Some(barrier) = barrier {
                    barrier.wait();
                }
                tell.send(std::thread::current().id()).expect("somebody hears");
            };
            workers.give(work).expect("a thread");
        };
        let idle = || workers.0.lock().expect("a lock").len();
        ask(None);
        let first = told.recv().expect("a word");
        while idle() < 1 {
            std::thread::yield_now();
        }
        ask(None);
        assert_eq!(told.recv().expect("a word"), first);
        // neither ends before the other has begun
        let both = Arc::new(std::sync::Barrier::new(2));
        ask(Some(Arc::clone(&both)));
        ask(Some(both));
        assert_ne!(told.recv().expect("a word"), told.recv().expect("a word"));
    }
}
