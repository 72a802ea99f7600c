//! Which keys a change wakes. It decides nothing else: whoever is woken looks for itself.
//!
//! A controller that writes a status is not woken by its own write: only what somebody else decides by is compared.

use crate::core::Requests;
use crate::environment::plan::owner_run;
use crate::runtime::is_on;
use crate::settings;
use crate::world::World;
use futures::StreamExt;
use hmz_api::kinds::{Environment, Run, Runtime, condition};
use hmz_api::{AnyResource, Kind, RuntimeRef};
use hmz_store::{Change, StoreError};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How long events of a daemon are gathered before anybody is woken.
const GATHER: Duration = Duration::from_millis(100);
/// How soon a run that waits for several daemons tries again after an event.
const SEVERAL: Duration = Duration::from_secs(2);

/// The queues of all controllers.
#[derive(Debug, Clone)]
pub(crate) struct Wakers {
    pub(crate) environments: Requests,
    pub(crate) runs: Requests,
    pub(crate) runtimes: Requests,
    pub(crate) settings: Requests,
    pub(crate) sweep: Requests,
}

/// What of a resource others decide by, as text; an equal one wakes nobody.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// What its own controller looks at and does not write itself.
    declared: String,
    /// What other controllers look at.
    observed: String,
}

fn seen(resource: &AnyResource) -> Seen {
    let metadata = resource.metadata();
    let declared = (metadata.uid, metadata.generation, metadata.deletion_timestamp, &metadata.annotations, &metadata.finalizers);
    let mut declared = format!("{declared:?}");
    let states = |conditions: &hmz_api::Conditions| {
        conditions.0.iter().map(|c| format!("{}={:?}:{} ", c.kind, c.status, c.reason)).collect::<String>()
    };
    let observed = match resource {
        AnyResource::Environment(env) => {
            // the share is given by the run's controller too
            let scheduled = env.status.conditions.get(condition::SCHEDULED).map(|c| (c.status, c.reason.clone()));
            declared.push_str(&format!("{scheduled:?}{:?}", env.status.endpoint));
            format!("{:?}{}", env.status.used, states(&env.status.conditions))
        }
        AnyResource::Run(run) => {
            format!("{} {}", run.status.is_complete(), run.status.conditions.is_true(condition::RUNNING))
        }
        AnyResource::Runtime(runtime) => {
            format!("{}{:?}", states(&runtime.status.conditions), runtime.status.source)
        }
        AnyResource::Flow(_) => String::new(),
    };
    Seen { declared, observed }
}

