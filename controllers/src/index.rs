//! Who is on a runtime, who waits for one and where boxes are: what the router saw of the store's changes, kept small, so that
//! what happens to one is not paid for by all.
//!
//! It may be a moment behind the store, so it only says whom to ask: whoever decides anything reads the store.

mod entry;
pub(crate) mod tally;

use crate::busy;
use crate::environment::plan::is_down;
use entry::{Entry, Other, Seen, seen};
use hmz_api::AnyResource;
use hmz_api::kinds::{Environment, Run, Runtime, condition};
use hmz_api::{Resource, RuntimeRef};
use hmz_drivers::{BoxState, ObservedBox, Purpose};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally::{Sort, Tally};
use tokio::sync::watch;
use uuid::Uuid;

/// A daemon, by the name of a runtime and an address of its.
pub(crate) type Place = (Arc<str>, Arc<str>);

/// What changed of a resource, as far as others decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// What its own controller looks at and does not write itself.
    pub declared: bool,
    /// What other controllers look at.
    pub observed: bool,
}

/// A run that waits for room.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    /// Runtimes it names.
    pub places: BTreeSet<String>,
    /// How many environments it needs.
    pub environments: usize,
}

/// The index.
pub(crate) struct Index {
    tables: Mutex<Tables>,
    /// Counts changes of the set of places.
    places: watch::Sender<u64>,
}

#[derive(Default)]
struct Tables {
    /// Names and addresses of runtimes, each once.
    words: HashSet<Arc<str>>,
    environments: HashMap<Arc<str>, Entry>,
    /// Environments by the runtimes they name and are on.
    on: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Those without a share that were looked at before, by the runtimes they name.
    waits: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Their names by uid.
    uids: HashMap<Uuid, Arc<str>>,
    places: BTreeMap<Place, usize>,
    /// What is known of everything else.
    others: HashMap<(&'static str, String), Other>,
    /// How many there are of each sort.
    tally: Tally,
    waiting: BTreeMap<String, Waiting>,
    /// Runtimes that fall back, and to which.
    falls: BTreeMap<String, BTreeSet<String>>,
    /// Runtimes that are stored, and not being deleted.
    kept: HashSet<String>,
    /// Runs that keep the daemon up, and those that have not ended.
    busy_runs: BTreeSet<String>,
    running: BTreeSet<String>,
    /// Environments that keep it up, and those that have a box.
    busy: usize,
    boxed: usize,
    /// Counts listings of the whole store.
    epoch: u32,
    /// Whether what is here is all there is.
    whole: bool,
}

impl Index {
    /// One with nothing in it.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { tables: Mutex::default(), places: watch::Sender::new(0) })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole store is about to be listed anew; until [`Index::listed`] what is here is not all.
    pub fn listing(&self) {
        let mut tables = self.tables();
        tables.epoch = tables.epoch.wrapping_add(1);
        tables.whole = false;
    }

    /// All of it was listed: what was not among it is gone.
    pub fn listed(&self) {
        let mut tables = self.tables();
        let epoch = tables.epoch;
        let gone: Vec<Arc<str>> =
            tables.environments.iter().filter(|(_, e)| e.epoch != epoch).map(|(name, _)| name.clone()).collect();
        for name in &gone {
            tables.remove(name);
        }
        let gone: Vec<_> = tables.others.iter().filter(|(_, other)| other.epoch != epoch).map(|(key, _)| key.clone()).collect();
        for key in gone {
            tables.forget(key.0, &key.1);
        }
        tables.whole = true;
        drop(tables);
        self.places.send_modify(|n| *n += 1);
    }

