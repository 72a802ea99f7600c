//! Runtimes: what each daemon is and has, what is handed out and to whom. Nothing is started here.
//!
//! The default of a backend can be named though nobody saved it, and so is found whether or not it is stored. It is stored, and
//! so listed, where every machine is taken to have one, where its daemon was there, and while something asks for it.

pub mod plan;

use crate::core::{Action, ReconcileError, Reconciler};
use crate::index::Index;
use crate::target::{Saved, target};
use crate::world::World;
use async_trait::async_trait;
use hmz_api::kinds::{Environment, Run, Runtime, RuntimeSource, RuntimeSpec, RuntimeStatus, condition};
use hmz_api::{Backend, Condition, Conditions, Resource, RuntimeRef};
use hmz_drivers::DriverError;
use hmz_store::Store;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Holds a runtime until no environment is on it.
pub const FINALIZER: &str = "hmz/in-use";

/// The runtimes' controller.
pub(crate) struct Runtimes(pub(crate) World, pub(crate) Arc<Index>);

/// The default of a backend, with nothing saved.
pub(crate) fn default_of(backend: Backend) -> Resource<Runtime> {
    let mut runtime = Resource::<Runtime>::new(RuntimeRef::unsaved(backend).resource_name(), RuntimeSpec::of(backend));
    runtime.status.source = RuntimeSource::Unsaved;
    runtime
}

/// What is declared of a runtime, and of its status what says whether it may be used: whoever holds something of it, of whom there
/// may be many, is left out.
fn usable(runtime: &Resource<Runtime>) -> Resource<Runtime> {
    let used = |c: &&Condition| [condition::SETTINGS_VALID, condition::SAVED].contains(&c.kind.as_str());
    let conditions = Conditions(runtime.status.conditions.0.iter().filter(used).cloned().collect());
    let status = RuntimeStatus { conditions, source: runtime.status.source, ..RuntimeStatus::default() };
    Resource { metadata: runtime.metadata.clone(), spec: runtime.spec.clone(), status }
}

/// All but whoever holds something of it: that is listed anew.
fn without_holders(runtime: &Resource<Runtime>) -> Resource<Runtime> {
    let status = &runtime.status;
    let status = RuntimeStatus {
        conditions: status.conditions.clone(),
        source: status.source,
        version: status.version.clone(),
        cpus: status.cpus,
        memory: status.memory,
        gpus: status.gpus.clone(),
        silent_gpus: status.silent_gpus.clone(),
        runtimes: status.runtimes.clone(),
        held_cpus: status.held_cpus,
        held_memory: status.held_memory,
        held_gpus: status.held_gpus.clone(),
        containers: status.containers,
        holders: Vec::new(),
    };
    Resource { metadata: runtime.metadata.clone(), spec: runtime.spec.clone(), status }
}

/// The resource of a runtime, as far as its use needs it.
pub(crate) async fn find(store: &Store, runtime: &RuntimeRef) -> Result<Option<Resource<Runtime>>, ReconcileError> {
    let stored = store.part(&runtime.resource_name(), usable).await?;
    // whether it is listed at this moment is nothing to whoever names it
    let unlisted = |stored: &Option<Resource<Runtime>>| {
        runtime.name.is_none()
            && stored.as_ref().is_none_or(|r| r.status.source == RuntimeSource::Unsaved && r.metadata.is_deleting())
    };
    Ok(if unlisted(&stored) { Some(default_of(runtime.backend)) } else { stored })
}

/// What is saved, for whoever named something that is not.
pub(crate) async fn saved(world: &World) -> Result<Saved, ReconcileError> {
    let stored = world.store.list::<Runtime>().await?;
    let names = stored.iter().filter(|r| !is_leaving(r)).filter_map(|r| r.name().parse::<RuntimeRef>().ok());
    let names = names.filter(|r| r.name.is_some()).collect();
    Ok(Saved { path: world.settings.borrow().path.clone(), names })
}

