//! Carrying plans out. No choices are made here but when to stop.

use super::admission::{self, Patience};
use super::outcome::Then;
use super::plan::{self, Attempt, Boxes, Observed, Owner, Pull, Start, Step, after_probe, is_down, plan};
use super::{FINALIZER, look, outcome};
use crate::core::{Action, ReconcileError};
use crate::placement;
use crate::spans;
use crate::trace;
use crate::world::World;
use futures::StreamExt;
use hmz_api::condition::ConditionStatus::False;
use hmz_api::kinds::annotation::TRACE;
use hmz_api::kinds::condition::CREATED;
use hmz_api::kinds::{Environment, PassedOver};
use hmz_api::launch::BoxAddress;
use hmz_api::{Error, Resource, failpoint};
use hmz_drivers::{Admitted, BoxKey, BoxSpec, BoxState, Driver, DriverError, GuestFiles, Progress, ProgressSink, Target, Want};
use hmz_store::Change;
use hmz_telemetry::Ended;
use jiff::Timestamp;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// More steps than any way through has.
const STEPS: usize = 24;
/// How often the hold is made young again while a pull goes on.
const RENEW: Duration = Duration::from_secs(10);
/// How often the progress of a pull is written at most.
const PROGRESS: Duration = Duration::from_secs(1);

/// What one step leaves to do.
enum Next {
    /// Look again, knowing this of the daemon.
    Look(Option<Boxes>),
    /// Look again, with one more place asked.
    Asked(PassedOver),
    /// Enough for now.
    Done(Action),
}

