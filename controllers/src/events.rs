//! Listening to daemons. An event only says "look again"; one that is lost is found by the periodic look.

use crate::core::Backoff;
use crate::environment::plan::owner_run;
use crate::router::{self, Wakers};
use crate::target::target;
use crate::world::World;
use futures::stream::{FuturesUnordered, StreamExt};
use hmz_api::kinds::Environment;
use hmz_api::{Kind, RuntimeRef};
use hmz_drivers::Target;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long until a daemon is listened to again: one that comes back is to be seen soon.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter: 0.0 };

/// Which daemon, under which name.
type Place = (RuntimeRef, Option<String>);

/// Listens to each daemon that something is, or is to be, on.
pub(crate) async fn listen(world: &World, wake: &Wakers) {
    let mut listening: BTreeMap<Place, CancellationToken> = BTreeMap::new();
    let mut streams = FuturesUnordered::new();
    let mut changes = None;
    loop {
        if changes.is_none() {
            changes = world.store.watch(Some(Environment::KIND), None).ok();
        }
        let wanted = places(world).await;
        listening.retain(|place, stop| {
            let keep = wanted.contains_key(place);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for (place, target) in wanted {
            listening.entry(place).or_insert_with(|| {
                let stop = CancellationToken::new();
                let stopped = stop.clone();
                streams.push(async move {
                    tokio::select! {
                        biased;
                        () = stopped.cancelled() => {}
                        () = one(world, wake, &target) => {}
                    }
                });
                stop
            });
        }
        let change = async {
            match &mut changes {
                Some(changes) => changes.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            change = change => {
                if !matches!(change, Some(Ok(_))) {
                    changes = None;
                    tokio::time::sleep(Backoff::DEFAULT.base).await;
                }
            }
            Some(()) = streams.next(), if !streams.is_empty() => {}
        }
    }
}

async fn places(world: &World) -> BTreeMap<Place, Target> {
    let mut out = BTreeMap::new();
    for env in world.store.list::<Environment>().await.unwrap_or_default() {
        let runtime = env.status.used.clone().unwrap_or_else(|| env.spec.runtime.clone());
        let Some(endpoint) = env.status.endpoint.clone() else { continue };
        // one that is down and stays so needs nobody's events
        if owner_run(&env).is_none() && crate::environment::plan::is_down(&env) {
            continue;
        }
        let place = (runtime.clone(), Some(endpoint));
        if out.contains_key(&place) {
            continue;
        }
        let spec = crate::runtime::find(&world.store, &runtime).await.ok().flatten().map(|r| r.spec);
        let target = target(&runtime, spec.as_ref(), place.1.as_deref());
        out.insert(place, target);
    }
    out
}

/// Listens to one daemon for ever.
async fn one(world: &World, wake: &Wakers, target: &Target) {
    let Some(driver) = world.drivers.get(&target.runtime.backend) else { return std::future::pending().await };
    let mut failures = 0;
    loop {
        match driver.events(target).await {
            Ok(mut events) => {
                // what happened before it was listened to is found by looking once
                router::daemon_changed(world, wake, &target.runtime).await;
                while let Some(Ok(())) = events.next().await {
                    failures = 0;
                    router::daemon_changed(world, wake, &target.runtime).await;
                }
                // one that went away is known as such by looking once
                router::daemon_changed(world, wake, &target.runtime).await;
            }
            Err(error) => tracing::debug!(%error, at = target.runtime.at(), "does not hear of its events"),
        }
        failures += 1;
        tokio::time::sleep(AGAIN.delay(failures, 0.0)).await;
    }
}
