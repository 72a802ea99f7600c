//! An agent's CLI in the box itself, which is where it is unless a runtime says otherwise: the built-in agent, which every
//! box has, and the real claude in an image that has it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use support::command::Invocation;
use support::document::shell_blocks;
use support::home::TestHome;
use support::processes::{self, Process};
use support::project::{BUGGY, Project};
use support::runs::{boxed_in, script};
use support::user::User;
use support::{LIMIT, agent, docker, eventually};

const PLACED: &str = "coder's harness runs on its environment's machine";

/// A home in which nothing of claude's is to be had, whose runtime `inbox` gives a box what it needs of a provider.
fn home(home: TestHome, provider: &Provider) -> TestHome {
    let variables: String = agent::variables(&provider.url()).iter().map(|(name, value)| format!("'{name}={value}', ")).collect();
    home.settings(&format!(
        "runtimes:\n  docker:\n    inbox:\n      endpoint: local\n      run_args: [--network=host]\n      lease: 20s\n      exec_env: \
         [{variables}]\n"
    ));
    boxed_in(&home, "withclaude", &agent::image());
    home
}

fn exec(home: &TestHome, flow: &str, agent: &str, project: &Project, words: &[&str]) -> Invocation {
    let place = format!("box=docker@inbox{}", project.path());
    home.hmz(["exec", "-f", flow, "-a", &format!("coder={agent}"), "-e", &place]).args(words)
}

fn claude(home: &TestHome, project: &Project, script: &str, words: &[&str]) -> Invocation {
    exec(home, "withclaude", "claude/scripted-1:low", project, words).arg(format!("Do it. [[script:{script}]]"))
}

fn the_main_job(home: TestHome) {
    let provider = Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && cat /proc/$PPID/comm")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt && whoami")),
            Step::say("Fixed.").gated("end"),
        ],
    );
    let home = self::home(home, &provider);
    let project = home.project("p");
    let running = claude(&home, &project, "main", &["-p", "budget.duration=10m"]).start();
    provider.wait_for_round("main", 5, LIMIT);
    let containers = home.containers();
    assert_eq!(containers.len(), 1, "{containers:?}");
    let directories = home.box_directories();
    let top = docker::docker(&["top", &containers[0], "-eo", "pid,uid,args"]);
    let cli = top.lines().find(|line| line.contains("--output-format stream-json"));
    let owner = cli.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(owner, Some(home.uid().to_string().as_str()), "claude is in the box: {top}");
    // nothing of the agent is here but the proxy, and its line tells nothing
    let lines: Vec<String> = home.processes().into_iter().map(processes::line).collect();
    assert!(!lines.iter().any(|line| line.contains("stream-json") || line.contains("supervisor")), "{lines:?}");
    provider.open("end");
    let finished = running.wait().ok().says(PLACED).says("● Bash(hostname && cat /proc/$PPID/comm)").says("✻ Worked for ");
    assert_eq!(finished.out(), "Fixed.\n");
    home.assert_nothing_left(&directories);
    let results = provider.results("main");
    assert!(results.iter().all(|result| !result.is_error), "{results:#?}");
    let user = if home.uid() == 0 { "root".to_owned() } else { User::get().name().to_owned() };
    assert!(results[0].text.ends_with("claude"), "{results:#?}");
    assert_eq!(results[4].text, format!("{}/sub\n{}\n{user}", project.path(), home.uid()));
    project.assert_fixed();
    for file in ["calc.py", "sub/owner.txt"] {
        assert_eq!(std::fs::metadata(project.file(file)).unwrap().uid(), home.uid(), "{file}");
    }
    assert!(!home.home().join(".claude").exists());
    let described = home.hmz(["get", "runs"]).run().ok();
    assert!(described.out().contains("Succeeded"), "{described}");
}

#[test]
fn the_real_claude_lives_in_its_box_and_nothing_is_left() {
    the_main_job(TestHome::new());
}

#[test]
fn it_does_for_an_ordinary_user_too() {
    the_main_job(TestHome::of(User::get()));
}

fn at_work() -> Provider {
    Provider::start().script("stall", [Step::call(bash("touch begun; sleep 300")), Step::say("never")])
}

#[test]
fn a_spent_budget_ends_the_run_well() {
    let provider = at_work();
    let home = home(TestHome::new(), &provider);
    for seconds in [6, 30, 120] {
        let project = home.project(&format!("p{seconds}"));
        let finished = claude(&home, &project, "stall", &["-p", &format!("budget.duration={seconds}s")]).run().ok();
        let _ = finished.says("stopped -- withclaude: its budget's duration is spent");
        home.assert_nothing_left(&[]);
        // a loaded machine may not have come so far
        if project.file("begun").exists() {
            return;
        }
    }
    panic!("its command never began");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let provider = at_work();
    let home = home(TestHome::new(), &provider);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let project = home.project(&format!("p{code}"));
        let running = claude(&home, &project, "stall", &["-p", "budget.duration=10m"]).start();
        eventually("its command is at work", LIMIT, || project.file("begun").exists().then_some(()));
        let directories = home.box_directories();
        running.signal(signal);
        let _ = running.wait().expect_code(code);
        home.assert_nothing_left(&directories);
    }
}

