//! Listening to daemons. An event only says "look again"; one that is lost is found by the periodic look.

use crate::core::Backoff;
use crate::index::{Index, Place};
use crate::router::{self, Heard, Wakers};
use crate::world::World;
use futures::stream::{FuturesUnordered, StreamExt};
use hmz_api::RuntimeRef;
use hmz_drivers::{BoxEvents, DriverError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long until a daemon is listened to again: one that comes back is to be seen soon.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter: 0.0 };

/// How often each daemon is asked what it has though it told of nothing; a fifth of it is random.
const PERIOD: Duration = Duration::from_secs(30);

/// How long whoever else looks at a daemon may go by what it was asked then.
const LENT: Duration = Duration::from_secs(2);

/// How long events of a daemon are gathered before anybody is woken.
const GATHER: Duration = Duration::from_millis(100);

/// Listens to each daemon that something is, or is to be, on.
pub(crate) async fn listen(world: &World, index: &Index, wake: &Wakers) {
    let mut listening: BTreeMap<Place, CancellationToken> = BTreeMap::new();
    let mut streams = FuturesUnordered::new();
    let mut changes = index.place_changes();
    let mut random = StdRng::seed_from_u64(world.seed ^ 0x6c69_7374);
    loop {
        changes.borrow_and_update();
        let wanted: BTreeSet<Place> = index.places().into_iter().collect();
        listening.retain(|place, stop| {
            let keep = wanted.contains(place);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for place in wanted {
            let Entry::Vacant(entry) = listening.entry(place.clone()) else { continue };
            let stop = CancellationToken::new();
            let stopped = stop.clone();
            let random = StdRng::seed_from_u64(random.random());
            streams.push(async move {
                let ever = async { tokio::join!(hear(world, index, wake, &place), look(world, index, wake, &place, random)) };
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => {}
                    _ = ever => {}
                }
            });
            entry.insert(stop);
        }
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            Some(()) = streams.next(), if !streams.is_empty() => {}
        }
    }
}

/// Listens to one daemon for ever.
async fn hear(world: &World, index: &Index, wake: &Wakers, place: &Place) {
    let Ok(runtime) = place.0.parse::<RuntimeRef>() else { return };
    let Some(driver) = world.drivers.get(&runtime.backend) else { return };
    let mut failures = 0;
    loop {
        let heard = match router::target_of(world, &runtime, place).await {
            Some(target) => driver.events(&target).await,
            None => Err(DriverError::Transient("the store does not answer".into())),
        };
        match heard {
            Ok(mut events) => {
                // what happened before it was listened to is found by looking once
                router::daemon_changed(world, index, wake, place, Heard::anything()).await;
                while let Some(heard) = gather(&mut events).await {
                    failures = 0;
                    router::daemon_changed(world, index, wake, place, heard).await;
                }
                // one that went away is known as such by looking once
                router::daemon_changed(world, index, wake, place, Heard::anything()).await;
            }
            Err(error) => tracing::debug!(%error, at = runtime.at(), "does not hear of its events"),
        }
        failures += 1;
        tokio::time::sleep(AGAIN.delay(failures, 0.0)).await;
    }
}

/// The next event and all that come soon after it; `None` when there are none any more.
async fn gather(events: &mut BoxEvents) -> Option<Heard> {
    let mut heard = Heard::default();
    heard.add(events.next().await?.ok()?);
    let mut over = std::pin::pin!(tokio::time::sleep(GATHER));
    loop {
        tokio::select! {
            biased;
            () = &mut over => return Some(heard),
            event = events.next() => match event {
                Some(Ok(event)) => heard.add(event),
                // after which all of it is looked at
                Some(Err(_)) | None => return None,
            }
        }
    }
}

/// Looks at one daemon now and then, for ever: what no event told is found. Its runtime is looked at and swept then too, by the
/// same listing.
async fn look(world: &World, index: &Index, wake: &Wakers, place: &Place, mut random: StdRng) {
    const WHY: &str = "it is time to look";
    let mut period = || PERIOD.mul_f64(1.0 - 0.2 * random.random::<f64>());
    let mut wait = period();
    loop {
        tokio::time::sleep(wait).await;
        let from = index.moment();
        let listed = router::compare(world, index, wake, place, WHY).await;
        let lent = listed.map(|boxes| index.lend(place, from, boxes));
        wake.runtimes.ask(place.0.clone(), WHY);
        wake.sweep.ask(place.0.clone(), WHY);
        tokio::time::sleep(LENT).await;
        drop(lent);
        wait = period().saturating_sub(LENT);
    }
}