/// Drives one environment as far as it goes now.
pub async fn reconcile(world: &World, name: &str) -> Result<Action, ReconcileError> {
    let (mut known, mut asked) = (None, Vec::new());
    let (mut steps, mut first, mut generation) = (0, true, None);
    while steps < STEPS {
        steps += 1;
        let Some(mut env) = world.store.get::<Environment>(name).await? else { return Ok(Action::gone()) };
        if std::mem::take(&mut first) {
            trace::note(&env.metadata);
        }
        // what was said to another declaration says nothing of this one
        if generation.replace(env.metadata.generation) != Some(env.metadata.generation) {
            asked.clear();
        }
        let mut seen = look::look(world, &env, known.take()).await?;
        seen.asked.clone_from(&asked);
        let step = plan(&mut env, &seen);
        let env = written(world, env).await?;
        match execute(world, env, &seen, step).await? {
            Next::Look(boxes) => known = boxes,
            Next::Asked(passed) => {
                asked.push(passed); // each place once
                steps -= 1;
            }
            Next::Done(action) => return Ok(action),
        }
    }
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// Writes the status where it differs from what is stored. In most cases it does not, and nothing is copied to find that nobody else
/// wrote meanwhile.
async fn written(world: &World, env: Resource<Environment>) -> Result<Resource<Environment>, ReconcileError> {
    let is_same = |stored: &Resource<Environment>| {
        stored.metadata.resource_version == env.metadata.resource_version && stored.status == env.status
    };
    if world.store.part(env.name(), is_same).await? == Some(true) {
        return Ok(env);
    }
    Ok(world.store.update_status(env).await?)
}

async fn execute(world: &World, env: Resource<Environment>, seen: &Observed, step: Step) -> Result<Next, ReconcileError> {
    match step {
        Step::Wait(action) => Ok(Next::Done(action)),
        Step::AddFinalizer => {
            let mut env = env;
            env.metadata.finalizers.push(FINALIZER.into());
            world.store.update(env).await?;
            Ok(Next::Look(None))
        }
        Step::DeleteSelf => {
            world.store.delete::<Environment>(env.name()).await?;
            Ok(Next::Look(None))
        }
        Step::Release => release(world, env).await,
        Step::Teardown(target, key) => match clear(world, &env, &target, &key).await {
            Ok(told) => {
                let next = release(world, env).await?;
                spans::tell(world, told);
                Ok(next)
            }
            Err(error) => {
                let mut env = env;
                let unreachable = matches!(error, ReconcileError::Driver(DriverError::Unreachable { .. }));
                outcome::removal_failed(&mut env, &error.to_string(), unreachable, world.clock.now());
                world.store.put_status(env).await?;
                Err(error)
            }
        },
        Step::Discard(target, key) => {
            let began = world.clock.now();
            remove(world, &target, &key).await?;
            let told = spans::removed(world, &env, (began, world.clock.now()));
            let mut env = env;
            outcome::discarded(&mut env);
            world.store.put_status(env).await?;
            spans::tell(world, told);
            Ok(Next::Look(None))
        }
        Step::Replace(target, key) => {
            let told = clear(world, &env, &target, &key).await?;
            let mut env = env;
            outcome::next_incarnation(&mut env, world.clock.now());
            world.store.put_status(env).await?;
            spans::tell(world, told);
            failpoint::pass("environment.incarnation");
            Ok(Next::Look(None))
        }
        Step::Withdraw(target, key) => {
            let told = clear(world, &env, &target, &key).await?;
            let mut env = env;
            outcome::withdrawn(&mut env, world.clock.now());
            world.store.put_status(env).await?;
            spans::tell(world, told);
            Ok(Next::Look(None))
        }
        Step::Resolve(target) => resolve(world, env, seen, &target).await,
        Step::Admit(target, want) => admit(world, env, seen, &target, want).await,
        Step::Place(attempt) => place(world, env, seen, *attempt).await,
        Step::Pull(target, key, what) => pull(world, env, &target, &key, &what).await,
        Step::Start(target, start) => begin(world, env, seen, &target, *start).await,
        Step::Probe(address) => probe(world, env, seen.owner, &address).await,
    }
}

/// Whether no share of it is known to be held and no box of it was started: a daemon that cannot be reached then has
/// nothing to wait for.
fn never_held(env: &Resource<Environment>) -> bool {
    env.status.share.is_none() && env.status.container_id.is_none()
}

/// Removes what there is of an environment. What was never held leaves at most a hold behind, or what was started and not told of,
/// and is swept: a daemon to which there is no way is not waited for then. What is to be told of it.
async fn clear(world: &World, env: &Resource<Environment>, target: &Target, key: &BoxKey) -> Result<Vec<Ended>, ReconcileError> {
    let began = world.clock.now();
    match remove(world, target, key).await {
        Err(ReconcileError::Driver(DriverError::Unreachable { .. } | DriverError::Refused(_))) if never_held(env) => {
            world.files.remove(key).await.map_err(|e| ReconcileError::Other(e.message))?;
        }
        other => other?,
    }
    // what died, or was withdrawn, was told of then
    let is_over = is_down(env) || (env.is_refused() && env.status.used.is_none());
    Ok(if is_over { Vec::new() } else { spans::removed(world, env, (began, world.clock.now())) })
}

/// Removes box, hold and files of a key, in this order, so that the files of a box that is there are there.
pub async fn remove(world: &World, target: &Target, key: &BoxKey) -> Result<(), ReconcileError> {
    driver(world, target)?.remove(target, key).await?;
    failpoint::pass("environment.removed");
    world.files.remove(key).await.map_err(|e| ReconcileError::Other(e.message))
}

fn driver(world: &World, target: &Target) -> Result<Arc<dyn Driver>, ReconcileError> {
    let found = world.drivers.get(&target.runtime.backend).cloned();
    found.ok_or_else(|| ReconcileError::Other(format!("{} is not driven by this version", target.runtime.backend)))
}

async fn release(world: &World, env: Resource<Environment>) -> Result<Next, ReconcileError> {
    let mut env = env;
    failpoint::pass("environment.release");
    env.metadata.finalizers.retain(|f| f != FINALIZER);
    world.store.update(env).await?;
    Ok(Next::Look(None))
}

async fn resolve(
    world: &World,
    mut env: Resource<Environment>,
    seen: &Observed,
    target: &Target,
) -> Result<Next, ReconcileError> {
    match driver(world, target)?.probe(target).await {
        Ok(facts) => {
            env.status.endpoint = Some(facts.endpoint);
            world.store.put_status(env).await?;
            Ok(Next::Look(None))
        }
        Err(error) => unanswered(world, env, seen, error).await,
    }
}

/// The daemon did not do it. One that cannot be reached, and one that refuses, has no room; what may work is tried again.
async fn unanswered(
    world: &World,
    mut env: Resource<Environment>,
    seen: &Observed,
    error: DriverError,
) -> Result<Next, ReconcileError> {
    let now = world.clock.now();
    outcome::admission_failed(&mut env, &error, now);
    let patience = match error {
        DriverError::Transient(_) => Patience::Endless,
        // of one that a run owns its run decides
        _ if seen.owner != Owner::Nobody => Patience::Endless,
        _ => admission::no_room(&mut env, &seen.stale, now),
    };
    world.store.put_status(env).await?;
    match patience {
        Patience::Endless => again(error),
        limited => Ok(later(limited, if error.is_retryable() { plan::ROOM_RETRY } else { plan::REFUSED_RETRY })),
    }
}

/// After a failure: what can be tried again is, by the error policy; the rest waits for a change.
fn again(error: DriverError) -> Result<Next, ReconcileError> {
    if error.is_retryable() {
        return Err(error.into());
    }
    Ok(Next::Done(Action::requeue(plan::REFUSED_RETRY)))
}

/// What is left to do for one that was given no room.
fn later(patience: Patience, pause: Duration) -> Next {
    patience.pause(pause).map_or(Next::Look(None), |pause| Next::Done(Action::requeue(pause)))
}

async fn admit(
    world: &World,
    mut env: Resource<Environment>,
    seen: &Observed,
    target: &Target,
    want: Want,
) -> Result<Next, ReconcileError> {
    let asked = world.clock.now();
    let answer = driver(world, target)?.admit(target, std::slice::from_ref(&want)).await;
    let now = world.clock.now();
    match answer {
        Ok(Admitted::Held(shares)) => {
            failpoint::pass("environment.held");
            let told = spans::admitted(world, &env, (asked, now));
            outcome::held(&mut env, shares.into_iter().next().unwrap_or_default(), now);
            world.store.put_status(env).await?;
            spans::tell(world, told);
            Ok(Next::Look(None))
        }
        Ok(Admitted::Short(short)) => {
            outcome::not_held(&mut env, False, outcome::INSUFFICIENT, &short.message, now);
            let patience = admission::no_room(&mut env, &seen.stale, now);
            world.store.put_status(env).await?;
            Ok(later(patience, plan::ROOM_RETRY))
        }
        Err(error) => unanswered(world, env, seen, error).await,
    }
}

/// Asks one of several places.
async fn place(world: &World, mut env: Resource<Environment>, seen: &Observed, attempt: Attempt) -> Result<Next, ReconcileError> {
    let Attempt { mut target, want, mut placed } = attempt;
    let asked = world.clock.now();
    let answer = placement::ask(world, &mut target, &mut placed.endpoint, std::slice::from_ref(&want)).await;
    let now = world.clock.now();
    match placement::answer(answer) {
        Ok(Ok(shares)) => {
            failpoint::pass("environment.held");
            let told = spans::admitted(world, &env, (asked, now));
            outcome::placed(&mut env, &placed, shares.into_iter().next().unwrap_or_default(), now);
            world.store.put_status(env).await?;
            spans::tell(world, told);
            Ok(Next::Look(None))
        }
        Ok(Err((reason, message))) => Ok(Next::Asked(PassedOver { runtime: placed.runtime, reason, message, at: now })),
        Err(error) => unanswered(world, env, seen, error).await,
    }
}

/// What became of long work.
enum Attended<T> {
    /// This.
    Done(T),
    /// Nobody wants it any more, or it is declared otherwise now: it was given up.
    Unwanted,
    /// The share it was for is no longer held.
    HoldLost(String),
}

/// The last that was told of long work, and not yet written.
type Latest = Arc<Mutex<Option<String>>>;

/// Where long work tells how far it is.
fn progress() -> (ProgressSink, Latest) {
    let latest = Latest::default();
    let told = latest.clone();
    let sink = move |progress: Progress| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress.text);
    (Arc::new(sink), latest)
}

