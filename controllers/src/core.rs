//! The reconcile core: a keyed queue, a runner that works it off, and how long to wait when something failed.
//!
//! - One key is never reconciled twice at once; a look asked for meanwhile happens once, afterwards.
//! - Of several looks asked for at one key the earliest counts.
//! - At most `concurrency` keys are worked on at once, and of those that share a lane, such as a daemon, at most `of_lane`.
//! - A reconcile says when it wants to look again ([`Action`]); one that failed is tried again after [`Backoff`].
//! - What nobody asked for is looked at again after `resync`.

mod action;
mod backoff;
pub mod meter;
mod queue;
mod runner;
mod spawn;

pub use action::{Action, ReconcileError};
pub use backoff::Backoff;
pub use meter::Meter;
pub use queue::{Lane, Queue};
pub use runner::{Options, Reconciler, Requests, work};
pub use spawn::Spawned;
pub(crate) use spawn::spawn;
