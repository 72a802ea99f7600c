//! How many bytes may be under way: as many as the way takes without growing longer.
//!
//! What waits in the buffers of a slow way delays a signal that comes after it. So the delay of acknowledgements is watched:
//! when it exceeds the shortest one seen by [`SLACK`], less is sent, otherwise more.

use std::time::{Duration, Instant};

/// Fewest bytes under way.
pub const MIN: usize = 64 << 10;

/// Most bytes under way.
pub const MAX: usize = 4 << 20;

/// The delay that is tolerated beyond the shortest one seen.
const SLACK: Duration = Duration::from_millis(10);

/// After so long the shortest delay is learned again: a way may change.
const FORGET: Duration = Duration::from_secs(30);

/// The bound of one direction.
#[derive(Debug)]
pub struct Pace {
    window: usize,
    shortest: Option<(Duration, Instant)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { window: 4 * MIN, shortest: None }
    }
}

impl Pace {
    /// How many bytes may be under way now.
    pub fn window(&self) -> usize {
        self.window
    }

    /// A frame was acknowledged `delay` after it was sent; `acked` bytes came with it, and `full` says whether more would
    /// have been sent if it had been allowed.
    pub fn heard(&mut self, delay: Duration, acked: usize, full: bool, now: Instant) {
        let shortest = match self.shortest {
            Some((shortest, at)) if delay >= shortest && now.duration_since(at) < FORGET => shortest,
            _ => {
                self.shortest = Some((delay, now));
                delay
            }
        };
        if delay > shortest + SLACK {
            self.window = self.window.saturating_sub((self.window / 8).min(acked)).max(MIN);
        } else if full {
            self.window = (self.window + acked).min(MAX);
        }
    }

    /// A new stream may be another way.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way that takes `rate` bytes a millisecond and has `delay` milliseconds of its own: the delay behind what is under
    /// way once the pace has settled.
    fn settled(rate: usize, delay: u64) -> (usize, u64) {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut seen = 0;
        // the first word finds the way empty
        pace.heard(Duration::from_millis(delay), 1, false, start);
        for round in 1..20_000u64 {
            seen = delay + (pace.window() / rate) as u64;
            pace.heard(Duration::from_millis(seen), 16 << 10, true, start + Duration::from_millis(round));
        }
        (pace.window(), seen)
    }

    #[test]
    fn a_slow_way_is_kept_short_and_a_fast_one_is_used() {
        let (window, delay) = settled(8 << 10, 5);
        assert!(delay <= 5 + 12, "{delay} ms behind {window} bytes");
        assert!(window >= 8 << 13, "{window}");
        assert_eq!(settled(1 << 20, 1).0, MAX);
        // a way so slow that the fewest bytes are too many
        assert!(settled(100, 5).0 <= 2 * MIN);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut pace = Pace::default();
        let before = pace.window();
        pace.heard(Duration::from_millis(1), 1 << 20, false, Instant::now());
        assert_eq!(pace.window(), before);
    }
}
