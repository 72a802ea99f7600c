//! What any backend has to hold; each test runs on every one there is.

use crate::{Backend, Change, Expect, Memory, RandomIds, Sqlite, Store, StoreError, Write};
use futures::{FutureExt, StreamExt};
use hmz_api::clock::SystemClock;
use hmz_api::condition::ConditionStatus;
use hmz_api::kinds::{Endpoint, Run, RunSpec, Runtime, RuntimeSpec, label};
use hmz_api::{AnyResource, Cpus, Resource};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

/// A store of each backend.
fn stores() -> Vec<(Store, Option<tempfile::TempDir>)> {
    remembering(64)
}

/// The same, each of which remembers so many changes.
pub(super) fn remembering(changes: usize) -> Vec<(Store, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let with = |backend: Arc<dyn Backend>| Store::with(backend, Arc::new(SystemClock), Arc::new(RandomIds));
    let file = Sqlite::open_remembering(&dir.path().join("store.db"), changes).unwrap();
    vec![
        (with(Arc::new(Memory::remembering(changes))), None),
        (with(Arc::new(Sqlite::in_memory(changes).unwrap())), None),
        (with(Arc::new(file)), Some(dir)),
    ]
}

pub(super) fn runtime(name: &str) -> Resource<Runtime> {
    Resource::new(name, RuntimeSpec { cpus: Some(Cpus::whole(4)), ..RuntimeSpec::default() })
}

