//! An agent's CLI in a second box, which its runtime names for it: a part of the gang, counted there, supervised there, with
//! its commands in the role's own box.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

#[path = "second_box/running.rs"]
mod running;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use support::command::Invocation;
use support::far::Far;
use support::home::TestHome;
use support::processes::{self, Process};
use support::project::{BUGGY, Project};
use support::runs::{boxed_in, flow, script};
use support::user::User;
use support::{LIMIT, agent, docker, eventually};

const SMALL: &str = "busybox:latest";

/// A name of a runtime that no other test's boxes count for.
fn unique() -> String {
    format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..10])
}

/// A home whose runtime `work` has its harnesses on another, with these fields; that one's name.
fn home(home: TestHome, second: &str) -> (TestHome, String) {
    let name = unique();
    home.settings(&format!(
        "runtimes:\n  docker:\n    work: {{endpoint: local, harness: 'docker:{name}', lease: 20s}}\n    {name}: {{endpoint: local, lease: \
         20s{second}}}\n"
    ));
    (home, name)
}

fn exec(home: &TestHome, flow: &str, agent: &str, project: &Project) -> Invocation {
    let place = format!("box=docker@work{}", project.path());
    home.hmz(["exec", "-f", flow, "-a", &format!("coder={agent}"), "-e", &place, "-p", "budget.duration=10m", "t"])
}

/// The containers of a home, by role.
fn by_role(home: &TestHome, role: &str) -> Vec<String> {
    let is = |id: &String| docker::docker(&["inspect", "--format", "{{index .Config.Labels \"humanize.role\"}}", id]) == role;
    home.containers().into_iter().filter(is).collect()
}

fn json(home: &TestHome, words: &[&str]) -> Value {
    serde_json::from_str(&home.hmz(words).args(["-o", "json"]).run().ok().out()).unwrap()
}

/// Sees that a verb prints that.
fn shows(home: &TestHome, words: &[&str], text: &str) {
    let done = home.hmz(words).run().ok();
    assert!(done.out().contains(text), "{text}\n{done}");
}

/// Waits until a path is in the project.
fn until(project: &Project, name: &str) {
    eventually("its command is at work", LIMIT, || project.file(name).exists().then_some(()));
}

/// Its agent works until the file `go` is there.
const WAITS: &str = "\
- run: hostname >up; cat /proc/$PPID/comm >parent; until [ -e go ]; do sleep 0.1; done
- write: {path: made.txt, content: here}
- run: cat made.txt; cd /; pwd
- say: it ran
";

#[test]
fn a_cli_in_a_second_box_is_counted_shown_and_gone_and_its_commands_are_in_the_first() {
    let (home, name) =
        home(TestHome::new(), ", image: 'busybox:latest', max_containers: 1, cpus: 64, default_request: {cpus: 0.25}");
    boxed_in(&home, "small", "python:3.12-slim");
    let project = home.project("p");
    let agent = script(&home, "s", WAITS);
    let running = exec(&home, "small", &agent, &project).start();
    until(&project, "up");
    let (first, second) = (by_role(&home, "box"), by_role(&home, "harness"));
    assert_eq!((first.len(), second.len(), home.containers().len()), (1, 1, 2));
    assert!(first[0].starts_with(project.read("up").trim()), "the command is in the role's box");
    let lines = |id: &str| docker::docker(&["top", id, "-eo", "pid,args"]);
    assert!(lines(&second[0]).contains("script-agent") && !lines(&first[0]).contains("script-agent"), "{}", lines(&first[0]));
    let of = |what: &str| docker::docker(&["inspect", "--format", what, &second[0]]);
    assert_eq!(of("{{.Config.Image}} {{.HostConfig.CpuQuota}}"), "busybox:latest 25000");
    assert_eq!(
        of("{{index .Config.Labels \"humanize.provider\"}} {{index .Config.Labels \"humanize.cpus\"}}"),
        format!("{name} 0.25")
    );
    assert!(!of("{{.HostConfig.CapAdd}}").contains("PTRACE"));
    // it is seen as what it is
    let run = json(&home, &["get", "runs"])["items"][0].clone();
    let run_name = run["metadata"]["name"].as_str().unwrap().to_owned();
    let shown = &run["status"]["environments"]["box"];
    assert_eq!(shown["harness"]["runtime"], format!("docker:{name}"), "{run}");
    let env = shown["harness"]["environment"].as_str().unwrap().to_owned();
    assert_eq!(env, format!("{run_name}-box.harness"));
    shows(&home, &["get", "envs"], &env);
    shows(&home, &["describe", &format!("run/{run_name}")], &format!("env/{env} on docker:{name}"));
    shows(&home, &["describe", &format!("env/{env}")], &format!("env/{run_name}-box on docker:work"));
    // another has no room there, and nothing of it is started
    let other = home.project("other");
    let refused = exec(&home, "small", &agent, &other).run().expect_code(2);
    let full = format!(
        "hmz exec: error: docker@work: script's harness cannot run where its harness setting (docker:{name}) says: docker@{name} runs 1 \
         of the 1 containers it may\n"
    );
    assert!(refused.err().ends_with(&full), "{refused}");
    assert!(!other.file("up").exists());
    assert_eq!(home.containers().len(), 2);
    let directories = home.box_directories();
    project.write("go", "");
    let done = running.wait().ok().says(&format!("coder's harness runs on the runtime docker:{name}"));
    assert_eq!(done.out(), "it ran\n");
    assert_eq!((project.read("parent").trim(), project.read("made.txt").as_str()), ("hmz", "here"));
    home.assert_nothing_left(&directories);
}

