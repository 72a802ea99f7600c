//! The main job: `hmz exec` drives the real claude, whose commands run in a real container.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, Usage, bash, edit, read};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use support::command::{Finished, Invocation};
use support::home::TestHome;
use support::project::{BUGGY, Project};
use support::user::User;
use support::{LIMIT, processes};

const TASK: &str = "Print this machine's hostname and OS, then fix add() in calc.py.";
const ANSWER: &str = "Fixed: the add() function now returns a + b.";

/// The seed's command line, with that prompt's script.
fn exec(home: &TestHome, project: &Project, script: &str) -> Invocation {
    home.hmz(["exec", "-f", "boxed", "-a", "coder=claude/scripted-1:low"])
        .args(["-e", &format!("box=docker@here{}", project.path()), "-p", "budget.duration=10m"])
        .arg(format!("{TASK} [[script:{script}]]"))
}

fn main_job() -> Provider {
    Provider::start().script(
        "main",
        [
            Step::call(bash("hostname && uname -a")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("mkdir -p sub && cd sub && id -u > owner.txt")),
            Step::call(bash("pwd && cat owner.txt && cat ../calc.py")),
            Step::say(ANSWER).using(Usage { input: 22, output: 2350, cache_read: 0, cache_write: 0 }).gated("end"),
        ],
    )
}

