//! `DELETE /v1/KIND/NAME`: asks for deletion; the controllers do it.

use super::{Api, Failure, absent, kind};
use axum::Json;
use axum::extract::{Path, State};
use hmz_api::kinds::RuntimeSource;
use hmz_api::{AnyResource, Error};

/// Asks for deletion.
pub(crate) async fn delete(
    State(api): State<Api>,
    Path((word, name)): Path<(String, String)>,
) -> Result<Json<AnyResource>, Failure> {
    let kind = kind(&word)?;
    let found = api.store.get_any(kind, &name).await?.ok_or_else(|| absent(kind, &name))?;
    if let AnyResource::Runtime(runtime) = &found {
        match runtime.status.source {
            RuntimeSource::Manifest => {}
            RuntimeSource::Settings => {
                return Err(Error::refused(format!("settings.yaml declares {name}"))
                    .hint(format!("take its entry out of {}", api.paths.settings().display()))
                    .into());
            }
            RuntimeSource::Unsaved => {
                return Err(Error::refused(format!("{name} is a default nobody declared, so it cannot be deleted")).into());
            }
        }
    }
    Ok(Json(api.store.delete_any(kind, &name).await?))
}