/// A provider that plays the main job.
fn provider() -> Provider {
    Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && env | grep -c ANTHROPIC || true")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt && echo x | tr x y && command -v claude || echo none")),
            Step::call(bash("printf 'so much for that' >&2; exit 7")),
            Step::say("Fixed.").gated("end"),
        ],
    )
}

/// The main job of a home whose runtime `work` has its harnesses on `name`, in the box that `second` tells.
fn the_main_job(home: &TestHome, provider: &Provider, name: &str, project: &Project, second: impl FnOnce() -> String) {
    boxed_in(home, "work", "python:3.12-slim");
    let place = format!("box=docker@work{}", project.path());
    let running = home
        .hmz(["exec", "-f", "work", "-a", "coder=claude/scripted-1:low", "-e", &place, "-p", "budget.duration=10m"])
        .arg("Do it. [[script:main]]")
        .start();
    provider.wait_for_round("main", 6, LIMIT);
    let first = by_role(home, "box");
    let top = docker::docker(&["top", &second(), "-eo", "pid,uid,args"]);
    let cli = top.lines().find(|line| line.contains("--output-format stream-json"));
    let owner = cli.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(owner, Some(home.uid().to_string().as_str()), "claude is in the second box: {top}");
    let directories = home.box_directories();
    provider.open("end");
    let finished = running.wait().ok().says(&format!("coder's harness runs on the runtime docker:{name}"));
    assert_eq!(finished.out(), "Fixed.\n");
    home.assert_nothing_left(&directories);
    let results = provider.results("main");
    assert!(results[..5].iter().all(|result| !result.is_error), "{results:#?}");
    let (host, keys) = results[0].text.split_once('\n').unwrap();
    assert!(first[0].starts_with(host) && keys == "0", "{results:#?}");
    // the second command is where the first went, and sees what its own box has
    assert_eq!(results[4].text, format!("{}/sub\n{}\ny\nnone", project.path(), home.uid()));
    assert_eq!(results[5].text, "Exit code 7\nso much for that");
    project.assert_fixed();
    for file in ["calc.py", "sub/owner.txt"] {
        assert_eq!(std::fs::metadata(project.file(file)).unwrap().uid(), home.uid(), "{file}");
    }
    assert!(!home.home().join(".claude").exists());
}

/// The main job in a second box that is made for it.
fn in_a_box_of_its_own(made: TestHome) {
    let provider = provider();
    let variables: String = agent::variables(&provider.url()).iter().map(|(name, value)| format!("'{name}={value}', ")).collect();
    let image = agent::image();
    let (home, name) = home(made, &format!(", image: '{image}', run_args: [--network=host], exec_env: [{variables}]"));
    let project = home.project("p");
    the_main_job(&home, &provider, &name, &project, || by_role(&home, "harness").remove(0));
}

#[test]
fn the_real_claude_works_from_a_second_box() {
    in_a_box_of_its_own(TestHome::new());
}

#[test]
fn it_does_for_an_ordinary_user_too() {
    in_a_box_of_its_own(TestHome::of(User::get()));
}

#[test]
fn of_a_gang_with_room_for_one_second_box_nothing_is_started() {
    let (home, name) = home(TestHome::new(), ", image: 'busybox:latest', max_containers: 1");
    let two = "agents: {coder: {}}\nenvironments: {box: {image: 'busybox:latest'}, other: {image: 'busybox:latest'}}\nsteps:\n  - turn: {agent: \
               coder, environment: box, prompt: t}\n  - turn: {agent: coder, environment: other, prompt: t}";
    flow(&home, "two", two);
    let project = home.project("p");
    let agent = script(&home, "s", "- run: touch up\n- say: it ran\n");
    let finished = exec(&home, "two", &agent, &project).args(["-e", &format!("other=docker@work{}", project.path())]);
    let finished = finished.run().expect_code(2);
    assert!(finished.err().contains(&format!("docker@{name} runs 0 of the 1 containers it may")), "{finished}");
    home.assert_nothing_left(&[]);
    assert!(!project.file("up").exists());
    // nothing of it ever was a container that ran
    let label = home.label().unwrap();
    assert_eq!(docker::containers(&label), Vec::<String>::new());
}

