//! Saved runtimes: `POST /v1/settings/runtimes`, `DELETE /v1/settings/runtimes/NAME`, `GET` and `POST /v1/settings/ssh-hosts`,
//! and `POST /v1/Runtime/NAME/check`. The first four change or read settings.yaml, which the daemon then follows as it does
//! when anybody else saves it. A name is one of a runtime's spellings, percent-encoded.

use super::{Api, Failure, absent};
use axum::Json;
use axum::extract::{Path, Query, State};
use hmz_api::rest::{AddRuntime, AddedRuntime, CheckRuntime, Checked, FoundSshHost, ImportSsh, ImportedSsh, RemovedRuntime};
use hmz_api::{Kind, Runtime};
use serde::Deserialize;

/// Saves one more and asks its daemon.
pub(crate) async fn add(State(api): State<Api>, Json(request): Json<AddRuntime>) -> Result<Json<AddedRuntime>, Failure> {
    Ok(Json(api.saved.add(request).await?))
}

/// Takes one out.
pub(crate) async fn remove(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<RemovedRuntime>, Failure> {
    Ok(Json(api.saved.remove(&api.saved.named(&name)?).await?))
}

/// Which configuration of ssh.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    /// Another than the user's own, absolute.
    config: Option<String>,
}

/// The hosts that could be imported.
pub(crate) async fn ssh_hosts(State(api): State<Api>, Query(which): Query<Which>) -> Result<Json<Vec<FoundSshHost>>, Failure> {
    Ok(Json(api.saved.ssh_hosts(which.config.as_deref()).await?))
}

/// Imports hosts.
pub(crate) async fn import(State(api): State<Api>, Json(request): Json<ImportSsh>) -> Result<Json<ImportedSsh>, Failure> {
    Ok(Json(api.saved.import(request).await?))
}

/// Asks a runtime's daemon: that of a saved one as settings.yaml has it now, else of a declared one.
pub(crate) async fn check(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(request): Json<CheckRuntime>,
) -> Result<Json<Checked>, Failure> {
    let runtime = api.saved.named(&name)?;
    let endpoint = request.docker_endpoint.as_deref();
    if let Some(checked) = api.saved.check(&runtime, endpoint).await? {
        return Ok(Json(checked));
    }
    let name = runtime.resource_name();
    let Some(found) = api.store.get::<Runtime>(&name).await? else { return Err(absent(&api.store, Runtime::KIND, &name).await) };
    Ok(Json(api.saved.check_as(&runtime, &found.spec, endpoint).await))
}