/// Does long work for an environment: writes how far it is, and gives it up when nobody wants it any more. `renew` is made young
/// again meanwhile.
async fn attended<T>(
    world: &World,
    env: &mut Resource<Environment>,
    work: impl Future<Output = T> + Send,
    latest: &Latest,
    tell: fn(&mut Resource<Environment>, &str, Timestamp),
    renew: Option<(&dyn Driver, &Target, &BoxKey)>,
) -> Result<Attended<T>, ReconcileError> {
    // from now on, and then a look at what was before: the store may not remember its changes since this one was written
    let mut changes = world.store.watch_one("Environment", env.name(), None)?;
    let revision = |now: &Resource<Environment>| now.metadata.resource_version;
    if world.store.part(env.name(), revision).await? != Some(revision(env)) {
        return Ok(Attended::Unwanted);
    }
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewed = tokio::time::Instant::now();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(Attended::Done(done)),
            change = changes.next() => {
                let Some(Ok(event)) = change else { return Ok(Attended::Unwanted) };
                let metadata = event.change.resource().metadata();
                let gone = matches!(event.change, Change::Deleted(_)) || metadata.is_deleting();
                if gone || metadata.generation != env.metadata.generation {
                    return Ok(Attended::Unwanted);
                }
            }
            _ = tick.tick() => {
                let text = latest.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(text) = text {
                    tell(env, &text, world.clock.now());
                    *env = world.store.update_status(env.clone()).await?;
                }
                if let Some((driver, target, key)) = renew.filter(|_| renewed.elapsed() >= RENEW) {
                    renewed = tokio::time::Instant::now();
                    // a daemon that does not answer now may do so before the hold ages out
                    if let Err(DriverError::Transient(why)) = driver.renew(target, std::slice::from_ref(key)).await {
                        return Ok(Attended::HoldLost(why));
                    }
                }
            }
        }
    }
}