fn run(name: &str) -> Resource<Run> {
    let spec: RunSpec = serde_json::from_str(r#"{"flow": "boxed"}"#).unwrap();
    Resource::new(name, spec)
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
    for (store, _dir) in stores() {
        let mut names = Vec::new();
        for _ in 0..3 {
            let mut run = run("");
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
        store.put_status(seen.clone()).await.unwrap();
        let stale = store.put_status(changed.clone()).await;
        assert!(matches!(stale, Err(StoreError::Conflict { .. })) && store.revision().await.unwrap() == 4);
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
        store.create(run("r")).await.unwrap();
        let mut changed = first;
        let now = changed.metadata.creation_timestamp.unwrap();
        changed.status.conditions.set("Reachable", ConditionStatus::True, "Answered", "", 1, now);
        store.update_status(changed).await.unwrap();
        store.delete::<Runtime>("docker:a").await.unwrap();
        let applied = watch.next().await.unwrap().unwrap();
        assert_eq!((applied.revision, applied.kind, applied.name.as_str()), (3, "Runtime", "docker:a"));
        let AnyResource::Runtime(seen) = applied.change.resource() else { panic!("{applied:?}") };
        assert!(matches!(applied.change, Change::Applied(_)));
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

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_watch_of_one_hears_of_that_one_alone() {
    for (store, _dir) in remembering(4) {
        let mut one = store.watch_one("Runtime", "docker:a", None).unwrap();
        let made = store.create(runtime("docker:a")).await.unwrap();
        store.create(run("docker:a")).await.unwrap();
        store.create(runtime("docker:b")).await.unwrap();
        let seen = one.next().await.unwrap().unwrap();
        assert_eq!((seen.revision, seen.change), (1, Change::Applied(Arc::new(AnyResource::Runtime(Box::new(made))))));
        assert!(one.next().now_or_never().is_none());
        // however many others change: they do not even wake it
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert!(one.poll_next_unpin(&mut context).is_pending());
        for n in 0..6 {
            store.create(runtime(&format!("docker:{n}"))).await.unwrap();
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        assert!(one.next().now_or_never().is_none());
        assert!(one.poll_next_unpin(&mut context).is_pending());
        store.delete::<Runtime>("docker:a").await.unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        store.create(runtime("docker:a")).await.unwrap();
        let heard = [one.next().await.unwrap().unwrap(), one.next().await.unwrap().unwrap()];
        assert!(matches!(&heard.map(|event| event.change), [Change::Deleted(_), Change::Applied(_)]));
        // one that is not read for long does not know what it missed
        store.delete::<Runtime>("docker:a").await.unwrap();
        for n in 6..12 {
            store.create(runtime(&format!("docker:{n}"))).await.unwrap();
        }
        assert!(matches!(one.next().await.unwrap(), Err(StoreError::Expired { .. })));
        assert!(one.next().await.is_none());
        // from a revision on, and what is not remembered any more
        let mut later = store.watch_one("Runtime", "docker:11", Some(store.revision().await.unwrap() - 1)).unwrap();
        assert_eq!(later.next().await.unwrap().unwrap().name, "docker:11");
        assert!(later.next().now_or_never().is_none());
        let mut old = store.watch_one("Runtime", "docker:11", Some(1)).unwrap();
        assert_eq!(old.next().await.unwrap(), Err(StoreError::Expired { since: 1 }));
        drop(store);
        assert_eq!(later.next().await.unwrap(), Err(StoreError::Closed));
    }
}

#[tokio::test]
async fn a_watcher_that_lags_is_told_once() {
    for (store, _dir) in remembering(4) {
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
}

#[tokio::test]
async fn a_watch_ends_when_its_store_does() {
    for (store, _dir) in stores() {
        let mut watch = store.watch(None, None).unwrap();
        assert!(watch.next().now_or_never().is_none());
        drop(store);
        assert_eq!(watch.next().await.unwrap(), Err(StoreError::Closed));
    }
}

#[tokio::test]
async fn a_list_is_by_kind_and_name_and_pages_are_parts_of_it() {
    for (store, _dir) in stores() {
        for name in ["docker:c", "docker:a", "docker:b"] {
            store.create(runtime(name)).await.unwrap();
        }
        store.create(run("r")).await.unwrap();
        let listed = store.list_any(None).await.unwrap();
        let names: Vec<&str> = listed.items.iter().map(|one| one.metadata().name.as_str()).collect();
        assert_eq!((names, listed.revision), (vec!["r", "docker:a", "docker:b", "docker:c"], 4));

        let page = async |after: Option<&str>, limit| {
            let items = store.page_any("Runtime", after, limit).await.unwrap();
            items.iter().map(|one| one.metadata().name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(page(None, 2).await, ["docker:a", "docker:b"]);
        assert_eq!(page(Some("docker:b"), 2).await, ["docker:c"]);
        assert_eq!(page(Some("docker:aa"), 1).await, ["docker:b"], "after one that is gone");
        assert_eq!(page(Some("docker:c"), 2).await, Vec::<String>::new());
        for (after, limit) in [(None, 2), (Some("docker:b"), 2), (Some("docker:c"), 2)] {
            let text = store.page_json("Runtime", after, limit).await.unwrap();
            let read = AnyResource::read_list("Runtime", text.as_bytes()).unwrap();
            let page = store.page_any("Runtime", after, limit).await.unwrap();
            assert!(read.iter().eq(page.iter().map(|one| &**one)), "{read:?} and {page:?}");
        }
        assert_eq!(store.names("Runtime").await.unwrap(), ["docker:a", "docker:b", "docker:c"]);
        assert_eq!(store.names("Flow").await.unwrap(), Vec::<String>::new());
        let mut each = Vec::new();
        store.each::<Runtime>(|one| each.push(one.clone())).await.unwrap();
        assert_eq!(each, store.list::<Runtime>().await.unwrap());
        assert_eq!(store.part("docker:a", |one: &Resource<Runtime>| one.metadata.generation).await.unwrap(), Some(1));
        assert_eq!(store.part("docker:d", |one: &Resource<Runtime>| one.name().to_owned()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn every_one_of_many_pages_is_read_once() {
    for (store, _dir) in stores() {
        for n in 0..600 {
            store.create(run(&format!("r{n:03}"))).await.unwrap();
        }
        let mut names = Vec::new();
        store.each::<Run>(|one| names.push(one.metadata.name.clone())).await.unwrap();
        assert_eq!(names, (0..600).map(|n| format!("r{n:03}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn one_is_found_by_its_uid_for_as_long_as_it_is_there() {
    for (store, _dir) in stores() {
        let made = store.create(runtime("docker:a")).await.unwrap();
        let uid = made.metadata.uid.unwrap();
        assert_eq!(store.by_uid::<Runtime>(uid).await.unwrap(), Some(made.clone()));
        assert_eq!(store.by_uid::<Run>(uid).await.unwrap(), None);
        let mut seen = made;
        seen.status.version = Some("20.10".into());
        let seen = store.update_status(seen).await.unwrap();
        assert_eq!(store.by_uid::<Runtime>(uid).await.unwrap(), Some(seen));
        store.delete::<Runtime>("docker:a").await.unwrap();
        assert_eq!(store.by_uid::<Runtime>(uid).await.unwrap(), None);
        let anew = store.create(runtime("docker:a")).await.unwrap();
        assert_eq!(store.by_uid::<Runtime>(uid).await.unwrap(), None, "one of the same name is another one");
        assert_eq!(store.by_uid::<Runtime>(anew.metadata.uid.unwrap()).await.unwrap(), Some(anew));
    }
}

/// What a backend is asked below [`Store`]: each expectation against each state.
#[tokio::test]
async fn a_write_happens_when_what_it_expects_is_there_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![
        Arc::new(Memory::new()),
        Arc::new(Sqlite::in_memory(64).unwrap()),
        Arc::new(Sqlite::open(&dir.path().join("store.db")).unwrap()),
    ];
    for backend in backends {
        let write = |expect, cpus: u64, gone| {
            let mut one = runtime("docker:a");
            one.spec.cpus = Some(Cpus::whole(cpus));
            let one = Arc::new(AnyResource::Runtime(Box::new(one)));
            let change = if gone { Change::Deleted(one) } else { Change::Applied(one) };
            let written = backend.write(Write { expect, durable: cpus.is_multiple_of(2), change });
            async move { written.await.map(|written| written.revision) }
        };
        assert!(matches!(write(Expect::Revision(0), 1, false).await, Err(StoreError::NotFound { .. })));
        assert_eq!(write(Expect::Absent, 1, false).await, Ok(1));
        assert!(matches!(write(Expect::Absent, 2, false).await, Err(StoreError::AlreadyExists { .. })));
        assert!(matches!(write(Expect::Revision(2), 2, false).await, Err(StoreError::Conflict { .. })));
        assert_eq!(write(Expect::Revision(1), 2, false).await, Ok(2));
        assert!(matches!(write(Expect::Revision(1), 3, true).await, Err(StoreError::Conflict { .. })));
        let there = backend.get("Runtime", "docker:a").await.unwrap().unwrap();
        let AnyResource::Runtime(seen) = &*there else { panic!("{there:?}") };
        assert_eq!((seen.metadata.resource_version, seen.spec.cpus), (2, Some(Cpus::whole(2))));
        assert_eq!(write(Expect::Revision(2), 4, true).await, Ok(3));
        assert_eq!((backend.get("Runtime", "docker:a").await.unwrap(), backend.revision().await), (None, Ok(3)));
        assert_eq!(write(Expect::Absent, 5, false).await, Ok(4), "what failed took no revision");
    }
}

#[tokio::test]
async fn a_set_is_what_is_labelled_with_its_name() {
    let labelled = |mut one: Resource<Runtime>, set: &str| {
        one.metadata.labels = [(label::SET.to_owned(), set.to_owned())].into();
        one
    };
    for (store, _dir) in stores() {
        let mut first = store.create(labelled(runtime("docker:a"), "one")).await.unwrap();
        for (name, set) in [("docker:b", "two"), ("docker:c", "one")] {
            store.create(labelled(runtime(name), set)).await.unwrap();
        }
        store.create(runtime("docker:none")).await.unwrap();
        let mut other = run("a");
        other.metadata.labels = [(label::SET.to_owned(), "one".to_owned())].into();
        store.create(other).await.unwrap();
        let names = async |set: &str| {
            let members = store.members(set).await.unwrap();
            members.iter().map(|one| format!("{} {}", one.kind(), one.metadata().name)).collect::<Vec<_>>()
        };
        assert_eq!(names("one").await, ["Run a", "Runtime docker:a", "Runtime docker:c"]);
        assert_eq!(store.sets().await.unwrap(), [("one".to_owned(), 3), ("two".to_owned(), 1)].into());
        // into another one, and out of it
        first = store.update(labelled(first, "two")).await.unwrap();
        assert_eq!((names("one").await.len(), names("two").await.len()), (2, 2));
        first.metadata.labels.clear();
        first = store.update(first).await.unwrap();
        first.status.version = Some("1".into());
        store.update_status(first).await.unwrap();
        store.delete::<Runtime>("docker:b").await.unwrap();
        assert_eq!((names("two").await.len(), store.sets().await.unwrap().len()), (0, 1));
        assert_eq!(names("none").await, [""; 0]);
    }
}

#[tokio::test]
async fn notes_are_kept_all_or_none_and_are_no_change() {
    for (store, _dir) in stores() {
        store.create(runtime("docker:a")).await.unwrap();
        let mut changes = store.watch(None, None).unwrap();
        let note = |name: &str, text: &str| (name.to_owned(), Some(text.to_owned()));
        store.put_notes(vec![note("sync/a/good", "1"), note("sync/a/state", "2")], true).await.unwrap();
        store
            .put_notes(vec![note("sync/ab/good", "3"), note("sync/a/state", "4"), ("sync/a/good".into(), None)], false)
            .await
            .unwrap();
        store.put_notes(vec![("nothing".into(), None)], false).await.unwrap();
        let of = async |prefix: &str| store.notes(prefix).await.unwrap().into_iter().collect::<Vec<_>>();
        let said = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(of("sync/a/").await, [said("sync/a/state", "4")]);
        assert_eq!(of("sync/").await, [said("sync/a/state", "4"), said("sync/ab/good", "3")]);
        assert_eq!((of("").await.len(), of("sync/a/x").await.len()), (2, 0));
        assert_eq!(store.revision().await.unwrap(), 1);
        assert!(changes.next().now_or_never().is_none(), "somebody was told");
    }
}
