//! Carrying plans out.

use super::plan::{Group, Step, complete, no_room, plan, told as note_told};
use super::walk::{Stage, Walk};
use super::{FINALIZER, look, refusal};
use crate::core::{Action, ReconcileError};
use crate::environment::outcome;
use crate::environment::plan::target_of;
use crate::placement;
use crate::spans;
use crate::trace;
use crate::world::World;
use hmz_api::condition::ConditionStatus::{False, Unknown};
use hmz_api::failpoint;
use hmz_api::journal::Outcome;
use hmz_api::kinds::condition::ENVIRONMENTS_READY;
use hmz_api::kinds::{Environment, Run};
use hmz_api::launch::RunLaunch;
use hmz_api::{Error, ErrorKind, Resource};
use hmz_drivers::{Admitted, BoxKey, DriverError, Target};
use hmz_store::StoreError;
use jiff::Timestamp;
use std::time::Duration;

/// More steps than any way through has.
const STEPS: usize = 24;
/// How often a runner that was asked to end is looked at.
const ENDING: Duration = Duration::from_millis(200);

enum Next {
    Look,
    Done(Action),
}

/// Drives one run as far as it goes now.
pub async fn reconcile(world: &World, name: &str) -> Result<Action, ReconcileError> {
    let mut walk = Walk::default();
    let done = drive(world, name, &mut walk).await;
    // whatever came in between: what is held and not written down is nobody's
    give_back(world, walk.take_held()).await;
    done
}

