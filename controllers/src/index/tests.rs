//! However it came to be, the index answers as one that was made of what is there.

use super::Index;
use hmz_api::condition::ConditionStatus;
use hmz_api::kinds::condition::{CREATED, SCHEDULED};
use hmz_api::kinds::{Environment, EnvironmentSpec, RestartPolicy};
use hmz_api::{AnyResource, Backend, Resource, RuntimeRef};
use jiff::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const RUNTIMES: [&str; 3] = ["a", "b", "ab"];
const ADDRESSES: [&str; 2] = ["unix:///a.sock", "unix:///b.sock"];

/// What an environment is after a change.
#[derive(Debug, Clone)]
struct Is {
    named: usize,
    used: Option<usize>,
    endpoint: Option<usize>,
    scheduled: Option<bool>,
    down: bool,
    /// Another one of the same name has a uid of its own.
    uid: u8,
}

fn named(nth: usize) -> RuntimeRef {
    RuntimeRef::named(Backend::Docker, RUNTIMES[nth])
}

fn environment(name: u8, is: &Is) -> AnyResource {
    let spec = EnvironmentSpec {
        runtime: named(is.named),
        workdir: None,
        image: None,
        cpus: None,
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Never,
        admission: None,
        wait_for: None,
    };
    let mut env = Resource::<Environment>::new(format!("env-{name}"), spec);
    env.metadata.uid = Some(Uuid::from_u128(u128::from(name) * 256 + u128::from(is.uid)));
    env.status.used = is.used.map(named);
    env.status.endpoint = is.endpoint.map(|nth| ADDRESSES[nth].to_owned());
    let mut set = |kind, holds, reason| {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        env.status.conditions.set(kind, status, reason, "", 1, Timestamp::UNIX_EPOCH);
    };
    if let Some(scheduled) = is.scheduled {
        set(SCHEDULED, scheduled, "Held");
    }
    if is.down {
        set(CREATED, false, "Exited");
    }
    AnyResource::Environment(Box::new(env))
}

/// Everything it answers about places and runtimes.
fn answers(index: &Index) -> impl PartialEq + std::fmt::Debug + use<> {
    let sorted = |mut names: Vec<Arc<str>>| {
        names.sort();
        names
    };
    let runtimes = RUNTIMES.map(|name| {
        let name = format!("docker:{name}");
        (sorted(index.on(&name)), sorted(index.waits_for(&name)), sorted(index.endpoints(&name)))
    });
    let uids = (0..4 * 256).map(|uid| index.of_uid(Uuid::from_u128(uid))).collect::<Vec<_>>();
    let mut counts = index.counts();
    counts.iter_mut().for_each(|counts| counts.sort_by_key(|of| format!("{of:?}")));
    (runtimes, uids, index.places(), index.is_busy(), format!("{counts:?}"))
}

proptest! {
    #[test]
    fn what_it_answers_is_what_is_there(changes in prop::collection::vec((0..4_u8, prop::option::of(is())), 0..40)) {
        let index = Index::new();
        index.listing();
        index.listed();
        let mut there = BTreeMap::new();
        for (name, change) in changes {
            match change {
                Some(is) => {
                    index.take(&environment(name, &is), false);
                    there.insert(name, is);
                }
                None => {
                    if let Some(is) = there.remove(&name) {
                        index.take(&environment(name, &is), true);
                    }
                }
            }
        }
        let anew = Index::new();
        anew.listing();
        for (name, is) in &there {
            anew.take(&environment(*name, is), false);
        }
        anew.listed();
        prop_assert_eq!(answers(&index), answers(&anew));
    }
}

fn is() -> impl Strategy<Value = Is> {
    let runtime = || 0..RUNTIMES.len();
    let address = prop::option::of(0..ADDRESSES.len());
    (runtime(), prop::option::of(runtime()), address, prop::option::of(any::<bool>()), any::<bool>(), 0..2_u8)
        .prop_map(|(named, used, endpoint, scheduled, down, uid)| Is { named, used, endpoint, scheduled, down, uid })
}
