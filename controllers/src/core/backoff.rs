//! How long to wait after failures, as a pure value.

use std::time::Duration;

/// Delays that double from `base` up to `max`; a part of each, at most `jitter` of it, is random, so that many keys that
/// failed together are not tried together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub base: Duration,
    /// No delay is longer.
    pub max: Duration,
    /// Between 0 and 1.
    pub jitter: f64,
}

impl Backoff {
    /// From 200 ms to 60 s, a fifth of it random.
    pub const DEFAULT: Self = Self { base: Duration::from_millis(200), max: Duration::from_secs(60), jitter: 0.2 };

    /// The delay after the `failures`th failure in a row (from 1). `random` is in `[0, 1)`. The result is at most `max`,
    /// and at least `1 - jitter` of the delay without jitter.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.base.saturating_mul(1 << doublings).min(self.max);
        full.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_doubles_up_to_the_limit() {
        let backoff = Backoff { jitter: 0.0, ..Backoff::DEFAULT };
        let delays: Vec<u128> = [1, 2, 3, 9, 10, u32::MAX].map(|n| backoff.delay(n, 0.5).as_millis()).to_vec();
        assert_eq!(delays, [200, 400, 800, 51_200, 60_000, 60_000]);
    }

    proptest! {
        #[test]
        fn jitter_stays_within_its_bounds(failures in 0..100_u32, random in 0.0..1.0_f64, jitter in 0.0..1.0_f64) {
            let backoff = Backoff { jitter, ..Backoff::DEFAULT };
            let full = Backoff { jitter: 0.0, ..backoff }.delay(failures, 0.0);
            let delay = backoff.delay(failures, random);
            prop_assert!(delay <= full && full <= backoff.max);
            prop_assert!(delay.as_secs_f64() >= full.as_secs_f64() * (1.0 - jitter) - 1e-6);
        }
    }
}
