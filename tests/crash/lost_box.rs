//! Somebody else stops or removes a box.

use crate::scene::Scene;
use crate::support::{LIMIT, docker};

/// The run fails and says so, and its box does not come back.
fn run_fails(remove: impl FnOnce(&Scene, &str)) -> String {
    let scene = Scene::new();
    scene.begin("r");
    let runner = scene.runner();
    let processes = runner.tree();
    remove(&scene, &scene.container());
    let (reason, message) = scene.complete("r");
    assert_eq!(reason, "Failed", "{message}");
    assert!(message.contains("box"), "{message}");
    for process in processes {
        process.assert_gone();
    }
    scene.assert_nothing_left();
    // one more daemon looks at all of it afresh
    scene.kill_daemon();
    assert_eq!(scene.complete("r").0, "Failed");
    scene.assert_nothing_left();
    message
}

#[test]
fn a_run_fails_when_its_box_is_killed() {
    // a run's box removes itself when it ends, so that the two are one
    let message = run_fails(|_, container| drop(docker::docker(&["kill", container])));
    assert!(message.ends_with("; the box was removed by somebody"), "{message}");
}

#[test]
fn a_run_fails_when_its_box_is_stopped() {
    let message = run_fails(|_, container| drop(docker::docker(&["stop", container])));
    assert!(message.ends_with("; the box was stopped, by somebody or with its daemon"), "{message}");
}

/// Has a command in a box want more memory than there is for it, and the kernel end the box's first process for that. The next box of the
/// name is let be.
fn starve(container: &str) {
    let pid = docker::docker(&["inspect", "--format", "{{.State.Pid}}", container]);
    std::fs::write(format!("/proc/{}/oom_score_adj", pid.trim()), "1000").unwrap();
    docker::docker(&["update", "--memory", "24m", "--memory-swap", "24m", container]);
    docker::docker(&["exec", "-d", container, "sh", "-c", "x=a; while :; do x=$x$x; done"]);
}

#[test]
fn a_run_fails_when_its_box_is_killed_for_memory() {
    let message = run_fails(|_, container| starve(container));
    assert!(message.ends_with("; the box was killed for want of memory"), "{message}");
}

#[test]
fn a_box_that_is_killed_for_memory_says_so_and_heals_where_that_is_declared() {
    let scene = Scene::new();
    for restart in ["never", "always"] {
        let _ = scene.apply(&scene.environment_manifest("e", &format!("  restart: {restart}\n"))).ok();
        scene.condition("env/e", "Ready", "True");
        starve(&scene.container());
        if restart == "never" {
            let (reason, message) = scene.condition("env/e", "Ready", "False");
            assert_eq!((reason.as_str(), message.as_str()), ("OutOfMemory", "the box was killed for want of memory"));
            scene.assert_nothing_left();
        } else {
            scene.heals("env/e");
        }
        let events = scene.home.hmz(["events", "--for", "env/e"]).run().ok();
        let _ = events.says("OutOfMemory").says("the box was killed for want of memory");
        let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
        scene.assert_nothing_left();
    }
}

#[test]
fn a_run_fails_when_its_box_is_removed_by_the_users_recipe() {
    let message = run_fails(|scene, _| {
        // the recipe as the user has it, but that it leaves the boxes of other tests alone
        let label = scene.home.label().unwrap();
        let recipe = format!("docker rm -f $(docker ps -q --filter label=humanize=$(id -u) --filter label={label})");
        let _ = scene.home.shell(&recipe).run().ok();
    });
    assert!(message.ends_with("; the box was removed by somebody"), "{message}");
}

#[test]
fn exec_ends_with_why_the_box_is_gone() {
    let ends: [(&[&str], &str); 3] = [
        (&["stop"], "the box was stopped, by somebody or with its daemon"),
        (&["kill"], "the box was removed by somebody"),
        (&["rm", "-f"], "the box was removed by somebody"),
    ];
    for (words, why) in ends {
        let scene = Scene::new();
        let running = scene.exec().start();
        scene.wait_up();
        docker::docker(&[words, &[scene.container().as_str()]].concat());
        let done = running.wait().expect_code(1);
        let err = done.err();
        let last = err.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("failed -- boxed: ") && last.ends_with(&format!("; {why}")), "{words:?}: {done}");
        // and so does what is kept of it
        assert!(last.ends_with(&scene.complete(&scene.the_run()).1), "{words:?}: {done}");
        scene.assert_nothing_left();
    }
}

#[test]
fn a_killed_standalone_environment_says_so_and_can_be_deleted() {
    let scene = Scene::new();
    let _ = scene.apply(&scene.environment_manifest("e", "")).ok();
    scene.condition("env/e", "Ready", "True");
    docker::docker(&["kill", &scene.container()]);
    let (reason, message) = scene.condition("env/e", "Ready", "False");
    assert!(reason == "KilledByHand" && message.contains("killed by signal 9"), "{reason}: {message}");
    let described = scene.home.hmz(["describe", "env/e"]).run().ok();
    assert!(described.out().contains(&reason), "{described}");
    // what died is removed, and nothing is started in its place
    scene.home.assert_no_container_left(LIMIT);
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    scene.assert_nothing_left();

    let _ = scene.apply(&scene.environment_manifest("removed", "")).ok();
    scene.condition("env/removed", "Ready", "True");
    docker::docker(&["rm", "-f", &scene.container()]);
    let (reason, message) = scene.condition("env/removed", "Ready", "False");
    // a removal begins with a kill; where it takes its time, that is what is seen
    assert!(["RemovedByHand", "KilledByHand"].contains(&reason.as_str()), "{reason}: {message}");
    let _ = scene.home.hmz(["delete", "env/removed"]).run().ok();
    scene.assert_nothing_left();

    let _ = scene.apply(&scene.environment_manifest("stopped", "")).ok();
    scene.condition("env/stopped", "Ready", "True");
    docker::docker(&["stop", &scene.container()]);
    let (reason, message) = scene.condition("env/stopped", "Ready", "False");
    assert_eq!((reason.as_str(), message.as_str()), ("Stopped", "the box was stopped, by somebody or with its daemon"));
    // its share is given back though it is still declared
    scene.assert_nothing_left();
    let _ = scene.home.hmz(["delete", "env/stopped"]).run().ok();
}

#[test]
fn an_environment_that_restarts_always_heals() {
    let scene = Scene::new();
    let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n")).ok();
    scene.condition("env/e", "Ready", "True");
    let first = scene.container();
    docker::docker(&["kill", &first]);
    scene.heals("env/e");
    let second = scene.container();
    assert_ne!(first, second);
    let said = scene.home.hmz(["sh", "env/e", "--", "hostname"]).run().ok();
    assert_eq!(said.out().trim(), &second[..12]);
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    scene.assert_nothing_left();
}
