//! Docker's command line and patience, for tests of one crate that start containers of their own.

use std::process::Command;
use std::time::{Duration, Instant};

/// A deadline against hanging, with ten times the room anything here needs.
pub const LIMIT: Duration = Duration::from_secs(240);

/// Runs docker and gives what it printed.
///
/// # Panics
/// When it fails, in its own words.
#[track_caller]
pub fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().expect("the docker command line is needed");
    assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("docker prints text").trim().to_owned()
}

/// Looks until it is so.
///
/// # Panics
/// When it is not within [`LIMIT`].
#[track_caller]
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
