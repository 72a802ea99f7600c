//! `GET /v1/sets`: each set there is, with what it is kept in step with.

use super::{Api, Failure};
use axum::Json;
use axum::extract::{Query, State};
use hmz_api::condition::Conditions;
use hmz_api::kinds::condition::{COMPLETE, READY, SYNCED};
use hmz_api::rest::SetState;
use hmz_api::{AnyResource, ConditionStatus, Error};
use serde::Deserialize;

/// What is asked of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Whether it is told how many members are ready, for which each of them is read.
    #[serde(default)]
    ready: bool,
}

/// Those that are kept in step, or were and have members still, and those that were applied by hand, by name.
pub(crate) async fn sets(State(api): State<Api>, Query(asked): Query<Asked>) -> Result<Json<Vec<SetState>>, Failure> {
    let mut members = api.store.sets().await.map_err(Error::from)?;
    let mut sets = api.records.all().await?;
    for set in &mut sets {
        set.members = members.remove(&set.name).unwrap_or_default();
        set.active = api.kept.as_ref().is_some_and(|(kept, _)| *kept == set.name);
        if !set.active {
            let message = "no controller keeps it in step now; hmz controller --sync does";
            let now = set.synced_at.unwrap_or_default();
            set.conditions.set(SYNCED, ConditionStatus::Unknown, "NotRunning", message, 0, now);
        }
    }
    // one that nothing is in and nothing keeps was given up
    sets.retain(|set| set.active || set.members > 0);
    sets.extend(members.into_iter().map(|(name, members)| SetState { name, members, ..SetState::default() }));
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    if asked.ready {
        for set in &mut sets {
            let members = api.store.members(&set.name).await.map_err(Error::from)?;
            set.members = members.len();
            set.ready = Some(members.iter().filter(|one| is_ready(one)).count());
        }
    }
    Ok(Json(sets))
}

/// Whether it is what it was applied for, as `apply --wait` has it.
fn is_ready(one: &AnyResource) -> bool {
    let is = |conditions: &Conditions, kind: &str| {
        let found = conditions.get(kind).filter(|c| c.status == ConditionStatus::True);
        found.is_some_and(|c| c.observed_generation >= one.metadata().generation)
    };
    match one {
        AnyResource::Environment(environment) => is(&environment.status.conditions, READY),
        AnyResource::Run(run) => {
            let complete = run.status.conditions.get(COMPLETE);
            is(&run.status.conditions, COMPLETE)
                && complete.is_some_and(|c| matches!(c.reason.as_str(), "Succeeded" | "BudgetExceeded"))
        }
        AnyResource::Runtime(_) | AnyResource::Flow(_) => true,
    }
}
