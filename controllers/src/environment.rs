//! Environments: one box each, started, watched, healed and removed.
//!
//! One that stands alone is admitted here, as a gang of one; one that a run owns waits until the run's controller admitted
//! the whole gang. Its incarnation and the daemon's address are in the store before anything of it is on a daemon, so that it
//! is found again whatever died in between.

pub mod address;
pub(crate) mod admission;
pub(crate) mod execute;
pub(crate) mod look;
pub mod outcome;
pub mod plan;
#[cfg(test)]
mod tests;

use crate::core::{Action, Lane, ReconcileError, Reconciler};
use crate::index::Index;
use crate::world::World;
use async_trait::async_trait;
use std::sync::Arc;

/// What has to be gone before an environment is: its box, its hold and its files.
pub const FINALIZER: &str = "hmz/box";

/// Label of an environment that a run owns: the role it has there.
pub const ROLE_LABEL: &str = "hmz/role";

/// The environments' controller.
pub(crate) struct Environments(pub(crate) World, pub(crate) Arc<Index>);

#[async_trait]
impl Reconciler for Environments {
    fn name(&self) -> &'static str {
        "environment"
    }

    async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError> {
        execute::reconcile(&self.0, key).await
    }

    fn lane(&self, key: &str) -> Option<Lane> {
        self.1.runtime_of(key)
    }
}
