//! Listings as cells. The rows of a kind are kept from its first listing on, as they go over the wire; the next one makes anew
//! only those of what has changed since. Whoever asks is told of everything that was written before.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use hmz_api::rest::table::{MEDIA_TYPE, Row, write_headers};
use hmz_api::{Environment, Kind, Run, Runtime};
use hmz_store::{Change, Store, StoreError};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Mutex;

/// How many resources are read at a time.
const PAGE: usize = 256;

/// How many rows are sent at a time.
const CHUNK: usize = 1_000;

/// The rows of each kind that is kept in the store alone: flows are on disk too.
#[derive(Clone)]
pub(crate) struct Listings(Arc<BTreeMap<&'static str, Arc<Mutex<Rows>>>>);

impl Default for Listings {
    fn default() -> Self {
        let kinds = [Run::KIND, Environment::KIND, Runtime::KIND];
        Self(Arc::new(kinds.into_iter().map(|kind| (kind, Arc::new(Mutex::new(Rows::of(kind))))).collect()))
    }
}

impl Listings {
    /// The listing of a kind as of now; `None` of one that has none as cells.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn answer(&self, store: &Store, kind: &str, wide: bool, now: Timestamp) -> Result<Option<Response>, StoreError> {
        let Some(rows) = self.0.get(kind).cloned() else { return Ok(None) };
        let mut held = rows.lock().await;
        held.catch_up(store).await?;
        let mut text = String::new();
        write_headers(kind, wide, &mut text);
        let after = held.write(None, wide, now, &mut text);
        drop(held);
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from(text))]);
        let rest = stream::unfold(after, move |after| {
            let rows = rows.clone();
            async move {
                let (after, mut text) = (after?, String::new());
                let after = rows.lock().await.write(Some(&after), wide, now, &mut text);
                Some((Ok(Bytes::from(text)), after))
            }
        });
        Ok(Some(([("content-type", MEDIA_TYPE)], Body::from_stream(first.chain(rest))).into_response()))
    }
}

/// The rows of one kind.
struct Rows {
    kind: &'static str,
    by_name: BTreeMap<Box<str>, Row>,
    /// They are as of this revision, or newer; nothing when they are to be read.
    revision: Option<u64>,
}

impl Rows {
    const fn of(kind: &'static str) -> Self {
        Self { kind, by_name: BTreeMap::new(), revision: None }
    }

    /// Brings them up to date.
    async fn catch_up(&mut self, store: &Store) -> Result<(), StoreError> {
        let now = store.revision().await?;
        if let Some(since) = self.revision {
            match self.follow(store, since, now) {
                // so much has changed that not all of it is remembered
                Err(StoreError::Expired { .. }) => self.revision = None,
                done => return done,
            }
        }
        let (mut read, mut after) = (BTreeMap::new(), None::<String>);
        loop {
            let page = store.page_any(self.kind, after.as_deref(), PAGE).await?;
            read.extend(page.iter().map(|one| (Box::from(one.metadata().name.as_str()), Row::of(one))));
            let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
            after = Some(last.metadata().name.clone());
        }
        self.by_name = read;
        // what was written while they were read; where that is not all remembered, each is as it was when it was read
        match self.follow(store, now, now) {
            Err(StoreError::Expired { .. }) => Ok(()),
            done => done,
        }
    }

    /// Takes over what has changed since a revision, at least to `now`, up to which all is told.
    fn follow(&mut self, store: &Store, since: u64, now: u64) -> Result<(), StoreError> {
        let mut changes = store.watch(Some(self.kind), Some(since))?;
        let mut last = since.max(now);
        while let Some(Some(event)) = changes.next().now_or_never() {
            let event = event?;
            match event.change {
                Change::Applied(resource) => drop(self.by_name.insert(event.name.into(), Row::of(&resource))),
                Change::Deleted(_) => drop(self.by_name.remove(event.name.as_str())),
            }
            last = last.max(event.revision);
        }
        self.revision = Some(last);
        Ok(())
    }

    /// Writes some of the rows, those after that name; the name of the last one, when there may be more.
    fn write(&self, after: Option<&str>, wide: bool, now: Timestamp, text: &mut String) -> Option<Box<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut count, mut last) = (0, None);
        for (name, row) in self.by_name.range::<str, _>((from, Bound::Unbounded)).take(CHUNK) {
            row.write(wide, now, text);
            (count, last) = (count + 1, Some(name));
        }
        last.filter(|_| count == CHUNK).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::clock::{Clock, SystemClock};
    use hmz_api::{AnyResource, Resource};
    use hmz_store::{Memory, RandomIds};
    use http_body_util::BodyExt;

    fn environment(name: &str) -> Resource<Environment> {
        Resource::new(name, serde_json::from_value(serde_json::json!({"runtime": "docker:here"})).unwrap())
    }

    fn store(remembered: usize) -> Store {
        Store::with(Arc::new(Memory::remembering(remembered)), Arc::new(SystemClock), Arc::new(RandomIds))
    }

    async fn listed(listings: &Listings, store: &Store, wide: bool) -> String {
        let answer = listings.answer(store, Environment::KIND, wide, SystemClock.now()).await.unwrap().unwrap();
        assert_eq!(answer.headers()["content-type"], MEDIA_TYPE);
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
    }

    /// What is to be listed, made of what is stored.
    async fn meant(store: &Store, wide: bool) -> String {
        let mut text = String::new();
        write_headers(Environment::KIND, wide, &mut text);
        for one in store.list::<Environment>().await.unwrap() {
            Row::of(&AnyResource::Environment(Box::new(one))).write(wide, SystemClock.now(), &mut text);
        }
        text
    }

    #[tokio::test]
    async fn what_was_written_is_listed_whether_it_is_remembered_or_not() {
        for remembered in [1_000, 2] {
            let (store, listings) = (store(remembered), Listings::default());
            for name in ["b", "a", "c", "d"] {
                store.create(environment(name)).await.unwrap();
            }
            assert_eq!(listed(&listings, &store, true).await, meant(&store, true).await);
            store.delete::<Environment>("c").await.unwrap();
            let mut one = store.get::<Environment>("b").await.unwrap().unwrap();
            one.status.image = Some("python:3.12-slim".into());
            store.update_status(one).await.unwrap();
            store.create(environment("e")).await.unwrap();
            for wide in [false, true] {
                assert_eq!(listed(&listings, &store, wide).await, meant(&store, wide).await, "{remembered} remembered");
            }
            let again = environment("c");
            store.create(again).await.unwrap();
            assert_eq!(listed(&listings, &store, false).await, meant(&store, false).await);
        }
    }

    #[tokio::test]
    async fn a_listing_of_many_is_whole() {
        let (store, listings) = (store(10), Listings::default());
        for count in [CHUNK, CHUNK + 1, 2 * CHUNK] {
            for n in store.names("Environment").await.unwrap().len()..count {
                store.create(environment(&format!("e{n:05}"))).await.unwrap();
            }
            assert_eq!(listed(&listings, &store, false).await, meant(&store, false).await);
        }
    }

    #[tokio::test]
    async fn flows_are_not_listed_so() {
        let answer = Listings::default().answer(&store(1), hmz_api::Flow::KIND, false, SystemClock.now()).await;
        assert!(answer.unwrap().is_none());
    }
}
