//! `GET /v1/Run/NAME/journal`: the journal's records from one on, one JSON object a line.

use super::{Api, Failure, absent, watch};
use crate::attach::Hold;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use futures::{Stream, StreamExt};
use hmz_api::journal::{Event, Record};
use hmz_api::{AnyResource, Kind, Run};
use hmz_flows::journal::Follower;
use hmz_store::{Change, Store};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;

/// What may be asked.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// How many records are left out at the beginning.
    #[serde(default)]
    from: usize,
    /// Whether to go on until the run has ended.
    #[serde(default)]
    follow: bool,
    /// Whether the run is cancelled when this stream is dropped.
    #[serde(default)]
    attached: bool,
}

/// Streams it.
pub(crate) async fn journal(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Response, Failure> {
    let Some(run) = api.store.get::<Run>(&name).await? else { return Err(absent(&api.store, Run::KIND, &name).await) };
    if !asked.follow {
        // a journal that is not there yet, or any more, has no records
        let records = run.status.epic.and_then(|epic| hmz_flows::journal::read(&file(&epic)).ok());
        return Ok(watch::stream(futures::stream::iter(records.into_iter().flatten().skip(asked.from))));
    }
    let hold = asked.attached.then(|| api.attached.hold(&name));
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    // it ends with the run, or with its reader
    tokio::spawn(follow(api.store.clone(), name, asked.from, hold, sender));
    Ok(watch::stream(futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|record| (record, receiver))
    })))
}

fn file(epic: &str) -> PathBuf {
    PathBuf::from(epic).join("epic.jsonl")
}

async fn follow(store: Store, name: String, from: usize, mut hold: Option<Hold>, sender: tokio::sync::mpsc::Sender<Record>) {
    let epic = tokio::select! {
        epic = epic(&store, &name) => epic,
        () = sender.closed() => return,
    };
    let Some(epic) = epic else {
        // it ended, or went away, before it had a journal
        if let Some(hold) = &mut hold {
            hold.ended();
        }
        return;
    };
    let mut records = Follower::new(&file(&epic), from);
    // a runner that was killed writes no last record, so the end of the run ends the stream too
    let mut complete = Box::pin(complete(&store, &name));
    loop {
        let record = tokio::select! {
            record = records.next() => record,
            () = &mut complete => {
                // nothing is written after a run is complete
                for record in records.rest() {
                    if sender.send(record).await.is_err() {
                        return;
                    }
                }
                break;
            }
            () = sender.closed() => return,
        };
        let Some(record) = record else { break };
        let last = matches!(record.event, Event::Ended { .. });
        if sender.send(record).await.is_err() {
            return;
        }
        if last {
            break;
        }
    }
    if let Some(hold) = &mut hold {
        hold.ended();
    }
}

/// The run's epic, once it has one; `None` when it ended without.
async fn epic(store: &Store, name: &str) -> Option<String> {
    let mut changes = states(store, name).await?;
    while let Some(state) = changes.next().await {
        let run = state?;
        if run.status.epic.is_some() {
            return run.status.epic;
        }
        if run.status.is_complete() {
            return None;
        }
    }
    None
}

/// Returns when the run is complete or gone.
async fn complete(store: &Store, name: &str) {
    let Some(mut changes) = states(store, name).await else { return };
    while let Some(Some(run)) = changes.next().await {
        if run.status.is_complete() {
            return;
        }
    }
}

/// The run as it is, and after each change; `None` when it is deleted.
async fn states(store: &Store, name: &str) -> Option<impl Stream<Item = Option<hmz_api::Resource<Run>>> + use<>> {
    let (listed, changes) = store.list_and_watch(Some(Run::KIND)).await.ok()?;
    let first: Vec<_> = listed.items.into_iter().filter_map(typed).filter(|r| r.name() == name).map(Some).collect();
    let name = name.to_owned();
    let later = changes.filter_map(move |event| {
        let state = match event {
            Ok(event) if event.name == name => match event.change {
                Change::Applied(resource) => typed(Arc::unwrap_or_clone(resource)).map(Some),
                Change::Deleted(_) => Some(None),
            },
            Ok(_) => None,
            Err(_) => Some(None),
        };
        std::future::ready(state)
    });
    Some(Box::pin(futures::stream::iter(first).chain(later)))
}

fn typed(resource: AnyResource) -> Option<hmz_api::Resource<Run>> {
    match resource {
        AnyResource::Run(run) => Some(*run),
        _ => None,
    }
}
