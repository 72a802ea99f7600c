//! The controllers at work on a copy of the store, in a world where nothing is done: what they would do is written down.

mod answers;
mod doubts;
mod driver;
mod others;
mod surroundings;

use crate::core::{ReconcileError, Reconciler};
use crate::environment::{Environments, plan::owner_run};
use crate::index::Index;
use crate::run::Runs;
use crate::world::World;
use crate::{runtime, world};
use answers::Answers;
use driver::Onlooker;
use hmz_api::kinds::condition::{FELL_BACK, SCHEDULED};
use hmz_api::kinds::{Environment, Run, Runtime};
use hmz_api::rest::Effect;
use hmz_api::{AnyResource, Backend, ConditionStatus, Error, Kind, Resource};
use hmz_drivers::Target;
use hmz_store::Store;
use others::{Causes, Concerned};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use surroundings::Callers;
use uuid::Uuid;

/// More rounds than anything takes to come to rest.
const ROUNDS: usize = 32;

/// A kind and a name.
pub(super) type Key = (String, String);

/// Which run each runner that is there is of.
type KnownRunners = Arc<Mutex<BTreeMap<String, Uuid>>>;

/// What would be done, for whom.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Noted>>);

/// The same, each with how much was noted before it.
#[derive(Debug, Default)]
struct Noted {
    of: HashMap<Uuid, Vec<(usize, Effect)>>,
    count: usize,
}

impl Log {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something for a run's or an environment's uid, once.
    fn note(&self, uid: Uuid, effect: Effect) {
        let mut noted = self.noted();
        let Noted { of, count } = &mut *noted;
        let of = of.entry(uid).or_default();
        if of.iter().all(|(_, there)| *there != effect) {
            of.push((*count, effect));
            *count += 1;
        }
    }
}

/// Whose runs and environments are, or were, by uid and the other way round.
#[derive(Debug, Default)]
struct Owners {
    of: BTreeMap<Uuid, Key>,
    uids: BTreeMap<Key, BTreeSet<Uuid>>,
}

impl Owners {
    fn note(&mut self, uid: Uuid, key: Key) {
        if let Some(before) = self.of.insert(uid, key.clone())
            && before != key
            && let Some(uids) = self.uids.get_mut(&before)
        {
            uids.remove(&uid);
        }
        self.uids.entry(key).or_default().insert(uid);
    }
}

/// One rehearsal.
pub(super) struct Rehearsal {
    world: World,
    callers: Arc<Callers>,
    log: Log,
    runners: KnownRunners,
    onlookers: BTreeMap<Backend, Arc<Onlooker>>,
    owners: Mutex<Owners>,
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
        let onlooker = |inner| Arc::new(Onlooker { answers: Answers::of(inner), log: log.clone(), would: Mutex::default() });
        let onlookers = world.drivers.iter().map(|(backend, driver)| (*backend, onlooker(driver.clone()))).collect();
        let world = surroundings::of(world, store, callers.clone(), &log, &runners, &onlookers);
        let this = Self { world, callers, log, runners, onlookers, owners: Mutex::default(), told: Mutex::default() };
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
                    Runtime::KIND => {
                        self.release(&name).await?;
                        continue;
                    }
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

