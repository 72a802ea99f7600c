//! `POST /v1/usage`: what the boxes of environments use at this moment. One look; who wants a rate asks again.

use super::{Api, Failure};
use axum::Json;
use axum::extract::State;
use hmz_api::Environment;
use hmz_api::rest::{EnvironmentUsage, UsageRequest};
use std::collections::BTreeSet;

/// Looks once at each.
pub(crate) async fn usage(
    State(api): State<Api>,
    Json(request): Json<UsageRequest>,
) -> Result<Json<Vec<EnvironmentUsage>>, Failure> {
    let mut environments = match request.names {
        None => api.store.list::<Environment>().await?,
        Some(names) => {
            let mut named = Vec::new();
            for name in BTreeSet::from_iter(names) {
                // one that went a moment ago is left out
                named.extend(api.store.get::<Environment>(&name).await?);
            }
            named
        }
    };
    environments.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(Json(hmz_controllers::usage(&api.world, environments).await))
}