    /// Takes in what a resource is now, or that it is gone, and says what changed of it.
    pub fn take(&self, resource: &AnyResource, gone: bool) -> Changed {
        let mut tables = self.tables();
        let now = seen(resource);
        let before = match resource {
            AnyResource::Environment(env) => {
                let (before, places_changed) = tables.environment(env, now, (!gone).then_some(resource));
                if places_changed {
                    self.places.send_modify(|n| *n += 1);
                }
                before
            }
            other => tables.other(other, now, gone),
        };
        Changed {
            declared: gone || before.is_none_or(|b| b.declared != now.declared),
            observed: gone || before.is_none_or(|b| b.observed != now.observed),
        }
    }

    /// Whether anything is to be done, or may be; true for as long as not everything is known.
    pub fn is_busy(&self) -> bool {
        let tables = self.tables();
        !tables.whole || tables.busy > 0 || !tables.busy_runs.is_empty()
    }

    /// Environments that name a runtime or are on it.
    pub fn on(&self, runtime: &str) -> Vec<Arc<str>> {
        self.tables().on.get(runtime).into_iter().flatten().cloned().collect()
    }

    /// The runtime an environment is on, or is to be.
    pub fn runtime_of(&self, environment: &str) -> Option<Arc<str>> {
        self.tables().environments.get(environment).map(|entry| entry.runtime().clone())
    }

    /// The environment of that uid.
    pub fn of_uid(&self, uid: Uuid) -> Option<Arc<str>> {
        self.tables().uids.get(&uid).cloned()
    }

    /// Whether a runtime is stored, and is to stay.
    pub fn keeps(&self, runtime: &str) -> bool {
        self.tables().kept.contains(runtime)
    }

    /// Whether a box is known to be wanted: it is its environment's current one, and that did not end. What is not known to be
    /// may be all the same.
    pub fn wants(&self, uid: Uuid, incarnation: u64) -> bool {
        let tables = self.tables();
        let entry = tables.uids.get(&uid).and_then(|name| tables.environments.get(name));
        tables.whole && entry.is_some_and(|entry| entry.incarnation == incarnation && !entry.down)
    }

    /// Environments without a share that may get one on a runtime: they name it, or one that falls back to it. One that was
    /// never looked at is asked for anyway.
    pub fn waits_for(&self, runtime: &str) -> Vec<Arc<str>> {
        let tables = self.tables();
        let falls = tables.falls.iter().filter(|(_, list)| list.contains(runtime)).map(|(name, _)| name.as_str());
        falls.chain([runtime]).filter_map(|named| tables.waits.get(named)).flatten().cloned().collect()
    }

    /// Runs that may get room on a runtime, and whether they need several daemons.
    pub fn runs_for(&self, runtime: &str) -> Vec<(String, bool)> {
        let tables = self.tables();
        let falls: BTreeSet<&String> = tables.falls.iter().filter(|(_, list)| list.contains(runtime)).map(|(n, _)| n).collect();
        let of = tables.waiting.iter().filter_map(|(name, run)| {
            let falls = run.places.iter().any(|place| falls.contains(place));
            let several = run.places.len() > 1 || (run.environments > 1 && falls);
            (run.places.contains(runtime) || falls).then(|| (name.clone(), several))
        });
        of.collect()
    }

    /// The addresses the environments of a runtime were started on, newest first.
    pub fn endpoints(&self, runtime: &str) -> Vec<Arc<str>> {
        let tables = self.tables();
        let mut newest: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
        for entry in tables.on.get(runtime).into_iter().flatten().filter_map(|name| tables.environments.get(name)) {
            if let Some(endpoint) = &entry.endpoint {
                let made = newest.entry(endpoint).or_insert(entry.made);
                *made = (*made).max(entry.made);
            }
        }
        let mut all: Vec<_> = newest.into_iter().collect();
        all.sort_by_key(|(_, made)| std::cmp::Reverse(*made));
        all.into_iter().map(|(endpoint, _)| endpoint.clone()).collect()
    }

    /// Every daemon that something is, or is to be, on.
    pub fn places(&self) -> Vec<Place> {
        self.tables().places.keys().cloned().collect()
    }

