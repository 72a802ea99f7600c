//! When the controllers crash: at a step that was chosen before. A step is the moment before or after something is written,
//! on a daemon or here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::Notify;

/// What is ahead of the controllers; clones are the same.
#[derive(Clone, Default)]
pub struct Fate(Arc<Ahead>);

#[derive(Default)]
struct Ahead {
    /// Steps until the last one; none is the last while it is 0.
    steps: AtomicI64,
    reached: Notify,
}

impl Fate {
    /// The `nth` step from now is the last: whoever comes to it does not go on.
    pub fn end_at(&self, nth: u64) {
        self.0.steps.store(i64::try_from(nth).unwrap() + 1, Ordering::Relaxed);
    }

    /// No step is the last any more.
    pub fn go_on(&self) {
        self.0.steps.store(0, Ordering::Relaxed);
    }

    /// Returns when the last step was come to.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }

    /// One step.
    pub async fn step(&self) {
        let before = self.0.steps.load(Ordering::Relaxed);
        if before == 0 {
            return;
        }
        if before > 1 {
            self.0.steps.store(before - 1, Ordering::Relaxed);
            return;
        }
        self.0.reached.notify_one();
        std::future::pending::<()>().await;
    }
}
