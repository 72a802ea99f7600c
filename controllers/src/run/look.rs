//! Seeing what a run's plan needs.

use super::plan::{Observed, environment_name, under};
use super::refusal::{self, Runtimes};
use super::second;
use super::walk::Walk;
use crate::core::ReconcileError;
use crate::environment::{self, outcome, plan::owner_run};
use crate::placement::{self, Place};
use crate::runtime;
use crate::target::Saved;
use crate::world::{RunnerState, World};
use hmz_api::journal::Outcome;
use hmz_api::kinds::annotation::{CWD, TRACE};
use hmz_api::kinds::condition::{ACCEPTED, ENVIRONMENTS_READY};
use hmz_api::kinds::{Environment, Flow, FlowSpec, Harness, Run, Runtime};
use hmz_api::launch::CallerContext;
use hmz_api::{Backend, Error, Resource, RuntimeRef};
use std::collections::{BTreeMap, BTreeSet};

/// Looks.
pub async fn look(world: &World, run: &Resource<Run>) -> Result<Observed, ReconcileError> {
    let uid = run.metadata.uid.unwrap_or_default();
    // a daemon that was started since knows of the caller only where its flows are
    let cwd = || run.metadata.annotations.get(CWD).cloned().unwrap_or_default();
    let caller = world.callers.get(uid).unwrap_or_else(|| CallerContext { cwd: cwd(), ..CallerContext::default() });
    let caller = CallerContext { trace: run.metadata.annotations.get(TRACE).cloned(), ..caller };
    let complete = run.status.is_complete();
    let going = run.metadata.is_deleting();
    // one that was begun before its boxes is looked after until it is gone, whatever the run says
    let settled = run.status.conditions.is_true(ENVIRONMENTS_READY) || run.status.runner.is_none();
    let runner = if complete && !going && settled { None } else { runner(world, run).await };
    let waits = !settled && matches!(runner, Some((_, RunnerState::Alive)));
    // what it owns has names that it gave, now or before its spec changed
    let names = run.spec.environments.keys().map(|role| environment_name(run.name(), role));
    let names: BTreeSet<String> = names.flat_map(|name| [second::name_of(&name), name]).collect();
    let given = run.status.environments.values();
    let given = given.flat_map(|role| role.environment.iter().chain(role.harness.as_ref().map(|second| &second.environment)));
    let mut owned = BTreeMap::new();
    let mut taken = Vec::new();
    for name in names.iter().chain(given).collect::<BTreeSet<_>>() {
        let Some(env) = world.store.get::<Environment>(name).await? else { continue };
        if owner_run(&env).is_some_and(|o| o.uid == uid) {
            owned.insert(env.metadata.name.clone(), env);
        } else if names.contains(&env.metadata.name) {
            taken.push(env.metadata.name);
        }
    }
    let mut lost = Vec::new();
    if let (false, Some((_, RunnerState::Ended(Outcome::Failed, _)))) = (complete, &runner) {
        for env in owned.values() {
            lost.extend(environment::look::lost(world, env).await);
        }
    }
    let (settings, settings_broken) = faults(world);
    let mut runtimes = BTreeMap::new();
    let mut saved = Saved::default();
    let mut flow = None;
    let mut places = BTreeMap::new();
    let mut agents = Ok(());
    if !complete && !going && (runner.is_none() || waits) {
        for request in run.spec.environments.values() {
            let reference = request.place().runtime;
            let found = runtime::find(&world.store, &reference).await?;
            if let Some(named) = found.as_ref().and_then(second_of) {
                let second = runtime::find(&world.store, named).await?;
                runtimes.insert(named.clone(), second);
            }
            runtimes.insert(reference, found);
        }
        if runtimes.values().any(|found| found.as_ref().is_none_or(runtime::is_leaving)) {
            saved = runtime::saved(world).await?;
        } else {
            saved.path = world.settings.borrow().path.clone();
        }
        let found = find_flow(world, &run.spec.flow, &caller.cwd).await?;
        if let (false, Ok(flow)) = (run.status.conditions.is_true(ACCEPTED), &found) {
            let here = refusal::here(run, flow, &runtimes);
            agents = world.runners.check(&run.spec, flow, &caller, &here).await;
            agents = agents.and(workdirs(world, run, &runtimes, &caller).await);
        }
        for (role, request) in &run.spec.environments {
            let asked = request.place();
            let mut of_role = placement::look(world, &asked.runtime, asked.workdir.as_deref(), true, &caller, None).await?;
            if let Ok(flow) = &found {
                for place in of_role.iter_mut().skip(1) {
                    place.harness = harness(world, run, flow, role, place, &caller).await;
                }
            }
            let name = environment_name(run.name(), role);
            if let Some(second) = owned.get(&second::name_of(&name)) {
                // nothing else is tried for it
                let workdir = second.spec.workdir.as_deref();
                let mut place = placement::look(world, &second.spec.runtime, workdir, true, &caller, None).await?;
                place.truncate(1);
                places.insert(second.metadata.name.clone(), place);
            }
            places.insert(name, of_role);
        }
        flow = Some(found);
    }
    Ok(Observed {
        now: world.clock.now(),
        instance: world.instance.clone(),
        carrier: world.carrier.clone(),
        driven: world.drivers.keys().copied().collect(),
        flow,
        agents,
        runtimes,
        saved,
        settings,
        places,
        walk: Walk::default(),
        settings_broken,
        owned,
        taken,
        runner,
        lost,
        boxed: run.spec.agents.iter().filter_map(|(role, spec)| Some((role.clone(), world.runners.boxed(spec)?))).collect(),
        caller,
    })
}