async fn pull(
    world: &World,
    mut env: Resource<Environment>,
    target: &Target,
    key: &BoxKey,
    what: &Pull,
) -> Result<Next, ReconcileError> {
    let driver = driver(world, target)?;
    let (sink, latest) = progress();
    let began = world.clock.now();
    let work = driver.ensure_image(target, &what.image, sink);
    let result = match attended(world, &mut env, work, &latest, outcome::pulling, Some((&*driver, target, key))).await? {
        Attended::Done(result) => result,
        Attended::Unwanted => return Ok(Next::Look(None)),
        Attended::HoldLost(why) => {
            outcome::hold_lost(&mut env, &why, world.clock.now());
            world.store.put_status(env).await?;
            return Ok(Next::Look(None));
        }
    };
    let now = world.clock.now();
    spans::part(world, "pull", &env, (began, now), &result);
    match result {
        Ok(()) => {
            outcome::pulled(&mut env, now);
            world.store.put_status(env).await?;
            Ok(Next::Look(None))
        }
        Err(error) => {
            if !error.is_retryable() {
                remove(world, target, key).await?;
            }
            let then = outcome::pull_failed(&mut env, &error, what.falls_back, now);
            world.store.put_status(env).await?;
            after(then, error)
        }
    }
}

/// After a failed step towards its box.
fn after(then: Then, error: DriverError) -> Result<Next, ReconcileError> {
    match then {
        Then::NextPlace => Ok(Next::Look(None)),
        Then::Again => again(error),
    }
}

