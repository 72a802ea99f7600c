//! `GET /v1/events`: what happened, and what happens.

use super::{Api, Failure, kind, watch};
use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use hmz_api::rest::{Event, SET_KIND};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

/// What may be asked.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Whether those to come follow.
    #[serde(default)]
    watch: bool,
    /// Only of a kind.
    kind: Option<String>,
    /// Only of one of that name.
    name: Option<String>,
}

/// Lists events, oldest first; with `watch=true` a stream of lines.
pub(crate) async fn events(State(api): State<Api>, Query(asked): Query<Asked>) -> Result<Response, Failure> {
    let of = asked.kind.as_deref().map(|word| if word == SET_KIND { Ok(SET_KIND) } else { kind(word) }).transpose()?;
    let name = asked.name;
    let meant =
        move |event: &Event| of.is_none_or(|kind| kind == event.kind) && name.as_ref().is_none_or(|name| *name == event.name);
    let (mut there, changes) = api.events.follow();
    there.retain(&meant);
    if !asked.watch {
        return Ok(Json(there).into_response());
    }
    let later = futures::stream::unfold(changes, |mut changes| async move {
        loop {
            match changes.recv().await {
                Ok(event) => return Some((event, changes)),
                // one that reads slowly misses some
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let later = later.filter(move |event| std::future::ready(meant(event)));
    Ok(watch::stream(futures::stream::iter(there).chain(later)))
}
