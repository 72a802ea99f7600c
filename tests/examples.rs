//! Each of the examples is run: two of them by the README's test, the others here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "examples/ci.rs"]
mod ci;
mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use support::LIMIT;
use support::document::{file, shell_blocks};
use support::home::TestHome;

#[test]
fn claude_fixes_the_bug_as_the_manifest_says() {
    let provider = Provider::start().usual_script("fix").script(
        "fix",
        [
            Step::call(bash("hostname; mkdir -p sub && cd sub")),
            Step::call(bash("pwd; id -u")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::say("It adds now."),
        ],
    );
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("p");
    std::fs::copy(file("examples/claude-run.yaml"), project.file("claude-run.yaml")).unwrap();
    let applied = home.hmz(["apply", "-f", "claude-run.yaml", "-o", "name"]).cwd(project.dir()).run().ok();
    let run = applied.out().trim().to_owned();
    assert!(run.starts_with("run/fix-add-"), "{applied}");
    let _ = home.hmz(["logs", "-f", &run]).run().ok().says("coder's harness runs here").says("It adds now.");
    let _ = home.hmz(["wait", "--for=condition=Complete", &run]).run().ok();
    project.assert_fixed();

    let results = provider.results("fix");
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_ne!(results[0].text.trim(), here, "the command ran here");
    // the second command starts where the first one went
    assert_eq!(results[1].text.trim(), format!("{}/sub\n{}", project.path(), home.uid()));

    let _ = home.hmz(["delete", &run]).run().ok();
    home.assert_no_container_left(LIMIT);
}

#[test]
fn every_example_is_run_by_a_test() {
    let mut examples: Vec<String> =
        std::fs::read_dir(file("examples")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    examples.sort();
    assert_eq!(examples, ["ci", "claude-run.yaml", "environment.yaml", "first-run.steps.yaml", "first-run.yaml"]);
    let readme: String = shell_blocks("README.md").into_iter().map(|block| block.text).collect();
    assert!(readme.contains("-f first-run.yaml") && readme.contains("-f environment.yaml"), "{readme}");
}

/// An editor is told by each manifest which schema it is held to.
#[test]
fn every_manifest_names_its_schema() {
    for (path, schema) in [
        ("examples/claude-run.yaml", "manifest.json"),
        ("examples/environment.yaml", "manifest.json"),
        ("examples/first-run.yaml", "manifest.json"),
        ("manifests/flows/boxed.yaml", "flow.json"),
    ] {
        let text = std::fs::read_to_string(file(path)).unwrap();
        let named = text.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").expect(path);
        let found = file(path).parent().unwrap().join(named).canonicalize().unwrap();
        assert_eq!(found, file("schemas").join(schema).canonicalize().unwrap(), "{path}");
    }
}
