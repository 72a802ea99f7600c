//! What the shells offer, from the program they ask.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "completion/bash.rs"]
mod bash;
#[path = "completion/fish.rs"]
mod fish;
mod support;
#[path = "completion/zsh.rs"]
mod zsh;

use std::time::Duration;
use support::command::Invocation;
use support::document::{file, shell_blocks};
use support::home::TestHome;
use support::project::Project;

/// What the testbed needs at most where it has to fetch a shell; ten times what it takes.
const FETCHED: Duration = Duration::from_secs(300);

const FLOW: &str = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: deep}\nspec:\n  agents: {coder: , critic: }\n  environments: \
                    {box: , other: }\n  params: {depth: }\n  steps: [{exec: {environment: box, command: ls}}]\n";

fn place() -> (TestHome, Project) {
    let home = TestHome::new();
    home.settings(
        "runtimes:\n  docker:\n    here: {endpoint: local, harness: local}\n    gpubox: {endpoint: local, harness: local}\n",
    );
    let project = home.project("p");
    project.write(".hmz/flows/deep.yaml", FLOW);
    project.write("steps.yaml", "- say: hi\n");
    (home, project)
}

/// What the last of these words may be, as zsh is told.
fn offered(home: &TestHome, project: &Project, words: &[&str]) -> Vec<String> {
    let answer = home.hmz(["--"]).args(words.iter().copied()).env("COMPLETE", "zsh").cwd(project.dir()).run().ok();
    // a help text follows the value
    answer.out().lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

/// Has a shell complete, as the page says it. One that is not there is installed, and its want fails the test.
fn enable(home: &TestHome, shell: &str) {
    let said = ["PATH", "HOME", "HMZ_TESTBED_STATE"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    drop(Invocation::new(file("tests/testbed/shells")).envs(said).limit(FETCHED).run().ok());
    let asks = format!("COMPLETE={shell} hmz");
    let block = shell_blocks("docs/completion.md").into_iter().find(|block| block.text.contains(&asks));
    let block = block.unwrap_or_else(|| panic!("docs/completion.md does not say how {shell} completes"));
    drop(home.shell(&block.text).run().ok());
}

/// Declares an environment `mine` and a flow `stored`, and so has a daemon run that knows them.
fn declare(home: &TestHome, project: &Project) {
    // one that has no room is there all the same
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: mine}\nspec: {runtime: 'docker:nope', workdir: .}\n---\n\
                apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: stored}\nspec:\n  environments: {room: }\n  steps: [{exec: {environment: \
                room, command: ls}}]\n";
    project.write("all.yaml", text);
    drop(home.hmz(["apply", "-f"]).arg(project.file("all.yaml")).run().expect_code(2));
    assert!(has_daemon(home));
}

/// Whether a daemon has been started in the home.
fn has_daemon(home: &TestHome) -> bool {
    home.processes().into_iter().any(|pid| support::processes::line(pid).contains(" controller "))
}

#[test]
fn kinds_and_flows_and_roles_and_places_are_offered_without_a_daemon() {
    let (home, project) = place();
    let offered = |words: &[&str]| offered(&home, &project, words);
    assert_eq!(offered(&["hmz", "get", "run"]), ["run", "runs", "runtime", "runtimes"]);
    assert_eq!(offered(&["hmz", "get", "a"]), ["all"]);
    assert_eq!(offered(&["hmz", "get", "se"]), ["set", "sets", "settings"]);
    assert_eq!(offered(&["hmz", "ba"]), ["backup"]);
    assert_eq!(offered(&["hmz", "backup", "--ov"]), ["--overwrite"]);
    assert_eq!(offered(&["hmz", "restore", "st"]), ["steps.yaml"]);
    assert_eq!(offered(&["hmz", "settings", "set", "ru"]), ["runtimes"]);
    assert_eq!(offered(&["hmz", "settings", "unset", "runtimes.docker."]), ["runtimes.docker.gpubox", "runtimes.docker.here"]);
    assert_eq!(offered(&["hmz", "describe", "a"]), Vec::<String>::new());
    assert_eq!(offered(&["hmz", "describe", "s"]), ["set", "sets"]);
    assert_eq!(offered(&["hmz", "delete", "s"]), Vec::<String>::new());
    assert_eq!(offered(&["hmz", "get", "runtimes", "docker:g"]), ["docker:gpubox"]);
    assert_eq!(offered(&["hmz", "describe", "runtime/docker:h"]), ["runtime/docker:here"]);
    assert_eq!(offered(&["hmz", "exec", "-f", ""]), ["boxed", "deep"]);
    assert_eq!(offered(&["hmz", "exec", "-f", "deep", "-a", "c"]), ["claude/", "coder=", "critic="]);
    assert_eq!(offered(&["hmz", "exec", "-f", "deep", "-a", "coder="]), ["coder=claude/", "coder=script/"]);
    assert_eq!(offered(&["hmz", "exec", "-a", "coder=script/st"]), ["coder=script/steps.yaml"]);
    assert_eq!(offered(&["hmz", "exec", "--flow=deep", "-e", ""]), ["box=", "other="]);
    assert_eq!(offered(&["hmz", "exec", "-e", "box=docker@g"]), ["box=docker@gpubox/"]);
    let (above, name) = project.path().rsplit_once('/').unwrap();
    assert_eq!(
        offered(&["hmz", "exec", "-e", &format!("box=docker@here{above}/{name}")]),
        [format!("box=docker@here{above}/{name}/")]
    );
    assert_eq!(offered(&["hmz", "exec", "-f", "deep", "-p", ""]), ["budget.duration=", "depth="]);
    assert_eq!(offered(&["hmz", "apply", "-f", "st"]), ["steps.yaml"]);
    assert_eq!(offered(&["hmz", "wait", "--for", "d"]), ["delete"]);
    assert_eq!(offered(&["hmz", "wait", "--for", "j"]), ["jsonpath="]);
    assert_eq!(offered(&["hmz", "get", "envs", "-o", "j"]), ["json", "jsonpath="]);
    assert_eq!(offered(&["hmz", "explain", "r"]), ["run", "runtime"]);
    assert_eq!(offered(&["hmz", "schema", "s"]), ["settings", "steps"]);
    assert_eq!(offered(&["hmz", "top", "e"]), ["envs"]);
    assert_eq!(offered(&["hmz", "debug", "b"]), ["bundle"]);
    assert_eq!(offered(&["hmz", "controller", "--metr"]), ["--metrics", "--metrics-anywhere"]);
    assert_eq!(offered(&["hmz", "top", "envs", "--sort-by", "m"]), ["memory"]);
    assert_eq!(offered(&["hmz", "explain", "run.spec.env"]), ["run.spec.environments"]);
    assert_eq!(offered(&["hmz", "explain", "settings.runtimes.docker.x.max_c"]), ["settings.runtimes.docker.x.max_containers"]);
    assert_eq!(offered(&["hmz", "diff", "-f", "st"]), ["steps.yaml"]);
    assert_eq!(offered(&["hmz", "runtime", "a"]), ["add"]);
    assert_eq!(offered(&["hmz", "runtime", "check", "docker"]), ["docker/gpubox", "docker/here"]);
    assert_eq!(offered(&["hmz", "runtime", "check", "gp"]), ["gpubox"]);
    assert_eq!(offered(&["hmz", "runtime", "remove", "docker/h"]), ["docker/here"]);
    assert_eq!(offered(&["hmz", "runtime", "add", "docker", "x", "--cp"]), ["--cpus"]);
    assert_eq!(offered(&["hmz", "runtime", "add", "docker", "x", "--endpoint", "un"]), ["unix:///"]);
    assert_eq!(offered(&["hmz", "runtime", "add", "docker", "x", "--harness", "l"]), ["local"]);
    assert_eq!(
        offered(&["hmz", "runtime", "add", "docker", "x", "--fallback", "docker:gpubox,docker:h"]),
        ["docker:gpubox,docker:here"]
    );
    std::fs::create_dir_all(home.home().join(".ssh")).unwrap();
    std::fs::write(home.home().join(".ssh/config"), "Host build-box other\n").unwrap();
    assert_eq!(offered(&["hmz", "runtime", "import-ssh", "b"]), ["build-box"]);
    assert!(!has_daemon(&home), "a question starts no daemon");
}