/// The runtime of the second boxes of those that work on this one.
fn second_of(runtime: &Resource<Runtime>) -> Option<&RuntimeRef> {
    match &runtime.spec.harness {
        Harness::On(named) => Some(named),
        Harness::Env | Harness::Local => None,
    }
}

/// Why no agent that works in a role could do so in a place it falls back to, if so.
async fn harness(
    world: &World,
    run: &Resource<Run>,
    flow: &FlowSpec,
    role: &str,
    place: &Place,
    caller: &CallerContext,
) -> Option<String> {
    let mut runtimes = Runtimes::new();
    if let Harness::On(named) = &place.spec.harness {
        // what cannot be read now is not there
        runtimes.insert(named.clone(), runtime::find(&world.store, named).await.ok().flatten());
    }
    let driven: Vec<Backend> = world.drivers.keys().copied().collect();
    if let Some(why) = refusal::harness_on(run, flow, role, place, &runtimes, &driven, caller.docker_endpoint.as_deref()) {
        return Some(why);
    }
    if place.spec.harness != Harness::Local {
        return None;
    }
    for (_, spec) in refusal::agents_of(run, flow, role) {
        if let Err(error) = world.runners.is_here(spec, caller).await {
            return Some(outcome::harness_cannot_run(&place.runtime.at(), &spec.cli, &Harness::Local, &error.message));
        }
    }
    None
}

/// What is wrong with settings.yaml beside its entries, and whether it cannot be read at all.
fn faults(world: &World) -> (Vec<String>, bool) {
    let settings = world.settings.borrow();
    (settings.problem.iter().chain(&settings.faults).cloned().collect(), settings.problem.is_some())
}

/// A refusal of a run, with what is wrong with settings.yaml where that may be why.
pub async fn with_settings(world: &World, run: &Resource<Run>, error: Error) -> Result<Error, ReconcileError> {
    let (faults, is_broken) = faults(world);
    let mut runtimes = BTreeMap::new();
    if is_broken {
        for request in run.spec.environments.values() {
            let reference = request.place().runtime;
            let found = runtime::find(&world.store, &reference).await?;
            runtimes.insert(reference, found);
        }
    }
    Ok(refusal::with_settings(error, &runtimes, &faults, is_broken))
}

/// Whether each box may be given the directory it asks for.
async fn workdirs(world: &World, run: &Resource<Run>, runtimes: &Runtimes, caller: &CallerContext) -> Result<(), Error> {
    for (role, request) in &run.spec.environments {
        let place = request.place();
        let runtime = runtimes.get(&place.runtime).and_then(Option::as_ref);
        if runtime.is_some_and(|r| r.spec.container.is_some()) {
            continue; // what that has it has already
        }
        let saved = runtime.and_then(|r| r.spec.workdir.clone());
        let Some(dir) = place.workdir.or(saved) else { continue };
        let dir = under(&dir, caller.env.get("HOME").map(String::as_str));
        if let Some(why) = world.files.refusal(&dir, caller).await {
            return Err(Error::refused(format!("'{role}': {why}")).hint("give the directory of one project"));
        }
    }
    Ok(())
}

/// A stored flow wins over one on disk or built in.
async fn find_flow(world: &World, name: &str, cwd: &str) -> Result<Result<FlowSpec, Error>, ReconcileError> {
    if let Some(flow) = world.store.get::<Flow>(name).await?.filter(|f| !f.metadata.is_deleting()) {
        return Ok(Ok(flow.spec));
    }
    Ok(world.flows.find(name, cwd).await.map(|(spec, _source)| spec))
}

async fn runner(world: &World, run: &Resource<Run>) -> Option<(String, RunnerState)> {
    let epic = run.status.epic.as_deref()?;
    let runner = match &run.status.runner {
        Some(runner) => runner.clone(),
        None => world.runners.find(epic).await?,
    };
    let state = world.runners.observe(&runner, epic).await;
    Some((runner, state))
}
