//! Watches: what is there, a bookmark, each change, as one JSON object a line.

use super::{Api, Failure};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use hmz_api::rest::WatchLine;
use hmz_store::{Change, StoreError, WatchEvent};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;

/// The answer to a watch.
pub(crate) async fn watch(api: &Api, kind: &'static str, name: Option<String>) -> Result<Response, Failure> {
    let (items, changes) = match &name {
        None => {
            let (listed, changes) = api.store.list_and_watch(Some(kind)).await?;
            (listed.items, changes)
        }
        // of one alone, what there is besides costs nothing
        Some(name) => {
            let since = api.store.revision().await?;
            let there = api.store.get_any(kind, name).await?;
            // what was written between the two is not told of again
            let since = there.as_ref().map_or(since, |one| since.max(one.metadata().resource_version));
            (there.into_iter().collect(), api.store.watch_one(kind, name, Some(since))?)
        }
    };
    let there = items.into_iter().map(WatchLine::Modified);
    let first: Vec<WatchLine> = there.chain([WatchLine::Bookmark]).collect();
    // a watcher that lagged behind is told by the end of its stream, and looks again
    let later = changes.take_while(|change| std::future::ready(change.is_ok())).filter_map(
        move |change: Result<WatchEvent, StoreError>| {
            let line = change.ok().map(|event| match event.change {
                Change::Applied(resource) => WatchLine::Modified(Arc::unwrap_or_clone(resource)),
                Change::Deleted(resource) => WatchLine::Deleted(Arc::unwrap_or_clone(resource)),
            });
            std::future::ready(line)
        },
    );
    Ok(stream(futures::stream::iter(first).chain(later)))
}

/// One JSON object a line.
pub(crate) fn stream<T: Serialize + Send + 'static>(items: impl Stream<Item = T> + Send + 'static) -> Response {
    let lines = items.filter_map(|item| {
        let line = serde_json::to_vec(&item).ok().map(|mut line| {
            line.push(b'\n');
            Ok::<_, Infallible>(Bytes::from(line))
        });
        std::future::ready(line)
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines)).into_response()
}