#[test]
fn one_that_waits_for_room_there_begins_when_there_is_some() {
    let (home, name) = home(TestHome::new(), ", image: 'busybox:latest', max_containers: 1");
    boxed_in(&home, "small", SMALL);
    let (project, other) = (home.project("p"), home.project("other"));
    let agent = script(&home, "s", WAITS);
    let running = exec(&home, "small", &agent, &project).start();
    until(&project, "up");
    let manifest = home.root().join("work/run.yaml");
    std::fs::write(
        &manifest,
        format!(
            "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: waits}}\nspec: {{flow: small, task: t, admission: wait, agents: {{coder: \
             '{agent}'}}, environments: {{box: 'docker@work{}'}}}}\n",
            other.path()
        ),
    )
    .unwrap();
    let _ = home.hmz(["apply", "-f", manifest.to_str().unwrap()]).run().ok();
    eventually("it waits for room", LIMIT, || {
        let run = json(&home, &["get", "run/waits"]);
        let all = run["status"]["conditions"].as_array().unwrap().clone();
        let waits = all
            .iter()
            .any(|c| c["reason"] == "Waiting" && c["message"].as_str().unwrap().contains(&format!("docker@{name} runs 1 of")));
        waits.then_some(())
    });
    assert_eq!(home.containers().len(), 2, "what was held for it is given back");
    project.write("go", "");
    let _ = running.wait().ok();
    until(&other, "up");
    other.write("go", "");
    let _ = home.hmz(["wait", "--for=condition=Complete", "run/waits", "--timeout", "2m"]).run().ok();
    home.assert_no_container_left(LIMIT);
}