/// Follows the store and wakes; ends only when the store is closed.
pub(crate) async fn follow(world: &World, wake: &Wakers) {
    loop {
        match follow_once(world, wake).await {
            Err(StoreError::Closed) => return,
            Err(error) => tracing::debug!(%error, "lists again"),
            Ok(()) => {}
        }
        // a store that fails is asked again, but not without pause
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn follow_once(world: &World, wake: &Wakers) -> Result<(), StoreError> {
    let (listed, mut changes) = world.store.list_and_watch(None).await?;
    let mut known: HashMap<(&'static str, String), Seen> = HashMap::new();
    for resource in &listed.items {
        known.insert((resource.kind(), resource.metadata().name.clone()), seen(resource));
        route(world, wake, resource, true, true).await?;
    }
    while let Some(change) = changes.next().await {
        let event = change?;
        let key = (event.kind, event.name.clone());
        let resource = event.change.resource();
        let (before, now) = (known.remove(&key), seen(resource));
        let gone = matches!(event.change, Change::Deleted(_));
        let declared = gone || before.as_ref().is_none_or(|b| b.declared != now.declared);
        let observed = gone || before.as_ref().is_none_or(|b| b.observed != now.observed);
        if !gone {
            known.insert(key, now);
        }
        route(world, wake, resource, declared, observed).await?;
    }
    Ok(())
}

async fn route(world: &World, wake: &Wakers, resource: &AnyResource, declared: bool, observed: bool) -> Result<(), StoreError> {
    let name = &resource.metadata().name;
    match resource {
        AnyResource::Environment(env) => {
            if declared {
                wake.environments.ask(name, "it changed");
                for runtime in [Some(&env.spec.runtime), env.status.used.as_ref()].into_iter().flatten() {
                    wake.runtimes.ask(runtime.resource_name(), "an environment changed");
                }
            }
            if let Some(owner) = owner_run(env).filter(|_| declared || observed) {
                wake.runs.ask(&owner.name, "its environment changed");
            }
        }
        AnyResource::Run(run) => {
            if declared {
                wake.runs.ask(name, "it changed");
            }
            if declared || observed {
                for role in run.status.environments.values() {
                    let second = role.harness.as_ref().map(|second| &second.environment);
                    for env in role.environment.iter().chain(second) {
                        wake.environments.ask(env, "its run changed");
                    }
                }
                for place in run.spec.environments.values().map(hmz_api::kinds::EnvironmentRequest::place) {
                    wake.runtimes.ask(place.runtime.resource_name(), "a run changed");
                }
            }
        }
        AnyResource::Runtime(_) => {
            if declared {
                wake.runtimes.ask(name, "it changed");
                wake.sweep.ask(name, "it changed");
                wake.settings.ask(settings::KEY, "a runtime changed");
            }
            if declared || observed {
                users(world, wake, name, "its runtime changed").await?;
            }
        }
        AnyResource::Flow(_) => {}
    }
    Ok(())
}

/// Wakes whoever is on a runtime or waits for it.
async fn users(world: &World, wake: &Wakers, runtime: &str, reason: &'static str) -> Result<(), StoreError> {
    // whoever named one that falls back to this may go there
    let lists = |r: &hmz_api::Resource<Runtime>| r.spec.fallback.iter().any(|f| f.resource_name() == runtime);
    let falls: BTreeSet<String> =
        world.store.list::<Runtime>().await?.into_iter().filter(lists).map(|r| r.metadata.name).collect();
    for env in world.store.list::<Environment>().await? {
        let waits = !env.status.conditions.is_true(condition::SCHEDULED);
        if is_on(&env, runtime) || (waits && falls.contains(&env.spec.runtime.resource_name())) {
            wake.environments.ask(env.name(), reason);
        }
    }
    for run in world.store.list::<Run>().await? {
        let waits = !run.status.is_complete() && !run.status.conditions.is_true(condition::RUNNING);
        let named = run.spec.environments.values().map(|e| e.place().runtime.resource_name());
        let seconds = run.status.environments.values().filter_map(|role| Some(role.harness.as_ref()?.runtime.resource_name()));
        let places: BTreeSet<String> = named.chain(seconds).collect();
        if waits && (places.contains(runtime) || !places.is_disjoint(&falls)) {
            // trying for shares on several daemons makes events itself when what was got on one is given back
            let several = places.len() > 1 || (run.spec.environments.len() > 1 && !places.is_disjoint(&falls));
            let after = if several { SEVERAL } else { Duration::ZERO };
            wake.runs.ask_after(run.name(), after, reason);
        }
    }
    Ok(())
}

/// Wakes everybody a daemon's event may concern, after more of them had the time to come.
pub(crate) async fn daemon_changed(world: &World, wake: &Wakers, runtime: &RuntimeRef) {
    tokio::time::sleep(GATHER).await;
    let name = runtime.resource_name();
    wake.runtimes.ask_after(&name, GATHER, "its daemon changed");
    if let Err(error) = users(world, wake, &name, "its daemon changed").await {
        tracing::debug!(%error, "nobody was woken; the periodic look finds it");
    }
}

/// Passes every new reading of settings.yaml on.
pub(crate) async fn follow_settings(world: &World, wake: &Wakers) {
    let mut settings = world.settings.clone();
    loop {
        wake.settings.ask(settings::KEY, "it was read");
        settings.borrow_and_update();
        if settings.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Asks the queue of a kind.
pub(crate) fn ask(wake: &Wakers, kind: &str, name: &str) {
    match kind {
        Run::KIND => wake.runs.ask(name, "asked for"),
        Environment::KIND => wake.environments.ask(name, "asked for"),
        Runtime::KIND => wake.runtimes.ask(name, "asked for"),
        _ => {}
    }
}
