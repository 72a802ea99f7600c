//! The scripted provider against the real claude, with no `hmz` between: what the other tests build on has to be sound.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, Usage, bash, edit, read, write};
use rustix::process::Signal;
use serde_json::Value;
use support::LIMIT;
use support::agent;
use support::command::{Finished, Invocation};
use support::project::Project;
use tempfile::TempDir;

/// A bare claude in a project of its own.
struct Session {
    project: Project,
    root: TempDir,
    provider: Provider,
}

impl Session {
    fn new(provider: Provider) -> Self {
        let root = tempfile::Builder::new().prefix("hmz-t").tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(root.path().join("home")).unwrap();
        Self { project: Project::create(root.path().join("p")), root, provider }
    }

    fn claude(&self, prompt: &str) -> Invocation {
        let words =
            ["-p", "--output-format", "stream-json", "--verbose", "--model", "scripted-1", "--dangerously-skip-permissions"];
        Invocation::new(agent::claude())
            .args(words)
            .arg(prompt)
            .env("PATH", agent::path())
            .env("HOME", self.root.path().join("home"))
            .envs([("SHELL", "/bin/bash"), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("TZ", "UTC"), ("IS_SANDBOX", "1")])
            .envs(agent::variables(&self.provider.url()))
            .cwd(self.project.dir())
    }
}

/// The `result` event, which is the last.
fn result_of(finished: &Finished) -> Value {
    let lines = finished.out();
    let last = lines.lines().last().unwrap_or_else(|| panic!("claude said nothing\n{finished}"));
    let event: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}\n{finished}"));
    assert_eq!(event["type"], "result", "{finished}");
    event
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn claude_reads_edits_and_runs_what_the_script_says() {
    let provider = Provider::start().script(
        "fix",
        [
            Step::call(bash("hostname; pwd")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::calls([bash("cat calc.py"), write("NEW.txt", "hello\n"), bash("echo out; echo err >&2; exit 7")]),
            Step::say("Fixed add(); it adds now.").using(Usage { input: 7, output: 11, cache_read: 13, cache_write: 17 }),
        ],
    );
    let session = Session::new(provider);
    let finished = session.claude("Please fix it. [[script:fix]]").run().ok();
    let result = result_of(&finished);
    assert_eq!(result["result"], "Fixed add(); it adds now.");
    assert_eq!(result["is_error"], false);
    // four steps of the default usage and the last one's own
    assert_eq!(result["usage"]["input_tokens"], 4 * 1000 + 7);
    assert_eq!(result["usage"]["output_tokens"], 4 * 50 + 11);
    assert_eq!(result["usage"]["cache_read_input_tokens"], 4 * 200 + 13);
    assert_eq!(result["usage"]["cache_creation_input_tokens"], 17);

    session.project.assert_fixed();
    assert_eq!(session.project.read("NEW.txt"), "hello\n");
    let results = session.provider.results("fix");
    let tools: Vec<&str> = results.iter().map(|r| r.tool.as_str()).collect();
    assert_eq!(tools, ["Bash", "Read", "Edit", "Bash", "Write", "Bash"]);
    assert_eq!(results[0].text, format!("{}\n{}", hostname(), session.project.path()));
    assert!(results[3].text.contains("return a + b"), "{results:?}");
    assert!(results[5].is_error && results[5].text.contains("Exit code 7"), "{results:?}");
    assert!(session.provider.requests().iter().all(|r| r.headers.get("x-api-key").is_some_and(|k| k == agent::API_KEY)));
}

#[test]
fn errors_and_cuts_are_played_as_often_as_the_script_says() {
    let provider = Provider::start().script(
        "flaky",
        [Step::error(500).times(1, Step::call(bash("echo after-500"))), Step::say("half").cut().times(1, Step::say("recovered"))],
    );
    let session = Session::new(provider);
    let finished = session.claude("Go. [[script:flaky]]").run().ok();
    assert_eq!(result_of(&finished)["result"], "recovered");
    let rounds: Vec<usize> = session.provider.requests().iter().map(|r| r.asked.round).collect();
    assert_eq!(rounds, [0, 0, 1, 1]);
    assert_eq!(session.provider.results("flaky")[0].text, "after-500");
}

#[test]
fn an_error_that_stays_ends_the_session() {
    let provider = Provider::start().script("broken", [Step::error(400)]);
    let session = Session::new(provider);
    let finished = session.claude("Go. [[script:broken]]").run().expect_code(1);
    let result = result_of(&finished);
    assert_eq!(result["is_error"], true);
    assert_eq!(result["api_error_status"], 400);
}

#[test]
fn a_stalled_session_ends_by_a_signal() {
    let provider = Provider::start().script("stall", [Step::stall()]);
    let session = Session::new(provider);
    let running = session.claude("Go. [[script:stall]]").start();
    session.provider.wait_for_round("stall", 0, LIMIT);
    running.signal(Signal::TERM);
    let _ = running.wait().expect_code(143);
}

#[test]
fn a_gate_holds_a_session_until_the_test_opens_it() {
    let provider = Provider::start()
        .script("gated", [Step::call(write("first", "")), Step::call(write("second", "")).gated("go"), Step::say("done")]);
    let session = Session::new(provider);
    let running = session.claude("Go. [[script:gated]]").start();
    session.provider.wait_for_round("gated", 1, LIMIT);
    assert!(session.project.file("first").exists() && !session.project.file("second").exists());
    session.provider.open("go");
    let _ = running.wait().ok();
    assert!(session.project.file("second").exists());
}