    /// Hears of changes of [`Index::places`].
    pub fn place_changes(&self) -> watch::Receiver<u64> {
        self.places.subscribe()
    }

    /// Environments of a place whose status is not what a listing of its daemon says: of their own boxes there, by instance.
    /// With no listing, all of them.
    pub fn differing(&self, place: &Place, instance: &str, listed: Option<&[ObservedBox]>) -> Vec<Arc<str>> {
        let mut running: HashMap<(Uuid, u64), i32> = HashMap::new();
        for one in listed.into_iter().flatten().filter(|b| b.purpose == Purpose::Box) {
            if let (Some(key), BoxState::Running(pid)) = (&one.key, &one.state)
                && key.instance == instance
            {
                running.insert((key.uid, key.incarnation), *pid);
            }
        }
        let tables = self.tables();
        let differs = |entry: &Entry| match &entry.ready {
            Some(pid) if listed.is_some() => running.get(&(entry.uid, entry.incarnation)) != Some(pid),
            _ => true,
        };
        let of = tables.on.get(&place.0).into_iter().flatten();
        of.filter(|name| tables.environments.get(*name).is_some_and(|e| e.is_at(place) && differs(e))).cloned().collect()
    }

    /// How many resources there are of each sort; `None` for as long as not everything is known.
    pub fn counts(&self) -> Option<Vec<(Sort, usize)>> {
        let tables = self.tables();
        tables.whole.then(|| tables.tally.now())
    }

    /// Whether `boxes` may be all the boxes there are, and no run is under way. Whoever needs to be sure looks.
    pub fn may_be_all(&self, boxes: usize) -> bool {
        let tables = self.tables();
        tables.whole && tables.boxed <= boxes && tables.running.is_empty()
    }
}

impl Tables {
    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(found) = self.words.get(text) {
            return found.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(word.clone());
        word
    }

    /// What was known of it before, and whether that changed which places there are.
    fn environment(&mut self, env: &Resource<Environment>, now: Seen, there: Option<&AnyResource>) -> (Option<Seen>, bool) {
        let name = self.environments.get_key_value(env.name()).map_or_else(|| env.name().into(), |(name, _)| name.clone());
        let before = self.remove(&name);
        let seen = before.as_ref().map(|b| b.seen);
        let place = before.and_then(|b| b.place());
        // the last that was there
        let left = |places: &BTreeMap<Place, usize>| place.as_ref().is_some_and(|place| !places.contains_key(place));
        let Some(there) = there else { return (seen, left(&self.places)) };
        let counted = self.tally.add(there);
        let entry = self.entry(env, now, counted);
        for runtime in entry.runtimes() {
            self.on.entry(runtime.clone()).or_default().insert(name.clone());
        }
        if entry.waits {
            self.waits.entry(entry.named.clone()).or_default().insert(name.clone());
        }
        self.uids.insert(entry.uid, name.clone());
        let mut came = false;
        if let Some(at) = entry.place() {
            came = !self.places.contains_key(&at) && place.as_ref() != Some(&at);
            *self.places.entry(at).or_default() += 1;
        }
        self.busy += usize::from(entry.busy);
        self.boxed += usize::from(entry.boxed);
        self.environments.insert(name, entry);
        (seen, came || left(&self.places))
    }

