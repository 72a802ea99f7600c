//! An upgrade: the program is replaced while its daemon and a run of it are there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use std::fs;
use std::path::Path;
use support::command::Invocation;
use support::home::TestHome;
use support::{LIMIT, eventually, processes};

/// Steps that wait, with the container up, until the test lets them go on.
const STEPS: &str = "- run: echo before\n- wait_for: go\n- run: echo after > after.txt\n";

/// The pid of the home's daemon in the background.
fn daemon(home: &TestHome) -> i32 {
    // of two that were started at once, one ends
    eventually("one daemon", LIMIT, || {
        let all = home.processes().into_iter().filter(|pid| processes::line(*pid).contains("controller --background"));
        <[i32; 1]>::try_from(all.collect::<Vec<_>>()).ok().map(|[daemon]| daemon)
    })
}

fn install(program: &Path) {
    let fresh = program.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_hmz"), &fresh).unwrap();
    fs::rename(&fresh, program).unwrap();
}

#[test]
fn a_new_program_takes_over_from_the_daemon_of_the_old_one_and_a_run_goes_on() {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("steps.yaml", STEPS);
    let program = home.root().join("installed-hmz");
    install(&program);
    let hmz = |words: &[&str]| home.run(Invocation::new(&program).args(words));
    let manifest = format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: up}}\nspec:\n  flow: boxed\n  agents: {{coder: script/./steps.yaml}}\n  \
         environments: {{box: {{runtime: docker:here, workdir: {}, image: busybox:latest}}}}\n",
        project.path()
    );
    project.write("run.yaml", &manifest);
    drop(hmz(&["apply", "-f", project.file("run.yaml").to_str().unwrap()]).run().ok());
    drop(hmz(&["wait", "--for=condition=Running", "run/up", "--timeout", "2m"]).run().ok());
    let old = daemon(&home);

    install(&program);
    drop(hmz(&["get", "runs"]).run().ok().says("up"));
    eventually("the old daemon's end", LIMIT, || (!processes::is_alive(old)).then_some(()));
    assert_ne!(daemon(&home), old);
    // the program goes away altogether: what runs was started from a copy
    fs::remove_file(&program).unwrap();
    install(&program);

    project.write("go", "");
    drop(hmz(&["wait", "--for=condition=Complete", "run/up", "--timeout", "2m"]).run().ok());
    drop(hmz(&["get", "run/up"]).run().ok().says("Succeeded"));
    assert_eq!(project.read("after.txt").trim(), "after");
    drop(hmz(&["delete", "run/up"]).run().ok());
    home.assert_no_container_left(LIMIT);
}

#[test]
fn a_verb_of_the_old_program_sees_its_run_to_the_end() {
    for gone in [false, true] {
        let home = TestHome::new();
        let project = home.project("p");
        project.write("steps.yaml", STEPS);
        project.write(
            ".hmz/flows/small.yaml",
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: small}\nspec:\n  agents: {coder: {}}\n  environments: {box: {image: \
             'busybox:latest'}}\n  steps: [{turn: {agent: coder, environment: box, prompt: '{{ task }}'}}]\n",
        );
        let program = home.root().join("installed-hmz");
        install(&program);
        let place = format!("box=docker@here{}", project.path());
        let words = ["exec", "-f", "small", "-a", "script/./steps.yaml", "-e", &place, "-p", "budget.duration=10m", "go"];
        let mut exec = home.run(Invocation::new(&program).args(words)).cwd(project.dir()).start();
        exec.wait_for("Bash(echo before)");
        if gone {
            fs::remove_file(&program).unwrap();
            // the verb has to start the next one
            rustix::process::kill_process(rustix::process::Pid::from_raw(daemon(&home)).unwrap(), rustix::process::Signal::KILL)
                .unwrap();
        } else {
            install(&program);
        }
        project.write("go", "");
        drop(exec.wait().ok());
        assert_eq!(project.read("after.txt").trim(), "after");
        home.assert_no_container_left(LIMIT);
    }
}
