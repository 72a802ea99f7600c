//! The controllers in a simulated world: a paused clock and a seed decide everything, so that a failure replays exactly.
//!
//! `HMZ_SIM_SEEDS=n` tries the first n seeds and `HMZ_SIM_SEEDS=m..n` those from m to before n, so that a run that was cut goes
//! on; `HMZ_SIM_SEED=n` tries only that one, `HMZ_SIM_LOG=1` tells what happens, and `HMZ_SIM_SCALE=n` says how many
//! environments the large world has. `make sim` is all of it at its largest.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is a test

mod admission;
mod checks;
mod daemon;
mod declaring;
mod dice;
mod fate;
mod healing;
mod many;
mod others;
mod room;
mod scale;
mod scenario;
mod second;
mod slow_store;
mod spans;

use std::ops::Range;

/// Seeds of a normal test run, shared out among the tests below so that they run side by side.
const SEEDS: u64 = 160;
const PARTS: u64 = 4;
/// A part says how far it is after so many seeds of a long run.
const TOLD: usize = 100;

/// A number that the environment says.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap_or_else(|e| panic!("{name}={n}: {e}")))
}

fn seeds(part: u64) -> Vec<u64> {
    seeds_of(SEEDS, part, PARTS)
}

/// The same of a test that plays so many in so many parts where nobody says which.
fn seeds_of(usual: u64, part: u64, parts: u64) -> Vec<u64> {
    if let Some(seed) = number("HMZ_SIM_SEED") {
        return if part == 0 { vec![seed] } else { Vec::new() };
    }
    let wanted = std::env::var("HMZ_SIM_SEEDS").map_or(0..usual, |said| range(&said));
    wanted.filter(|seed| seed % parts == part).collect()
}

/// `n`, or `m..n`.
fn range(said: &str) -> Range<u64> {
    let number = |n: &str| n.parse::<u64>().unwrap_or_else(|e| panic!("HMZ_SIM_SEEDS={said}: {n}: {e}"));
    said.split_once("..").map_or_else(|| 0..number(said), |(first, end)| number(first)..number(end))
}

/// Plays every seed of a part to its end, whatever comes of it.
fn play(part: u64) {
    let mut failed = Vec::new();
    for (n, seed) in seeds(part).into_iter().enumerate() {
        if n > 0 && n % TOLD == 0 {
            eprintln!("{n} seeds of part {part} were played, up to seed {seed}; failed: {failed:?}");
        }
        if std::panic::catch_unwind(|| scenario::play(seed)).is_err() {
            eprintln!(
                "seed {seed} failed; the same again, with what happens:\n  \
                 HMZ_SIM_SEED={seed} HMZ_SIM_LOG=1 cargo test -p hmz-controllers --test sim every_seed -- --nocapture"
            );
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
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
    for seed in [7, 8] {
        let (once, again) = (scenario::play(seed), scenario::play(seed));
        assert!(!once.is_empty());
        assert_eq!(once, again);
    }
}
