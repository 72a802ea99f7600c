//! Which keys a change wakes. It decides nothing else: whoever is woken looks for itself.
//!
//! A controller that writes a status is not woken by its own write: only what somebody else decides by is compared.

use crate::core::Requests;
use crate::environment::plan::owner_run;
use crate::index::{Changed, Index, Place};
use crate::settings;
use crate::target::target;
use crate::world::World;
use futures::{FutureExt, StreamExt};
use hmz_api::kinds::{Environment, Flow, Run, Runtime};
use hmz_api::{AnyResource, Kind, RuntimeRef};
use hmz_drivers::{BoxEvent, ObservedBox, Target};
use hmz_store::{Change, StoreError, WatchEvent};
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// How long changes of runtimes are gathered before they are compared with settings.yaml.
const SETTINGS: Duration = Duration::from_millis(500);
/// How soon a run that waits for several daemons tries again after an event.
const SEVERAL: Duration = Duration::from_secs(2);

/// How many resources are held at a time while all are listed.
const PAGE: usize = 256;

/// The queues of all controllers.
#[derive(Debug, Clone)]
pub(crate) struct Wakers {
    pub(crate) environments: Requests,
    pub(crate) runs: Requests,
    pub(crate) runtimes: Requests,
    pub(crate) settings: Requests,
    pub(crate) sweep: Requests,
}

/// Follows the store and wakes; ends only when the store is closed.
pub(crate) async fn follow(world: &World, index: &Index, wake: &Wakers) {
    loop {
        match follow_once(world, index, wake).await {
            Err(StoreError::Closed) => return,
            Err(error) => tracing::debug!(%error, "lists again"),
            Ok(()) => {}
        }
        // a store that fails is asked again, but not without pause
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn follow_once(world: &World, index: &Index, wake: &Wakers) -> Result<(), StoreError> {
    // from before the first page on: what is written while pages are read is seen, perhaps twice
    let mut changes = world.store.watch(None, Some(world.store.revision().await?))?;
    index.listing();
    for kind in [Runtime::KIND, Environment::KIND, Run::KIND, Flow::KIND] {
        let mut after: Option<String> = None;
        loop {
            let page = world.store.page_any(kind, after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.metadata().name.clone());
            for resource in &page {
                index.take(resource, false);
                route(index, wake, resource, Changed { declared: true, observed: true });
            }
            while let Some(Some(change)) = changes.next().now_or_never() {
                take(index, wake, &change?);
            }
        }
    }
    index.listed();
    while let Some(change) = changes.next().await {
        take(index, wake, &change?);
    }
    Ok(())
}

fn take(index: &Index, wake: &Wakers, event: &WatchEvent) {
    let resource = event.change.resource();
    let changed = index.take(resource, matches!(event.change, Change::Deleted(_)));
    route(index, wake, resource, changed);
}

fn route(index: &Index, wake: &Wakers, resource: &AnyResource, changed: Changed) {
    let Changed { declared, observed } = changed;
    let name = resource.metadata().name.as_str();
    match resource {
        AnyResource::Environment(env) => {
            if declared {
                wake.environments.ask(name, "it changed");
            }
            if declared || observed {
                let used = env.status.used.as_ref().filter(|used| **used != env.spec.runtime);
                for runtime in [Some(&env.spec.runtime), used].into_iter().flatten() {
                    look_at_runtime(index, wake, &runtime.resource_name(), "an environment changed");
                }
            }
            if let Some(owner) = owner_run(env).filter(|_| declared || observed) {
                wake.runs.ask(owner.name.as_str(), "its environment changed");
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
                        wake.environments.ask(env.as_str(), "its run changed");
                    }
                }
                for place in run.spec.environments.values().map(hmz_api::kinds::EnvironmentRequest::place) {
                    look_at_runtime(index, wake, &place.runtime.resource_name(), "a run changed");
                }
            }
        }
        AnyResource::Runtime(_) => {
            if declared {
                // it tells of its daemon as it is from now on
                index.changed(name);
                wake.runtimes.ask(name, "it changed");
                wake.sweep.ask(name, "it changed");
                wake.settings.ask_after(settings::KEY, SETTINGS, "a runtime changed");
            }
            if declared || observed {
                for env in index.on(name) {
                    wake.environments.ask(env, "its runtime changed");
                }
                waiting(index, wake, name, "its runtime changed");
            }
        }
        AnyResource::Flow(_) => {}
    }
}

