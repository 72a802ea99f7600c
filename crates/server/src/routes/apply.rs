//! `POST /v1/apply`: what is declared becomes what is stored. `POST /v1/plan`: what that would do.
//! `POST /v1/KIND/NAME/edit`: one of them changes in place.

use super::{Api, Failure, absent, kind};
use crate::callers::Callers;
use async_trait::async_trait;
use axum::Json;
use axum::extract::{Path, State};
use futures::StreamExt;
use hmz_api::launch::CallerContext;
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult, Edit, Planned};
use hmz_api::{Error, ErrorKind};
use hmz_controllers::declare::{self, Applier};
use hmz_store::{Change, Store};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long one that is to be made anew may take to be gone.
const GONE: Duration = Duration::from_secs(60);

/// Applies each resource by itself; one that is refused does not hold up another.
pub(crate) async fn apply(State(api): State<Api>, Json(request): Json<ApplyRequest>) -> Result<Json<Vec<ApplyResult>>, Failure> {
    if let Some((set, source)) = api.kept.as_ref().filter(|(set, _)| request.set.as_ref() == Some(set)) {
        return Err(Error::refused(format!("the set '{set}' is kept in step with {source}, which would put this back"))
            .hint("change it there, or end the hmz controller --sync that keeps it")
            .into());
    }
    api.settings.settled(&api.store).await?;
    let applier = ByVerb(Arc::clone(&api.callers));
    let results = declare::apply(&api.store, &applier, &request).await?;
    let trace = request.caller.trace.as_deref().and_then(hmz_telemetry::TraceContext::trace_of).unwrap_or_default();
    for result in &results {
        let (kind, name) = (&result.kind, &result.name);
        match &result.outcome {
            Ok(applied) => tracing::info!(kind, key = name, trace_id = trace, "{}", applied.word()),
            Err(e) => tracing::info!(kind, key = name, trace_id = trace, error = e.message, "refused"),
        }
    }
    Ok(Json(results))
}

/// Says what the same request would do to [`apply`]. Changes nothing.
pub(crate) async fn plan(State(api): State<Api>, Json(request): Json<ApplyRequest>) -> Result<Json<Vec<Planned>>, Failure> {
    api.settings.settled(&api.store).await?;
    Ok(Json(declare::plan(&api.world, &request).await?))
}

/// Changes one resource in place.
pub(crate) async fn edit(
    State(api): State<Api>,
    Path((word, name)): Path<(String, String)>,
    Json(edit): Json<Edit>,
) -> Result<Json<Applied>, Failure> {
    let kind = kind(&word)?;
    if api.store.get_any(kind, &name).await?.is_none() {
        return Err(absent(&api.store, kind, &name).await);
    }
    let applier = ByVerb(Arc::clone(&api.callers));
    Ok(Json(declare::edit(&api.store, &applier, kind, &name, &edit).await?))
}

/// A verb that applies.
pub(crate) struct ByVerb(pub Arc<Callers>);

#[async_trait]
impl Applier for ByVerb {
    fn put(&self, uid: Uuid, context: &CallerContext) {
        self.0.put(uid, context.clone());
    }

    fn knows(&self, uid: Uuid) -> bool {
        self.0.get(uid).is_some()
    }

    fn forget(&self, uid: Uuid) {
        self.0.forget(uid);
    }

    async fn gone(&self, store: &Store, kind: &'static str, name: &str) -> Result<(), Error> {
        let (listed, mut changes) = store.list_and_watch(Some(kind)).await?;
        if !listed.items.iter().any(|one| one.metadata().name == name) {
            return Ok(());
        }
        let gone = async {
            while let Some(change) = changes.next().await {
                if matches!(change?, event if event.name == name && matches!(event.change, Change::Deleted(_))) {
                    return Ok(());
                }
            }
            Err(Error::failed("the daemon ends"))
        };
        tokio::time::timeout(GONE, gone).await.unwrap_or_else(|_| {
            let shown = format!("{}/{name}", kind.to_ascii_lowercase());
            Err(Error::new(ErrorKind::Conflict, "what it had started is being ended, and has not ended yet")
                .hint(format!("hmz wait --for=delete {shown} --timeout 10m, and then apply it again")))
        })
    }
}
