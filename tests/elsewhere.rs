//! Environments on a docker daemon of another machine, or as good as: over TLS and over ssh, on a line of 50 ms each way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use rustix::process::Signal;
use std::time::Duration;
use support::far::{Far, IMAGE};
use support::home::TestHome;
use support::processes;
use support::{LIMIT, eventually};

/// How long a byte takes each way.
const DELAY: Duration = Duration::from_millis(50);

fn environment(runtime: &str, dir: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec: {{runtime: 'docker:{runtime}', workdir: {dir}, \
         image: busybox, cpus: 0.5, memory: 128M}}\n"
    )
}

/// An environment in a directory only the other machine has, from its declaration to its deletion.
fn a_box_over(runtime: &str) {
    let far = Far::new(DELAY);
    let home = &far.home;
    let manifest = home.home().join("box.yaml");
    std::fs::write(&manifest, environment(runtime, far.work.0.to_str().unwrap())).unwrap();
    std::fs::write(far.work.1.join("there"), "on the other machine\n").unwrap();
    let _ = home.hmz(["apply", "-f"]).arg(&manifest).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box", "--timeout", "2m"]).run().ok();
    let id = far.containers().into_iter().next().expect("a container there");
    assert_eq!(home.containers(), Vec::<String>::new(), "it is not here");
    let sh = |line: &str| home.hmz(["sh", "env/box", "--", "sh", "-c", line]).run();
    let said = sh("hostname; pwd; cat there; echo made >made; exec cat /nonexistent").expect_code(1);
    assert_eq!(said.out(), format!("{}\n{}\non the other machine\n", &id[..12], far.work.0.display()), "{said}");
    assert!(said.err().contains("/nonexistent"), "{said}");
    assert_eq!(std::fs::read_to_string(far.work.1.join("made")).unwrap(), "made\n");
    let upper = home.hmz(["sh", "env/box", "--", "tr", "a-z", "A-Z"]).stdin("over there").run().ok();
    assert_eq!(upper.out(), "OVER THERE");
    // our daemon is killed, and with it the shorter way
    assert!(kill_daemon(home));
    assert_eq!(sh("cat made").ok().out(), "made\n");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    far.assert_nothing_left();
}

/// Kills our daemon; whether there was one.
fn kill_daemon(home: &TestHome) -> bool {
    let pids = home.processes();
    let found = pids.into_iter().find(|pid| processes::line(*pid).contains(" controller --background"));
    let Some(process) = found.and_then(processes::Process::of) else { return false };
    process.signal(Signal::KILL);
    eventually("it is dead", LIMIT, || (!process.is_alive()).then_some(true))
}

#[test]
fn a_box_is_made_worked_in_and_removed_over_tls() {
    a_box_over("tls");
}

#[test]
fn a_box_is_made_worked_in_and_removed_over_ssh() {
    a_box_over("ssh");
}
