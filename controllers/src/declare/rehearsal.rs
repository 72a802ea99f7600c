//! The controllers at work on a copy of the store, in a world where nothing is done: what they would do is written down.

mod driver;
mod surroundings;

use crate::core::{ReconcileError, Reconciler};
use crate::environment::{Environments, plan::owner_run};
use crate::index::Index;
use crate::run::Runs;
use crate::world::World;
use hmz_api::kinds::condition::{FELL_BACK, SCHEDULED};
use hmz_api::kinds::{Environment, Run};
use hmz_api::rest::Effect;
use hmz_api::{AnyResource, Error, Kind, Resource};
use hmz_store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use surroundings::Callers;
use uuid::Uuid;

/// More rounds than anything takes to come to rest.
const ROUNDS: usize = 32;

/// A kind and a name.
type Key = (String, String);

/// Which run each runner that is there is of.
type KnownRunners = Arc<Mutex<BTreeMap<String, Uuid>>>;

/// What would be done, for whom.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<(Uuid, Effect)>>>);

impl Log {
    fn entries(&self) -> MutexGuard<'_, Vec<(Uuid, Effect)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something for a run's or an environment's uid, once.
    fn note(&self, uid: Uuid, effect: Effect) {
        let mut entries = self.entries();
        if !entries.contains(&(uid, effect.clone())) {
            entries.push((uid, effect));
        }
    }
}

/// One rehearsal.
pub(super) struct Rehearsal {
    world: World,
    callers: Arc<Callers>,
    log: Log,
    runners: KnownRunners,
    /// Whose a run or an environment is, or was, by uid.
    owners: Mutex<BTreeMap<Uuid, Key>>,
    /// Why an environment's box is elsewhere than was named, by its uid.
    told: Mutex<BTreeMap<Uuid, String>>,
}

impl Rehearsal {
    /// Of a world as it is now.
    ///
    /// # Errors
    /// Its store cannot be copied.
    pub async fn new(world: &World) -> Result<Self, Error> {
        let (log, runners) = (Log::default(), Arc::default());
        let callers = Arc::new(Callers::over(world.callers.clone()));
        let store = world.store.copy().await?;
        let world = surroundings::of(world, store, callers.clone(), &log, &runners);
        let this = Self { world, callers, log, runners, owners: Mutex::default(), told: Mutex::default() };
        this.store().list_any(None).await?.items.iter().for_each(|one| this.remember(one));
        Ok(this)
    }

    /// The copy.
    pub fn store(&self) -> &Store {
        &self.world.store
    }

    /// What verbs passed along.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Has the controllers work on these, and on what belongs to them, until nothing moves any more.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub async fn settle(&self, touched: &[Key]) -> Result<(), Error> {
        let mut last = None;
        for _ in 0..ROUNDS {
            for (kind, name) in self.with_owned(touched).await? {
                let done = match kind.as_str() {
                    Run::KIND => Runs(self.world.clone()).reconcile(&name).await,
                    Environment::KIND => Environments(self.world.clone(), Index::new()).reconcile(&name).await,
                    _ => continue, // nothing is started or ended for it
                };
                match done {
                    Ok(_) | Err(ReconcileError::Driver(_)) => {} // its conditions say what a daemon did not do
                    Err(error) if error.is_conflict() => {}
                    Err(error) => self.trouble(&kind, &name, &error).await?,
                }
                if let Some(one) = self.store().get_any(&kind, &name).await? {
                    self.remember(&one);
                }
            }
            let now = self.state(touched).await?;
            if last.as_ref() == Some(&now) {
                return Ok(());
            }
            last = Some(now);
        }
        Ok(())
    }

    /// What would be done for a resource and for what belongs to it, in order.
    pub fn effects(&self, of: &Key) -> Vec<Effect> {
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = self.log.entries();
        let own = entries.iter().filter(|(uid, _)| owners.get(uid) == Some(of));
        let told = own.map(|(uid, effect)| match effect.clone() {
            Effect::Start { role, image, share, runtime, .. } => {
                Effect::Start { role, image, share, runtime, told: told.get(uid).cloned() }
            }
            other => other,
        });
        // a runner is started while its boxes are, and does nothing before they are there
        let (last, first): (Vec<Effect>, Vec<Effect>) = told.partition(|effect| matches!(effect, Effect::Begin { .. }));
        first.into_iter().chain(last).collect()
    }

    /// Notes whose it is, while it is there.
    fn remember(&self, one: &AnyResource) {
        let Some(uid) = one.metadata().uid else { return };
        let mut key = (one.kind().to_owned(), one.metadata().name.clone());
        match one {
            AnyResource::Environment(environment) => {
                if let Some(owner) = owner_run(environment) {
                    key = (owner.kind.clone(), owner.name.clone());
                }
                let scheduled = environment.status.conditions.get(SCHEDULED).filter(|c| c.reason == FELL_BACK);
                if let Some(scheduled) = scheduled {
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.insert(uid, scheduled.message.clone());
                }
            }
            AnyResource::Run(run) => {
                if let Some(runner) = &run.status.runner {
                    self.runners.lock().unwrap_or_else(PoisonError::into_inner).insert(runner.clone(), uid);
                }
            }
            _ => {}
        }
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, key);
    }

    /// These, each run followed by the environments it owns.
    async fn with_owned(&self, touched: &[Key]) -> Result<Vec<Key>, Error> {
        let environments = self.store().list::<Environment>().await?;
        let mut all = Vec::new();
        for key in touched {
            all.push(key.clone());
            let is_owner = |e: &Resource<Environment>| owner_run(e).is_some_and(|o| o.kind == key.0 && o.name == key.1);
            for owned in environments.iter().filter(|e| is_owner(e)) {
                all.push((Environment::KIND.to_owned(), owned.metadata.name.clone()));
                self.remember(&AnyResource::Environment(Box::new(owned.clone())));
            }
        }
        Ok(all)
    }

    /// What moves: conditions without their times and words, incarnations, what is noted.
    async fn state(&self, touched: &[Key]) -> Result<(BTreeSet<String>, usize), Error> {
        let mut state = BTreeSet::new();
        for (kind, name) in self.with_owned(touched).await? {
            let Some(one) = self.store().get_any(&kind, &name).await? else { continue };
            let (conditions, more) = match &one {
                AnyResource::Run(run) => (&run.status.conditions, run.status.runner.clone().unwrap_or_default()),
                AnyResource::Environment(env) => (&env.status.conditions, env.status.incarnation.to_string()),
                _ => continue,
            };
            let conditions: Vec<_> = conditions.0.iter().map(|c| (&c.kind, c.status, &c.reason)).collect();
            let metadata = one.metadata();
            state.insert(format!("{kind}/{name} {:?} {} {more} {conditions:?}", metadata.finalizers, metadata.is_deleting()));
        }
        Ok((state, self.log.entries().len()))
    }

    async fn trouble(&self, kind: &str, name: &str, error: &ReconcileError) -> Result<(), Error> {
        let uid = self.store().get_any(kind, name).await?.and_then(|one| one.metadata().uid);
        if let Some(uid) = uid {
            self.log.note(uid, Effect::Unsure { why: format!("what would follow cannot be told: {error}") });
        }
        Ok(())
    }
}
