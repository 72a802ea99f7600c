//! Whether there is anything to do, now or as soon as something happens: then the daemon stays up. Pure.

use crate::environment::plan::{is_down, owner_run};
use hmz_api::Resource;
use hmz_api::kinds::{Environment, RestartPolicy, Run, condition};

/// Whether a run has not ended, or is to be removed.
pub(crate) fn run(run: &Resource<Run>) -> bool {
    run.metadata.is_deleting() || !run.status.is_complete()
}

/// Whether an environment is to be started, healed or removed.
pub(crate) fn environment(env: &Resource<Environment>) -> bool {
    let settled = env.status.conditions.is_true(condition::READY) || is_down(env);
    let refused = env.is_refused() && env.status.used.is_none();
    let stands = refused || (settled && env.spec.restart == RestartPolicy::Never);
    env.metadata.is_deleting() || owner_run(env).is_some() || !stands
}