    fn entry(&mut self, env: &Resource<Environment>, seen: Seen, counted: u64) -> Entry {
        let status = &env.status;
        let named = self.word(&env.spec.runtime.resource_name());
        let used = status.used.as_ref().map(RuntimeRef::resource_name).filter(|used| **used != *named);
        let up = [condition::CREATED, condition::GUEST_READY].iter().all(|c| status.conditions.is_true(c));
        let scheduled = status.conditions.is_true(condition::SCHEDULED);
        let looked_at = status.conditions.get(condition::SCHEDULED).is_some();
        let down = is_down(env);
        Entry {
            seen,
            uid: env.metadata.uid.unwrap_or_default(),
            incarnation: status.incarnation,
            made: env.metadata.creation_timestamp.map_or(0, |at| at.as_millisecond()),
            used: used.map(|used| self.word(&used)),
            named,
            endpoint: status.endpoint.as_deref().map(|endpoint| self.word(endpoint)),
            ready: status.pid.filter(|_| up && !env.metadata.is_deleting()),
            waits: looked_at && !scheduled,
            down,
            listened: crate::environment::plan::owner_run(env).is_some() || !down,
            busy: busy::environment(env),
            boxed: !down && (status.container_id.is_some() || scheduled),
            counted,
            epoch: self.epoch,
        }
    }

    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.environments.remove(name)?;
        self.tally.remove(entry.counted);
        for runtime in entry.runtimes() {
            take_out(&mut self.on, runtime, name);
        }
        take_out(&mut self.waits, &entry.named, name);
        // another of this name may have come meanwhile, and it has a uid of its own
        if self.uids.get(&entry.uid).is_some_and(|of| **of == *name) {
            self.uids.remove(&entry.uid);
        }
        if let Some(place) = entry.place()
            && let Some(count) = self.places.get_mut(&place)
        {
            *count -= 1;
            if *count == 0 {
                self.places.remove(&place);
            }
        }
        self.busy -= usize::from(entry.busy);
        self.boxed -= usize::from(entry.boxed);
        Some(entry)
    }

    fn other(&mut self, resource: &AnyResource, now: Seen, gone: bool) -> Option<Seen> {
        let key = (resource.kind(), resource.metadata().name.clone());
        let before = self.others.get(&key).map(|other| other.seen);
        self.forget(key.0, &key.1);
        if gone {
            return before;
        }
        match resource {
            AnyResource::Run(run) => self.run(run),
            AnyResource::Runtime(runtime) => self.runtime(runtime),
            _ => {}
        }
        let counted = self.tally.add(resource);
        self.others.insert(key, Other { seen: now, counted, epoch: self.epoch });
        before
    }

    fn run(&mut self, run: &Resource<Run>) {
        let ended = run.status.is_complete();
        if busy::run(run) {
            self.busy_runs.insert(run.name().to_owned());
        }
        if ended {
            return;
        }
        self.running.insert(run.name().to_owned());
        if !run.status.conditions.is_true(condition::RUNNING) {
            let named = run.spec.environments.values().map(|e| e.place().runtime.resource_name());
            let seconds =
                run.status.environments.values().filter_map(|role| Some(role.harness.as_ref()?.runtime.resource_name()));
            let places = named.chain(seconds).collect();
            self.waiting.insert(run.name().to_owned(), Waiting { places, environments: run.spec.environments.len() });
        }
    }

    fn runtime(&mut self, runtime: &Resource<Runtime>) {
        if !runtime.metadata.is_deleting() {
            self.kept.insert(runtime.name().to_owned());
        }
        if !runtime.spec.fallback.is_empty() {
            let list = runtime.spec.fallback.iter().map(RuntimeRef::resource_name).collect();
            self.falls.insert(runtime.name().to_owned(), list);
        }
    }

    fn forget(&mut self, kind: &'static str, name: &str) {
        if let Some(other) = self.others.remove(&(kind, name.to_owned())) {
            self.tally.remove(other.counted);
        }
        if kind == <Run as hmz_api::Kind>::KIND {
            self.waiting.remove(name);
            self.running.remove(name);
            self.busy_runs.remove(name);
        } else if kind == <Runtime as hmz_api::Kind>::KIND {
            self.falls.remove(name);
            self.kept.remove(name);
        }
    }
}

/// Takes one of a runtime's out.
fn take_out(of: &mut HashMap<Arc<str>, BTreeSet<Arc<str>>>, runtime: &Arc<str>, name: &str) {
    if let Some(names) = of.get_mut(runtime) {
        names.remove(name);
        if names.is_empty() {
            of.remove(runtime);
        }
    }
}
