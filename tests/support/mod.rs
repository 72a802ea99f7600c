//! What end-to-end tests stand on: a home of their own for `hmz`, its runs with a deadline, the docker daemon and the
//! real agent CLI as a user has them. A part that cannot be had fails the test and says how to get it.
#![allow(dead_code, reason = "each test binary uses its own part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is part of tests, whose failures are panics")]

pub mod agent;
pub mod command;
pub mod docker;
pub mod document;
pub mod far;
pub mod held;
pub mod home;
pub mod processes;
pub mod project;
pub mod proxy;
pub mod rogue;
pub mod runs;
pub mod swarm;
pub mod terminal;
pub mod user;

use std::time::{Duration, Instant};

/// The deadline of anything that takes seconds at most. It is against hanging, with ten times the room needed.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Asks `found` again and again until it finds something.
///
/// # Panics
/// When it has found nothing within `limit`; `what` says what was missing.
pub fn eventually<T>(what: &str, limit: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
