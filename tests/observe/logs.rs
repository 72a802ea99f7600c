//! One run is one trace: in what its verb, the daemon, its runner, its agent's supervisor and the guest of its box log.

use crate::support::home::TestHome;
use crate::support::{LIMIT, docker, eventually, runs};
use serde_json::Value;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The lines of a log that are JSON and of the trace.
fn of_trace(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["trace_id"] == TRACE).collect()
}

fn says(lines: &[Value], message: &str) -> bool {
    lines.iter().any(|line| line["message"].as_str().is_some_and(|said| said.contains(message)))
}

#[test]
fn all_processes_of_a_run_log_one_trace() {
    let mut home = TestHome::new();
    home.set("HMZ_LOG", "info");
    home.set("HMZ_LOG_FORMAT", "json");
    let project = home.project("p");
    runs::boxed_in(&home, "quick", "busybox:latest");
    let steps = runs::script(&home, "waits", "- run: 'touch begun'\n- wait_for: go\n- say: done\n");
    let mut run =
        runs::exec(&home, "quick", &steps, &project, "t").env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01")).start();
    eventually("it is at work", LIMIT, || project.file("begun").exists().then_some(()));
    let container = home.containers().remove(0);
    // docker gives what the container wrote to stderr there
    let guest = docker::docker(&["inspect", "--format", "{{.LogPath}}", &container]);
    let guest = std::fs::read_to_string(guest).unwrap();
    let guest: String =
        guest.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["log"].as_str().unwrap().to_owned()).collect();
    let guest = of_trace(&guest);
    assert!(says(&guest, "the box begins") && says(&guest, "a session begins"), "{guest:?}");
    project.write("go", "");
    run.wait_for("done");
    let finished = run.wait().ok();

    let verb = of_trace(&finished.err());
    assert!(says(&verb, "declared") && verb.iter().all(|line| line["process"] == "verb"), "{finished}");
    let name = verb.iter().find_map(|line| line["run"].as_str()).unwrap().to_owned();
    let daemon = of_trace(&std::fs::read_to_string(home.hmz_home().join("state/daemon.log")).unwrap());
    assert!(
        says(&daemon, "created") && says(&daemon, "its box was started") && says(&daemon, "its runner was started"),
        "{daemon:?}"
    );
    let started = daemon.iter().find(|line| line["message"] == "its box was started").unwrap();
    assert_eq!(
        (&started["run"], &started["kind"], &started["level"]),
        (&name.as_str().into(), &"environment".into(), &"INFO".into())
    );
    let epic = std::fs::read_dir(home.hmz_home().join("epics")).unwrap().next().unwrap().unwrap().path();
    for (file, process, messages) in [
        ("runner.log", "runner", &["the run begins", "a turn ended", "the run ends"][..]),
        ("sessions.log", "supervisor", &["the agent's CLI was started", "the agent's CLI ended"]),
    ] {
        let log = std::fs::read_to_string(epic.join(file)).unwrap();
        let lines = of_trace(&log);
        assert_eq!(lines.len(), log.lines().count(), "all of {file} is of the run: {log}");
        assert!(messages.iter().all(|message| says(&lines, message)), "{log}");
        for line in &lines {
            assert_eq!((&line["process"], &line["run"]), (&process.into(), &name.as_str().into()), "{line}");
            assert!(line["target"].as_str().is_some_and(|target| target.starts_with("hmz_")), "{line}");
            assert!(line["timestamp"].as_str().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok()), "{line}");
        }
    }
    // another run is another trace, which its verb begins
    let again = runs::script(&home, "again", "- say: done\n");
    let other = runs::exec(&home, "quick", &again, &project, "t").run().ok().err();
    let line = other.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap();
    assert!(line["trace_id"].as_str().is_some_and(|id| id.len() == 32 && id != TRACE), "{line}");
    // nothing is logged that is not asked for
    let quiet = runs::exec(&home, "quick", &again, &project, "t").env("HMZ_LOG", "off").run().ok();
    assert!(!quiet.err().contains("trace_id"), "{quiet}");
}
