//! A thread that is woken on another core than its waker's, where there is one.
//!
//! Left to itself a kernel whose cores share no cache as far as it knows, as in many virtual machines, wakes a thread on the core of its
//! waker and leaves it there: the two then take turns while a core is idle. A thread that was moved is free to go anywhere again as soon
//! as it runs, and so is what it starts.

use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// No core.
const NOWHERE: usize = usize::MAX;

/// The thread, as it has itself and as its waker has it.
#[derive(Debug, Clone)]
pub(crate) struct Aside {
    thread: Pid,
    /// The cores it may be on.
    allowed: CpuSet,
    /// Where it waits.
    place: Arc<AtomicUsize>,
    moved: Arc<AtomicBool>,
}

impl Aside {
    /// The calling thread. `None` where there is one core for it.
    pub(crate) fn this_thread() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok().filter(|allowed| allowed.count() > 1)?;
        Some(Self { thread: gettid(), allowed, place: Arc::new(AtomicUsize::new(NOWHERE)), moved: Arc::default() })
    }

    /// Says that the thread, which calls this, waits now.
    pub(crate) fn waits(&self) {
        self.place.store(sched_getcpu(), Ordering::Relaxed);
    }

    /// Says that the thread, which calls this, was woken.
    pub(crate) fn runs(&self) {
        self.place.store(NOWHERE, Ordering::Relaxed);
        if self.moved.swap(false, Ordering::Relaxed) {
            // it is there now
            let _ = sched_setaffinity(None, &self.allowed);
        }
    }

    /// Has it run elsewhere than the caller, who is about to wake it. One that runs is left where it is.
    pub(crate) fn make_way(&self) {
        let here = sched_getcpu();
        if self.place.load(Ordering::Relaxed) == here {
            let mut others = self.allowed;
            others.unset(here);
            // where it may not be moved, they take turns
            let _ = sched_setaffinity(Some(self.thread), &others);
            self.moved.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_was_here_is_woken_elsewhere_and_then_is_free() {
        let (tell, told) = channel();
        let (wake, woken) = channel::<()>();
        let cores = || sched_getaffinity(None).expect("its cores");
        let thread = std::thread::spawn(move || {
            let own = Aside::this_thread();
            own.as_ref().inspect(|own| own.waits());
            tell.send(own.clone()).expect("somebody hears");
            let _ = woken.recv();
            let moved = cores();
            own.as_ref().inspect(|own| own.runs());
            // one that runs is left alone
            own.as_ref().inspect(|own| own.make_way());
            (moved, cores())
        });
        let Some(aside) = told.recv().expect("it says so") else {
            assert_eq!(cores().count(), 1);
            return;
        };
        // kept where it is, so that it is known what is left out
        let here = sched_getcpu();
        let mut only = CpuSet::new();
        only.set(here);
        sched_setaffinity(None, &only).expect("a core");
        aside.place.store(here, Ordering::Relaxed);
        aside.make_way();
        drop(wake);
        let (moved, free) = thread.join().expect("its end");
        assert!(!moved.is_set(here) && moved.count() + 1 == aside.allowed.count());
        assert_eq!(free, aside.allowed);
    }
}
