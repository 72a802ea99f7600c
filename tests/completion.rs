//! What the shells offer, from the program they ask.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::home::TestHome;
use support::project::Project;

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

/// What zsh is offered for the last of these words.
fn offered(home: &TestHome, project: &Project, words: &[&str]) -> Vec<String> {
    let asked = home.hmz(["--"]).args(words.iter().copied()).env("COMPLETE", "zsh").env("_CLAP_IFS", "\n");
    let answer = asked.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).cwd(project.dir()).run().ok();
    // a help text follows the value
    answer
        .out()
        .lines()
        .map(|line| line.replace("\\:", "\0"))
        .map(|line| line.split(':').next().unwrap().replace('\0', ":"))
        .collect()
}

/// What bash itself is left with when this line is typed and completed.
fn bash(home: &TestHome, project: &Project, pieces: &[&str], last: &str) -> Vec<String> {
    let words = pieces.iter().map(|piece| format!("'{piece}'")).collect::<Vec<_>>().join(" ");
    let script = format!(
        "source <(COMPLETE=bash hmz); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); \
         _hmz_complete hmz '{last}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    home.shell(&script).cwd(project.dir()).run().ok().out().lines().map(str::to_owned).collect()
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
    assert_eq!(offered(&["hmz", "get", "se"]), ["sets", "settings"]);
    assert_eq!(offered(&["hmz", "ba"]), ["backup"]);
    assert_eq!(offered(&["hmz", "backup", "--ov"]), ["--overwrite"]);
    assert_eq!(offered(&["hmz", "restore", "st"]), ["steps.yaml"]);
    assert_eq!(offered(&["hmz", "settings", "set", "ru"]), ["runtimes"]);
    assert_eq!(offered(&["hmz", "settings", "unset", "runtimes.docker."]), ["runtimes.docker.gpubox", "runtimes.docker.here"]);
    assert_eq!(offered(&["hmz", "describe", "a"]), Vec::<String>::new());
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
    // one that has no room is there all the same
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: mine}\nspec: {runtime: 'docker:nope', workdir: .}\n---\n\
                apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: stored}\nspec:\n  environments: {room: }\n  steps: [{exec: {environment: \
                room, command: ls}}]\n";
    project.write("all.yaml", text);
    drop(home.hmz(["apply", "-f"]).arg(project.file("all.yaml")).run().expect_code(2));
    assert!(has_daemon(&home));
    let offered = |words: &[&str]| offered(&home, &project, words);
    assert_eq!(offered(&["hmz", "delete", "env/"]), ["env/mine"]);
    assert_eq!(offered(&["hmz", "sh", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "events", "--for", "env/"]), ["env/mine"]);
    drop(home.hmz(["label", "env/mine", "team=red", "hmz/set=own"]).run().ok());
    assert_eq!(offered(&["hmz", "get", "envs", "-l", "t"]), ["team="]);
    assert_eq!(offered(&["hmz", "get", "envs", "-l", "hmz/set,team=r"]), ["hmz/set,team=red"]);
    assert_eq!(offered(&["hmz", "apply", "-f", "all.yaml", "--set", ""]), ["own"]);
    assert_eq!(offered(&["hmz", "get", "envs", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "top", "envs", "m"]), ["mine"]);
    assert_eq!(offered(&["hmz", "top", "envs", "-l", "t"]), ["team="]);
    assert_eq!(offered(&["hmz", "exec", "-f", ""]), ["boxed", "deep", "stored"]);
    assert_eq!(offered(&["hmz", "exec", "-f", "stored", "-e", ""]), ["room="]);
}

#[test]
fn bash_is_given_what_follows_the_piece_it_has() {
    let (home, project) = place();
    let bash = |pieces: &[&str], last: &str| bash(&home, &project, pieces, last);
    assert_eq!(bash(&["hmz", "get", "ru"], "ru"), ["run", "runs", "runtime", "runtimes"]);
    assert_eq!(bash(&["hmz", "exec", "-e", "box", "=", "docker", "@", "gp"], "gp"), ["gpubox/"]);
    assert_eq!(bash(&["hmz", "exec", "-f", "deep", "-a", "coder", "="], ""), ["claude/", "script/"]);
    assert_eq!(bash(&["hmz", "get", "runtime", "docker", ":", "h"], "h"), ["here"]);
}

#[test]
fn every_shell_is_given_a_script() {
    let home = TestHome::new();
    for (shell, has) in [("bash", "complete -o bashdefault"), ("zsh", "#compdef hmz"), ("fish", "complete --keep-order")] {
        drop(home.hmz([] as [&str; 0]).env("COMPLETE", shell).run().ok().says(has));
    }
}
