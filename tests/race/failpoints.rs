//! The daemon of one of two users dies in the middle of its admission: the other never has what is held, and everybody has it
//! in the end.

use crate::scene::{Scene, died};
use crate::support::{LIMIT, eventually};
use crate::two_users::{apply, homes, is_up, listed};

/// Every point of an admission.
const POINTS: [&str; 6] = ["docker.lock", "docker.hold", "docker.admitted", "docker.released", "run.admitted", "run.scheduled"];

#[test]
fn a_share_is_back_whenever_the_daemon_that_took_it_was_killed() {
    let scenes = homes("      memory: 3000G\n", "memory: 2000G");
    let runtime = scenes[0].runtime.clone();
    let (dead, waiting) = one_that_never_comes_back();
    for (nth, point) in POINTS.iter().enumerate() {
        for scene in &scenes {
            for file in ["up", "go"] {
                let _ = std::fs::remove_file(scene.project.file(file));
            }
        }
        let (victim, rival) = if nth.is_multiple_of(2) { (&scenes[0], &scenes[1]) } else { (&scenes[1], &scenes[0]) };
        victim.kill_daemon();
        let daemon = victim.daemon_that_dies_at(point);
        let applied = apply(victim);
        died(daemon, point);
        let _ = apply(rival).wait().ok();
        let _ = applied.wait().ok();
        // the next daemon of the one that died, beside the rival: both get what they ask for, one after the other
        let mut done = [false; 2];
        for turn in 0..2 {
            let next = eventually(&format!("{point}: one is at work"), LIMIT, || {
                assert!(listed(&runtime, "-q") <= 1, "{point}: both have the share");
                let _ = victim.home.hmz(["get", "runs"]).run().ok();
                (0..2).find(|n| !done[*n] && is_up(&scenes[*n]))
            });
            assert!(turn == 1 || !is_up(&scenes[1 - next]), "{point}: both have the share");
            scenes[next].go();
            done[next] = true;
        }
        for scene in &scenes {
            let (reason, message) = scene.complete("r");
            assert_eq!(reason, "Succeeded", "{point}: {message}");
            let _ = scene.home.hmz(["delete", "run/r"]).run().ok();
        }
        assert_eq!(listed(&runtime, "-aq"), 0, "{point}: a share is not back");
    }
    // meanwhile the hold of the one that nobody starts again has aged out
    eventually("who waits for what a dead home held is at work", LIMIT, || is_up(&waiting).then_some(()));
    waiting.go();
    assert_eq!(waiting.complete("r").0, "Succeeded");
    drop(dead);
    for scene in &scenes {
        scene.assert_nothing_left();
    }
}

/// A home that holds the one place of its runtime and has no daemon any more, and another user's that waits for that place.
fn one_that_never_comes_back() -> (Scene, Scene) {
    let [dead, waiting] = homes("      max_containers: 1\n", "memory: 1G");
    let _ = waiting.apply(&waiting.environment_manifest("first", "")).ok();
    waiting.condition("env/first", "Ready", "True");
    let _ = apply(&dead).wait().ok();
    dead.condition("run/r", "EnvironmentsReady", "False");
    // no verb is there to start another daemon
    dead.kill_daemon();
    let daemon = dead.daemon_that_dies_at("docker.hold");
    let _ = waiting.home.hmz(["delete", "env/first"]).run().ok();
    died(daemon, "docker.hold");
    assert_eq!(dead.pids("controller"), [0; 0]);
    assert_eq!(listed(&dead.runtime, "-aq"), 1, "it holds its place");
    let _ = apply(&waiting).wait().ok();
    let told = waiting.condition("run/r", "EnvironmentsReady", "False");
    assert!(told.1.contains("runs 1 of the 1 containers it may"), "{told:?}");
    (dead, waiting)
}
