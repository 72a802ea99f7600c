//! What a reconcile wants next, as a value.

use hmz_drivers::DriverError;
use hmz_store::StoreError;
use std::time::Duration;

/// When to look at a key again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    pub(crate) after: Option<Duration>,
    pub(crate) rest: Rest,
}

/// How long to leave a key alone that did not say when to look at it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Until the next resync.
    Short,
    /// Many times as long: others look for it at what may change.
    Long,
    /// For ever.
    Gone,
}

impl Action {
    /// When something changes, or at the next resync.
    pub const fn await_change() -> Self {
        Self { after: None, rest: Rest::Short }
    }

    /// When something changes; it is as it should be, and somebody else looks now and then whether it still is.
    pub const fn settled() -> Self {
        Self { after: None, rest: Rest::Long }
    }

    /// After this long at the latest.
    pub const fn requeue(after: Duration) -> Self {
        Self { after: Some(after), rest: Rest::Short }
    }

    /// Never, unless somebody asks: there is nothing of that key.
    pub const fn gone() -> Self {
        Self { after: None, rest: Rest::Gone }
    }

    /// The earlier of two.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self.after, other.after) {
            (Some(a), Some(b)) => Self::requeue(a.min(b)),
            (Some(a), None) | (None, Some(a)) => Self::requeue(a),
            (None, None) => Self::await_change(),
        }
    }
}

/// Why a reconcile did not get through; it is tried again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReconcileError {
    /// The store did not do it; a conflict is tried again at once.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The daemon did not.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Something else did not.
    #[error("{0}")]
    Other(String),
}

impl ReconcileError {
    /// Whether somebody wrote meanwhile, so that looking again at once is right.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(e) if e.is_conflict())
    }
}
