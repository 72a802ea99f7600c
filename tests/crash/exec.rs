//! `hmz exec` is told to end, or killed.

use crate::scene::Scene;
use crate::support::command::Running;
use crate::support::processes::Process;
use crate::support::{LIMIT, eventually};
use rustix::process::Signal;

/// `hmz exec` with its command in the box, and the processes of its run.
fn at_work(scene: &Scene) -> (Running, Vec<Process>) {
    let exec = scene.exec().start();
    scene.wait_up();
    (exec, scene.runner().tree())
}

fn only_run(scene: &Scene) -> String {
    let runs = scene.list("runs");
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0]["metadata"]["name"].as_str().unwrap().to_owned()
}

fn cancelled(scene: &Scene, processes: &[Process]) {
    let (reason, message) = scene.complete(&only_run(scene));
    assert_eq!(reason, "Cancelled", "{message}");
    for process in processes {
        process.assert_gone();
    }
    scene.assert_nothing_left();
}

fn ends_by(signal: Signal, code: i32) {
    let scene = Scene::new();
    let (exec, processes) = at_work(&scene);
    exec.signal(signal);
    let _ = exec.wait().expect_code(code).says("ending the run");
    // the verb has waited for it: no polling here
    assert!(processes.iter().all(|p| !p.is_alive()), "{processes:?}");
    assert!(scene.home.containers().is_empty());
    cancelled(&scene, &processes);
}

#[test]
fn an_interrupt_ends_it_with_130() {
    ends_by(Signal::INT, 130);
}

#[test]
fn a_termination_ends_it_with_143() {
    ends_by(Signal::TERM, 143);
}

#[test]
fn a_hangup_ends_it_with_129() {
    ends_by(Signal::HUP, 129);
}

#[test]
fn an_interrupt_at_any_moment_of_its_start_leaves_nothing() {
    // no daemon yet, then one that is warm; how far it is by then is not known, and every answer is right but one
    let scene = Scene::new();
    for round in 0..12 {
        let exec = scene.exec().start();
        std::thread::sleep(std::time::Duration::from_millis(50 * (round % 6 + 1)));
        exec.signal(Signal::INT);
        let ended = exec.wait().expect_code(130);
        assert!(scene.home.containers().is_empty(), "{ended}");
        assert!(scene.pids("runner").is_empty(), "{ended}");
    }
    scene.assert_nothing_left();
    for run in scene.list("runs") {
        let name = run["metadata"]["name"].as_str().unwrap();
        assert_eq!(scene.complete(name).0, "Cancelled", "{run}");
    }
}

#[test]
fn a_second_interrupt_leaves_at_once_and_the_daemon_cleans_up() {
    let scene = Scene::new();
    // a command that does not go when it is told to, so that the first interrupt is not over at once
    scene.project.write("steps.yaml", "- run: trap '' TERM INT HUP; echo up > up; while [ ! -e go ]; do sleep 0.05; done\n");
    let (mut exec, processes) = at_work(&scene);
    // nothing else can hold the daemon up for sure: it is stopped while the verb is told twice
    let daemon = scene.daemon();
    daemon.signal(Signal::STOP);
    exec.signal(Signal::INT);
    exec.wait_for("ending the run");
    exec.signal(Signal::INT);
    let _ = exec.wait().expect_code(130);
    daemon.signal(Signal::CONT);
    cancelled(&scene, &processes);
}

#[test]
fn a_killed_exec_cancels_its_run() {
    let scene = Scene::new();
    let (exec, processes) = at_work(&scene);
    exec.signal(Signal::KILL);
    let _ = exec.wait().expect_code(137);
    cancelled(&scene, &processes);
}

#[test]
fn an_exec_killed_with_its_daemon_is_cancelled_by_the_next_one() {
    let scene = Scene::new();
    let (exec, processes) = at_work(&scene);
    scene.daemon().signal(Signal::STOP);
    let daemon = scene.daemon();
    exec.signal(Signal::KILL);
    let _ = exec.wait().expect_code(137);
    daemon.signal(Signal::KILL);
    daemon.assert_gone();
    assert!(processes.iter().all(Process::is_alive), "the run goes on without both");
    cancelled(&scene, &processes);
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let scene = Scene::new();
    let exec = scene.exec().through(["nohup"]).start();
    scene.wait_up();
    exec.signal(Signal::HUP);
    // it has had time to act on it once it has shown what came after
    scene.go();
    let done = exec.wait().ok();
    assert!(!done.err().contains("ending the run"), "{done}");
    eventually("its last word", LIMIT, || done.out().contains("all done").then_some(()));
    scene.assert_nothing_left();
}

#[test]
fn one_whose_runner_is_killed_says_what_became_of_it() {
    let scene = Scene::new();
    let (exec, processes) = at_work(&scene);
    scene.runner().signal(Signal::KILL);
    let ended = exec.wait().expect_code(1);
    let (reason, message) = scene.complete(&only_run(&scene));
    assert!(reason == "Failed" && !message.is_empty(), "{reason} {message}");
    let _ = ended.says("hmz exec: error: ").says(&message);
    for process in &processes {
        process.assert_gone();
    }
    scene.assert_nothing_left();
}

#[test]
fn one_that_is_interrupted_before_its_runner_is_there_ends_with_130() {
    let scene = Scene::new();
    // no daemon answers there, and none refuses: the run stays in its beginnings
    let silent = scene.home.root().join("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    scene.home.settings(&format!(
        "runtimes:\n  docker:\n    {}: {{endpoint: 'unix://{}', harness: local}}\n",
        scene.runtime,
        silent.display()
    ));
    let exec = scene.exec().start();
    eventually("the run", LIMIT, || (!scene.list("runs").is_empty()).then_some(()));
    exec.signal(Signal::INT);
    // it has been told; the daemon that never answered goes away
    eventually("the verb says so", LIMIT, || exec.stderr().contains("ending the run").then_some(()));
    drop(listener);
    let ended = exec.wait().expect_code(130);
    assert!(!ended.err().contains("error:"), "{ended}");
}
