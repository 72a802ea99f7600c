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
#[path = "../tests/sim/room.rs"]
mod room;
#[path = "../tests/sim/slow_store.rs"]
mod slow_store;

use daemon::Daemon;
use hmz_controllers::Running;
use hmz_controllers::core::meter::Figures;
use hmz_drivers::BoxKey;
use many::{EACH, Many};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a death is measured, and an event at least.
const ROUNDS: usize = 41;
/// How many events are measured at least.
const EVENTS: usize = 4_000;
/// How many boxes die at the same time, where there are so many daemons.
const TOGETHER: usize = 100;
/// Simulated time after an event, in which all it causes is done.
const TOLD: Duration = Duration::from_millis(700);
/// Simulated time after a box died, in which the next one is there and its runtime has told of it.
const BEGUN: Duration = Duration::from_secs(4);
/// Simulated time between two rounds at least, and how much more it is at most, in milliseconds: nothing periodic is in step with
/// them.
const REST: Duration = Duration::from_secs(2);
const MORE: u64 = 4_000;

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
    for of in running.meters().figures() {
        eprintln!("settled-{size}: {} looks at a {}, {} of them in vain", of.done, of.name, of.conflicts + of.failures);
    }
    eprintln!("settled-{size}: {} listings", listings(&many));

    let (written, listed) = (many.store.revision().await.unwrap(), listings(&many));
    println!("idle-minute-{size} {:.6}", after(Duration::from_secs(60), || ()).await);
    println!("idle-writes-{size} {}", many.store.revision().await.unwrap() - written);
    println!("idle-listings-{size} {:.3}", (listings(&many) - listed) as f64 / many.daemons.len() as f64);

    let count = many.daemons.len();
    let (mut event, mut death) = (Measured::default(), Measured::default());
    for nth in 0..ROUNDS.max(EVENTS / count) {
        tokio::time::sleep(many.dice.millis(MORE)).await;
        // another box of each daemon each time
        let keys: Vec<(&Arc<Daemon>, BoxKey)> = many.daemons.iter().map(|daemon| (daemon, boxes(daemon, nth).1)).collect();
        let told = || keys.iter().for_each(|(daemon, key)| daemon.tell_of(key));
        event.measure(&many, &running, TOLD, keys.len(), told).await;
    }
    for nth in 0..ROUNDS {
        tokio::time::sleep(REST + many.dice.millis(MORE)).await;
        // on other daemons each time where there are many
        let together = count.min(TOGETHER);
        let daemons = (0..together).map(|n| &many.daemons[(nth * together + n) * 7 % count]);
        let dying: Vec<_> = daemons.map(|daemon| (daemon, boxes(daemon, nth))).collect();
        let died = || {
            for (daemon, (name, key)) in &dying {
                daemon.state().containers.remove(name);
                daemon.tell_of(key);
            }
        };
        death.measure(&many, &running, BEGUN, dying.len(), died).await;
    }
    event.print("event", size);
    death.print("death", size);
    many.settle().await;
    assert_eq!(many.ready().await.1, size as usize);
    drop(running);
}

/// A box of a daemon, and whose it is.
fn boxes(daemon: &Daemon, nth: usize) -> (String, BoxKey) {
    let name = daemon.boxes_of("us").swap_remove(nth % EACH as usize);
    let key = daemon.state().containers[&name].seen.key.clone().unwrap();
    (name, key)
}

/// How often daemons were listed, in all.
fn listings(many: &Many) -> u64 {
    many.daemons.iter().map(|daemon| daemon.state().listed).sum()
}

/// What some things cost, beyond what the same time costs without them: what is to be done in it anyway is measured just before,
/// and more or less of that than then evens out.
#[derive(Default)]
struct Measured {
    things: usize,
    time: f64,
    without: f64,
    /// Looks of each controller, with them and without.
    looks: BTreeMap<&'static str, [u64; 2]>,
    listed: [u64; 2],
}

impl Measured {
    async fn measure(&mut self, many: &Many, running: &Running, time: Duration, things: usize, what: impl FnOnce()) {
        self.things += things;
        self.without += self.counted(1, many, running, after(time, || ())).await;
        self.time += self.counted(0, many, running, after(time, what)).await;
    }

    async fn counted(&mut self, to: usize, many: &Many, running: &Running, what: impl Future<Output = f64>) -> f64 {
        let (before, listed) = (running.meters().figures(), listings(many));
        let time = what.await;
        self.listed[to] += listings(many) - listed;
        for (now, then) in running.meters().figures().iter().zip(before) {
            let all = |of: &Figures| of.done + of.conflicts + of.failures;
            self.looks.entry(now.name).or_default()[to] += all(now) - all(&then);
        }
        time
    }

    fn print(&self, what: &str, size: u64) {
        let each = |with: f64, without: f64| (with - without) / self.things as f64;
        println!("{what}-{size} {:.9}", each(self.time, self.without));
        eprintln!("{what}-{size}: {:.3} s with {} of them, {:.3} s without", self.time, self.things, self.without);
        for (name, [with, without]) in &self.looks {
            eprintln!("  looks at a {name}: {:.3} each, {with} and {without}", each(*with as f64, *without as f64));
        }
        let [with, without] = self.listed;
        println!("{what}-listings-{size} {:.3}", each(with as f64, without as f64));
        eprintln!("  listings: {with} and {without}");
    }
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
