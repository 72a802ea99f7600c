//! Whom an apply concerns though nobody applied them: those that may use a runtime of it, that are to do a flow of it, and that
//! wait for room where it gives some back.
//!
//! What is at rest is left alone: a box that runs stays as it was started, and a run at work follows its runner, whatever their
//! runtime says by now. So what is looked at is what waits, is refused or is under way, however many there are besides.

use super::Key;
use crate::environment::plan::{is_down, owner_run};
use crate::runtime;
use crate::target::{is_same_daemon, known_endpoint, target};
use crate::world;
use hmz_api::kinds::{Environment, Flow, Harness, Run, Runtime, RuntimeSpec, condition};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Error, Kind, Resource, RuntimeRef};
use hmz_drivers::Target;
use hmz_store::Store;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What of an apply matters to others, each with the resource of the apply that it is of.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// Runtimes and flows that are another by their names, or gone.
    runtimes: BTreeMap<String, Key>,
    flows: BTreeMap<String, Key>,
    /// Where room is given back.
    freed: Vec<(Target, Key)>,
}

/// One that is concerned, and by what.
pub(super) struct Concerned {
    pub who: Key,
    pub cause: Key,
}

impl Causes {
    /// Those of what was `touched`, and of what gave something back.
    pub fn new(touched: &[Key], freed: Vec<(Target, Key)>) -> Self {
        let of = |kind: &str| touched.iter().filter(|key| key.0 == kind).map(|key| (key.1.clone(), key.clone())).collect();
        Self { runtimes: of(Runtime::KIND), flows: of(Flow::KIND), freed }
    }

    /// Whether nobody can be concerned.
    pub fn are_none(&self) -> bool {
        self.runtimes.is_empty() && self.flows.is_empty() && self.freed.is_empty()
    }
}

/// Who is concerned, the oldest first, but for those that are `known`.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn concerned(
    store: &Store,
    callers: &dyn world::Callers,
    causes: &Causes,
    known: &BTreeSet<Key>,
) -> Result<Vec<Concerned>, Error> {
    if causes.are_none() {
        return Ok(Vec::new());
    }
    let saved = Saved::read(store).await?;
    let looks = saved.reached_by(&causes.runtimes);
    let local = |one: &AnyResource| one.metadata().uid.and_then(|uid| callers.get(uid)).and_then(|c| c.docker_endpoint);
    let mut found: BTreeMap<Key, (Option<Timestamp>, Key)> = BTreeMap::new();
    let mut add = |who: Key, made: Option<Timestamp>, cause: Option<&Key>| {
        if let Some(cause) = cause.filter(|_| !known.contains(&who)) {
            found.entry(who).or_insert_with(|| (made, cause.clone()));
        }
    };
    store
        .each::<Environment>(|env| {
            let Some(who) = key_of(env).filter(|_| !is_at_rest(env)) else { return };
            let named = [Some(&env.spec.runtime), env.status.used.as_ref()];
            let by_runtime = named.into_iter().flatten().find_map(|runtime| looks.get(&runtime.resource_name()).copied());
            let one = AnyResource::Environment(Box::new(env.clone()));
            let freed = || {
                let local = waits(&one).then(|| local(&one))?;
                let address = |at: &RuntimeRef| env.status.endpoint.clone().filter(|_| env.status.used.as_ref() == Some(at));
                saved.freed(&env.spec.runtime, &address, local.as_deref(), &causes.freed)
            };
            add(who, env.metadata.creation_timestamp, by_runtime.or_else(freed));
        })
        .await?;
    store
        .each::<Run>(|run| {
            if run.status.is_complete() || run.status.conditions.is_true(condition::RUNNING) {
                return;
            }
            let roles: Vec<RuntimeRef> = run.spec.environments.values().map(|request| request.place().runtime).collect();
            let by_runtime = roles.iter().find_map(|runtime| looks.get(&runtime.resource_name()).copied());
            let by_flow = causes.flows.get(&run.spec.flow);
            let one = AnyResource::Run(Box::new(run.clone()));
            let freed = || {
                let local = waits(&one).then(|| local(&one))?;
                roles.iter().find_map(|runtime| saved.freed(runtime, &|_| None, local.as_deref(), &causes.freed))
            };
            let who = (Run::KIND.to_owned(), run.name().to_owned());
            add(who, run.metadata.creation_timestamp, by_runtime.or(by_flow).or_else(freed));
        })
        .await?;
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|(a, (made_a, _)), (b, (made_b, _))| (made_a, a).cmp(&(made_b, b)));
    Ok(found.into_iter().map(|(who, (_, cause))| Concerned { who, cause }).collect())
}

