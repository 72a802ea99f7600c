//! Who is on a runtime, who waits for one and where boxes are: what the router saw of the store's changes, kept small, so that
//! what happens to one is not paid for by all.
//!
//! It may be a moment behind the store, so it only says whom to ask: whoever decides anything reads the store.

mod entry;
mod looks;
pub(crate) mod tally;
#[cfg(test)]
mod tests;

use crate::busy;
use crate::environment::plan::is_down;
use entry::{Entry, Other, Seen, seen};
use hmz_api::AnyResource;
use hmz_api::kinds::{Environment, Run, Runtime, condition};
use hmz_api::{Resource, RuntimeRef};
use hmz_drivers::{BoxState, ObservedBox, Purpose};
use looks::{Looks, Moment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
    /// How many of a runtime's were started on each address.
    endpoints: HashMap<Arc<str>, BTreeMap<Arc<str>, usize>>,
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
    looks: Looks,
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
            let before = tables.environments.remove(name);
            tables.moved(name, before.as_ref(), None);
        }
        let gone: Vec<_> = tables.others.iter().filter(|(_, other)| other.epoch != epoch).map(|(key, _)| key.clone()).collect();
        for key in gone {
            tables.forget(key.0, &key.1);
            tables.unlisted(key.0, &key.1);
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
            declared: gone || before.is_none_or(|b| !now.is_declared_as(&b)),
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

    /// A runtime is looked at now.
    pub fn look_at(&self, runtime: &str) {
        self.tables().looks.look_at(runtime);
    }

    /// Something changed that a runtime is to tell of: how long from now it is looked at.
    pub fn changed(&self, runtime: &str) -> Duration {
        self.tables().looks.changed(runtime)
    }

    /// This moment, from which on a daemon is listed.
    pub fn moment(&self) -> Moment {
        self.tables().looks.moment()
    }

    /// Has what a daemon listed from a moment on ready for others, until this is dropped.
    pub fn lend(&self, place: &Place, at: Moment, boxes: Vec<ObservedBox>) -> Lent<'_> {
        self.tables().looks.lend(place, at, &Arc::new(boxes));
        Lent(self, place.clone())
    }

    /// What a daemon listed a moment ago, if it did.
    pub fn lent(&self, place: &Place) -> Option<Arc<Vec<ObservedBox>>> {
        self.tables().looks.lent(place)
    }

    /// The same, if it has in it everything that its runtime is to tell of.
    pub fn lent_whole(&self, place: &Place) -> Option<Arc<Vec<ObservedBox>>> {
        self.tables().looks.lent_whole(place)
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
        match tables.endpoints.get(runtime) {
            None => return Vec::new(),
            // as nearly always
            Some(of) if of.len() == 1 => return of.keys().cloned().collect(),
            Some(_) => {}
        }
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

/// A listing that others may have.
pub(crate) struct Lent<'a>(&'a Index, Place);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.tables().looks.take_back(&self.1);
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
        let known = self.environments.remove_entry(env.name());
        let (name, before) = known.map_or_else(|| (env.name().into(), None), |(name, before)| (name, Some(before)));
        let seen = before.as_ref().map(|before| before.seen);
        let entry = there.map(|there| {
            let counted = self.tally.add(there);
            self.entry(env, now, counted, before.as_ref())
        });
        let places_changed = self.moved(&name, before.as_ref(), entry.as_ref());
        if let Some(entry) = entry {
            self.environments.insert(name, entry);
        }
        (seen, places_changed)
    }

    /// Has what there is of an environment where it is looked for by something else than its name. Most changes change nothing of
    /// that. Says whether they changed which places there are.
    fn moved(&mut self, name: &Arc<str>, before: Option<&Entry>, now: Option<&Entry>) -> bool {
        if let Some(before) = before {
            self.tally.remove(before.counted);
            self.busy -= usize::from(before.busy);
            self.boxed -= usize::from(before.boxed);
        }
        if let Some(now) = now {
            self.busy += usize::from(now.busy);
            self.boxed += usize::from(now.boxed);
        }
        if let (Some(before), Some(now)) = (before, now)
            && before.is_found_as(now)
        {
            return false;
        }
        let is = |of: Option<&Entry>, runtime: &Arc<str>| of.is_some_and(|entry| entry.runtimes().any(|one| one == runtime));
        let waits = |of: Option<&Entry>| of.filter(|entry| entry.waits).map(|entry| entry.named.clone());
        let at = |of: Option<&Entry>, runtime: &Arc<str>| of.and_then(|e| e.endpoint.clone()).filter(|_| is(of, runtime));
        let both = || before.into_iter().chain(now).flat_map(Entry::runtimes);
        for (nth, runtime) in both().enumerate() {
            // each once
            if both().take(nth).any(|earlier| earlier == runtime) {
                continue;
            }
            match (is(before, runtime), is(now, runtime)) {
                (true, false) => take_out(&mut self.on, runtime, name),
                (false, true) => drop(self.on.entry(runtime.clone()).or_default().insert(name.clone())),
                _ => {}
            }
            let (left, came) = (at(before, runtime), at(now, runtime));
            if left != came {
                if let Some(endpoint) = left {
                    count_out(&mut self.endpoints, runtime, &endpoint);
                }
                if let Some(endpoint) = came {
                    *self.endpoints.entry(runtime.clone()).or_default().entry(endpoint).or_default() += 1;
                }
            }
        }
        let (left, came) = (waits(before), waits(now));
        if left != came {
            if let Some(runtime) = left {
                take_out(&mut self.waits, &runtime, name);
            }
            if let Some(runtime) = came {
                self.waits.entry(runtime).or_default().insert(name.clone());
            }
        }
        let (left, came) = (before.map(|entry| entry.uid), now.map(|entry| entry.uid));
        if left != came {
            // another of this name may have come meanwhile, and it has a uid of its own
            if let Some(uid) = left.filter(|uid| self.uids.get(uid).is_some_and(|of| of == name)) {
                self.uids.remove(&uid);
            }
            if let Some(uid) = came {
                self.uids.insert(uid, name.clone());
            }
        }
        self.placed(before.and_then(Entry::place), now.and_then(Entry::place))
    }

    /// One left a place for another. Says whether that changed which places there are.
    fn placed(&mut self, left: Option<Place>, came: Option<Place>) -> bool {
        if left == came {
            return false;
        }
        let is_new = came.is_some_and(|place| {
            let count = self.places.entry(place).or_default();
            *count += 1;
            *count == 1
        });
        let is_gone = left.is_some_and(|place| {
            let Some(count) = self.places.get_mut(&place) else { return false };
            *count -= 1;
            *count == 0 && self.places.remove(&place).is_some()
        });
        is_new || is_gone
    }

    /// The name of a runtime; mostly what it was.
    fn name_of(&mut self, runtime: &RuntimeRef, before: Option<&Arc<str>>) -> Arc<str> {
        match before.filter(|before| runtime.is_called(before)) {
            Some(before) => before.clone(),
            None => self.word(&runtime.resource_name()),
        }
    }

    fn entry(&mut self, env: &Resource<Environment>, seen: Seen, counted: u64, before: Option<&Entry>) -> Entry {
        let status = &env.status;
        let named = self.name_of(&env.spec.runtime, before.map(|before| &before.named));
        let used = status.used.as_ref().filter(|used| **used != env.spec.runtime);
        let used = used.map(|used| self.name_of(used, before.and_then(|before| before.used.as_ref())));
        let endpoint = status.endpoint.as_deref().map(|now| match before.and_then(|before| before.endpoint.as_ref()) {
            Some(before) if **before == *now => before.clone(),
            _ => self.word(now),
        });
        let up = [condition::CREATED, condition::GUEST_READY].iter().all(|c| status.conditions.is_true(c));
        let scheduled = status.conditions.is_true(condition::SCHEDULED);
        let looked_at = status.conditions.get(condition::SCHEDULED).is_some();
        let down = is_down(env);
        Entry {
            seen,
            uid: env.metadata.uid.unwrap_or_default(),
            incarnation: status.incarnation,
            made: env.metadata.creation_timestamp.map_or(0, |at| at.as_millisecond()),
            used,
            named,
            endpoint,
            ready: status.pid.filter(|_| up && !env.metadata.is_deleting()),
            waits: looked_at && !scheduled && !env.is_refused(),
            down,
            listened: crate::environment::plan::owner_run(env).is_some() || !down,
            busy: busy::environment(env),
            boxed: !down && (status.container_id.is_some() || scheduled),
            counted,
            epoch: self.epoch,
        }
    }

    fn other(&mut self, resource: &AnyResource, now: Seen, gone: bool) -> Option<Seen> {
        let key = (resource.kind(), resource.metadata().name.clone());
        let before = self.others.get(&key).map(|other| other.seen);
        self.forget(key.0, &key.1);
        if gone {
            self.unlisted(key.0, &key.1);
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
        if runtime.metadata.is_deleting() {
            self.looks.forget(runtime.name());
        } else {
            self.looks.keep(runtime.name());
        }
        if !runtime.spec.fallback.is_empty() {
            let list = runtime.spec.fallback.iter().map(RuntimeRef::resource_name).collect();
            self.falls.insert(runtime.name().to_owned(), list);
        }
    }

    fn unlisted(&mut self, kind: &'static str, name: &str) {
        if kind == <Runtime as hmz_api::Kind>::KIND {
            self.looks.forget(name);
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
        }
    }
}

/// Counts one of a runtime's addresses out.
fn count_out(of: &mut HashMap<Arc<str>, BTreeMap<Arc<str>, usize>>, runtime: &Arc<str>, endpoint: &Arc<str>) {
    let Some(all) = of.get_mut(runtime) else { return };
    if let Some(count) = all.get_mut(endpoint) {
        *count -= 1;
        if *count == 0 {
            all.remove(endpoint);
        }
    }
    if all.is_empty() {
        of.remove(runtime);
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
