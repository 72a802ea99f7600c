//! One daemon ends while a verb wants one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use support::home::TestHome;
use support::{LIMIT, eventually, processes};

/// The daemons of the home, in the background.
fn daemons(home: &TestHome) -> Vec<i32> {
    home.processes().into_iter().filter(|pid| processes::line(*pid).contains("controller --background")).collect()
}

fn kill(daemon: i32) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(daemon).unwrap(), rustix::process::Signal::KILL).unwrap();
    eventually("its end", LIMIT, || (!processes::is_alive(daemon)).then_some(()));
}

/// As it is while a daemon ends: its lock is held, by what is returned, and nobody answers.
fn ending(home: &TestHome) -> File {
    drop(home.hmz(["get", "runs"]).run().ok());
    let runtime = fs::read_dir(home.root().join("run/hmz")).unwrap().next().unwrap().unwrap().path();
    kill(daemons(home)[0]);
    fs::remove_file(runtime.join("api.sock")).unwrap();
    let lock = File::options().write(true).open(runtime.join("daemon.lock")).unwrap();
    // its last thread has let go of it a moment after its first has ended
    eventually("the lock", LIMIT, || flock(&lock, FlockOperation::NonBlockingLockExclusive).ok());
    lock
}

#[test]
fn a_verb_waits_for_a_daemon_that_ends_and_starts_the_next() {
    let home = TestHome::new();
    let lock = ending(&home);
    let verb = home.hmz(["get", "runs"]).start();
    eventually("the next daemon's process", LIMIT, || daemons(&home).first().copied());
    drop(lock);
    drop(verb.wait().ok());
}

#[test]
fn a_verb_whose_daemon_is_killed_before_it_listens_starts_another() {
    let home = TestHome::new();
    let lock = ending(&home);
    let verb = home.hmz(["get", "runs"]).start();
    let first = eventually("a daemon's process", LIMIT, || daemons(&home).first().copied());
    kill(first);
    eventually("the next daemon's process", LIMIT, || daemons(&home).into_iter().find(|pid| *pid != first));
    drop(lock);
    drop(verb.wait().ok());
}
