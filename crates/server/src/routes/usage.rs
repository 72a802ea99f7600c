//! `POST /v1/usage`: what the boxes of environments use at this moment. One look; who wants a rate asks again.

use super::{Api, Failure};
use axum::Json;
use axum::extract::State;
use hmz_api::Environment;
use hmz_api::rest::{EnvironmentUsage, UsageRequest};

/// Looks once at each.
pub(crate) async fn usage(
    State(api): State<Api>,
    Json(request): Json<UsageRequest>,
) -> Result<Json<Vec<EnvironmentUsage>>, Failure> {
    let mut environments = api.store.list::<Environment>().await?;
    // one that went a moment ago is left out
    if let Some(names) = &request.names {
        environments.retain(|e| names.iter().any(|name| name == e.name()));
    }
    environments.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(Json(hmz_controllers::usage(&api.world, environments).await))
}