#[test]
fn the_second_box_is_that_of_the_runtime_that_holds_the_role() {
    let home = TestHome::new();
    let (full, local, second) = (unique(), unique(), unique());
    home.settings(&format!(
        "runtimes:\n  docker:\n    work: {{endpoint: local, harness: 'docker:nobody', cpus: 1, fallback: ['docker:{full}']}}\n    {full}: \
         {{endpoint: local, cpus: 64, harness: 'docker:{second}'}}\n    {second}: {{endpoint: local, image: 'busybox:latest', fallback: \
         ['docker:{local}'], harness: local}}\n    {local}: {{endpoint: local, harness: local}}\n    nobody: {{endpoint: local, image: \
         'busybox:latest', fallback: ['docker:{local}']}}\n"
    ));
    let spec = "agents: {coder: {}}\nenvironments: {box: {image: 'busybox:latest', cpus: 2}}\nsteps:\n  - turn: {agent: coder, \
                environment: box, prompt: t}";
    flow(&home, "two-cpus", spec);
    let project = home.project("p");
    let agent = script(&home, "s", "- run: cat /proc/$PPID/comm\n- say: done\n");
    let done = exec(&home, "two-cpus", &agent, &project).run().ok().says(&format!("; using docker:{full}"));
    let done = done.says(&format!("coder's harness runs on the runtime docker:{second}"));
    assert_eq!(done.out(), "done\n");
    home.assert_nothing_left(&[]);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_started() {
    let home = TestHome::new();
    boxed_in(&home, "small", SMALL);
    let project = home.project("p");
    let name = unique();
    let says = |setting: &str, second: &str, agent: &str, why: &str| {
        home.settings(&format!(
            "runtimes:\n  docker:\n    work: {{endpoint: local, harness: '{setting}'}}\n    {name}: {{endpoint: local{second}}}\n    far: \
             {{endpoint: 'tcp://127.0.0.1:1'}}\n  swarm:\n    nodes: {{endpoint: local}}\n"
        ));
        let finished = exec(&home, "small", agent, &project).run().expect_code(2);
        let cli = agent.split('/').next().unwrap();
        let said = format!(
            "hmz exec: error: docker@work: {cli}'s harness cannot run where its harness setting ({setting}) says: {why}\n"
        );
        assert!(finished.err().contains(&said), "{said}\n{finished}");
        home.assert_nothing_left(&[]);
        assert_eq!((finished.out().as_str(), project.read("calc.py").as_str()), ("", BUGGY));
    };
    let claude = "claude/claude-haiku-4-5-20251001:low";
    let elsewhere = format!("coder={claude}: ClaudeCodeAgent: a fence cannot hold a harness that runs on another machine");
    says("docker:far", "", claude, &elsewhere);
    says("docker:nope", "", claude, "no docker runtime is saved as 'nope'");
    says("swarm:nodes", "", claude, "swarm:nodes gives nobody a box for a harness; name a docker runtime");
    let at = format!("docker:{name}");
    let install = "npm i -g @anthropic-ai/claude-code there, or set the harness of the runtime it is on to local";
    says(&at, ", image: 'busybox:latest'", claude, &format!("claude is not installed on docker@{name}: {install}"));
}

#[test]
fn a_second_box_that_goes_ends_its_run_and_a_killed_runner_leaves_nothing() {
    let (home, name) = home(TestHome::new(), ", image: 'busybox:latest'");
    boxed_in(&home, "small", SMALL);
    let agent = script(&home, "s", "- run: touch up; sleep 300\n- say: never\n");
    let project = home.project("p");
    let running = exec(&home, "small", &agent, &project).start();
    until(&project, "up");
    let _ = docker::docker(&["rm", "-f", &by_role(&home, "harness")[0]]);
    let finished = running.wait().expect_code(1);
    assert!(finished.err().contains(&format!("the second box of 'box' on docker:{name} is gone")), "{finished}");
    home.assert_nothing_left(&[]);
    let project = home.project("killed");
    let running = exec(&home, "small", &agent, &project).start();
    until(&project, "up");
    let pid = |id: &str| docker::docker(&["inspect", "--format", "{{.State.Pid}}", id]).parse().unwrap();
    let there: Vec<Process> = home.containers().iter().flat_map(|id| Process::of(pid(id)).unwrap().tree()).collect();
    assert!(there.iter().any(|p| p.line.contains("script-agent")), "{there:?}");
    home.kill_runner();
    let _ = running.wait().expect_code(1);
    for process in &there {
        process.assert_gone();
    }
    home.assert_no_container_left(LIMIT);
}

#[test]
fn with_both_boxes_of_one_that_was_killed_with_everything_here_nothing_is_left() {
    let home = TestHome::new();
    let name = unique();
    home.settings(&format!(
        "runtimes:\n  docker:\n    work: {{endpoint: local, harness: 'docker:{name}', lease: 2s}}\n    {name}: {{endpoint: local, image: \
         'busybox:latest', lease: 2s}}\n"
    ));
    boxed_in(&home, "small", SMALL);
    let agent = script(&home, "s", "- run: touch up; sleep 300\n- say: never\n");
    let project = home.project("p");
    let running = exec(&home, "small", &agent, &project).start();
    until(&project, "up");
    let directories = home.box_directories();
    processes::signal_all(&home.mark(), Signal::KILL);
    drop(running);
    home.assert_no_container_left(LIMIT);
    // whoever comes next removes what was on disk
    let _ = home.hmz(["get", "envs"]).run().ok();
    eventually("no directory is left", LIMIT, || directories.iter().all(|dir| !dir.exists()).then_some(()));
}

/// The role is on a daemon as good as another machine's; the CLI is in a second box here.
#[test]
fn a_box_elsewhere_is_worked_in_from_a_second_box_here_where_both_have_the_directory() {
    let far = Far::new(Duration::from_millis(5));
    let home = &far.home;
    let settings = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    let tls = settings.lines().find(|line| line.trim_start().starts_with("tls:")).unwrap();
    let name = unique();
    let work = tls.replacen("tls:", "work:", 1).replace("harness: local", &format!("harness: 'docker:{name}'"));
    home.settings(&format!("runtimes:\n  docker:\n{work}\n    {name}: {{endpoint: local, image: 'busybox:latest'}}\n"));
    boxed_in(home, "small", SMALL);
    let project = home.project("p");
    let steps = "- run: hostname >up; cat /proc/$PPID/comm; until [ -e go ]; do sleep 0.1; done\n- read: up\n- say: it ran\n";
    let agent = script(home, "s", steps);
    let running = exec(home, "small", &agent, &project).start();
    until(&project, "up");
    assert_eq!((far.containers().len(), home.containers().len()), (1, 1));
    eventually("the command has said where it is", LIMIT, || (!project.read("up").is_empty()).then_some(()));
    assert!(far.containers()[0].starts_with(project.read("up").trim()));
    project.write("go", "");
    assert_eq!(running.wait().ok().out(), "it ran\n");
    far.assert_nothing_left();
    home.assert_nothing_left(&[]);
    // a directory that is there and here, and not the same
    let dir = far.work.0.to_str().unwrap();
    let made = Made::new(dir);
    let place = format!("box=docker@work{dir}");
    let refused = home.hmz(["exec", "-f", "small", "-a", &format!("coder={agent}"), "-e", &place, "t"]).run().expect_code(2);
    let said = format!(
        "coder: its harness runs on docker:{name}, and {dir} there is not the directory of that path on docker:work, which it has to be, \
         since files are not copied yet"
    );
    assert!(refused.err().contains(&said), "{refused}");
    drop(made);
    far.assert_nothing_left();
    home.assert_nothing_left(&[]);
}

/// A directory here that is gone with it.
struct Made(String);

impl Made {
    fn new(dir: &str) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        Self(dir.to_owned())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
