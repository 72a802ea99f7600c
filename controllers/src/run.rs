//! Runs: checked, given their environments as one gang, started, followed to their end, cleaned up after.

mod execute;
mod look;
pub mod plan;
pub mod refusal;
pub mod second;
#[cfg(test)]
mod tests;
pub mod walk;

use crate::core::{Action, ReconcileError, Reconciler};
use crate::world::World;
use async_trait::async_trait;

/// What has to be gone before a run is: its runner and its environments.
pub const FINALIZER: &str = "hmz/run";

/// The runs' controller.
pub(crate) struct Runs(pub(crate) World);

#[async_trait]
impl Reconciler for Runs {
    fn name(&self) -> &'static str {
        "run"
    }

    async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError> {
        execute::reconcile(&self.0, key).await
    }
}
