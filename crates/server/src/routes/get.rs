//! `GET /v1/KIND`, `GET /v1/KIND/NAME`.

use super::{Api, Failure, absent, kind, watch};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hmz_api::kinds::{FlowSpec, FlowStatus};
use hmz_api::rest::table;
use hmz_api::{AnyResource, Flow, Kind, Metadata, Resource, Runtime};
use serde::Deserialize;
use std::path::Path as FsPath;

/// How many a page has at most.
const LARGEST_PAGE: usize = 10_000;

/// What a listing may be asked.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Whether changes follow.
    #[serde(default)]
    watch: bool,
    /// Only this one.
    name: Option<String>,
    /// The caller's directory, for flows that are found from there.
    cwd: Option<String>,
    /// At most so many, as one page; the next one begins after the last one's name.
    limit: Option<usize>,
    /// Only those after that name, in a page.
    after: Option<String>,
    /// Names alone, of what is stored.
    #[serde(default)]
    names: bool,
    /// All columns, of a listing as cells.
    #[serde(default)]
    wide: bool,
}

/// Lists a kind, by name; as cells, where that is what is accepted; with `watch=true` a stream of lines.
pub(crate) async fn list(
    State(api): State<Api>,
    Path(word): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let kind = kind(&word)?;
    settled(&api, kind).await?;
    if asked.watch {
        return watch::watch(&api, kind, asked.name).await;
    }
    if asked.names {
        return Ok(Json(api.store.names(kind).await?).into_response());
    }
    if headers.get(ACCEPT).is_some_and(|accepted| accepted == table::MEDIA_TYPE)
        && let Some(answer) = api.listings.answer(&api.store, kind, asked.wide, api.world.clock.now()).await?
    {
        return Ok(answer);
    }
    // flows that are on disk have no pages
    if let Some(limit) = asked.limit.filter(|_| kind != Flow::KIND) {
        let page = api.store.page_json(kind, asked.after.as_deref(), limit.clamp(1, LARGEST_PAGE)).await?;
        return Ok(([(CONTENT_TYPE, "application/json")], page).into_response());
    }
    let mut items = api.store.list_any(Some(kind)).await?.items;
    if kind == Flow::KIND {
        let cwd = asked.cwd.unwrap_or_else(|| "/".into());
        for found in hmz_flows::list(FsPath::new(&cwd), &api.paths.home).flows {
            if !items.iter().any(|i| i.metadata().name == found.name) {
                items.push(flow(&found.name, found.spec, found.source));
            }
        }
    }
    items.sort_by(|a, b| a.metadata().name.cmp(&b.metadata().name));
    Ok(Json(items).into_response())
}

/// One resource.
pub(crate) async fn one(
    State(api): State<Api>,
    Path((word, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Result<Json<AnyResource>, Failure> {
    let kind = kind(&word)?;
    settled(&api, kind).await?;
    if let Some(found) = api.store.get_any(kind, &name).await? {
        return Ok(Json(found));
    }
    if kind == Flow::KIND {
        let cwd = asked.cwd.unwrap_or_else(|| "/".into());
        let found = hmz_flows::find(&name, FsPath::new(&cwd), &api.paths.home)?;
        return Ok(Json(flow(&name, found.spec, found.source)));
    }
    Err(absent(&api.store, kind, &name).await)
}

/// Runtimes are told of as settings.yaml declares them now: nobody who has just saved it is told of the time before.
async fn settled(api: &Api, kind: &'static str) -> Result<(), Failure> {
    if kind == Runtime::KIND {
        api.settings.settled(&api.store).await?;
    }
    Ok(())
}

/// A flow found on disk, as a resource.
fn flow(name: &str, spec: FlowSpec, source: String) -> AnyResource {
    AnyResource::Flow(Box::new(Resource::<Flow> {
        metadata: Metadata::named(name),
        spec,
        status: FlowStatus { source: Some(source) },
    }))
}
