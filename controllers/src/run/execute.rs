//! Carrying plans out.

use super::plan::{Group, Step, complete, no_room, plan};
use super::{FINALIZER, look, refusal};
use crate::core::{Action, ReconcileError};
use crate::environment::outcome;
use crate::environment::plan::target_of;
use crate::world::World;
use hmz_api::condition::ConditionStatus::{False, Unknown};
use hmz_api::failpoint;
use hmz_api::journal::Outcome;
use hmz_api::kinds::condition::ENVIRONMENTS_READY;
use hmz_api::kinds::{Environment, Run, Share};
use hmz_api::launch::RunLaunch;
use hmz_api::{Error, ErrorKind, Resource};
use hmz_drivers::{Admitted, DriverError};
use hmz_store::StoreError;
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
    for _ in 0..STEPS {
        let Some(run) = world.store.get::<Run>(name).await? else { return Ok(Action::gone()) };
        let seen = look::look(world, &run).await?;
        let planned = plan(&run, &seen);
        let mut run = run;
        run.status = planned.status;
        let run = world.store.update_status(run).await?;
        match execute(world, run, planned.step).await? {
            Next::Look => {}
            Next::Done(action) => return Ok(action),
        }
    }
    Ok(Action::requeue(Duration::from_secs(1)))
}

async fn execute(world: &World, mut run: Resource<Run>, step: Step) -> Result<Next, ReconcileError> {
    match step {
        Step::Wait(action) => return Ok(Next::Done(action)),
        Step::Again => {}
        Step::AddFinalizer => {
            run.metadata.finalizers.push(FINALIZER.into());
            world.store.update(run).await?;
            failpoint::pass("run.finalizer");
        }
        Step::CreateEnvironments(environments) => return create(world, run, environments).await,
        Step::Admit(groups) => return admit(world, run, groups).await,
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

/// Asks for the shares of the whole gang; what was got on one daemon is given back when another has none.
async fn admit(world: &World, run: Resource<Run>, groups: Vec<Group>) -> Result<Next, ReconcileError> {
    let mut held: Vec<(String, Share)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let Some(driver) = world.drivers.get(&group.target.runtime.backend) else {
            return Err(ReconcileError::Other(format!("{} is not driven by this version", group.target.runtime.backend)));
        };
        let answer = driver.admit(&group.target, &group.wants).await;
        let (message, could_fit, error) = match answer {
            Ok(Admitted::Held(shares)) => {
                held.extend(group.names.iter().cloned().zip(shares));
                continue;
            }
            Ok(Admitted::Short(short)) => (short.message, short.could_fit, None),
            Err(error) => (error.to_string(), error.is_retryable(), Some(error)),
        };
        give_back(world, &groups[..at]).await?;
        if let Some(error) = error {
            return unanswered(world, run, error).await;
        }
        for name in groups.iter().flat_map(|g| &g.names) {
            schedule(world, name, |env, now| outcome::not_held(env, False, outcome::INSUFFICIENT, &message, now)).await?;
        }
        return settle(world, run, &message, could_fit).await;
    }
    failpoint::pass("run.admitted");
    for (name, share) in held {
        schedule(world, &name, |env, now| outcome::held(env, share, now)).await?;
        failpoint::pass("run.scheduled");
    }
    Ok(Next::Look)
}

/// Gives holds back. One whose reply is lost ages out, and goes with its environment at the latest.
async fn give_back(world: &World, groups: &[Group]) -> Result<(), ReconcileError> {
    for group in groups {
        let Some(driver) = world.drivers.get(&group.target.runtime.backend) else { continue };
        for want in &group.wants {
            driver.remove(&group.target, &want.key).await?;
        }
    }
    Ok(())
}

async fn schedule(
    world: &World,
    name: &str,
    change: impl FnOnce(&mut Resource<Environment>, jiff::Timestamp),
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
        DriverError::Refused(_) | DriverError::Foreign(_) => settle(world, run, &error.to_string(), false).await,
        DriverError::Unreachable { .. } => settle(world, run, &error.to_string(), true).await,
        DriverError::Transient(why) => {
            let (generation, now) = (run.metadata.generation, world.clock.now());
            run.status.conditions.set(ENVIRONMENTS_READY, Unknown, "Failed", why, generation, now);
            world.store.update_status(run).await?;
            Err(error.into())
        }
    }
}

async fn start(world: &World, mut run: Resource<Run>, launch: RunLaunch) -> Result<Next, ReconcileError> {
    match world.runners.start(launch).await {
        Ok(runner) => {
            failpoint::pass("run.runner");
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
