//! Runs and environments as these tests start them.

use super::command::{Finished, Invocation};
use super::home::TestHome;
use super::project::Project;
use std::fs;
use std::path::PathBuf;

/// The model the provider plays.
pub const CLAUDE: &str = "claude/scripted-1:low";

/// `hmz exec` of a flow with one agent `coder` and one box `box` in the project.
pub fn exec(home: &TestHome, flow: &str, agent: &str, project: &Project, task: &str) -> Invocation {
    let (coder, place) = (format!("coder={agent}"), format!("box=docker@here{}", project.path()));
    home.hmz(["exec", "-f", flow, "-a", &coder, "-e", &place, "-p", "budget.duration=10m", task])
}

/// The `script` agent with these steps; `-a ROLE=` goes before it.
pub fn script(home: &TestHome, name: &str, steps: &str) -> String {
    let file = home.root().join(format!("work/{name}.steps.yaml"));
    fs::write(&file, steps).expect("the steps");
    home.give_to_user(&file);
    format!("script/{}", file.display())
}

/// A flow of this home's, from the lines of its `spec`.
pub fn flow(home: &TestHome, name: &str, spec: &str) {
    let dir = home.hmz_home().join("flows");
    fs::create_dir_all(&dir).expect("a directory for flows");
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    fs::write(
        dir.join(format!("{name}.yaml")),
        format!("apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {name}}}\nspec:\n{spec}"),
    )
    .expect("the flow");
    home.give_to_user(&dir);
}

/// A flow `NAME` that is `boxed` with another image.
pub fn boxed_in(home: &TestHome, name: &str, image: &str) {
    let spec = format!(
        "agents: {{coder: {{}}}}\nenvironments: {{box: {{image: \"{image}\"}}}}\nsteps:\n  - turn: {{agent: coder, environment: box, \
         prompt: \"{{{{ task }}}}\"}}"
    );
    flow(home, name, &spec);
}

/// Applies an environment with that image in the project, and waits until it is ready.
#[track_caller]
pub fn environment(home: &TestHome, name: &str, image: &str, project: &Project) {
    let file: PathBuf = home.root().join(format!("work/{name}.env.yaml"));
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: \"docker:here\", workdir: {}, image: \
         \"{image}\"}}\n",
        project.path()
    );
    fs::write(&file, text).expect("the manifest");
    home.give_to_user(&file);
    let _ = home.hmz(["apply", "-f", file.to_str().expect("text")]).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", &format!("env/{name}")]).run().ok();
}

/// `hmz sh env/NAME -- /bin/sh -c COMMAND`.
pub fn sh(home: &TestHome, name: &str, command: &str) -> Invocation {
    home.hmz(["sh", &format!("env/{name}"), "--", "/bin/sh", "-c", command])
}

/// What the tools of a run said, in order: each `tool-result` of `hmz exec --json`.
pub fn results(finished: &Finished) -> Vec<String> {
    let events = finished.out();
    let events = events.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    events.filter(|e| e["kind"] == "tool-result").map(|e| e["text"].as_str().unwrap_or_default().to_owned()).collect()
}
