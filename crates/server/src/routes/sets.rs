//! `GET /v1/sets`: each set there is, with what it is kept in step with.

use super::{Api, Failure};
use axum::Json;
use axum::extract::State;
use hmz_api::kinds::condition::SYNCED;
use hmz_api::rest::SetState;
use hmz_api::{ConditionStatus, Error};

/// Those that are or were kept in step, and those that were applied by hand, by name.
pub(crate) async fn sets(State(api): State<Api>) -> Result<Json<Vec<SetState>>, Failure> {
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
    sets.extend(members.into_iter().map(|(name, members)| SetState { name, members, ..SetState::default() }));
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(sets))
}
