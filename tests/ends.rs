//! What a pipeline hears of how a run ended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::home::TestHome;
use support::project::Project;

/// A manifest of a run whose agent plays `steps`.
fn manifest(project: &Project, name: &str, runtime: &str, steps: &str) -> String {
    project.write(&format!("{name}.steps.yaml"), steps);
    let run = format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: {name}}}\nspec:\n  flow: boxed\n  agents: {{coder: script/./{name}.steps.yaml}}\n  \
         environments: {{box: {{runtime: '{runtime}', workdir: ., image: busybox:latest}}}}\n"
    );
    let file = format!("{name}.yaml");
    project.write(&file, &run);
    project.file(&file).display().to_string()
}

#[test]
fn waiting_for_the_end_of_a_run_ends_as_the_run_did() {
    let home = TestHome::new();
    let project = home.project("p");
    let wait = |name: &str| home.hmz(["wait", "--for=condition=Complete", &format!("run/{name}"), "--timeout", "2m"]).run();

    let well = manifest(&project, "well", "docker:here", "- run: 'true'\n");
    drop(home.hmz(["apply", "-f", &well]).run().ok());
    assert_eq!(wait("well").ok().out(), "run/well condition met\n");

    let badly = manifest(&project, "badly", "docker:here", "- fail: no luck\n");
    drop(home.hmz(["apply", "-f", &badly]).run().ok());
    drop(wait("badly").expect_code(1).says("hmz wait: error: run/badly has ended (Failed: coder: no luck"));

    let never = manifest(&project, "never", "docker:nope", "- run: 'true'\n");
    drop(home.hmz(["apply", "-f", &never]).run().expect_code(2).says("no docker runtime is saved as 'nope'"));
    drop(wait("never").expect_code(2).says("no docker runtime is saved as 'nope'"));
    // mended or not, it stays refused, and that is said
    drop(
        home.hmz(["apply", "-f", &never]).run().expect_code(2).says("hint: to try again, delete it first: hmz delete run/never"),
    );
    drop(home.hmz(["delete", "run/never"]).run().ok());
    drop(home.hmz(["apply", "-f", &never]).run().expect_code(2));
}

#[test]
fn a_refused_exec_leaves_no_run_in_the_list() {
    let home = TestHome::new();
    let project = home.project("p");
    project.write("steps.yaml", "- run: 'true'\n");
    let place = format!("box=docker@nope{}", project.path());
    let words = ["exec", "-f", "boxed", "-a", "script/./steps.yaml", "-e", &place, "go"];
    drop(home.hmz(words).cwd(project.dir()).run().expect_code(2).says("no docker runtime is saved as 'nope'"));
    assert_eq!(home.hmz(["get", "runs", "-o", "name"]).run().ok().out(), "");
}