/// Why its entry of settings.yaml cannot be used, if so.
pub(crate) fn unreadable(runtime: &Resource<Runtime>) -> Option<String> {
    let condition = runtime.status.conditions.get(condition::SETTINGS_VALID)?;
    (condition.status == hmz_api::ConditionStatus::False).then(|| condition.message.clone())
}

/// Whether it takes nothing new: it is being deleted, or settings.yaml does not name it any more.
pub(crate) fn is_leaving(runtime: &Resource<Runtime>) -> bool {
    runtime.metadata.is_deleting() || runtime.status.conditions.is_false(condition::SAVED)
}

/// Whether something of an environment is on a runtime's daemon, or may be. One that only waits holds nothing: it would
/// wait for the runtime while the runtime waits for it.
pub(crate) fn holds(environment: &Resource<Environment>, name: &str) -> bool {
    let status = &environment.status;
    let there = status.container_id.is_some() || status.conditions.is_true(condition::SCHEDULED);
    let going = environment.metadata.is_deleting() && status.incarnation > 0;
    (there || going) && status.used.as_ref().is_some_and(|used| used.resource_name() == name)
}

/// Whether anything still needs a runtime of that name.
pub(crate) async fn is_used(store: &Store, name: &str) -> Result<bool, ReconcileError> {
    Ok(!users(store, name).await?.is_empty())
}

/// Lets one that is to go go, if nothing needs it any more. Whether it went.
pub(crate) async fn release(store: &Store, mut runtime: Resource<Runtime>) -> Result<bool, ReconcileError> {
    let held = runtime.metadata.is_deleting() && runtime.metadata.finalizers.iter().any(|f| f == FINALIZER);
    if !held || is_used(store, runtime.name()).await? {
        return Ok(false);
    }
    runtime.metadata.finalizers.retain(|f| f != FINALIZER);
    store.update(runtime).await?;
    Ok(true)
}

/// What still needs a runtime of that name, as a person names it: `env/box`, `run/fix`.
pub(crate) async fn users(store: &Store, name: &str) -> Result<Vec<String>, ReconcileError> {
    let (mut environments, mut runs) = (Vec::new(), Vec::new());
    let needs = |r: &Resource<Run>| {
        !r.status.is_complete()
            && r.status.conditions.is_true(condition::ACCEPTED)
            && r.spec.environments.values().any(|e| e.place().runtime.resource_name() == name)
    };
    store.each::<Environment>(|e| environments.extend(holds(e, name).then(|| format!("env/{}", e.name())))).await?;
    store.each::<Run>(|r| runs.extend(needs(r).then(|| format!("run/{}", r.name())))).await?;
    environments.append(&mut runs);
    Ok(environments)
}

/// The addresses a runtime's environments were started on, newest first, else what `local` meant to whoever called last.
pub(crate) fn endpoints(world: &World, index: &Index, name: &str, spec: &RuntimeSpec) -> Vec<Option<String>> {
    let mut out: Vec<Option<String>> = index.endpoints(name).iter().map(|endpoint| Some(endpoint.to_string())).collect();
    if out.is_empty() {
        let local = world.callers.latest().and_then(|c| c.docker_endpoint);
        out.push(crate::target::known_endpoint(spec, local.as_deref()));
    }
    out
}