#[test]
fn a_killed_runner_leaves_nothing() {
    let provider = at_work();
    let home = home(TestHome::new(), &provider);
    let project = home.project("p");
    let running = claude(&home, &project, "stall", &["-p", "budget.duration=10m"]).start();
    eventually("its command is at work", LIMIT, || project.file("begun").exists().then_some(()));
    let container = home.containers().pop().unwrap();
    let pid = docker::docker(&["inspect", "--format", "{{.State.Pid}}", &container]).parse().unwrap();
    let there = Process::of(pid).unwrap().tree();
    assert!(there.iter().any(|p| p.line.contains("stream-json")), "{there:?}");
    home.kill_runner();
    let _ = running.wait().expect_code(1);
    for process in &there {
        process.assert_gone();
    }
    home.assert_no_container_left(LIMIT);
    eventually("no process is left", LIMIT, || {
        let left: Vec<String> = home.processes().into_iter().map(processes::line).collect();
        left.iter().all(|line| line.contains(" controller --background")).then_some(())
    });
}

#[test]
fn the_built_in_agent_is_in_every_box() {
    let home = TestHome::new();
    home.settings("runtimes: {}\n");
    boxed_in(&home, "small", "busybox:latest");
    let project = home.project("p");
    let agent = format!("coder={}", script(&home, "s", "- run: hostname; cat /proc/$PPID/comm\n- say: it ran in {{ prompt }}\n"));
    // with nothing saved
    let place = format!("box=docker{}", project.path());
    let done = home.hmz(["exec", "-f", "small", "-a", &agent, "-e", &place, "--json", "busybox"]).run().ok();
    let said = support::runs::results(&done).swap_remove(0);
    let (host, comm) = said.trim().split_once('\n').unwrap();
    assert!(host.len() == 12 && host.bytes().all(|b| b.is_ascii_hexdigit()), "{said}");
    assert_eq!(comm, "hmz", "the agent is in the box too: {said}");
    assert!(done.out().contains("it ran in busybox") && done.out().contains(PLACED), "{done}");
    home.assert_nothing_left(&[]);
}

#[test]
fn the_page_on_harnesses_does_what_it_says() {
    let home = TestHome::new();
    home.settings("runtimes: {}\n");
    let project = home.project("p");
    let blocks = shell_blocks("docs/harness.md");
    let [inbox, second] = blocks.as_slice() else { panic!("nothing here knows how to check these blocks: {blocks:?}") };
    let done = home.shell(&inbox.text).cwd(project.dir()).run().ok().says(PLACED).says("● Bash(hostname)");
    assert_eq!(done.out(), "I live in the box.\n");
    home.assert_nothing_left(&[]);
    let placed = "coder's harness runs on the runtime docker:agents";
    let done = home.shell(&second.text).cwd(project.dir()).run().ok().says(placed).says("● Bash(hostname)");
    assert!(done.out().ends_with("I live next door.\n"), "{done}");
    home.assert_nothing_left(&[]);
}

#[test]
fn an_image_without_the_cli_is_refused_before_anything_starts_and_nothing_else_is_tried() {
    let home = TestHome::new();
    home.settings(
        "runtimes:\n  docker:\n    inbox: {endpoint: local, fallback: ['docker:spare']}\n    spare: {endpoint: local, harness: local}\n",
    );
    boxed_in(&home, "small", "busybox:latest");
    let project = home.project("p");
    let finished = exec(&home, "small", "claude/scripted-1:low", &project, &["do"]).run().expect_code(2);
    let said = "hmz exec: error: docker@inbox: claude's harness cannot run where its harness setting (env) says: claude is not \
                installed on docker@inbox: npm i -g @anthropic-ai/claude-code there, or set the harness of the runtime it is on to \
                local\n";
    assert!(finished.err().starts_with(said), "{finished}");
    assert_eq!(finished.out(), "");
    home.assert_nothing_left(&[]);
    assert_eq!(project.read("calc.py"), BUGGY);
}

#[test]
fn the_harness_is_that_of_the_runtime_that_holds_the_role() {
    let home = TestHome::new();
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("t{}", &unique[..10]);
    home.settings(&format!(
        "runtimes:\n  docker:\n    inbox: {{endpoint: local, harness: local, cpus: 1, fallback: ['docker:{name}']}}\n    {name}: \
         {{endpoint: local}}\n"
    ));
    let spec = "agents: {coder: {}}\nenvironments: {box: {image: 'busybox:latest', cpus: 2}}\nsteps:\n  - turn: {agent: coder, \
                environment: box, prompt: t}";
    support::runs::flow(&home, "two-cpus", spec);
    let project = home.project("p");
    let agent = script(&home, "s", "- run: cat /proc/$PPID/comm\n- say: done\n");
    let done = exec(&home, "two-cpus", &agent, &project, &["t"]).run().ok().says(PLACED).says(&format!("; using docker:{name}"));
    assert_eq!(done.out(), "done\n");
    home.assert_nothing_left(&[]);
}
