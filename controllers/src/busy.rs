//! Whether there is anything to do, now or as soon as something happens: then the daemon stays up.

use crate::environment::plan::{is_down, owner_run};
use hmz_api::kinds::{Environment, RestartPolicy, Run, condition};
use hmz_store::{Store, StoreError};

/// Whether any run has not ended, or any environment is to be started, healed or removed. A store that cannot be read
/// counts as busy.
pub async fn is_busy(store: &Store) -> bool {
    busy(store).await.unwrap_or(true)
}

async fn busy(store: &Store) -> Result<bool, StoreError> {
    let runs = store.list::<Run>().await?;
    if runs.iter().any(|r| r.metadata.is_deleting() || !r.status.is_complete()) {
        return Ok(true);
    }
    let environments = store.list::<Environment>().await?;
    Ok(environments.iter().any(|e| {
        let settled = e.status.conditions.is_true(condition::READY) || is_down(e);
        e.metadata.is_deleting() || owner_run(e).is_some() || e.spec.restart == RestartPolicy::Always || !settled
    }))
}
