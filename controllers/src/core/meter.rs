//! What a controller has done and has to do, counted as it goes: a few numbers that are written where they change, and read by
//! whoever asks. Nothing of it is stored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the latencies' buckets, in milliseconds.
const BOUNDS: [u64; 10] = [1, 5, 25, 100, 250, 500, 1000, 5000, 30_000, 300_000];

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// It got through.
    Done,
    /// Somebody wrote meanwhile.
    Conflict,
    /// It did not.
    Failed,
}

/// The numbers of one controller.
#[derive(Debug)]
pub struct Meter {
    name: &'static str,
    queued: AtomicU64,
    working: AtomicU64,
    done: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len()],
    micros: AtomicU64,
}

/// The same at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// The controller.
    pub name: &'static str,
    /// Keys that are to be looked at now or later, and not those that are being looked at.
    pub queued: u64,
    /// Keys that are being looked at.
    pub working: u64,
    /// Looks that got through.
    pub done: u64,
    /// Looks that somebody's write made stale.
    pub conflicts: u64,
    /// Looks that failed.
    pub failures: u64,
    /// Latencies: how many took no longer than each bound.
    pub latencies: Vec<(Duration, u64)>,
    /// The sum of all latencies.
    pub took: Duration,
}

impl Meter {
    /// Of a controller that has done nothing.
    pub fn new(name: &'static str) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            name,
            queued: zero(),
            working: zero(),
            done: zero(),
            conflicts: zero(),
            failures: zero(),
            buckets: std::array::from_fn(|_| zero()),
            micros: zero(),
        }
    }

    /// How much there is to do.
    pub fn has(&self, queued: usize, working: usize) {
        self.queued.store(queued as u64, Ordering::Relaxed);
        self.working.store(working as u64, Ordering::Relaxed);
    }

    /// A reconcile ended.
    pub fn ended(&self, how: Result, took: Duration) {
        let count = match how {
            Result::Done => &self.done,
            Result::Conflict => &self.conflicts,
            Result::Failed => &self.failures,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let within = BOUNDS.iter().zip(&self.buckets).filter(|(bound, _)| took <= Duration::from_millis(**bound));
        within.for_each(|(_, bucket)| {
            bucket.fetch_add(1, Ordering::Relaxed);
        });
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What it says now.
    pub fn figures(&self) -> Figures {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Figures {
            name: self.name,
            queued: read(&self.queued),
            working: read(&self.working),
            done: read(&self.done),
            conflicts: read(&self.conflicts),
            failures: read(&self.failures),
            latencies: BOUNDS.iter().zip(&self.buckets).map(|(ms, n)| (Duration::from_millis(*ms), read(n))).collect(),
            took: Duration::from_micros(read(&self.micros)),
        }
    }
}
