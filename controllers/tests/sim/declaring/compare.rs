//! Whether what was done is what was planned: exactly where that is sure, and else among what the plan says may be.

use super::accounts::{self, Account, Key, Owners, Start, shown};
use crate::daemon::NO_IMAGE;
use crate::room::lasting;
use crate::scenario::Sim;
use hmz_api::kinds::{Harness, Runtime, RuntimeSpec, condition};
use hmz_api::rest::{Effect, Planned};
use hmz_api::{AnyResource, RuntimeRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// How well it is known before what is done for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// To the letter.
    Exactly,
    /// All of it or a part: what asks for room where that is known only then, and what begins with an image that is not there.
    Within,
    /// It is chance: what it declares, on one of its places, or not.
    Either,
}

/// Where one may be, by the names of accounts, and in which roles.
#[derive(Debug, Clone, Default)]
struct Places {
    at: BTreeSet<String>,
    roles: BTreeSet<String>,
    falls: bool,
}

/// What is told before.
pub struct Told {
    pub effects: BTreeMap<Key, Vec<Effect>>,
    pub unsure: BTreeMap<Key, Vec<String>>,
    places: BTreeMap<Key, Places>,
    /// As they were declared, by their names.
    runtimes: BTreeMap<String, Vec<RuntimeSpec>>,
    /// Whether runs go on until they are ended.
    lasting: bool,
}

impl Told {
    pub fn new(sim: &Sim, planned: &[Planned]) -> Self {
        let (effects, lasting) = (accounts::told(planned), sim.runners.lasting.load(Ordering::Relaxed));
        Self { unsure: accounts::unsure(&effects), effects, places: BTreeMap::new(), runtimes: BTreeMap::new(), lasting }
    }

    /// Takes in where everybody may be, as it is declared now.
    pub async fn look(&mut self, sim: &Sim) {
        for runtime in sim.store.list::<Runtime>().await.unwrap() {
            // one that goes may have been used before
            self.runtimes.entry(runtime.metadata.name).or_default().push(runtime.spec);
        }
        let specs = |named: &RuntimeRef| self.runtimes.get(&named.resource_name()).into_iter().flatten();
        for one in sim.store.list_any(None).await.unwrap().items {
            let (named, roles): (Vec<RuntimeRef>, Vec<String>) = match &one {
                AnyResource::Environment(env) => (vec![env.spec.runtime.clone()], vec![env.metadata.name.clone()]),
                AnyResource::Run(run) => {
                    let named = run.spec.environments.values().map(|request| request.place().runtime).collect();
                    (named, run.spec.environments.keys().cloned().chain(["harness".into()]).collect())
                }
                _ => continue,
            };
            let places = self.places.entry((one.kind().to_owned(), one.metadata().name.clone())).or_default();
            places.roles.extend(roles);
            for named in named {
                let list: Vec<RuntimeRef> = specs(&named).flat_map(|spec| spec.fallback.clone()).collect();
                places.falls |= !list.is_empty();
                for place in std::iter::once(named).chain(list) {
                    let seconds = specs(&place).filter_map(|spec| match &spec.harness {
                        Harness::On(second) => Some(account_of(second)),
                        _ => None,
                    });
                    places.at.extend(seconds.chain([account_of(&place)]));
                }
            }
        }
    }

