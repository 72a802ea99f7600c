//! The daemon: killed, started twice, idle, and beside another one.

use crate::scene::Scene;
use crate::support::command::Running;
use crate::support::processes::Process;
use crate::support::{LIMIT, docker, eventually};
use rustix::process::Signal;
use sha2::{Digest, Sha256};

#[test]
fn a_run_outlives_the_daemon_and_its_end_is_seen() {
    let scene = Scene::new();
    scene.begin("r");
    scene.kill_daemon();
    scene.go();
    // without a verb: the runner starts a daemon when it ends, and that one sees to the rest
    scene.home.assert_no_container_left(LIMIT);
    let (reason, message) = scene.complete("r");
    assert_eq!(reason, "Succeeded", "{message}");
    let runs = scene.home.hmz(["get", "runs"]).run().ok();
    assert!(runs.out().lines().any(|l| l.starts_with("r ") && l.contains("Succeeded")), "{runs}");
    assert!(scene.project.file("went").exists());
    scene.assert_nothing_left();
}

#[test]
fn a_run_of_exec_outlives_the_daemon_with_its_whole_transcript() {
    let scene = Scene::new();
    let exec = scene.exec().start();
    scene.wait_up();
    scene.kill_daemon();
    // the verb starts the next one by itself; that one is killed too
    scene.kill_daemon();
    scene.daemon();
    scene.go();
    let done = exec.wait().ok();
    for text in ["coder's harness runs here", "begun", "Bash(echo up > up", "all done"] {
        assert_eq!(done.err().matches(text).count(), 1, "`{text}` once in\n{done}");
    }
    assert_eq!(done.out(), "all done\n");
    scene.assert_nothing_left();
}

#[test]
fn a_daemon_killed_again_and_again_at_a_start_loses_nothing() {
    let scene = Scene::new();
    scene.go();
    for round in 0..6 {
        let name = format!("r{round}");
        let _ = scene.home.hmz(["get", "runs"]).run().ok();
        let _ = scene.apply(&scene.run_manifest(&name, "")).ok();
        // wherever it is by then
        std::thread::sleep(std::time::Duration::from_millis(60 * round));
        scene.kill_daemon();
        let (reason, message) = scene.complete(&name);
        assert!(reason == "Succeeded" || reason == "Failed" && !message.is_empty(), "{name}: {reason} {message}");
        let _ = scene.home.hmz(["delete", &format!("run/{name}")]).run().ok();
    }
    scene.assert_nothing_left();
}

#[test]
fn of_two_daemons_started_at_once_one_survives() {
    for _ in 0..5 {
        let scene = Scene::new();
        let start = || scene.home.hmz(["controller", "--background"]).start();
        let both: Vec<Running> = vec![start(), start(), start()];
        let survivor = scene.daemon();
        eventually("the others end", LIMIT, || (scene.pids("controller") == [survivor.pid]).then_some(()));
        let _ = scene.home.hmz(["get", "envs"]).run().ok();
        assert!(survivor.is_alive());
        // and verbs that find none start one between them
        survivor.signal(Signal::KILL);
        survivor.assert_gone();
        drop(both);
        let verbs: Vec<Running> = (0..4).map(|_| scene.home.hmz(["get", "envs"]).start()).collect();
        for verb in verbs {
            let _ = verb.wait().ok();
        }
        scene.daemon();
    }
}

