//! The runner, the supervisor, the guardian and the agent are killed: nothing of the session is left, here or in the box.

use crate::scene::Scene;
use crate::support::processes::Process;
use crate::support::{LIMIT, docker, eventually};
use rustix::process::Signal;

/// A run at work, all its processes here, and all in its box.
struct AtWork {
    scene: Scene,
    runner: Process,
    here: Vec<Process>,
    there: Vec<Process>,
    container: String,
}

fn at_work() -> AtWork {
    let scene = Scene::with_lease();
    scene.begin("r");
    let runner = scene.runner();
    let here = runner.tree();
    for part in ["supervisor", "script-agent", "/bin/sh"] {
        assert!(here.iter().any(|p| p.line.contains(part)), "{part} in {here:?}");
    }
    let container = scene.container();
    let pid = docker::docker(&["inspect", "--format", "{{.State.Pid}}", &container]).parse().unwrap();
    let there = Process::of(pid).unwrap().tree();
    assert!(there.iter().any(|p| p.line.contains("while [ ! -e go ]")), "{there:?}");
    AtWork { scene, runner, here, there, container }
}

impl AtWork {
    /// What is left of it, here and in the box; what the box itself consists of stays as long as it does.
    fn assert_none_left(&self) {
        for process in self.here.iter().chain(&self.there) {
            process.assert_gone();
        }
        let left = self.scene.pids("runner");
        assert!(left.is_empty(), "{left:?}");
    }

    fn one(&self, part: &str, nth: usize) -> Process {
        let all: Vec<&Process> = self.here.iter().filter(|p| p.line.contains(part)).collect();
        (*all.get(nth).unwrap_or_else(|| panic!("{part} {nth} in {:?}", self.here))).clone()
    }
}

#[test]
fn a_killed_runner_takes_its_agents_and_boxes_along() {
    let work = at_work();
    let directory = work.scene.directories().pop().unwrap();
    assert!(directory.exists());
    work.runner.signal(Signal::KILL);
    let (reason, message) = work.scene.complete("r");
    assert_eq!((reason.as_str(), message.as_str()), ("Failed", "the run's runner died"));
    work.assert_none_left();
    work.scene.assert_nothing_left();
    eventually("the box's directory is removed", LIMIT, || (!directory.exists()).then_some(()));
}

#[test]
fn a_box_without_owner_and_daemon_ends_within_its_lease() {
    let work = at_work();
    let directory = work.scene.directories().pop().unwrap();
    work.scene.kill_daemon();
    work.runner.signal(Signal::KILL);
    // nobody is left to remove it, and nobody is asked meanwhile
    work.assert_none_left();
    work.scene.home.assert_no_container_left(LIMIT);
    assert!(work.scene.pids("controller").is_empty());
    assert!(directory.exists(), "nothing could have removed it");
    let (reason, message) = work.scene.complete("r");
    assert!(reason == "Failed" && !message.is_empty(), "{reason} {message}");
    eventually("the next daemon removes the box's directory", LIMIT, || (!directory.exists()).then_some(()));
    work.scene.assert_nothing_left();
}

/// The run ends as failed, and nothing of it is left.
fn fails_when_killed(part: &str, nth: usize) {
    let work = at_work();
    work.one(part, nth).signal(Signal::KILL);
    let (reason, message) = work.scene.complete("r");
    assert!(reason == "Failed" && !message.is_empty(), "{reason} {message}");
    work.assert_none_left();
    work.scene.assert_nothing_left();
}

#[test]
fn a_killed_supervisor_leaves_nothing() {
    fails_when_killed("supervisor", 0);
}

#[test]
fn a_killed_guardian_leaves_nothing() {
    fails_when_killed("supervisor", 1);
}

#[test]
fn a_killed_agent_leaves_nothing() {
    fails_when_killed("script-agent", 0);
}

#[test]
fn a_killed_stand_in_ends_its_command_and_nothing_else() {
    let work = at_work();
    work.one("while [ ! -e go ]", 0).signal(Signal::KILL);
    // the command's failure is the agent's to judge, and this one does not mind
    let (reason, message) = work.scene.complete("r");
    assert_eq!(reason, "Succeeded", "{message}");
    assert!(!work.scene.project.file("went").exists());
    work.assert_none_left();
    work.scene.assert_nothing_left();
    assert!(!work.container.is_empty());
}

#[test]
fn a_deleted_run_is_gone_with_all_of_it() {
    let work = at_work();
    let _ = work.scene.home.hmz(["delete", "run/r"]).run().ok();
    // the verb has waited for it: no polling here
    assert!(work.scene.home.containers().is_empty());
    assert!(work.here.iter().chain(&work.there).all(|p| !p.is_alive()), "{:?}", work.here);
    assert!(work.scene.get("run/r").is_null());
    work.scene.assert_nothing_left();
}