#[test]
fn a_daemon_that_runs_is_asked_for_names() {
    let (home, project) = place();
    declare(&home, &project);
    let offered = |words: &[&str]| offered(&home, &project, words);
    assert_eq!(offered(&["hmz", "delete", "env/"]), ["env/mine"]);
    assert_eq!(offered(&["hmz", "sh", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "events", "--for", "env/"]), ["env/mine"]);
    drop(home.hmz(["label", "env/mine", "team=red"]).run().ok());
    drop(home.hmz(["apply", "-f", "all.yaml", "--set", "own"]).cwd(project.dir()).run());
    assert_eq!(offered(&["hmz", "get", "envs", "-l", "t"]), ["team="]);
    assert_eq!(offered(&["hmz", "label", "env/mine", "t"]), ["team-", "team="]);
    assert_eq!(offered(&["hmz", "label", "env", "mine", "team="]), ["team=red"]);
    assert_eq!(offered(&["hmz", "label", "env", "m"]), ["mine"]);
    assert!(offered(&["hmz", "label", "env/mine", ""]).contains(&"hmz/set-".to_owned()));
    assert_eq!(offered(&["hmz", "annotate", "env/mine", "hmz/"]), Vec::<String>::new());
    assert_eq!(offered(&["hmz", "get", "envs", "-l", "hmz/set,team=r"]), ["hmz/set,team=red"]);
    assert_eq!(offered(&["hmz", "apply", "-f", "all.yaml", "--set", ""]), ["own"]);
    assert_eq!(offered(&["hmz", "describe", "set/"]), ["set/own"]);
    assert_eq!(offered(&["hmz", "get", "sets", "o"]), ["own"]);
    assert_eq!(offered(&["hmz", "wait", "--for=condition=Synced", "set/"]), ["set/own"]);
    assert_eq!(offered(&["hmz", "events", "--for", "set/"]), ["set/own"]);
    assert_eq!(offered(&["hmz", "delete", "set/"]), Vec::<String>::new());
    assert_eq!(offered(&["hmz", "get", "envs", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "top", "envs", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "top", "envs", "-l", "t"]), ["team="]);
    assert_eq!(offered(&["hmz", "exec", "-f", ""]), ["boxed", "deep", "stored"]);
    assert_eq!(offered(&["hmz", "exec", "-f", "stored", "-e", ""]), ["room="]);
}

#[test]
fn the_page_says_how_each_shell_completes_and_nothing_else() {
    let blocks = shell_blocks("docs/completion.md");
    let asks: Vec<_> = blocks.iter().filter_map(|block| block.text.split("COMPLETE=").nth(1)?.split(' ').next()).collect();
    assert_eq!((asks, blocks.len()), (vec!["bash", "zsh", "fish"], 3));
}

#[test]
fn every_shell_is_given_a_script() {
    let home = TestHome::new();
    for (shell, has) in [("bash", "complete -o bashdefault"), ("zsh", "#compdef hmz"), ("fish", "complete --keep-order")] {
        drop(home.hmz([] as [&str; 0]).env("COMPLETE", shell).run().ok().says(has));
    }
}
