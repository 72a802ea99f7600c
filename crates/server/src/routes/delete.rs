//! `DELETE /v1/KIND/NAME`: asks for deletion; the controllers do it. With `abandon=true` what is on a daemon that is gone
//! for good is given up.

use super::{Api, Failure, absent, kind};
use axum::Json;
use axum::extract::{Path, Query, State};
use hmz_api::kinds::RuntimeSource;
use hmz_api::{AnyResource, Environment, Error, Kind};
use hmz_controllers::ABANDON;
use hmz_store::StoreError;
use serde::Deserialize;

/// How many attempts a mark makes against other writers.
const ATTEMPTS: u32 = 16;

/// How it is to be deleted.
#[derive(Debug, Deserialize)]
pub(crate) struct How {
    /// Without waiting for a daemon that does not answer any more.
    #[serde(default)]
    abandon: bool,
}

/// Asks for deletion.
pub(crate) async fn delete(
    State(api): State<Api>,
    Path((word, name)): Path<(String, String)>,
    Query(how): Query<How>,
) -> Result<Json<AnyResource>, Failure> {
    let kind = kind(&word)?;
    let Some(found) = api.store.get_any(kind, &name).await? else { return Err(absent(&api.store, kind, &name).await) };
    if let AnyResource::Runtime(runtime) = &found {
        match runtime.status.source {
            RuntimeSource::Manifest => {}
            RuntimeSource::Settings => {
                return Err(Error::refused(format!("settings.yaml declares {name}")).hint(taken_out(&name)).into());
            }
            RuntimeSource::Unsaved => {
                return Err(Error::refused(format!("{name} is a default nobody declared, so it cannot be deleted")).into());
            }
        }
    }
    if how.abandon {
        abandon(&api, &found).await?;
    }
    Ok(Json(api.store.delete_any(kind, &name).await?))
}

/// The command that takes a runtime's entry out of settings.yaml.
fn taken_out(name: &str) -> String {
    let (backend, saved) = name.split_once(':').unwrap_or((name, ""));
    let saved = if saved.contains('.') { format!("'\"{saved}\"'") } else { saved.to_owned() };
    format!("hmz settings unset runtimes.{backend}.{saved}")
}

/// Marks a resource, and the environments it owns, as given up.
async fn abandon(api: &Api, found: &AnyResource) -> Result<(), Failure> {
    mark(api, found.kind(), &found.metadata().name).await?;
    for environment in api.store.list::<Environment>().await? {
        if environment.metadata.owner_references.iter().any(|owner| Some(owner.uid) == found.metadata().uid) {
            mark(api, Environment::KIND, environment.name()).await?;
        }
    }
    Ok(())
}

async fn mark(api: &Api, kind: &'static str, name: &str) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS {
        // gone meanwhile is what was wanted
        let Some(mut found) = api.store.get_any(kind, name).await? else { return Ok(()) };
        found.metadata_mut().annotations.insert(ABANDON.into(), "true".into());
        match api.store.update_any(found).await {
            Err(StoreError::Conflict { .. }) => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Error::failed(format!("{name} changes too often to be given up")).into())
}
