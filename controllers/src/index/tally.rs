//! How many resources there are of each sort: what metrics tell of them, without a look at each.

use hmz_api::kinds::condition::{CREATED, READY, SCHEDULED};
use hmz_api::{AnyResource, ConditionStatus, Environment, Resource};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What resources are counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// Their kind.
    pub kind: &'static str,
    /// Their conditions, and whether they hold.
    pub conditions: Vec<(String, ConditionStatus)>,
    /// Of environments: the runtime they are on, or are to be, and one word of what their conditions say.
    pub boxes: Option<(String, &'static str)>,
}

/// The sort of a resource.
fn sort(resource: &AnyResource) -> Sort {
    let conditions = resource.conditions().into_iter().flat_map(|all| &all.0);
    Sort {
        kind: resource.kind(),
        conditions: conditions.map(|c| (c.kind.clone(), c.status)).collect(),
        boxes: match resource {
            AnyResource::Environment(env) => {
                Some((env.status.used.as_ref().unwrap_or(&env.spec.runtime).resource_name(), state(env)))
            }
            _ => None,
        },
    }
}

/// The same as a digest, which is made at each change and so without any text of its own.
fn digest(resource: &AnyResource) -> u64 {
    let mut digest = DefaultHasher::new();
    resource.kind().hash(&mut digest);
    for condition in resource.conditions().into_iter().flat_map(|all| &all.0) {
        (&condition.kind, condition.status).hash(&mut digest);
    }
    if let AnyResource::Environment(env) = resource {
        (env.status.used.as_ref().unwrap_or(&env.spec.runtime), state(env)).hash(&mut digest);
    }
    digest.finish()
}

/// One word of what an environment's conditions say.
fn state(environment: &Resource<Environment>) -> &'static str {
    let conditions = &environment.status.conditions;
    let ended = conditions.get(CREATED).is_some_and(|c| c.status == ConditionStatus::False && c.reason != "Pending");
    match () {
        () if environment.metadata.is_deleting() => "deleting",
        () if conditions.is_true(READY) => "ready",
        () if environment.is_refused() => "refused",
        () if ended => "down",
        () if !conditions.is_true(SCHEDULED) => "waiting",
        () => "starting",
    }
}

/// The counts.
#[derive(Debug, Default)]
pub struct Tally(HashMap<u64, (Sort, usize)>);

impl Tally {
    /// Counts a resource; what it is to be taken out by.
    pub fn add(&mut self, resource: &AnyResource) -> u64 {
        let key = digest(resource);
        self.0.entry(key).or_insert_with(|| (sort(resource), 0)).1 += 1;
        key
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some((_, count)) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// How many there are of each sort.
    pub fn counts(self) -> Vec<(Sort, usize)> {
        self.0.into_values().collect()
    }

    pub(super) fn now(&self) -> Vec<(Sort, usize)> {
        self.0.values().cloned().collect()
    }
}