fn own_hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The whole of the main job in a home, whoever's it is.
fn the_main_job(home: TestHome, provider: &Provider) {
    let home = home.with_claude(&provider.url());
    let project = home.project("p");
    let running = exec(&home, &project, "main").start();
    provider.wait_for_round("main", 5, LIMIT);
    let containers = home.containers();
    assert_eq!(containers.len(), 1, "{containers:?}");
    let directories = home.box_directories();
    assert_eq!(directories.len(), 1, "{directories:?}");
    assert!(directories[0].is_dir());
    // what the CLI was told, since the model is one it knows nothing of
    let lines: Vec<String> = home.processes().into_iter().map(processes::line).collect();
    let claude = lines.iter().find(|line| line.contains("--output-format stream-json"));
    assert!(claude.is_some_and(|line| line.contains("--model scripted-1 --effort low")), "{lines:#?}");
    provider.open("end");
    let finished = running.wait().ok();
    home.assert_nothing_left(&directories);

    let results = provider.results("main");
    let tools: Vec<&str> = results.iter().map(|result| result.tool.as_str()).collect();
    assert_eq!(tools, ["Bash", "Read", "Edit", "Bash", "Bash"], "{results:#?}");
    assert!(results.iter().all(|result| !result.is_error), "{results:#?}");
    let (name, uname) = results[0].text.split_once('\n').expect("two lines");
    assert!(name.len() == 12 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    assert!(containers[0].starts_with(name), "{name} is not of {containers:?}");
    assert!(name != own_hostname() && uname.starts_with(&format!("Linux {name} ")), "{uname}");
    // the second command is where the first went, in the same directory that is here
    let inner = format!("{}/sub\n{}\ndef add(a, b):\n    return a + b", project.path(), home.uid());
    assert_eq!(results[4].text, inner);

    transcript(&finished, &project);
    project.assert_fixed();
    for file in ["calc.py", "sub", "sub/owner.txt"] {
        assert_eq!(std::fs::metadata(project.file(file)).unwrap().uid(), home.uid(), "{file}");
    }
    let kept = home.hmz(["get", "runs"]).run().ok();
    assert!(kept.out().contains("Succeeded"), "{kept}");
    assert!(!home.home().join(".claude/.credentials.json").exists());
}

fn transcript(finished: &Finished, project: &Project) {
    assert_eq!(finished.out(), format!("{ANSWER}\n"), "{finished}");
    let err = finished.err();
    let lines: Vec<&str> = err.lines().collect();
    let wanted = [
        "coder's harness runs here",
        "coder is working",
        "● Looking around.",
        "● Bash(hostname && uname -a)",
        &format!("● Read({}/calc.py)", project.path()),
        &format!("● Edit({}/calc.py)", project.path()),
        "● Bash(pwd && cat owner.txt && cat ../calc.py)",
        &format!("● {ANSWER}"),
        "✻ input 5.0k · output 2.6k · cache_read 1.0k",
        "✻ Worked for ",
    ];
    let mut rest = lines.iter();
    for line in wanted {
        assert!(rest.any(|found| found.contains(line)), "`{line}` is not there, or not in its place\n{finished}");
    }
    let usage = lines.iter().find(|line| line.starts_with("✻ input ")).unwrap();
    assert!(usage.ends_with(" · scripted-1 · coder"), "{usage}");
    let seconds = lines.last().and_then(|line| line.strip_prefix("✻ Worked for ")?.strip_suffix("s · coder"));
    assert!(seconds.is_some_and(|n| n.parse::<u32>().is_ok()), "{finished}");
}

#[test]
fn the_real_claude_works_in_a_container_and_nothing_is_left() {
    the_main_job(TestHome::new(), &main_job());
}

#[test]
fn it_does_for_an_ordinary_user_too() {
    the_main_job(TestHome::of(User::get()), &main_job());
}

#[test]
fn json_has_every_key_in_every_object() {
    let provider = Provider::start().script("json", [Step::call(bash("hostname")), Step::say("done")]);
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    let finished = exec(&home, &project, "json").arg("--json").run().ok();
    let keys = ["at", "agent", "cli", "model", "session", "kind", "text", "whose", "tokens", "spent"];
    let mut kinds = Vec::new();
    for line in finished.out().lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let object = event.as_object().unwrap();
        assert_eq!(object.keys().map(String::as_str).collect::<Vec<_>>(), keys, "{line}");
        assert!(object["at"].is_f64() && object["tokens"].is_object() && object["spent"].is_object(), "{line}");
        let kind = object["kind"].as_str().unwrap().to_owned();
        if matches!(kind.as_str(), "begins" | "tool" | "text" | "result" | "ends") {
            assert_eq!(
                (&object["agent"], &object["cli"], &object["model"]),
                (&"coder".into(), &"claude".into(), &"scripted-1".into())
            );
            assert!(!object["session"].as_str().unwrap().is_empty(), "{line}");
        }
        match kind.as_str() {
            "tool" => assert_eq!(object["text"], "Bash hostname"),
            "result" => {
                assert_eq!((&object["spent"]["input"], &object["spent"]["output"]), (&2000.into(), &100.into()), "{line}");
                assert!(object["tokens"]["scripted-1"].as_u64() >= Some(2100), "{line}");
            }
            "ends" => assert_eq!(object["text"], "done"),
            _ => {}
        }
        kinds.push(kind);
    }
    let place = |kind: &str| kinds.iter().position(|k| k == kind).unwrap_or_else(|| panic!("no {kind} in {kinds:?}"));
    assert!(place("begins") < place("tool") && place("tool") < place("text") && place("text") < place("result"), "{kinds:?}");
    assert!(place("result") < place("ends"), "{kinds:?}");
    assert!(finished.err().is_empty(), "{finished}");
}

/// Two turns of one agent, with a command of the flow's own between them.
const TWO: &str = "\
apiVersion: hmz/v1
kind: Flow
metadata: {name: two}
spec:
  agents: {coder: {}}
  environments: {box: {image: 'python:3.12-slim'}}
  steps:
    - turn: {agent: coder, environment: box, prompt: '{{ task }} [[script:first]]', id: first}
    - exec: {environment: box, command: 'echo between $(hostname) && cat said.txt', id: look}
    - turn: {agent: coder, environment: box, prompt: 'it said {{ steps.look.stdout }} [[script:second]]'}
";

fn two_turns() -> Provider {
    Provider::start()
        .script("first", [Step::call(bash("echo from-the-first > said.txt")), Step::say("one")])
        .script("second", [Step::call(bash("cat said.txt; hostname")), Step::say("two")])
}

