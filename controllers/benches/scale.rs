//! The controllers with many environments in the simulated world, as numbers: `make bench BENCH=scale` prints them. Each line of
//! the output is `NAME VALUE`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what cannot be measured ends it")]
#![allow(dead_code, reason = "the world is the tests' one, and not all of it is needed here")]

#[path = "../tests/sim/daemon.rs"]
mod daemon;
#[path = "../tests/sim/dice.rs"]
mod dice;
#[path = "../tests/sim/fate.rs"]
mod fate;
#[path = "../tests/sim/many.rs"]
mod many;
#[path = "../tests/sim/others.rs"]
mod others;
#[path = "../tests/sim/slow_store.rs"]
mod slow_store;

use daemon::Daemon;
use many::{EACH, Many};
use std::sync::Arc;
use std::time::Duration;

/// How often an event is measured.
const ROUNDS: usize = 41;
/// Daemons of which each tells of one at the same time, where there are so many: what happens meanwhile without them, which is more
/// where there are more, is then little beside it.
const TOGETHER: usize = 100;
/// Simulated time after an event, in which all it causes is done.
const TOLD: Duration = Duration::from_millis(700);
/// Simulated time in which what the round before left to do is done: runtimes whose boxes changed are looked at once more.
const REST: Duration = Duration::from_secs(8);
/// Simulated time after a box died, in which the next one is there.
const BEGUN: Duration = Duration::from_secs(2);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let sizes: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000, 100_000] } else { sizes };
    for size in sizes {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(measure(size));
    }
}

async fn measure(size: u64) {
    let many = Many::new(3, size / EACH);
    many.declare(0).await;
    let began = used();
    let running = many.start();
    let took = settled(&many).await - began;
    assert_eq!(many.ready().await, (size as usize, size as usize));
    println!("settled-{size} {took:.6}");

    let before = many.store.revision().await.unwrap();
    println!("idle-minute-{size} {:.6}", after(Duration::from_secs(60), || ()).await);
    println!("idle-writes-{size} {}", many.store.revision().await.unwrap() - before);

    let together = many.daemons.len().min(TOGETHER);
    let (mut events, mut deaths) = (Vec::new(), Vec::new());
    for nth in 0..ROUNDS {
        tokio::time::sleep(REST).await;
        // one box on each of these, which are others each time where there are many
        let boxes: Vec<(&Arc<Daemon>, String)> = (0..together)
            .map(|n| &many.daemons[(nth * together + n) * 7 % many.daemons.len()])
            .map(|daemon| (daemon, daemon.boxes_of("us").swap_remove(nth)))
            .collect();
        let tell = || {
            for (daemon, name) in &boxes {
                let key = daemon.state().containers.get(name).and_then(|one| one.seen.key.clone());
                key.iter().for_each(|key| daemon.tell_of(key));
            }
        };
        let nothing = after(TOLD, || ()).await;
        events.push(after(TOLD, tell).await - nothing);
        let nothing = after(BEGUN, || ()).await;
        // one that lived long is begun again in a second
        let died = after(BEGUN, || {
            for (daemon, name) in &boxes {
                let gone = daemon.state().containers.remove(name);
                gone.and_then(|one| one.seen.key.clone()).iter().for_each(|key| daemon.tell_of(key));
            }
        });
        deaths.push(died.await - nothing);
    }
    // on average of the middle half: what else is to be done at these moments is more at some than at others
    let [event, death] = [events, deaths].map(|mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        let middle = &all[ROUNDS / 4..ROUNDS - ROUNDS / 4];
        middle.iter().sum::<f64>() / (middle.len() * together) as f64
    });
    println!("event-{size} {event:.9}");
    println!("death-{size} {death:.9}");
    many.settle().await;
    assert_eq!(many.ready().await.1, size as usize);
    drop(running);
}

/// Passes time until nothing was written for a while. When the last was written, by [`used`].
async fn settled(many: &Many) -> f64 {
    let (mut last, mut still, mut at) = (u64::MAX, 0, used());
    while still < 25 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = many.store.revision().await.unwrap();
        if now == last {
            still += 1;
        } else {
            (last, still, at) = (now, 0, used());
        }
    }
    at
}

/// What something costs until so much time has passed in the simulation, in seconds of this thread.
async fn after(time: Duration, what: impl FnOnce()) -> f64 {
    let began = used();
    what();
    tokio::time::sleep(time).await;
    used() - began
}

/// How long this thread has run, in seconds: others on this machine are not counted.
fn used() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