    fn effects(&self, key: &Key) -> &[Effect] {
        self.effects.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether it begins with an image that turns out not to be had.
    pub fn is_refused(&self, key: &Key) -> bool {
        let is = |effect: &Effect| matches!(effect, Effect::Start { image, pulls: true, .. } if image == NO_IMAGE);
        self.effects(key).iter().any(is)
    }

    pub fn known(&self, key: &Key) -> Known {
        let falls = self.places.get(key).is_some_and(|places| places.falls);
        match self.unsure.get(key) {
            Some(whys) if whys.iter().any(|why| !why.contains("is known only when it is asked")) => Known::Either,
            None if !self.is_refused(key) => Known::Exactly,
            _ if falls => Known::Either,
            _ => Known::Within,
        }
    }

    /// Holds what was done to it.
    pub fn hold(&self, sim: &Sim, owners: &Owners) {
        let (mut done, mut to_do) = (accounts::done(sim, owners), accounts::to_do(&self.effects));
        // of several that ask for GPUs, who has which is chance
        let asks = |all: &BTreeMap<Key, Account>| all.values().flat_map(|one| &one.started).filter(|one| one.gpus > 0).count();
        let told = to_do.values().flat_map(|one| &one.started).all(|one| one.which.is_some());
        let (sure, several) = (self.is_sure(), asks(&to_do) > 1);
        if several || !sure || !told {
            for one in done.values_mut().chain(to_do.values_mut()).flat_map(|one| &mut one.started) {
                one.which = None;
            }
        }
        let keys: BTreeSet<Key> = done.keys().chain(to_do.keys()).cloned().collect();
        for key in keys {
            let (done, to_do) = (done.remove(&key).unwrap_or_default(), to_do.remove(&key).unwrap_or_default());
            let what = || format!("{}: done {done:#?}, and planned {to_do:#?}, {:?}", shown(&key), self.known(&key));
            if self.known(&key) == Known::Exactly {
                assert_eq!(done, to_do, "{}: what was done, and what was planned", shown(&key));
                continue;
            }
            let is_chance = self.known(&key) == Known::Either;
            assert!(is_chance || done.removed == to_do.removed, "{}", what());
            assert!(is_chance || (done.begun <= to_do.begun && done.ended <= to_do.ended), "{}", what());
            let mut left = to_do.started.clone();
            for start in &done.started {
                match left.iter().position(|one| one == start) {
                    Some(nth) => drop(left.remove(nth)),
                    None => assert!(is_chance && self.may(&key, start), "{start:?} of {}", what()),
                }
            }
        }
    }

    fn may(&self, key: &Key, start: &Start) -> bool {
        self.places.get(key).is_some_and(|places| places.at.contains(&start.runtime) && places.roles.contains(&start.role))
    }

    /// Whether all that is told is known before, so that what others have come to by then is known too.
    pub fn is_sure(&self) -> bool {
        self.effects.keys().all(|key| self.known(key) == Known::Exactly)
    }

    /// Whether a reason is the one that was told. One of a wait is looked at again until nothing moves any more, and so is the same
    /// to the letter; one of a refusal is of one moment, as is each where something is chance or a run ends when it has done.
    pub fn same_reason(&self, key: &Key, told: &str, is: &str, waits: bool) {
        let moves = |other: &Key| *other != *key && self.effects(other).iter().any(is_a_move);
        let ends = |other: &Key| !self.lasting && self.effects(other).iter().any(|one| matches!(one, Effect::Begin { .. }));
        let exact = self.is_sure() && self.effects.keys().all(|other| !ends(other) && (waits || !moves(other)));
        if exact {
            assert_eq!(told, is, "{}", shown(key));
        }
        assert_eq!(lasting(told), lasting(is), "{}", shown(key));
    }

    /// Holds why each that was started elsewhere is not where it is declared.
    pub async fn hold_falls(&self, sim: &Sim) {
        for (key, effects) in self.effects.iter().filter(|(key, _)| self.known(key) == Known::Exactly) {
            let Some(there) = sim.store.get_any(&key.0, &key.1).await.unwrap() else { continue };
            for (role, said) in effects.iter().filter_map(|effect| match effect {
                Effect::Start { role, told: Some(told), .. } => Some((role, told)),
                _ => None,
            }) {
                let is = match &there {
                    AnyResource::Environment(env) => {
                        let scheduled = env.status.conditions.get(condition::SCHEDULED);
                        scheduled.filter(|c| c.reason == condition::FELL_BACK).map(|c| c.message.clone())
                    }
                    AnyResource::Run(run) if run.status.is_complete() => continue,
                    AnyResource::Run(run) => run.status.environments.get(role).and_then(|role| role.fell_back.clone()),
                    _ => None,
                };
                let is = is.unwrap_or_else(|| panic!("{} did not fall back: {said}", shown(key)));
                self.same_reason(key, said, &is, false);
            }
        }
    }
}

/// A runtime as accounts name it.
pub fn account_of(runtime: &RuntimeRef) -> String {
    format!("{}:{}", runtime.backend, runtime.provider())
}

fn is_a_move(effect: &Effect) -> bool {
    matches!(effect, Effect::Start { .. } | Effect::Remove { .. })
}
