//! The controllers in a simulated world: a paused clock and a seed decide everything, so that a failure replays exactly.
//!
//! `HMZ_SIM_SEEDS=n` tries n seeds, `HMZ_SIM_SEED=n` only that one, `HMZ_SIM_LOG=1` tells what happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

mod checks;
mod daemon;
mod declaring;
mod dice;
mod healing;
mod others;
mod scenario;
mod slow_store;

/// Seeds of a normal test run, shared out among the tests below so that they run side by side.
const SEEDS: u64 = 120;
const PARTS: u64 = 4;

fn seeds(part: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number of seeds"));
    if let Some(seed) = number("HMZ_SIM_SEED") {
        return if part == 0 { vec![seed] } else { Vec::new() };
    }
    (0..number("HMZ_SIM_SEEDS").unwrap_or(SEEDS)).filter(|seed| seed % PARTS == part).collect()
}

fn play(part: u64) {
    for seed in seeds(part) {
        let failed = std::panic::catch_unwind(|| scenario::play(seed));
        if let Err(cause) = failed {
            eprintln!("seed {seed} failed; again with HMZ_SIM_SEED={seed} HMZ_SIM_LOG=1");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn every_seed_converges_and_leaks_nothing_1() {
    play(0);
}

#[test]
fn every_seed_converges_and_leaks_nothing_2() {
    play(1);
}

#[test]
fn every_seed_converges_and_leaks_nothing_3() {
    play(2);
}

#[test]
fn every_seed_converges_and_leaks_nothing_4() {
    play(3);
}

#[test]
fn a_seed_replays_exactly() {
    let (once, again) = (scenario::play(7), scenario::play(7));
    assert!(!once.is_empty());
    assert_eq!(once, again);
}