/// The names of the runtimes that lead to one of these: themselves, and those that send a box or a harness there.
///
/// # Errors
/// The store cannot be read.
pub(super) async fn leading_to(store: &Store, runtimes: &[Key]) -> Result<BTreeMap<String, Key>, Error> {
    let of: BTreeMap<String, Key> = runtimes.iter().map(|key| (key.1.clone(), key.clone())).collect();
    let saved = Saved::read(store).await?;
    Ok(saved.reached_by(&of).into_iter().map(|(name, key)| (name, key.clone())).collect())
}

/// As what an environment is rehearsed: one that a run owns is the run's to begin, and by itself only goes.
fn key_of(env: &Resource<Environment>) -> Option<Key> {
    match owner_run(env) {
        None => Some((Environment::KIND.to_owned(), env.name().to_owned())),
        Some(owner) => env.metadata.is_deleting().then(|| (owner.kind.clone(), owner.name.clone())),
    }
}

/// Whether nothing is to be done for it, whatever its runtime says: its box runs as it is declared, or ended.
fn is_at_rest(env: &Resource<Environment>) -> bool {
    let ready = env.status.conditions.get(condition::READY).filter(|c| c.status == hmz_api::ConditionStatus::True);
    let is_as_declared = ready.is_some_and(|c| c.observed_generation >= env.metadata.generation);
    !env.metadata.is_deleting() && (is_as_declared || is_down(env))
}

fn waits(one: &AnyResource) -> bool {
    !one.metadata().is_deleting() && matches!(verdict::of(one), Some(Verdict::Waits(_)))
}

/// The runtimes that are saved, by their names.
struct Saved(BTreeMap<String, RuntimeSpec>);

impl Saved {
    async fn read(store: &Store) -> Result<Self, Error> {
        let mut all = BTreeMap::new();
        store.each::<Runtime>(|runtime| drop(all.insert(runtime.name().to_owned(), runtime.spec.clone()))).await?;
        Ok(Self(all))
    }

    /// The names of the runtimes for which something else holds now, with what of the apply that is of: those that were
    /// changed, and those that send a box or a harness there.
    fn reached_by<'a>(&self, changed: &'a BTreeMap<String, Key>) -> BTreeMap<String, &'a Key> {
        let mut reached: BTreeMap<String, &Key> = changed.iter().map(|(name, key)| (name.clone(), key)).collect();
        for (name, spec) in &self.0 {
            if let Harness::On(named) = &spec.harness
                && let Some(key) = changed.get(&named.resource_name())
            {
                reached.entry(name.clone()).or_insert(key);
            }
        }
        for (name, spec) in &self.0 {
            let falls = spec.fallback.iter().flat_map(|listed| [listed.resource_name(), self.found(listed).resource_name()]);
            if let Some(key) = falls.into_iter().find_map(|listed| reached.get(&listed).copied()) {
                reached.entry(name.clone()).or_insert(key);
            }
        }
        reached
    }

    /// As one of a list is found: the backend's default here, with nothing saved, is called local too.
    fn found(&self, listed: &RuntimeRef) -> RuntimeRef {
        let is_default = listed.name.as_deref() == Some("local") && !self.0.contains_key(&listed.resource_name());
        if is_default { RuntimeRef::unsaved(listed.backend) } else { listed.clone() }
    }

    /// What gave back room where one that names this runtime may go. An address that nobody knows may be that one.
    fn freed<'a>(
        &self,
        named: &RuntimeRef,
        address: &dyn Fn(&RuntimeRef) -> Option<String>,
        local: Option<&str>,
        freed: &'a [(Target, Key)],
    ) -> Option<&'a Key> {
        if freed.is_empty() {
            return None;
        }
        let list = self.0.get(&named.resource_name()).map(|spec| spec.fallback.as_slice()).unwrap_or_default();
        let places = std::iter::once(named.clone()).chain(list.iter().map(|listed| self.found(listed)));
        let second = |place: &RuntimeRef| match self.0.get(&place.resource_name()).map(|spec| spec.harness.clone()) {
            Some(Harness::On(named)) => Some(named),
            _ => None,
        };
        places.flat_map(|place| second(&place).into_iter().chain([place])).find_map(|place| {
            let default = runtime::default_of(place.backend).spec;
            let spec = self.0.get(&place.resource_name()).unwrap_or(&default);
            let known = address(&place).or_else(|| known_endpoint(spec, local));
            let at = target(&place, Some(spec), known.as_deref());
            let is_there =
                |there: &Target| is_same_daemon(there, &at) || (known.is_none() && there.runtime.backend == place.backend);
            freed.iter().find(|(there, _)| is_there(there)).map(|(_, key)| key)
        })
    }
}
