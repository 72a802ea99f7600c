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

use many::{EACH, Many};
use std::time::{Duration, Instant};

/// Events that are measured, of each kind.
const EVENTS: usize = 41;
/// Simulated time after an event, in which all it causes is done.
const AFTER: Duration = Duration::from_secs(2);

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
    let began = Instant::now();
    let running = many.start();
    many.settle().await;
    let took = began.elapsed().as_secs_f64();
    assert_eq!(many.ready().await, (size as usize, size as usize));
    println!("settled-{size} {took:.6}");

    let before = many.store.revision().await.unwrap();
    let idle = Instant::now();
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!("idle-minute-{size} {:.6}", idle.elapsed().as_secs_f64());
    println!("idle-writes-{size} {}", many.store.revision().await.unwrap() - before);

    let (mut nothing, mut told, mut died) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 0..EVENTS {
        let daemon = &many.daemons[nth * 7 % many.daemons.len()];
        nothing.push(after().await);
        let gone = daemon.boxes_of("us").swap_remove(nth);
        let key = daemon.state().containers[&gone].seen.key.clone().unwrap();
        daemon.tell_of(&key);
        told.push(after().await);
        // one that lived long is begun again in a second
        daemon.state().containers.remove(&gone);
        daemon.tell_of(&key);
        died.push(after().await);
    }
    let [nothing, told, died] = [nothing, told, died].map(median);
    println!("event-{size} {:.9}", (told - nothing).max(0.0));
    println!("death-{size} {:.9}", (died - nothing).max(0.0));
    many.settle().await;
    assert_eq!(many.ready().await.1, size as usize);
    drop(running);
}

/// What the next moments cost, in seconds of this machine.
async fn after() -> f64 {
    let began = Instant::now();
    tokio::time::sleep(AFTER).await;
    began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
