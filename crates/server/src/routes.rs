//! The API: one file a verb of it. Errors are `hmz_api::Error` as JSON with a fitting status.

mod apply;
mod backup;
mod cancel;
mod delete;
mod events;
mod get;
mod journal;
mod saved;
mod sets;
mod settings;
mod usage;
mod watch;

pub(crate) use apply::ByVerb;

use crate::attach::Attached;
use crate::callers::Callers;
use crate::events::Events;
use crate::listing::Listings;
use crate::metrics::{self, Metrics, Told};
use crate::paths::Paths;
use crate::saved::SavedRuntimes;
use crate::settings::SettingsFile;
use crate::sync::Records;
use axum::Json;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hmz_api::{AnyResource, Error, ErrorKind};
use hmz_controllers::World;
use hmz_store::{Store, StoreError};
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// What every route needs.
#[derive(Clone)]
pub(crate) struct Api {
    pub store: Store,
    pub listings: Listings,
    pub world: World,
    pub events: Events,
    pub paths: Paths,
    pub callers: Arc<Callers>,
    pub attached: Arc<Attached>,
    pub settings: SettingsFile,
    pub saved: SavedRuntimes,
    pub records: Records,
    /// The set that is kept in step, and its source.
    pub kept: Option<(String, String)>,
    pub metrics: Metrics,
    /// What became of what settings.yaml says of them.
    pub told: Receiver<Told>,
}

/// Largest request body, in bytes.
const MAX_BODY: usize = 16 << 20;

/// The routes.
pub(crate) fn router(api: Api) -> Router {
    let told = Router::new().route("/metrics", get(metrics::told)).with_state(api.metrics.clone());
    Router::new()
        .route("/v1/version", get(async || Json(env!("CARGO_PKG_VERSION"))))
        .route("/v1/apply", post(apply::apply))
        .route("/v1/plan", post(apply::plan))
        .route("/v1/backup", get(backup::backup))
        .route("/v1/events", get(events::events))
        .route("/v1/sets", get(sets::sets))
        .route("/v1/usage", post(usage::usage))
        .route("/v1/settings", get(settings::settings))
        .route("/v1/settings/runtimes", post(saved::add))
        .route("/v1/settings/runtimes/{name}", axum::routing::delete(saved::remove))
        .route("/v1/settings/ssh-hosts", get(saved::ssh_hosts).post(saved::import))
        .route("/v1/Runtime/{name}/check", post(saved::check))
        .route("/v1/{kind}", get(get::list))
        .route("/v1/{kind}/{name}", get(get::one).delete(delete::delete))
        .route("/v1/{kind}/{name}/edit", post(apply::edit))
        .route("/v1/Run/{name}/journal", get(journal::journal))
        .route("/v1/Run/{name}/cancel", post(cancel::cancel))
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .with_state(api)
        .merge(told)
}

/// An error on its way out.
pub(crate) struct Failure(pub Error);

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self(e)
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        Self(e.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.kind {
            ErrorKind::Refused | ErrorKind::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Failed => StatusCode::BAD_GATEWAY,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self.0)).into_response()
    }
}

/// The kind a path segment names.
pub(crate) fn kind(word: &str) -> Result<&'static str, Failure> {
    AnyResource::kind_of_word(word).ok_or_else(|| Failure(Error::usage(format!("'{word}' is not a kind"))))
}

/// What is said of a resource that is not there, with the one that was probably meant.
pub(crate) async fn absent(store: &Store, kind: &'static str, name: &str) -> Failure {
    // without the listing it is not there all the same
    let there = store.list_any(Some(kind)).await.map(|listed| listed.items).unwrap_or_default();
    let near = hmz_manifest::nearest(name, there.iter().map(|found| found.metadata().name.as_str()));
    let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    Failure(Error::not_found(format!("there is no {} '{name}'{near}", kind.to_ascii_lowercase())))
}