/// The files of a box that is to be started; `None` when what it is the second box of is gone.
async fn files(world: &World, seen: &Observed, start: &Start) -> Result<Option<GuestFiles>, Error> {
    let (Some(serves), Some(served)) = (&start.serves, &seen.served) else {
        return world.files.prepare(&start.key).await.map(Some);
    };
    let files = world.files.prepare_second(&start.key, serves).await?;
    // one that was deleted meanwhile may have had its own removed before
    let there = world.store.get::<Environment>(served.name()).await.map_err(|e| Error::failed(e.to_string()))?;
    if there.is_some_and(|env| env.metadata.uid == Some(serves.uid)) {
        return Ok(Some(files));
    }
    world.files.remove(serves).await.map(|()| None)
}

async fn begin(
    world: &World,
    mut env: Resource<Environment>,
    seen: &Observed,
    target: &Target,
    start: Start,
) -> Result<Next, ReconcileError> {
    let files = match files(world, seen, &start).await {
        Ok(Some(files)) => files,
        Ok(None) => return Ok(Next::Look(None)),
        Err(error) => {
            outcome::set(&mut env, CREATED, False, "Failed", &error.message, world.clock.now());
            world.store.put_status(env).await?;
            return Err(ReconcileError::Other(error.message));
        }
    };
    let spec = BoxSpec {
        key: start.key,
        run: start.run,
        image: start.image,
        workdir: PathBuf::from(start.workdir),
        share: start.share,
        limit: start.limit,
        lease: start.lease,
        guest: files,
        programs: start.programs,
        trace: env.metadata.annotations.get(TRACE).cloned(),
    };
    failpoint::pass("environment.files");
    let driver = driver(world, target)?;
    let (sink, latest) = progress();
    let began = world.clock.now();
    let work = driver.place(target, &spec, sink);
    let placed = match attended(world, &mut env, work, &latest, outcome::starting, None).await? {
        Attended::Done(placed) => placed,
        Attended::Unwanted | Attended::HoldLost(_) => return Ok(Next::Look(None)),
    };
    let there = world.clock.now();
    spans::part(world, "place", &env, (began, there), &placed);
    let mut now = there;
    let answer = match placed {
        Ok(()) => {
            let started = driver.start(target, &spec).await;
            now = world.clock.now();
            spans::part(world, "start", &env, (there, now), &started);
            started
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(started) => {
            tracing::info!(env = env.name(), container = started.name, "its box was started");
            outcome::started(&mut env, &started, &spec.guest, now);
            world.store.put_status(env).await?;
            failpoint::pass("environment.started");
            Ok(Next::Look(Some(Boxes::Seen(Some(BoxState::Running(started.pid))))))
        }
        // of one that a run owns its run decides, and one with a list goes on along it
        Err(DriverError::NoRoom(why)) if seen.owner == Owner::Nobody && !start.falls_back => {
            outcome::no_node(&mut env, &why, now);
            let patience = admission::no_room(&mut env, &seen.stale, now);
            world.store.put_status(env).await?;
            Ok(later(patience, plan::ROOM_RETRY))
        }
        Err(error) => {
            let then = outcome::start_failed(&mut env, &error, start.falls_back, now);
            world.store.put_status(env).await?;
            after(then, error)
        }
    }
}

async fn probe(
    world: &World,
    mut env: Resource<Environment>,
    owner: Owner,
    address: &BoxAddress,
) -> Result<Next, ReconcileError> {
    let answer = world.probe.check(address).await;
    let now = world.clock.now();
    let (since, first) = (spans::since(&env), env.status.started_at.is_none());
    outcome::probed(&mut env, &answer, now);
    let is_first = first && env.status.started_at.is_some();
    let told = if is_first { spans::ready(world, &env, since, now) } else { Vec::new() };
    let then = after_probe(&env, owner, now);
    world.store.put_status(env).await?;
    spans::tell(world, told);
    Ok(Next::Done(then))
}
