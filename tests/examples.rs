//! Each of the examples is run: two of them by the README's test, the others here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "examples/ci.rs"]
mod ci;
mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use std::path::{Path, PathBuf};
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
    let known = ["ci", "claude-run.yaml", "environment.yaml", "first-run.steps.yaml", "first-run.yaml", "settings.yaml"];
    assert_eq!(examples, known);
    let readme: String = shell_blocks("README.md").into_iter().map(|block| block.text).collect();
    assert!(readme.contains("-f first-run.yaml") && readme.contains("-f environment.yaml"), "{readme}");
}

#[test]
fn the_settings_are_read() {
    let home = TestHome::new();
    home.settings(&std::fs::read_to_string(file("examples/settings.yaml")).unwrap());
    let _ = home.hmz(["settings", "validate"]).run().ok();
    let _ = home.hmz(["settings", "get", "runtimes.docker.gpubox.fallback"]).run().ok().says("docker:here");
}

/// Every YAML file of a folder and those below it.
fn yaml(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { yaml(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect()
}

/// An editor is told by each file which schema it is held to: one of ours, or that of the program it is for. That it is valid by
/// it is another test's, beside the schemas.
#[test]
fn every_example_names_its_schema() {
    let schemas = file("schemas").canonicalize().unwrap();
    for path in ["examples", "manifests"].iter().flat_map(|folder| yaml(&file(folder))) {
        let text = std::fs::read_to_string(&path).unwrap();
        let named = text.lines().next().unwrap_or_default().strip_prefix("# yaml-language-server: $schema=");
        let named = named.unwrap_or_else(|| panic!("{} names no schema", path.display()));
        if named.contains("://") {
            continue;
        }
        let found =
            path.parent().unwrap().join(named).canonicalize().unwrap_or_else(|e| panic!("{}: {named}: {e}", path.display()));
        assert_eq!(found.parent(), Some(schemas.as_path()), "{}", path.display());
    }
}