    /// Has them work as well on everybody else whom it concerns that these were touched, each with the one of these that it is
    /// for.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub async fn settle_others(&self, touched: &[Key]) -> Result<Vec<(Key, Key)>, Error> {
        let mut all = touched.to_vec();
        let mut others = Vec::new();
        for _ in 0..ROUNDS {
            let causes = Causes::new(touched, self.freed(touched));
            let known = all.iter().cloned().collect();
            let callers: &dyn world::Callers = &*self.callers;
            let more = others::concerned(self.store(), callers, &causes, &known).await?;
            if more.is_empty() {
                break;
            }
            for Concerned { who, cause } in more {
                all.push(who.clone());
                others.push((who, cause));
            }
            // those that were touched are before the others, as they are told of
            self.settle(&all).await?;
        }
        Ok(others)
    }

    /// Where something is gone, and for whom that was done. What went for another than these is theirs all the same.
    fn freed(&self, touched: &[Key]) -> Vec<(Target, Key)> {
        let (owners, all) = (self.owners(), touched.iter().collect::<BTreeSet<_>>());
        let gone = self.onlookers.values().flat_map(|onlooker| onlooker.would().gone.clone());
        let of = |uid: Uuid| owners.of.get(&uid).filter(|owner| all.contains(owner)).or(touched.first()).cloned();
        gone.filter_map(|(at, key)| Some((at, of(key.uid)?))).collect()
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, uid: Uuid) -> Option<Key> {
        self.owners().of.get(&uid).cloned()
    }

    /// A runtime that is to go goes when nothing needs it.
    async fn release(&self, name: &str) -> Result<(), Error> {
        let Some(runtime) = self.store().get::<Runtime>(name).await? else { return Ok(()) };
        match runtime::release(self.store(), runtime).await {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::failed(error.to_string())),
        }
    }

    /// Who needs a runtime that is to go, as a person names them.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub async fn users(&self, runtime: &str) -> Result<Vec<String>, Error> {
        runtime::users(self.store(), runtime).await.map_err(|error| Error::failed(error.to_string()))
    }

    /// What would be done for a resource and for what belongs to it, in order.
    pub fn effects(&self, of: &Key) -> Vec<Effect> {
        let owners = self.owners();
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = self.log.noted();
        let uids = owners.uids.get(of).into_iter().flatten();
        let own = uids.flat_map(|uid| noted.of.get(uid).into_iter().flatten().map(move |(nth, effect)| (*nth, uid, effect)));
        let own: BTreeMap<usize, (&Uuid, &Effect)> = own.map(|(nth, uid, effect)| (nth, (uid, effect))).collect();
        let told = own.into_values().map(|(uid, effect)| match effect.clone() {
            Effect::Start { role, image, share, runtime, pulls, .. } => {
                Effect::Start { role, image, share, runtime, pulls, told: told.get(uid).cloned() }
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
                let scheduled = environment.status.conditions.get(SCHEDULED).filter(|c| c.status == ConditionStatus::True);
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                // that it fell back before says nothing of where it is now
                match scheduled {
                    Some(scheduled) if scheduled.reason == FELL_BACK => drop(told.insert(uid, scheduled.message.clone())),
                    Some(_) => drop(told.remove(&uid)),
                    None => {}
                }
            }
            AnyResource::Run(run) => {
                if let Some(runner) = &run.status.runner {
                    self.runners.lock().unwrap_or_else(PoisonError::into_inner).insert(runner.clone(), uid);
                }
            }
            _ => {}
        }
        self.owners().note(uid, key);
    }

    /// These, each run followed by the environments it owns.
    async fn with_owned(&self, touched: &[Key]) -> Result<Vec<Key>, Error> {
        let mut owned: BTreeMap<Key, Vec<Resource<Environment>>> =
            touched.iter().filter(|key| key.0 == Run::KIND).map(|key| (key.clone(), Vec::new())).collect();
        if !owned.is_empty() {
            self.store()
                .each::<Environment>(|environment| {
                    let owner = owner_run(environment).map(|owner| (owner.kind.clone(), owner.name.clone()));
                    if let Some(of) = owner.and_then(|owner| owned.get_mut(&owner)) {
                        of.push(environment.clone());
                    }
                })
                .await?;
        }
        let mut all = Vec::new();
        for key in touched {
            all.push(key.clone());
            for environment in owned.remove(key).into_iter().flatten() {
                all.push((Environment::KIND.to_owned(), environment.metadata.name.clone()));
                self.remember(&AnyResource::Environment(Box::new(environment)));
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
        Ok((state, self.log.noted().count))
    }

    async fn trouble(&self, kind: &str, name: &str, error: &ReconcileError) -> Result<(), Error> {
        let uid = self.store().get_any(kind, name).await?.and_then(|one| one.metadata().uid);
        if let Some(uid) = uid {
            self.log.note(uid, Effect::Unsure { why: format!("what would follow cannot be told: {error}") });
        }
        Ok(())
    }
}
