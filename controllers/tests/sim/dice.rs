//! Chance, time and identity, all from the seed.

use hmz_api::clock::Clock;
use hmz_store::Ids;
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// A seeded source of chance that is shared.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// Below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.0.lock().unwrap().random_range(0..n)
    }

    /// One of `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn millis(&self, below: u64) -> Duration {
        Duration::from_millis(self.below(below))
    }

    pub fn pick<T: Clone>(&self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.below(of.len() as u64) as usize].clone()) }
    }
}

impl Ids for Dice {
    fn uid(&self) -> Uuid {
        Uuid::from_u128(self.0.lock().unwrap().random())
    }
}

/// Wall-clock time that runs with tokio's.
pub struct SimClock(Instant);

impl SimClock {
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        begin + SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}