async fn drive(world: &World, name: &str, walk: &mut Walk) -> Result<Action, ReconcileError> {
    let (mut steps, mut first, began) = (0, true, world.clock.now());
    while steps < STEPS {
        let Some(run) = world.store.get::<Run>(name).await? else { return Ok(Action::gone()) };
        if std::mem::take(&mut first) {
            trace::note(&run.metadata);
        }
        let mut seen = look::look(world, &run).await?;
        seen.walk.clone_from(walk);
        let planned = plan(&run, &seen);
        let mut run = run;
        run.status = planned.status;
        let run = world.store.update_status(run).await?;
        // each place is asked once, however many there are
        steps += usize::from(!matches!(planned.step, Step::Admit(_) | Step::Weigh(_)));
        match execute(world, run, planned.step, walk, began).await? {
            Next::Look => {}
            Next::Done(action) => return Ok(action),
        }
    }
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// `began`: when this look did, which asks for whatever is admitted in it.
async fn execute(
    world: &World,
    mut run: Resource<Run>,
    step: Step,
    walk: &mut Walk,
    began: Timestamp,
) -> Result<Next, ReconcileError> {
    match step {
        Step::Wait(action) => return Ok(Next::Done(action)),
        Step::Again => {}
        Step::AddFinalizer => {
            run.metadata.finalizers.push(FINALIZER.into());
            world.store.update(run).await?;
            failpoint::pass("run.finalizer");
        }
        Step::CreateEnvironments(environments) => return create(world, run, environments).await,
        Step::Admit(group) => return admit(world, run, *group, walk).await,
        Step::Weigh(group) => return weigh(world, run, *group, walk).await,
        Step::Weighed => walk.weighed(),
        Step::Hold => return hold(world, walk, began).await,
        Step::NoRoom { message, could_fit, names } => {
            give_back(world, walk.take_held()).await;
            *walk = Walk::default();
            for name in names {
                schedule(world, &name, |env, now| outcome::not_held(env, False, outcome::INSUFFICIENT, &message, now)).await?;
            }
            return settle(world, run, &message, could_fit).await;
        }
        Step::OpenEpic => {
            let cwd = run.metadata.uid.and_then(|uid| world.callers.get(uid)).map(|c| c.cwd).unwrap_or_default();
            match world.epics.open(&run, &cwd).await {
                Ok(epic) => {
                    failpoint::pass("run.epic");
                    run.status.epic = Some(epic);
                }
                Err(error) => return failed(world, run, &error).await,
            }
            world.store.update_status(run).await?;
        }
        Step::Start(launch) => return start(world, run, *launch).await,
        Step::Begin(mut launch, keys) => {
            for (role, address) in &mut launch.boxes {
                let Some(key) = keys.get(role) else { continue };
                match world.files.prepare(key).await {
                    Ok(files) => {
                        address.scratch = files.scratch.display().to_string();
                        // one that was deleted meanwhile may have had them removed before
                        let there = world.store.get::<Environment>(&address.environment).await?;
                        if there.is_none_or(|env| env.metadata.uid != Some(key.uid)) {
                            if let Err(error) = world.files.remove(key).await {
                                tracing::warn!("the directories of a box that was deleted stay: {}", error.message);
                            }
                            return Ok(Next::Look);
                        }
                    }
                    // whoever starts the box says so, and tries again
                    Err(error) => return Err(ReconcileError::Other(error.message)),
                }
            }
            return start(world, run, *launch).await;
        }
        Step::Tell(epic, told) => {
            world.epics.tell(&epic, &told).await.map_err(|error| ReconcileError::Other(error.message))?;
            failpoint::pass("run.told");
            note_told(&mut run, &told, world.clock.now());
            world.store.update_status(run).await?;
        }
        Step::EndRunner { runner, kill } => {
            if kill {
                world.runners.kill(&runner).await;
            } else {
                world.runners.cancel(&runner).await;
            }
            return Ok(Next::Done(Action::requeue(ENDING)));
        }
        Step::DeleteEnvironments(names) => {
            for name in names {
                match world.store.delete::<Environment>(&name).await {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                failpoint::pass("run.environment.deleted");
            }
        }
        Step::Release => {
            failpoint::pass("run.release");
            run.metadata.finalizers.retain(|f| f != FINALIZER);
            world.store.update(run).await?;
        }
        Step::DeleteSelf => {
            world.store.delete::<Run>(run.name()).await?;
        }
    }
    Ok(Next::Look)
}

/// Makes the environments, each with the address of its daemon.
async fn create(world: &World, run: Resource<Run>, environments: Vec<Resource<Environment>>) -> Result<Next, ReconcileError> {
    for mut env in environments {
        if env.status.endpoint.is_none() {
            let runtime = crate::runtime::find(&world.store, &env.spec.runtime).await?.map(|r| r.spec);
            if runtime.as_ref().is_some_and(|spec| !spec.fallback.is_empty()) {
                world.store.create(env).await?;
                failpoint::pass("run.environment");
                continue; // one that does not answer has others, and is asked in its turn
            }
            let target = target_of(&env, runtime.as_ref());
            let Some(driver) = world.drivers.get(&target.runtime.backend) else {
                return Err(ReconcileError::Other(format!("{} is not driven by this version", target.runtime.backend)));
            };
            match driver.probe(&target).await {
                Ok(facts) => env.status.endpoint = Some(facts.endpoint),
                Err(error) => return unanswered(world, run, error).await,
            }
        }
        world.store.create(env).await?;
        failpoint::pass("run.environment");
    }
    Ok(Next::Look)
}

/// Asks one daemon.
async fn admit(world: &World, run: Resource<Run>, mut group: Group, walk: &mut Walk) -> Result<Next, ReconcileError> {
    let answer = placement::ask(world, &mut group.target, &mut group.endpoint, &group.wants).await;
    answered(world, run, group, answer, walk).await
}

/// Asks one daemon what it would say. Nothing is held meanwhile.
async fn weigh(world: &World, run: Resource<Run>, mut group: Group, walk: &mut Walk) -> Result<Next, ReconcileError> {
    walk.stage = Stage::Weighing;
    let promised = walk.promised(&group.target);
    let answer = placement::weigh(world, &mut group.target, &mut group.endpoint, &group.wants, &promised).await;
    answered(world, run, group, answer, walk).await
}

async fn answered(
    world: &World,
    run: Resource<Run>,
    group: Group,
    answer: Result<Admitted, DriverError>,
    walk: &mut Walk,
) -> Result<Next, ReconcileError> {
    match walk.answered(group, answer, world.clock.now()) {
        Ok(()) => Ok(Next::Look),
        Err(error) => {
            give_back(world, walk.take_held()).await;
            unanswered(world, run, error).await
        }
    }
}

/// Writes down where every share of the gang is held.
async fn hold(world: &World, walk: &mut Walk, asked: Timestamp) -> Result<Next, ReconcileError> {
    failpoint::pass("run.admitted");
    while let Some((name, held)) = walk.held.pop_first() {
        let mut told = None;
        let placed = |env: &mut Resource<Environment>, now| {
            told = spans::admitted(world, env, (asked, now));
            outcome::placed(env, &held.placed, held.share, now);
        };
        schedule(world, &name, placed).await?;
        spans::tell(world, told);
        failpoint::pass("run.scheduled");
    }
    *walk = Walk::default();
    Ok(Next::Look)
}

/// Gives holds back. One that stays, since its daemon does not answer, ages out.
async fn give_back(world: &World, holds: Vec<(Target, BoxKey)>) {
    for (target, key) in holds {
        let Some(driver) = world.drivers.get(&target.runtime.backend) else { continue };
        if let Err(error) = driver.remove(&target, &key).await {
            tracing::warn!(role = key.role, "a share that is not needed is left to age out: {error}");
        }
    }
}

async fn schedule(
    world: &World,
    name: &str,
    change: impl FnOnce(&mut Resource<Environment>, Timestamp),
) -> Result<(), ReconcileError> {
    let Some(mut env) = world.store.get::<Environment>(name).await? else { return Ok(()) };
    change(&mut env, world.clock.now());
    world.store.update_status(env).await?;
    Ok(())
}

/// There is no room: the plan says what that means.
async fn settle(world: &World, mut run: Resource<Run>, message: &str, could_fit: bool) -> Result<Next, ReconcileError> {
    let error = look::with_settings(world, &run, Error::refused(message)).await?;
    let step = no_room(&mut run, message, could_fit, world.clock.now());
    if run.status.is_complete() && !error.hints.is_empty() {
        complete(&mut run, Outcome::Refused, &refusal::message(&error), world.clock.now());
    }
    world.store.update_status(run).await?;
    match step {
        Step::Wait(action) => Ok(Next::Done(action)),
        _ => Ok(Next::Look),
    }
}

/// The daemon did not do it. One that cannot be reached has no room; what may work is tried again.
async fn unanswered(world: &World, mut run: Resource<Run>, error: DriverError) -> Result<Next, ReconcileError> {
    match &error {
        DriverError::Refused(_) | DriverError::Foreign(_) | DriverError::NoProgram { .. } => {
            settle(world, run, &error.to_string(), false).await
        }
        DriverError::Unreachable { .. } | DriverError::NoRoom(_) => settle(world, run, &error.to_string(), true).await,
        DriverError::Transient(why) => {
            let (generation, now) = (run.metadata.generation, world.clock.now());
            run.status.conditions.set(ENVIRONMENTS_READY, Unknown, "Failed", why, generation, now);
            world.store.update_status(run).await?;
            Err(error.into())
        }
    }
}

async fn start(world: &World, mut run: Resource<Run>, launch: RunLaunch) -> Result<Next, ReconcileError> {
    let began = world.clock.now();
    let started = world.runners.start(launch).await;
    spans::runner(world, &run, (began, world.clock.now()), &started);
    match started {
        Ok(runner) => {
            failpoint::pass("run.runner");
            tracing::info!(runner, "its runner was started");
            run.status.runner = Some(runner);
            world.store.update_status(run).await?;
            failpoint::pass("run.runner.noted");
            Ok(Next::Look)
        }
        Err(error) => failed(world, run, &error).await,
    }
}

/// What is of no use to try again ends the run.
async fn failed(world: &World, mut run: Resource<Run>, error: &Error) -> Result<Next, ReconcileError> {
    let how = match error.kind {
        ErrorKind::Refused | ErrorKind::Usage => Outcome::Refused,
        ErrorKind::Failed | ErrorKind::NotFound => Outcome::Failed,
        ErrorKind::Conflict | ErrorKind::Internal => return Err(ReconcileError::Other(error.message.clone())),
    };
    complete(&mut run, how, &refusal::message(error), world.clock.now());
    world.store.update_status(run).await?;
    Ok(Next::Look)
}