fn run_two(home: &TestHome, provider: &Provider, cwd: &Project) {
    let place = format!("box=docker@here{}", cwd.path());
    let words = ["exec", "-f", "two", "-a", "claude/scripted-1", "-e", &place, "-p", "budget.duration=10m", "start"];
    let finished = home.hmz(words).cwd(cwd.dir()).run().ok();
    assert_eq!(finished.out(), "one\ntwo\n", "{finished}");
    let hostname = provider.results("second")[0].text.lines().last().unwrap().to_owned();
    let between = format!("● box$ echo between $(hostname) && cat said.txt\n  between {hostname}\n  from-the-first\n");
    assert!(finished.err().contains(&between), "{finished}");
    assert_eq!(finished.err().matches("✻ Worked for ").count(), 2, "{finished}");
    // one conversation: the second prompt comes after the first one and its answer
    let with_tools: Vec<_> = provider.requests().into_iter().filter(|r| r.asked.has_tools).collect();
    let mut sessions: Vec<_> = with_tools.iter().filter_map(|r| r.headers.get("x-claude-code-session-id")).collect();
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let last = with_tools.last().unwrap().body["messages"].to_string();
    assert!(last.contains("start [[script:first]]"), "{last}");
    assert!(last.contains(&format!("it said between {hostname}\\nfrom-the-first")), "{last}");
    home.assert_nothing_left(&[]);
}

#[test]
fn two_turns_are_one_conversation_and_a_flow_is_found_in_the_project() {
    let provider = two_turns();
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    project.write(".hmz/flows/two.yaml", TWO);
    run_two(&home, &provider, &project);
}

#[test]
fn a_flow_is_found_in_the_home() {
    let home = TestHome::new();
    let project = home.project("p");
    std::fs::create_dir(home.hmz_home().join("flows")).unwrap();
    let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: look}\nspec:\n  environments: {box: {image: 'busybox:latest'}}\n  \
                steps:\n    - exec: {environment: box, command: 'hostname > name.txt'}\n";
    std::fs::write(home.hmz_home().join("flows/look.yaml"), flow).unwrap();
    let place = format!("box=docker@here{}", project.path());
    let finished = home.hmz(["exec", "-f", "look", "-e", &place, "-p", "budget.duration=10m", "look"]).run().ok();
    assert_eq!(finished.out(), "");
    assert_eq!(project.read("name.txt").trim().len(), 12);
    let _ = home.hmz(["get", "flows"]).run().ok().says("look");
}

#[test]
fn a_spent_budget_ends_the_run_well() {
    let provider = Provider::start().script("stall", [Step::call(bash("touch begun")), Step::stall()]);
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    let place = format!("box=docker@here{}", project.path());
    let words = ["exec", "-f", "boxed", "-a", "coder=claude/scripted-1", "-e", &place, "-p", "budget.duration=3s"];
    let finished = home.hmz(words).arg("Go. [[script:stall]]").run().ok();
    let _ = finished.says("stopped -- boxed: its budget's duration is spent");
    home.assert_nothing_left(&[]);
    let _ = home.hmz(["get", "runs"]).run().ok().says("BudgetExceeded");
}

#[test]
fn a_missing_claude_is_refused_before_anything_starts() {
    let home = TestHome::new();
    let project = home.project("p");
    let finished = exec(&home, &project, "none").run().expect_code(2);
    let said = "hmz exec: error: claude is not installed here: npm i -g @anthropic-ai/claude-code\n";
    assert!(finished.err().starts_with(said), "{finished}");
    assert_eq!(finished.out(), "");
    home.assert_nothing_left(&[]);
    assert_eq!(project.read("calc.py"), BUGGY);
}

#[test]
fn a_turn_that_fails_fails_the_run() {
    let provider = Provider::start().script("broken", [Step::call(bash("true")), Step::error(400)]);
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    let finished = exec(&home, &project, "broken").run().expect_code(1);
    assert_eq!(finished.out(), "");
    let err = finished.err();
    assert!(err.contains("hmz: ") && err.contains("scripted 400"), "{finished}");
    assert!(err.contains("failed -- boxed: coder: "), "{finished}");
    home.assert_nothing_left(&[]);
    let _ = home.hmz(["get", "runs"]).run().ok().says("Failed");
}