#[test]
fn an_idle_daemon_ends_and_the_next_verb_starts_one() {
    let mut scene = Scene::new();
    scene.home.set("HMZ_IDLE", "1");
    let daemon = daemon_of_a_verb(&scene);
    daemon.assert_gone();
    assert_eq!(scene.pids("controller"), [0; 0]);
    assert_ne!(daemon_of_a_verb(&scene), daemon);

    // one that has a run, or something to heal, stays; several of its idle times pass
    scene.begin("r");
    let _ = scene.apply(&scene.environment_manifest("healed", "  restart: always\n")).ok();
    scene.condition("env/healed", "Ready", "True");
    let daemon = scene.daemon();
    idle_times_pass();
    assert!(daemon.is_alive(), "it ended with a run and an environment");
    scene.go();
    scene.complete("r");
    idle_times_pass();
    assert!(daemon.is_alive(), "it ended with an environment to be healed");
    let _ = scene.home.hmz(["delete", "env/healed"]).run().ok();
    daemon.assert_gone();
    scene.home.assert_no_container_left(LIMIT);
    assert!(crate::support::processes::with_variable(&scene.home.mark()).is_empty());
}

/// The daemon that a verb starts, found while that verb is there: it may be gone a moment after it.
fn daemon_of_a_verb(scene: &Scene) -> Process {
    let watch = scene.home.hmz(["get", "runs", "-w"]).start();
    let daemon = scene.daemon();
    drop(watch);
    daemon
}

/// What must not happen in five times the time it would take cannot be waited for in another way.
fn idle_times_pass() {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    eventually("five idle times pass", LIMIT, || (std::time::Instant::now() >= end).then_some(()));
}

#[test]
fn two_homes_leave_each_others_boxes_alone() {
    let (one, other) = (Scene::new(), Scene::new());
    // both through a runtime of the same name, so that only the instance tells them apart
    let settings = std::fs::read_to_string(one.home.hmz_home().join("settings.yaml")).unwrap();
    other.home.settings(&settings);
    let other = Scene { runtime: one.runtime.clone(), ..other };
    one.begin("r");
    let box_of_one = one.container();
    let _ = other.apply(&other.environment_manifest("e", "")).ok();
    other.condition("env/e", "Ready", "True");
    let box_of_other = other.container();
    // a daemon that comes up sweeps at once; its own litter goes, which shows that it did
    for scene in [&one, &other] {
        scene.kill_daemon();
        let litter = litter_of(scene);
        let _ = scene.home.hmz(["get", "envs"]).run().ok();
        eventually("its own litter is swept", LIMIT, || (!scene.home.containers().contains(&litter)).then_some(()));
    }
    assert_eq!(one.home.containers(), [box_of_one]);
    assert_eq!(other.home.containers(), [box_of_other]);
    let _ = other.home.hmz(["delete", "env/e"]).run().ok();
    one.go();
    assert_eq!(one.complete("r").0, "Succeeded");
    other.home.assert_no_container_left(LIMIT);
    one.assert_nothing_left();
}

/// A hold of that home's that nothing stands for: what one that died in the middle leaves behind.
fn litter_of(scene: &Scene) -> String {
    let there = scene.container();
    let inspected = docker::docker(&["inspect", "--format", "{{json .Config.Labels}}", &there]);
    let labels: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    let name = docker::docker(&["inspect", "--format", "{{.Name}}", &there]).trim_start_matches('/').to_owned();
    let uid = uuid::Uuid::new_v4();
    // the name is the one the labels derive, else it is nobody's and stays
    let of = |label: &str| labels[label].as_str().unwrap().to_owned();
    let incarnation: u64 = of("hmz.incarnation").parse().unwrap();
    let digest = Sha256::new()
        .chain_update(of("hmz.instance"))
        .chain_update([0])
        .chain_update(uid.as_bytes())
        .chain_update(incarnation.to_be_bytes())
        .finalize();
    let hex: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    let (stem, _) = name.rsplit_once('-').unwrap();
    let mut words = vec!["create".to_owned(), "--name".to_owned(), format!("{stem}-{hex}")];
    for (label, value) in labels.as_object().unwrap() {
        let value = if label == "hmz.uid" { uid.to_string() } else { value.as_str().unwrap().to_owned() };
        words.extend(["--label".to_owned(), format!("{label}={value}")]);
    }
    words.extend(["busybox:latest".to_owned(), "true".to_owned()]);
    docker::docker(&words.iter().map(String::as_str).collect::<Vec<_>>())
}