#[async_trait]
impl Reconciler for Runtimes {
    fn name(&self) -> &'static str {
        "runtime"
    }

    async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError> {
        let world = &self.0;
        // before the daemon is asked: what changes from now on is to be told of by another look
        self.1.look_at(key);
        let stored = world.store.part(key, without_holders).await?;
        let default = default_named(world, key);
        let Some(mut runtime) = stored else {
            let Some(default) = default else { return Ok(Action::gone()) };
            return self.list_default(default).await;
        };
        let held = runtime.metadata.finalizers.iter().any(|f| f == FINALIZER);
        if runtime.metadata.is_deleting() {
            if release(&world.store, runtime.clone()).await? {
                return Ok(Action::gone());
            }
        } else if !held {
            runtime.metadata.finalizers.push(FINALIZER.into());
            runtime = world.store.update(runtime).await?;
        }
        let seen = look(world, &self.1, key, &runtime).await?;
        if seen.daemon.is_err() {
            // they stay as they were known
            let holders = world.store.part(key, |stored: &Resource<Runtime>| stored.status.holders.clone()).await?;
            runtime.status.holders = holders.unwrap_or_default();
        }
        plan::plan(&mut runtime, &seen);
        let is_default = default.is_some_and(|default| default.spec == runtime.spec && is_of_nobody(&runtime));
        let listed = !is_default || plan::is_listed(&runtime.status) || self.is_asked_for(key);
        if listed || runtime.metadata.is_deleting() {
            world.store.put_status(runtime).await?;
        } else {
            world.store.delete::<Runtime>(key).await?;
        }
        Ok(Action::await_change())
    }
}

impl Runtimes {
    /// Has a default that is not listed listed if its daemon is there, or if something asks for it.
    async fn list_default(&self, mut runtime: Resource<Runtime>) -> Result<Action, ReconcileError> {
        let name = runtime.name().to_owned();
        let seen = look(&self.0, &self.1, &name, &runtime).await?;
        plan::plan(&mut runtime, &seen);
        if plan::is_listed(&runtime.status) || self.is_asked_for(&name) {
            self.0.store.create(runtime).await?;
        }
        Ok(Action::await_change())
    }

    /// Whether an environment names a runtime or is on it, or a run waits for it.
    fn is_asked_for(&self, name: &str) -> bool {
        !self.1.on(name).is_empty() || !self.1.runs_for(name).is_empty()
    }
}

/// The default of that name, if it is one that comes and goes with its daemon.
fn default_named(world: &World, name: &str) -> Option<Resource<Runtime>> {
    let backend = Backend::from_word(name)?;
    (world.drivers.contains_key(&backend) && !backend.is_expected()).then(|| default_of(backend))
}

/// Whether nobody has declared a runtime, or written anything to it.
fn is_of_nobody(runtime: &Resource<Runtime>) -> bool {
    let metadata = &runtime.metadata;
    runtime.status.source == RuntimeSource::Unsaved && metadata.labels.is_empty() && metadata.annotations.is_empty()
}

async fn look(world: &World, index: &Index, name: &str, runtime: &Resource<Runtime>) -> Result<plan::Observed, ReconcileError> {
    let now = world.clock.now();
    let reference = name.parse::<RuntimeRef>().unwrap_or_else(|_| RuntimeRef::unsaved(Backend::Docker));
    let driver = world.drivers.get(&reference.backend);
    let endpoint = endpoints(world, index, name, &runtime.spec).into_iter().next().flatten();
    let target = target(&reference, Some(&runtime.spec), endpoint.as_deref());
    let unsupported = crate::target::undriven(&reference, driver.is_some());
    let daemon = match (driver, unsupported) {
        (Some(driver), None) => match driver.probe(&target).await {
            Ok(facts) => {
                let place = endpoint.map(|endpoint| (name.into(), endpoint.into()));
                let boxes = match place.and_then(|place| index.lent_whole(&place)) {
                    Some(boxes) => Ok(boxes),
                    None => driver.list(&target).await.map(Arc::new),
                };
                boxes.map(|boxes| (facts, boxes)).map_err(Some)
            }
            Err(error) => Err(Some(error)),
        },
        (_, Some(why)) => Err(Some(DriverError::Refused(why))),
        (None, None) => Err(None),
    };
    let mut runs = BTreeMap::new();
    for uid in daemon.iter().flat_map(|(_, boxes)| boxes.iter()).filter_map(|one| one.run) {
        if let Entry::Vacant(entry) = runs.entry(uid)
            && let Some(run) = world.store.by_uid::<Run>(uid).await?
        {
            entry.insert(run.metadata.name);
        }
    }
    Ok(plan::Observed { now, at: reference.at(), provider: reference.provider().to_owned(), runs, daemon })
}
