//! Random operations against a model that is too simple to be wrong.

use super::conformance::runtime;
use crate::{Backend, Change, Memory, RandomIds, Sqlite, Store, StoreError};
use futures::{FutureExt, StreamExt};
use hmz_api::Resource;
use hmz_api::clock::SystemClock;
use hmz_api::kinds::Runtime;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Op {
    Create { name: usize, finalizer: bool },
    Spec { name: usize, value: u32, stale: bool },
    Status { name: usize, value: u32, stale: bool },
    Release { name: usize },
    Delete { name: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..3_usize;
    prop_oneof![
        (name.clone(), any::<bool>()).prop_map(|(name, finalizer)| Op::Create { name, finalizer }),
        (name.clone(), 0..3_u32, any::<bool>()).prop_map(|(name, value, stale)| Op::Spec { name, value, stale }),
        (name.clone(), 0..3_u32, any::<bool>()).prop_map(|(name, value, stale)| Op::Status { name, value, stale }),
        name.clone().prop_map(|name| Op::Release { name }),
        name.prop_map(|name| Op::Delete { name }),
    ]
}

/// What a runtime is in the model.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    spec: u32,
    status: u32,
    generation: u64,
    revision: u64,
    finalizer: bool,
    deleting: bool,
}

fn seen(resource: &Resource<Runtime>) -> Model {
    Model {
        spec: resource.spec.max_containers.unwrap_or_default(),
        status: resource.status.containers.unwrap_or_default(),
        generation: resource.metadata.generation,
        revision: resource.metadata.resource_version,
        finalizer: !resource.metadata.finalizers.is_empty(),
        deleting: resource.metadata.is_deleting(),
    }
}

async fn play(store: Store, ops: Vec<Op>) {
    let mut watch = store.watch(Some("Runtime"), None).unwrap();
    let mut watched: BTreeMap<String, Model> = BTreeMap::new();
    let mut model: BTreeMap<String, Model> = BTreeMap::new();
    let mut first: BTreeMap<String, Resource<Runtime>> = BTreeMap::new();
    let mut revision = 0;
    for op in ops {
        match op.clone() {
            Op::Create { name, finalizer } => {
                let name = format!("docker:{name}");
                let mut new = runtime(&name);
                new.spec.max_containers = Some(0);
                if finalizer {
                    new.metadata.finalizers.push("f".into());
                }
                let made = store.create(new).await;
                if model.contains_key(&name) {
                    assert!(matches!(made, Err(StoreError::AlreadyExists { .. })));
                } else {
                    revision += 1;
                    model.insert(name.clone(), Model { generation: 1, revision, finalizer, ..Model::default() });
                    first.insert(name, made.unwrap());
                }
            }
            Op::Spec { name, value, stale } | Op::Status { name, value, stale } => {
                let name = format!("docker:{name}");
                let is_spec = matches!(op, Op::Spec { .. });
                let fresh = store.get::<Runtime>(&name).await.unwrap();
                let read = if stale { first.get(&name).cloned() } else { fresh };
                let Some(mut read) = read else { continue };
                let base = read.metadata.resource_version;
                if is_spec {
                    read.spec.max_containers = Some(value);
                } else {
                    read.status.containers = (value > 0).then_some(value);
                }
                let done = if is_spec { store.update(read).await } else { store.update_status(read).await };
                match model.get_mut(&name) {
                    None => assert!(matches!(done, Err(StoreError::NotFound { .. }))),
                    Some(m) if m.revision != base => assert!(matches!(done, Err(StoreError::Conflict { .. }))),
                    Some(m) => {
                        done.unwrap();
                        let was = if is_spec { &mut m.spec } else { &mut m.status };
                        if *was != value {
                            *was = value;
                            revision += 1;
                            m.revision = revision;
                            m.generation += u64::from(is_spec);
                        }
                    }
                }
            }
            Op::Release { name } => {
                let name = format!("docker:{name}");
                let Some(mut read) = store.get::<Runtime>(&name).await.unwrap() else { continue };
                read.metadata.finalizers.clear();
                store.update(read).await.unwrap();
                let m = model.get_mut(&name).unwrap();
                if m.finalizer {
                    m.finalizer = false;
                    revision += 1;
                    m.revision = revision;
                    if m.deleting {
                        model.remove(&name);
                    }
                }
            }
            Op::Delete { name } => {
                let name = format!("docker:{name}");
                let done = store.delete::<Runtime>(&name).await;
                match model.get_mut(&name) {
                    None => assert!(matches!(done, Err(StoreError::NotFound { .. }))),
                    Some(m) if m.deleting => assert!(done.unwrap().metadata.is_deleting()),
                    Some(m) if m.finalizer => {
                        revision += 1;
                        (m.deleting, m.revision) = (true, revision);
                        assert!(done.unwrap().metadata.is_deleting());
                    }
                    Some(_) => {
                        revision += 1;
                        model.remove(&name);
                    }
                }
            }
        }
        let stored: BTreeMap<String, Model> =
            store.list::<Runtime>().await.unwrap().iter().map(|r| (r.metadata.name.clone(), seen(r))).collect();
        assert_eq!(stored, model, "after {op:?}");
        assert_eq!(store.revision().await.unwrap(), revision, "after {op:?}");
        while let Some(Some(event)) = watch.next().now_or_never() {
            match event.unwrap().change {
                Change::Applied(one) => {
                    let hmz_api::AnyResource::Runtime(r) = &*one else { panic!("{one:?}") };
                    watched.insert(r.metadata.name.clone(), seen(r));
                }
                Change::Deleted(r) => drop(watched.remove(&r.metadata().name)),
            }
        }
        assert_eq!(watched, model, "watched after {op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_order_of_operations_is_as_the_model_says(ops in prop::collection::vec(op(), 1..40)) {
        for backend in [Arc::new(Memory::new()) as Arc<dyn Backend>, Arc::new(Sqlite::in_memory(64).unwrap())] {
            let store = Store::with(backend, Arc::new(SystemClock), Arc::new(RandomIds));
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(play(store, ops.clone()));
        }
    }
}
