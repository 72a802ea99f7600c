//! What else the controllers work with, as it is and with nothing done: runners, files, guests, journals.

use super::driver::Onlooker;
use super::{KnownRunners, Log};
use crate::world::{self, BoxFiles, Epics, GuestProbe, RunnerState, Runners, World};
use async_trait::async_trait;
use hmz_api::grammar::AgentSpec;
use hmz_api::journal::Outcome;
use hmz_api::kinds::{BoxedAgent, FlowSpec, Run, RunSpec};
use hmz_api::launch::{BoxAddress, CallerContext, RunLaunch, Told};
use hmz_api::rest::Effect;
use hmz_api::{Backend, Error, Resource};
use hmz_drivers::{BoxKey, Driver, GuestFiles};
use hmz_store::Store;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// What begins the name of a journal, and of a runner, that is not there.
const TO_BE: &str = "to be: ";

/// The world of a rehearsal: that of `world`, on a copy of its store.
pub(super) fn of(
    world: &World,
    store: Store,
    callers: Arc<Callers>,
    log: &Log,
    known: &KnownRunners,
    onlookers: &BTreeMap<Backend, Arc<Onlooker>>,
) -> World {
    let driver = |onlooker: &Arc<Onlooker>| -> Arc<dyn Driver> { onlooker.clone() };
    let runners = RunsToBe { inner: world.runners.clone(), log: log.clone(), known: known.clone(), ended: Mutex::default() };
    World {
        store,
        drivers: onlookers.iter().map(|(backend, onlooker)| (*backend, driver(onlooker))).collect(),
        clock: world.clock.clone(),
        instance: world.instance.clone(),
        carrier: world.carrier.clone(),
        seed: world.seed,
        runners: Arc::new(runners),
        files: Arc::new(NoFiles(world.files.clone())),
        probe: Arc::new(Answering),
        callers,
        flows: world.flows.clone(),
        epics: Arc::new(NoEpics),
        settings: world.settings.clone(),
        spans: None,
    }
}

/// What verbs passed along, and what the one that asks does.
pub(in super::super) struct Callers {
    inner: Arc<dyn world::Callers>,
    own: Mutex<HashMap<Uuid, CallerContext>>,
}

impl Callers {
    pub(super) fn over(inner: Arc<dyn world::Callers>) -> Self {
        Self { inner, own: Mutex::default() }
    }

    /// Keeps it for the time of the rehearsal.
    pub fn put(&self, uid: Uuid, context: &CallerContext) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, context.clone());
    }

    /// Whether anything is known for it.
    pub fn knows(&self, uid: Uuid) -> bool {
        world::Callers::get(self, uid).is_some()
    }
}

impl world::Callers for Callers {
    fn get(&self, uid: Uuid) -> Option<CallerContext> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).cloned();
        own.or_else(|| self.inner.get(uid))
    }

    fn latest(&self) -> Option<CallerContext> {
        self.inner.latest()
    }
}

/// Runners that are there, and those that would be.
struct RunsToBe {
    inner: Arc<dyn Runners>,
    log: Log,
    known: KnownRunners,
    /// Runners that would have ended.
    ended: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Runners for RunsToBe {
    async fn check(&self, run: &RunSpec, flow: &FlowSpec, caller: &CallerContext, here: &BTreeSet<String>) -> Result<(), Error> {
        self.inner.check(run, flow, caller, here).await
    }

    async fn is_here(&self, agent: &AgentSpec, caller: &CallerContext) -> Result<(), Error> {
        self.inner.is_here(agent, caller).await
    }

    fn boxed(&self, agent: &AgentSpec) -> Option<BoxedAgent> {
        self.inner.boxed(agent)
    }

    async fn find(&self, epic: &str) -> Option<String> {
        if epic.starts_with(TO_BE) { None } else { self.inner.find(epic).await }
    }

    async fn start(&self, launch: RunLaunch) -> Result<String, Error> {
        self.log.note(launch.uid, Effect::Begin { flow: launch.flow_name });
        Ok(format!("{TO_BE}{}", launch.uid))
    }

    async fn observe(&self, runner: &str, epic: &str) -> RunnerState {
        if self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(runner) {
            return RunnerState::Ended(Outcome::Cancelled, String::new());
        }
        if runner.starts_with(TO_BE) { RunnerState::Alive } else { self.inner.observe(runner, epic).await }
    }

    async fn cancel(&self, runner: &str) {
        let run = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(runner).copied();
        if let Some(run) = run.filter(|_| !runner.starts_with(TO_BE)) {
            self.log.note(run, Effect::End);
        }
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(runner.to_owned());
    }

    async fn kill(&self, runner: &str) {
        self.cancel(runner).await;
    }
}

/// No files: those of a box that would be started are nowhere.
struct NoFiles(Arc<dyn BoxFiles>);

#[async_trait]
impl BoxFiles for NoFiles {
    async fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error> {
        let nowhere = |what: &str| PathBuf::from(format!("/{TO_BE}{}/{what}", key.uid));
        Ok(GuestFiles { program: nowhere("program"), socket_dir: nowhere("run"), scratch: nowhere("scratch") })
    }

    async fn remove(&self, _: &BoxKey) -> Result<(), Error> {
        Ok(())
    }

    async fn refusal(&self, workdir: &str, caller: &CallerContext) -> Option<String> {
        self.0.refusal(workdir, caller).await
    }
}

/// Guests answer.
struct Answering;

#[async_trait]
impl GuestProbe for Answering {
    async fn check(&self, _: &BoxAddress) -> Result<(), String> {
        Ok(())
    }
}

/// No journals.
struct NoEpics;

#[async_trait]
impl Epics for NoEpics {
    async fn open(&self, run: &Resource<Run>, _: &str) -> Result<String, Error> {
        Ok(format!("{TO_BE}{}", run.metadata.uid.unwrap_or_default()))
    }

    async fn tell(&self, _: &str, _: &Told) -> Result<(), Error> {
        Ok(())
    }
}
