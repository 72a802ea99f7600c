//! Seeing what an environment's plan needs.

use super::address::address_of;
use super::outcome;
use super::plan::{Boxes, Observed, Owner, is_down, key_of, owner_run, target_of, workdir};
use crate::core::ReconcileError;
use crate::placement;
use crate::run::refusal;
use crate::runtime;
use crate::target::Saved;
use crate::world::World;
use hmz_api::Resource;
use hmz_api::kinds::condition::{CREATED, RUNNING, SCHEDULED};
use hmz_api::kinds::{Environment, Run, Runtime, RuntimeSpec};
use hmz_drivers::{BoxState, Ending};

/// Looks. `known` is what a step of this very pass saw of the daemon; it is not asked again then.
pub async fn look(world: &World, env: &Resource<Environment>, known: Option<Boxes>) -> Result<Observed, ReconcileError> {
    let used = env.status.used.as_ref().unwrap_or(&env.spec.runtime);
    let saved = runtime::find(&world.store, used).await?;
    let unreadable = saved.as_ref().and_then(runtime::unreadable);
    let going = env.metadata.is_deleting();
    // one that is on its way out takes nothing new, and is still there for what it has
    let begun = env.status.conditions.is_true(SCHEDULED) || owner_run(env).is_some();
    let takes = |r: &Resource<Runtime>| begun || !runtime::is_leaving(r);
    let stale = saved.as_ref().is_some_and(|r| refusal::is_stale(r, world.settings.borrow().problem.is_some()));
    // nothing else is tried for a second box
    let is_placed = going || env.status.container_id.is_some() || env.status.serves.is_some();
    let first = saved.as_ref().filter(|_| !is_placed && *used == env.spec.runtime).cloned();
    let runtime = saved.filter(|r| env.status.container_id.is_some() || going || takes(r)).map(|r| r.spec);
    let owner = owner(world, env).await?;
    let caller = env.metadata.uid.and_then(|uid| world.callers.get(uid));
    let caller = caller.or_else(|| owner_run(env).and_then(|o| world.callers.get(o.uid)));
    let boxes = match known {
        Some(boxes) => boxes,
        None if going || env.status.container_id.is_none() => Boxes::NotAsked,
        None => ask(world, env, runtime.as_ref()).await,
    };
    let ending = ending(world, env, runtime.as_ref(), &boxes).await;
    let unreadable = match (unreadable, &runtime) {
        (None, Some(spec)) if !going && env.status.container_id.is_none() && spec.container.is_none() => match workdir(env, spec)
        {
            Ok(dir) => world.files.refusal(&dir, &caller.clone().unwrap_or_default()).await,
            Err(_) => None,
        },
        (said, _) => said,
    };
    let saved = if runtime.is_none() { crate::runtime::saved(world).await? } else { Saved::default() };
    let served = match &env.status.serves {
        Some(served) => world.store.get::<Environment>(&served.environment).await?,
        None => None,
    };
    let places = if is_placed {
        Vec::new()
    } else {
        let caller = caller.clone().unwrap_or_default();
        placement::look(world, &env.spec.runtime, env.spec.workdir.as_deref(), begun, &caller, first).await?
    };
    let faults: Vec<String> = {
        let settings = world.settings.borrow();
        settings.problem.iter().chain(&settings.faults).cloned().collect()
    };
    Ok(Observed {
        now: world.clock.now(),
        instance: world.instance.clone(),
        carrier: world.carrier.clone(),
        runtime,
        saved,
        places,
        asked: Vec::new(),
        unreadable,
        stale: if stale { faults.clone() } else { Vec::new() },
        settings: faults,
        driven: world.drivers.contains_key(&used.backend),
        local_endpoint: caller.and_then(|c| c.docker_endpoint),
        owner,
        served: served.filter(|served| !served.metadata.is_deleting()),
        boxes,
        ending,
    })
}

async fn owner(world: &World, env: &Resource<Environment>) -> Result<Owner, ReconcileError> {
    let Some(reference) = owner_run(env) else { return Ok(Owner::Nobody) };
    let run = world.store.get::<Run>(&reference.name).await?.filter(|r| r.metadata.uid == Some(reference.uid));
    Ok(match run {
        None => Owner::Ended,
        Some(run) if run.status.is_complete() => Owner::Ended,
        Some(run) if run.status.conditions.is_true(RUNNING) => Owner::Running,
        Some(_) => Owner::Preparing,
    })
}

/// What the daemon remembers of the end of its box, when that does not run.
async fn ending(world: &World, env: &Resource<Environment>, runtime: Option<&RuntimeSpec>, boxes: &Boxes) -> Option<Ending> {
    let (Boxes::Seen(None | Some(BoxState::Exited(_))), Some(id)) = (boxes, &env.status.container_id) else { return None };
    let target = target_of(env, runtime);
    // an explanation that cannot be had changes nothing else
    world.drivers.get(&target.runtime.backend)?.ending(&target, id).await.ok().flatten()
}

/// Why the box of a run's environment does not run, when its guest does not answer any more: one sentence. `None`: it is there,
/// or nobody can tell.
pub(crate) async fn lost(world: &World, env: &Resource<Environment>) -> Option<String> {
    if is_down(env) {
        return env.status.conditions.get(CREATED).map(|c| c.message.clone());
    }
    let (address, id) = (address_of(env, &world.carrier)?, env.status.container_id.as_ref()?);
    if world.probe.check(&address).await.is_ok() {
        return None;
    }
    let used = env.status.used.as_ref().unwrap_or(&env.spec.runtime);
    let runtime = runtime::find(&world.store, used).await.ok()?.map(|r| r.spec);
    let target = target_of(env, runtime.as_ref());
    let ending = world.drivers.get(&target.runtime.backend)?.ending(&target, id).await.ok()?;
    let Boxes::Seen(state) = ask(world, env, runtime.as_ref()).await else { return None };
    let runs = matches!(state, Some(BoxState::Created | BoxState::Running(_)));
    (!runs).then(|| outcome::death(state.as_ref(), ending.as_ref(), env.status.lease_seconds).1)
}

async fn ask(world: &World, env: &Resource<Environment>, runtime: Option<&RuntimeSpec>) -> Boxes {
    let target = target_of(env, runtime);
    let Some(driver) = world.drivers.get(&target.runtime.backend) else {
        return Boxes::Unreachable(format!("{} is not driven by this version", target.runtime.backend));
    };
    let id = env.status.container_id.as_deref().unwrap_or_default();
    match driver.find(&target, &key_of(env, &world.instance), id).await {
        Err(error) => Boxes::Unreachable(error.to_string()),
        Ok(state) => Boxes::Seen(state),
    }
}
