//! What was done for each resource, on the daemons and by runners, and what was planned to be.

use super::compare::account_of;
use crate::scenario::{INSTANCE, Sim};
use hmz_api::kinds::{Environment, Run, Share};
use hmz_api::rest::{Effect, Planned};
use hmz_api::{AnyResource, Cpus, Kind, Memory};
use hmz_controllers::environment::plan::owner_run;
use hmz_drivers::ObservedBox;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A kind and a name.
pub type Key = (String, String);

/// A box that was, or would be, started: all that is said of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    pub role: String,
    pub runtime: String,
    pub image: String,
    pub cpus: u64,
    pub memory: u64,
    /// How many; which, where that is known.
    pub gpus: usize,
    pub which: Option<Vec<String>>,
}

impl Start {
    fn new(role: &str, runtime: String, image: &str, share: &Share) -> Self {
        let which = Some(share.gpus.clone()).filter(|ids| !ids.iter().any(|id| id == "?"));
        let (cpus, memory) = (share.cpus.map_or(0, Cpus::millis), share.memory.map_or(0, Memory::bytes));
        Self { role: role.to_owned(), runtime, image: image.to_owned(), cpus, memory, gpus: share.gpus.len(), which }
    }
}

/// What was, or would be, done for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    pub started: Vec<Start>,
    pub removed: BTreeSet<String>,
    pub begun: usize,
    pub ended: usize,
}

/// Whose each thing is, by its uid.
#[derive(Default)]
pub struct Owners(BTreeMap<Uuid, Key>);

impl Owners {
    /// Takes in who is there now.
    pub async fn look(&mut self, sim: &Sim) {
        for one in sim.store.list_any(None).await.unwrap().items {
            let mut key = (one.kind().to_owned(), one.metadata().name.clone());
            if let AnyResource::Environment(env) = &one
                && let Some(owner) = owner_run(env)
            {
                key = (Run::KIND.into(), owner.name.clone());
            }
            self.0.insert(one.metadata().uid.unwrap(), key);
        }
    }

    fn of(&self, seen: &ObservedBox) -> Key {
        let uid = seen.run.or(seen.key.as_ref().map(|key| key.uid)).unwrap_or_default();
        self.0.get(&uid).cloned().unwrap_or_else(|| ("?".into(), seen.name.clone()))
    }
}

/// From now on what is done is noted.
pub fn begin(sim: &Sim) {
    sim.daemons.iter().for_each(|daemon| daemon.remember());
    sim.runners.begun.lock().unwrap().clear();
    sim.runners.ended.lock().unwrap().clear();
}

/// What was done since.
pub fn done(sim: &Sim, owners: &Owners) -> BTreeMap<Key, Account> {
    let mut all: BTreeMap<Key, Account> = BTreeMap::new();
    for daemon in &sim.daemons {
        let (state, backend) = (daemon.state(), if daemon.name == "s" { "swarm" } else { "docker" });
        let ours = |one: &ObservedBox| one.key.as_ref().is_some_and(|key| key.instance == INSTANCE);
        for (one, image) in state.made.iter().filter(|(one, _)| ours(one)) {
            let start = Start::new(&one.role, format!("{backend}:{}", one.provider), image, &one.share);
            all.entry(owners.of(one)).or_default().started.push(start);
        }
        for gone in state.before.iter().filter(|one| !state.containers.contains_key(&one.name)) {
            all.entry(owners.of(gone)).or_default().removed.insert(gone.name.clone());
        }
    }
    let of = |uid: &Uuid| owners.0.get(uid).cloned().unwrap_or_else(|| ("?".into(), uid.to_string()));
    for uid in sim.runners.begun.lock().unwrap().iter() {
        all.entry(of(uid)).or_default().begun += 1;
    }
    for uid in sim.runners.ended.lock().unwrap().iter() {
        all.entry(of(uid)).or_default().ended += 1;
    }
    all.values_mut().for_each(|account| account.started.sort());
    all
}

/// Each resource that is told of, whether it is applied or not, with what is told.
pub fn told(planned: &[Planned]) -> BTreeMap<Key, Vec<Effect>> {
    let mut all: BTreeMap<Key, Vec<Effect>> = BTreeMap::new();
    // each once; one that is applied as it is may be told of as another
    for one in planned {
        if !one.effects.is_empty() {
            all.insert((one.kind.clone(), one.name.clone()), one.effects.clone());
        }
        for other in &one.others {
            let before = all.insert((other.kind.clone(), other.name.clone()), other.effects.clone());
            assert_eq!(before, None, "{}/{} is told of twice: {planned:#?}", other.kind, other.name);
        }
    }
    all
}

/// The same as it is planned.
pub fn to_do(told: &BTreeMap<Key, Vec<Effect>>) -> BTreeMap<Key, Account> {
    let mut all = BTreeMap::new();
    for (key, effects) in told {
        let account = of(effects);
        if account != Account::default() {
            all.insert(key.clone(), account);
        }
    }
    all
}

fn of(effects: &[Effect]) -> Account {
    let mut account = Account::default();
    for effect in effects {
        match effect {
            Effect::Start { role, image, share, runtime, .. } => {
                account.started.push(Start::new(role, account_of(runtime), image, share));
            }
            Effect::Remove { container, .. } => drop(account.removed.insert(container.clone())),
            Effect::Begin { .. } => account.begun += 1,
            Effect::End => account.ended += 1,
            Effect::Wait { .. } | Effect::Refuse { .. } | Effect::Unsure { .. } => {}
        }
    }
    account.started.sort();
    account
}

/// Those of whom something cannot be told, and why.
pub fn unsure(told: &BTreeMap<Key, Vec<Effect>>) -> BTreeMap<Key, Vec<String>> {
    let why = |effects: &Vec<Effect>| -> Vec<String> {
        let whys = effects.iter().filter_map(|effect| match effect {
            Effect::Unsure { why } => Some(why.clone()),
            _ => None,
        });
        whys.collect()
    };
    told.iter().map(|(key, effects)| (key.clone(), why(effects))).filter(|(_, why)| !why.is_empty()).collect()
}

/// As a person names it.
pub fn shown(key: &Key) -> String {
    let kind = if key.0 == Environment::KIND { "env".to_owned() } else { key.0.to_ascii_lowercase() };
    format!("{kind}/{}", key.1)
}