/// Wakes whoever waits for room on a runtime.
fn waiting(index: &Index, wake: &Wakers, runtime: &str, reason: &'static str) {
    // whoever named one that falls back to this may go there
    for env in index.waits_for(runtime) {
        wake.environments.ask(env, reason);
    }
    for (run, several) in index.runs_for(runtime) {
        // trying for shares on several daemons makes events itself when what was got on one is given back
        wake.runs.ask_after(run, if several { SEVERAL } else { Duration::ZERO }, reason);
    }
}

/// Has a runtime looked at: what is handed out may be told of a moment late, so that one look tells of many changes, and the last
/// is told of too. One that is to go, or to be listed, is looked at now.
fn look_at_runtime(index: &Index, wake: &Wakers, runtime: &str, reason: &'static str) {
    wake.runtimes.ask_after(runtime, index.changed(runtime), reason);
}

/// What a daemon told of.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Whose boxes it was.
    of: BTreeSet<Uuid>,
    /// Whether it may be anybody's.
    any: bool,
}

impl Heard {
    /// Everything may have changed.
    pub(crate) fn anything() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// One more event.
    pub(crate) fn add(&mut self, event: BoxEvent) {
        match event {
            BoxEvent::Of(uid) => drop(self.of.insert(uid)),
            BoxEvent::Any => self.any = true,
        }
    }
}

/// Wakes everybody whom what was heard of a daemon may concern.
pub(crate) async fn daemon_changed(world: &World, index: &Index, wake: &Wakers, place: &Place, heard: Heard) {
    const WHY: &str = "its daemon changed";
    waiting(index, wake, &place.0, WHY);
    let mut others = heard.any;
    for uid in heard.of {
        match index.of_uid(uid) {
            // what it finds out is in its status then, and that has its runtime looked at
            Some(env) => wake.environments.ask(env, WHY),
            None => others = true,
        }
    }
    if others {
        look_at_runtime(index, wake, &place.0, WHY);
    }
    if heard.any {
        compare(world, index, wake, place, WHY).await;
    }
}

/// Asks a daemon what it has, and wakes those environments whose status says something else: the others have nothing to see. What
/// it has, if it answers.
pub(crate) async fn compare(
    world: &World,
    index: &Index,
    wake: &Wakers,
    place: &Place,
    reason: &'static str,
) -> Option<Vec<ObservedBox>> {
    let listed = match place.0.parse::<RuntimeRef>() {
        Ok(runtime) => match (world.drivers.get(&runtime.backend), target_of(world, &runtime, place).await) {
            // one that does not answer concerns everybody on it
            (Some(driver), Some(target)) => driver.list(&target).await.ok(),
            _ => None,
        },
        Err(_) => None,
    };
    for env in index.differing(place, &world.instance, listed.as_deref()) {
        wake.environments.ask(env, reason);
    }
    listed
}

/// A place as its driver is asked, with what its runtime says now.
pub(crate) async fn target_of(world: &World, runtime: &RuntimeRef, place: &Place) -> Option<Target> {
    let spec = crate::runtime::find(&world.store, runtime).await.ok()?.map(|found| found.spec);
    Some(target(runtime, spec.as_ref(), Some(&place.1)))
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
pub(crate) fn ask(index: &Index, wake: &Wakers, kind: &str, name: &str) {
    match kind {
        Run::KIND => wake.runs.ask(name, "asked for"),
        Environment::KIND => wake.environments.ask(name, "asked for"),
        Runtime::KIND => {
            index.changed(name);
            wake.runtimes.ask(name, "asked for");
        }
        _ => {}
    }
}
