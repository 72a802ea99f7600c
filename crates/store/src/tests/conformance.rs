//! What any backend has to hold; run on memory and on a file.

use crate::{Change, Store, StoreError};
use futures::StreamExt;
use hmz_api::clock::SystemClock;
use hmz_api::condition::ConditionStatus;
use hmz_api::kinds::{Endpoint, Run, RunSpec, Runtime, RuntimeSpec};
use hmz_api::{AnyResource, Cpus, Resource};
use std::sync::Arc;

fn stores() -> Vec<(Store, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let file = Store::open(&dir.path().join("store.db"), Arc::new(SystemClock)).unwrap();
    vec![(Store::in_memory(Arc::new(SystemClock)).unwrap(), None), (file, Some(dir))]
}

pub(super) fn runtime(name: &str) -> Resource<Runtime> {
    Resource::new(name, RuntimeSpec { cpus: Some(Cpus::whole(4)), ..RuntimeSpec::default() })
}

#[tokio::test]
async fn create_sets_what_the_store_sets() {
    for (store, _dir) in stores() {
        let made = store.create(runtime("docker:a")).await.unwrap();
        assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
        assert_eq!((made.metadata.generation, made.metadata.resource_version), (1, 1));
        assert_eq!(store.get::<Runtime>("docker:a").await.unwrap(), Some(made));
        let again = store.create(runtime("docker:a")).await;
        assert!(matches!(again, Err(StoreError::AlreadyExists { .. })), "{again:?}");
        assert_eq!(store.get::<Run>("docker:a").await.unwrap(), None);
        assert_eq!(store.revision().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_name_is_made_from_a_prefix() {
    let store = Store::in_memory(Arc::new(SystemClock)).unwrap();
    let mut names = Vec::new();
    for _ in 0..3 {
        let spec: RunSpec = serde_json::from_str(r#"{"flow": "boxed"}"#).unwrap();
        let mut run = Resource::<Run>::new("", spec);
        run.metadata.generate_name = Some("fix-".into());
        names.push(store.create(run).await.unwrap().metadata.name);
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|n| n.starts_with("fix-") && n.len() == 9), "{names:?}");
    let nameless = store.create(runtime("")).await;
    assert!(matches!(nameless, Err(StoreError::Invalid(_))));
}

#[tokio::test]
async fn generation_counts_specs_and_nothing_is_written_for_nothing() {
    for (store, _dir) in stores() {
        let made = store.create(runtime("docker:a")).await.unwrap();
        assert_eq!(store.update(made.clone()).await.unwrap(), made);
        assert_eq!(store.update_status(made.clone()).await.unwrap(), made);
        assert_eq!(store.revision().await.unwrap(), 1);

        let mut labelled = made.clone();
        labelled.metadata.labels.insert("team".into(), "a".into());
        let labelled = store.update(labelled).await.unwrap();
        assert_eq!((labelled.metadata.generation, labelled.metadata.resource_version), (1, 2));

        let mut changed = labelled.clone();
        changed.spec.endpoint = Endpoint::Unix("/run/x.sock".into());
        changed.status.version = Some("ignored by update".into());
        let changed = store.update(changed).await.unwrap();
        assert_eq!((changed.metadata.generation, changed.metadata.resource_version), (2, 3));
        assert_eq!(changed.status.version, None);

        let mut seen = changed.clone();
        seen.spec.cpus = None;
        seen.metadata.labels.clear();
        seen.status.version = Some("20.10".into());
        let seen = store.update_status(seen).await.unwrap();
        assert_eq!((seen.metadata.generation, seen.metadata.resource_version), (2, 4));
        assert_eq!((&seen.spec, &seen.metadata.labels), (&changed.spec, &changed.metadata.labels));
        assert_eq!(store.get::<Runtime>("docker:a").await.unwrap(), Some(seen));
    }
}

#[tokio::test]
async fn a_stale_writer_changes_nothing() {
    for (store, _dir) in stores() {
        let old = store.create(runtime("docker:a")).await.unwrap();
        let mut new = old.clone();
        new.spec.max_containers = Some(2);
        let new = store.update(new).await.unwrap();
        let mut stale = old.clone();
        stale.spec.max_containers = Some(3);
        assert!(matches!(store.update(stale.clone()).await, Err(StoreError::Conflict { .. })));
        assert!(matches!(store.update_status(stale).await, Err(StoreError::Conflict { .. })));
        assert_eq!(store.get::<Runtime>("docker:a").await.unwrap(), Some(new));

        // one of the same name made anew is another one
        store.delete::<Runtime>("docker:a").await.unwrap();
        let anew = store.create(runtime("docker:a")).await.unwrap();
        let mut impostor = old;
        impostor.metadata.resource_version = anew.metadata.resource_version;
        assert!(matches!(store.update(impostor).await, Err(StoreError::Conflict { .. })));
    }
}

#[tokio::test]
async fn deletion_waits_for_finalizers() {
    for (store, _dir) in stores() {
        let mut held = runtime("docker:a");
        held.metadata.finalizers = vec!["one".into(), "two".into()];
        store.create(held).await.unwrap();
        let going = store.delete::<Runtime>("docker:a").await.unwrap();
        assert!(going.metadata.is_deleting());
        assert_eq!(store.delete::<Runtime>("docker:a").await.unwrap(), going, "asking again changes nothing");

        let mut more = going.clone();
        more.metadata.finalizers.push("three".into());
        assert!(matches!(store.update(more).await, Err(StoreError::Invalid(_))));

        let mut one = going;
        one.metadata.finalizers.remove(0);
        let mut one = store.update(one).await.unwrap();
        assert!(store.get::<Runtime>("docker:a").await.unwrap().is_some());
        one.metadata.finalizers.clear();
        store.update(one).await.unwrap();
        assert_eq!(store.get::<Runtime>("docker:a").await.unwrap(), None);
        assert!(matches!(store.delete::<Runtime>("docker:a").await, Err(StoreError::NotFound { .. })));
    }
}

#[tokio::test]
async fn a_watch_misses_nothing_after_the_list() {
    for (store, _dir) in stores() {
        let first = store.create(runtime("docker:a")).await.unwrap();
        let (listed, mut watch) = store.list_and_watch_of::<Runtime>().await.unwrap();
        assert_eq!((listed.items, listed.revision), (vec![first.clone()], 1));
        let spec: RunSpec = serde_json::from_str(r#"{"flow": "boxed"}"#).unwrap();
        store.create(Resource::<Run>::new("r", spec)).await.unwrap();
        let mut changed = first;
        let now = changed.metadata.creation_timestamp.unwrap();
        changed.status.conditions.set("Reachable", ConditionStatus::True, "Answered", "", 1, now);
        store.update_status(changed).await.unwrap();
        store.delete::<Runtime>("docker:a").await.unwrap();
        let applied = watch.next().await.unwrap().unwrap();
        assert_eq!((applied.revision, applied.kind, applied.name.as_str()), (3, "Runtime", "docker:a"));
        let Change::Applied(AnyResource::Runtime(seen)) = applied.change else { panic!("{applied:?}") };
        assert!(seen.status.conditions.is_true("Reachable"));
        assert_eq!(seen.metadata.resource_version, 3);
        let gone = watch.next().await.unwrap().unwrap();
        assert!(gone.revision == 4 && matches!(gone.change, Change::Deleted(_)), "{gone:?}");

        // the same again from an older revision, of every kind
        let all: Vec<u64> = store.watch(None, Some(1)).unwrap().take(3).map(|e| e.unwrap().revision).collect().await;
        assert_eq!(all, [2, 3, 4]);
        assert!(matches!(store.watch(Some("pods"), None), Err(StoreError::Invalid(_))));
    }
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_once() {
    let backend = crate::Sqlite::in_memory(4).unwrap();
    let store = Store::with(Arc::new(backend), Arc::new(SystemClock), Arc::new(crate::RandomIds));
    let mut lagging = store.watch(None, None).unwrap();
    for n in 0..6 {
        store.create(runtime(&format!("docker:{n}"))).await.unwrap();
    }
    assert_eq!(lagging.next().await.unwrap(), Err(StoreError::Expired { since: 0 }));
    assert!(lagging.next().await.is_none());
    let mut old = store.watch(None, Some(1)).unwrap();
    assert_eq!(old.next().await.unwrap(), Err(StoreError::Expired { since: 1 }));
    let kept: Vec<u64> = store.watch(None, Some(2)).unwrap().take(4).map(|e| e.unwrap().revision).collect().await;
    assert_eq!(kept, [3, 4, 5, 6]);
}

#[tokio::test]
async fn a_watch_ends_when_its_store_does() {
    let store = Store::in_memory(Arc::new(SystemClock)).unwrap();
    let mut watch = store.watch(None, None).unwrap();
    drop(store);
    assert_eq!(watch.next().await.unwrap(), Err(StoreError::Closed));
}
