//! The daemon dies right behind each of its side effects; the next one brings what was begun to its end.

use crate::scene::{Scene, died};
use crate::support::command::Running;
use crate::support::{LIMIT, docker, eventually};

/// How often a box of this home was started.
fn starts(events: &Running) -> usize {
    events.stdout().lines().filter(|l| *l == "start").count()
}

/// What docker tells of this home's containers, from their beginning on whenever it is heard.
fn events(scene: &Scene) -> Running {
    let filter = format!("label={}", scene.home.label().expect("a daemon has been there"));
    let words = ["events", "--since", "10m", "--filter", "type=container", "--filter", &filter, "--format", "{{.Status}}"];
    let mut events = crate::support::command::Invocation::new("docker").args(words);
    for name in ["PATH", "HOME"] {
        events = events.env(name, std::env::var_os(name).unwrap_or_default());
    }
    if let Some(host) = docker::host() {
        events = events.env("DOCKER_HOST", host);
    }
    events.start()
}

/// A run whose daemon dies at that point.
fn run_converges(point: &str) {
    run_converges_on(point, ROOM);
}

/// The same on a runtime with these lines.
fn run_converges_on(point: &str, more: &str) {
    let scene = Scene::with(more);
    let daemon = scene.daemon_that_dies_at(point);
    let events = events(&scene);
    // one without a point answers when the first has died meanwhile
    let manifest = scene.run_manifest("r", "");
    let text = std::fs::read_to_string(&manifest).unwrap().replace("workdir:", "cpus: 0.5, workdir:");
    std::fs::write(&manifest, text).unwrap();
    let _ = scene.apply(&manifest).ok();
    // the box comes up whatever died on the way, if anybody asks for anything
    let up = scene.project.file("up");
    eventually("the agent's command is at work in its box", LIMIT, || {
        let _ = scene.home.hmz(["get", "runs"]).run().ok();
        up.exists().then_some(())
    });
    let directories = scene.directories();
    assert!(directories.iter().any(|d| d.exists()), "{point}: {directories:?}");
    scene.go();
    let (reason, message) = scene.complete("r");
    assert!(reason == "Succeeded" || reason == "Failed" && !message.is_empty(), "{point}: {reason} {message}");
    // what ends a run's resource; a daemon that dies there takes the verb's answer with it
    let delete = || scene.home.hmz(["delete", "run/r"]).run();
    let deleted = delete();
    if deleted.code() != 0 {
        let again = delete();
        assert!(again.code() == 0 || again.err().contains("there is no"), "{point}: {deleted}{again}");
    }
    died(daemon, point);
    scene.assert_nothing_left();
    assert!(scene.pids("runner").is_empty(), "{point}: a runner is left");
    for directory in directories {
        eventually(&format!("{} is removed", directory.display()), LIMIT, || (!directory.exists()).then_some(()));
    }
    eventually("its start is told", LIMIT, || (starts(&events) > 0).then_some(()));
    assert_eq!(starts(&events), 1, "{point}: a run's box is started once: {}", events.stdout());
    assert_eq!(reason, "Succeeded", "{point}: {message}");
}

macro_rules! runs_converge {
    ($($test:ident: $point:literal,)*) => { $(
        #[test]
        fn $test() {
            run_converges($point);
        }
    )* };
}

