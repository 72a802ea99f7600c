//! Somebody else stops or removes a box.

use crate::scene::{Scene, condition};
use crate::support::{LIMIT, docker, eventually};

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
    run_fails(|_, container| drop(docker::docker(&["kill", container])));
}

#[test]
fn a_run_fails_when_its_box_is_removed_by_the_users_recipe() {
    run_fails(|scene, _| {
        // the recipe as the user has it, but that it leaves the boxes of other tests alone
        let label = scene.home.label().unwrap();
        let recipe = format!("docker rm -f $(docker ps -q --filter label=humanize=$(id -u) --filter label={label})");
        let _ = scene.home.shell(&recipe).run().ok();
    });
}

#[test]
fn a_killed_standalone_environment_says_so_and_can_be_deleted() {
    let scene = Scene::new();
    let _ = scene.apply(&scene.environment_manifest("e", "")).ok();
    scene.condition("env/e", "Ready", "True");
    docker::docker(&["kill", &scene.container()]);
    let (reason, message) = scene.condition("env/e", "Ready", "False");
    assert!(!reason.is_empty() && message.contains("killed by signal 9"), "{reason}: {message}");
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
    assert!(!reason.is_empty() && !message.is_empty(), "{reason}: {message}");
    let _ = scene.home.hmz(["delete", "env/removed"]).run().ok();
    scene.assert_nothing_left();
}

#[test]
fn an_environment_that_restarts_always_heals() {
    let scene = Scene::new();
    let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n")).ok();
    scene.condition("env/e", "Ready", "True");
    let first = scene.container();
    docker::docker(&["kill", &first]);
    eventually("another box is there in its place", LIMIT, || {
        let env = scene.get("env/e");
        let ready = condition(&env, "Ready")?.0 == "True";
        (ready && env["status"]["incarnation"] == 2).then_some(())
    });
    let second = scene.container();
    assert_ne!(first, second);
    let said = scene.home.hmz(["sh", "env/e", "--", "hostname"]).run().ok();
    assert_eq!(said.out().trim(), &second[..12]);
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    scene.assert_nothing_left();
}
