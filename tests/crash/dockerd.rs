//! The docker daemon is away for a while, or does not answer.

use crate::scene::{Scene, condition};
use crate::support::proxy::{Proxy, Way};
use crate::support::{LIMIT, eventually};

fn scene() -> (Scene, Proxy) {
    let scene = Scene::new();
    let proxy = Proxy::of_docker(scene.home.root());
    let settings = std::fs::read_to_string(scene.home.hmz_home().join("settings.yaml")).unwrap();
    scene.home.settings(&settings.replace("endpoint: local", &format!("endpoint: unix://{}", proxy.socket().display())));
    (scene, proxy)
}

#[test]
fn a_daemon_that_is_away_for_a_while_changes_nothing() {
    let (scene, proxy) = scene();
    let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n")).ok();
    scene.condition("env/e", "Ready", "True");
    let container_of_e = scene.container();
    scene.begin("r");
    let before = scene.home.containers();
    proxy.set(Way::Cut);
    let runtime = format!("runtime/docker:{}", scene.runtime);
    let (_, message) = scene.condition_one_of(&runtime, "Reachable", &["False", "Unknown"]);
    assert!(!message.is_empty());
    // nothing is known to be gone, so nothing is said to be, and nothing is started in its place
    scene.condition_one_of("env/e", "Ready", &["Unknown"]);
    assert_eq!(scene.home.containers(), before);
    // what needs the daemon waits, and the run, which does not, ends
    let _ = scene.home.hmz(["delete", "env/e", "--no-wait"]).run().ok();
    scene.go();
    assert_eq!(scene.complete("r").0, "Succeeded");
    let env = scene.get("env/e");
    assert!(!env.is_null(), "it is not gone before its box is");
    proxy.set(Way::Open);
    let _ = scene.home.hmz(["wait", "--for=delete", "env/e", "--timeout", "100s"]).run().ok();
    scene.condition(&runtime, "Reachable", "True");
    scene.assert_nothing_left();
    assert!(before.contains(&container_of_e));
}

#[test]
fn an_environment_heals_when_its_daemon_is_back() {
    let (scene, proxy) = scene();
    let _ = scene.apply(&scene.environment_manifest("e", "")).ok();
    scene.condition("env/e", "Ready", "True");
    let there = scene.container();
    proxy.set(Way::Cut);
    scene.condition_one_of("env/e", "Ready", &["Unknown"]);
    // a daemon of ours that comes up meanwhile finds the same
    scene.kill_daemon();
    scene.condition_one_of("env/e", "Ready", &["Unknown"]);
    proxy.set(Way::Open);
    scene.condition("env/e", "Ready", "True");
    assert_eq!(scene.container(), there);
    let _ = scene.home.hmz(["sh", "env/e", "--", "true"]).run().ok();
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    scene.assert_nothing_left();
}

#[test]
fn a_daemon_that_never_answers_hangs_no_verb() {
    let (scene, proxy) = scene();
    proxy.set(Way::Silent);
    let _ = scene.apply(&scene.environment_manifest("e", "")).ok();
    let _ = scene.apply(&scene.run_manifest("r", "")).ok();
    for words in [&["get", "all"][..], &["get", "runtimes"], &["describe", "env/e"], &["describe", "run/r"], &["version"]] {
        // less than a call to docker may take until it is given up
        let _ = scene.home.hmz(words).limit(std::time::Duration::from_secs(50)).run().ok();
    }
    // the verb that belongs to a terminal can be left at any moment
    let mut exec = scene.exec().start();
    eventually("the run of exec is there", LIMIT, || (scene.list("runs").len() == 2).then_some(()));
    exec.signal(rustix::process::Signal::INT);
    exec.wait_for("ending the run");
    exec.signal(rustix::process::Signal::INT);
    let _ = exec.wait().expect_code(130);
    proxy.set(Way::Open);
    scene.condition("env/e", "Ready", "True");
    scene.go();
    assert_eq!(scene.complete("r").0, "Succeeded");
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    scene.assert_nothing_left();
    assert_eq!(condition(&scene.get("run/r"), "Complete").unwrap().0, "True");
}

#[test]
fn an_apply_waits_no_longer_than_it_was_told_to_for_all_that_it_applies() {
    let (scene, proxy) = scene();
    proxy.set(Way::Silent);
    let names = ["e1", "e2", "e3", "e4", "e5"];
    let files = names.map(|name| scene.environment_manifest(name, ""));
    let files = files.iter().flat_map(|file| ["-f".into(), file.clone()]);
    // less than the verdicts on all of them may take
    let limit = std::time::Duration::from_secs(50);
    let late = scene.home.hmz(["apply", "--wait", "--timeout", "1s"]).args(files).limit(limit).run().expect_code(1);
    for name in names {
        assert!(late.err().contains(&format!("env/{name}: wanted Ready True within 1s, and ")), "{late}");
    }
    assert!(!late.err().contains("nothing was seen"), "{late}");
    proxy.set(Way::Open);
    let _ = scene.home.hmz(["delete", "envs", "--all"]).run().ok();
    scene.assert_nothing_left();
}

#[test]
fn an_interrupted_exec_does_not_wait_for_a_daemon_that_never_answers() {
    let (scene, proxy) = scene();
    let exec = scene.exec().start();
    scene.wait_up();
    let name = scene.container_name();
    proxy.set(Way::Silent);
    exec.signal(rustix::process::Signal::INT);
    // it says what is left and who goes on with it, while the daemon still says nothing
    let left = exec.wait().expect_code(130);
    let said = format!("(container {name}) may be left behind; hmz's daemon goes on taking run/");
    assert!(left.err().contains(" does not answer at unix://") && left.err().contains(&said), "{left}");
    assert!(!scene.home.containers().is_empty(), "the daemon could not be asked to remove it");
    proxy.set(Way::Open);
    scene.assert_nothing_left();
    assert_eq!(scene.complete(&scene.the_run()).0, "Cancelled");
}

#[test]
fn an_interrupted_exec_leaves_a_run_of_which_nothing_is_there_yet() {
    let (scene, proxy) = scene();
    proxy.set(Way::Silent);
    let exec = scene.exec().start();
    // a run that has declared no environment has nothing to ask the daemon about, and ends at once
    eventually("the environment of exec's run is there", LIMIT, || (scene.list("envs").len() == 1).then_some(()));
    exec.signal(rustix::process::Signal::INT);
    let left = exec.wait().expect_code(130);
    assert!(left.err().contains(" does not answer at unix://"), "{left}");
    proxy.set(Way::Open);
    // whatever comes first to the run that waited for the daemon: its cancellation, or that the daemon had not answered
    let (reason, message) = scene.complete(&scene.the_run());
    assert!(reason == "Cancelled" || reason == "Refused" && message.contains("could not"), "{reason} {message}");
    scene.assert_nothing_left();
}