runs_converge! {
    a_run_converges_when_the_daemon_dies_with_the_run_stored: "apply.created",
    a_run_converges_when_the_daemon_dies_with_the_finalizer_on: "run.finalizer",
    a_run_converges_when_the_daemon_dies_with_an_environment_declared: "run.environment",
    a_run_converges_when_the_daemon_dies_with_the_lock_taken: "docker.lock",
    a_run_converges_when_the_daemon_dies_with_a_hold_made: "docker.hold",
    a_run_converges_when_the_daemon_dies_before_the_lock_is_released: "docker.admitted",
    a_run_converges_when_the_daemon_dies_with_the_lock_released: "docker.released",
    a_run_converges_when_the_daemon_dies_before_the_share_is_noted: "run.admitted",
    a_run_converges_when_the_daemon_dies_with_the_share_noted: "run.scheduled",
    a_run_converges_when_the_daemon_dies_with_the_boxs_files_made: "environment.files",
    a_run_converges_when_the_daemon_dies_with_the_box_created: "docker.created",
    a_run_converges_when_the_daemon_dies_with_the_box_started: "docker.started",
    a_run_converges_when_the_daemon_dies_with_the_hold_removed: "docker.unheld",
    a_run_converges_when_the_daemon_dies_with_the_box_noted: "environment.started",
    a_run_converges_when_the_daemon_dies_with_the_epic_made: "run.epic",
    a_run_converges_when_the_daemon_dies_with_the_runner_spawned: "runner.spawned",
    a_run_converges_when_the_daemon_dies_with_the_runners_id_on_disk: "runner.noted",
    a_run_converges_when_the_daemon_dies_with_the_runner_launched: "runner.launched",
    a_run_converges_when_the_daemon_dies_before_the_runner_is_noted: "run.runner",
    a_run_converges_when_the_daemon_dies_with_the_runner_noted: "run.runner.noted",
    a_run_converges_when_the_daemon_dies_before_that_the_runner_was_told_is_noted: "run.told",
    a_run_converges_when_the_daemon_dies_with_the_environments_end_asked_for: "run.environment.deleted",
    a_run_converges_when_the_daemon_dies_with_the_box_removed: "docker.removed",
    a_run_converges_when_the_daemon_dies_before_the_boxs_files_are_removed: "environment.removed",
    a_run_converges_when_the_daemon_dies_before_the_environment_is_let_go: "environment.release",
    a_run_converges_when_the_daemon_dies_before_the_run_is_let_go: "run.release",
}

/// A runtime that has room whoever else is on its daemon.
const ROOM: &str = "      cpus: 100\n";
/// A runtime that can hold nothing, and the one it falls back to.
const LIST: &str = "      cpus: 0.1\n      fallback: ['docker:$T-spare']\n    $T-spare: {harness: local, cpus: 100}\n";

#[test]
fn a_run_converges_when_the_daemon_dies_on_its_way_down_a_list() {
    for point in ["run.environment", "run.admitted", "run.scheduled"] {
        run_converges_on(point, LIST);
    }
}

#[test]
fn a_flow_of_the_callers_directory_is_found_again_when_the_daemon_dies() {
    for point in ["run.finalizer", "run.epic"] {
        let scene = Scene::new();
        let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: ours}\nspec:\n  environments: {box: {image: 'busybox:latest'}}\n  \
                    steps: [{exec: {environment: box, command: touch found}}]\n";
        scene.project.write(".hmz/flows/ours.yaml", flow);
        let manifest = scene.run_manifest("r", "");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let text: Vec<&str> = text.lines().filter(|line| !line.contains("agents:")).collect();
        std::fs::write(&manifest, text.join("\n").replace("flow: boxed", "flow: ours")).unwrap();
        let daemon = scene.daemon_that_dies_at(point);
        let _ = scene.home.hmz(["apply", "-f"]).arg(&manifest).cwd(scene.project.dir()).run().ok();
        // asked from elsewhere, where there is no such flow
        assert_eq!(scene.complete("r"), ("Succeeded".into(), String::new()), "{point}");
        assert!(scene.project.file("found").exists(), "{point}");
        died(daemon, point);
        let _ = scene.home.hmz(["delete", "run/r"]).run().ok();
        scene.assert_nothing_left();
    }
}

#[test]
fn a_standalone_environment_converges_when_the_daemon_dies() {
    for (point, more) in [("environment.held", ROOM), ("environment.held", LIST), ("environment.incarnation", ROOM)] {
        let scene = Scene::with(more);
        let daemon = scene.daemon_that_dies_at(point);
        let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n  cpus: 0.5\n")).ok();
        scene.condition("env/e", "Ready", "True");
        if point == "environment.incarnation" {
            docker::docker(&["kill", &scene.container()]);
        }
        died(daemon, point);
        let healed = || {
            let env = scene.get("env/e");
            let ready = crate::scene::condition(&env, "Ready")?.0 == "True";
            let incarnation = env["status"]["incarnation"].as_u64()?;
            (ready && (incarnation == 2) == (point == "environment.incarnation")).then_some(())
        };
        eventually("the environment is there again", LIMIT, healed);
        assert_eq!(scene.home.containers().len(), 1, "{point}");
        let directories = scene.directories();
        assert!(directories.len() == 1 && directories[0].exists(), "{point}: {directories:?}");
        let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
        scene.assert_nothing_left();
        assert!(!directories[0].exists(), "{point}");
    }
}
