//! Every command block of the README is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, bash, edit, read};
use support::LIMIT;
use support::document::{file, shell_blocks};
use support::home::TestHome;

#[test]
fn the_readme_does_what_it_says() {
    let provider = Provider::start().usual_script("fix").script(
        "fix",
        [
            Step::call(bash("hostname && uname -a")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::say("Fixed: the `add()` function now returns `a + b` instead of `a - b`."),
        ],
    );
    let home = TestHome::new().with_claude(&provider.url());
    let project = home.project("myproject");
    let mut seen = Vec::new();
    for block in shell_blocks("README.md") {
        let first = block.text.lines().next().unwrap_or_default();
        let key: String = first.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let run = || home.shell(&block.text).cwd(project.dir()).run();
        let copy = |name: &str| std::fs::copy(file("examples").join(name), project.file(name)).unwrap();
        eprintln!("{}: {first}", block.at);
        match first {
            _ if key == "hmz exec" => {
                let done = run().ok().says("coder's harness runs here").says("● Bash(hostname && uname -a)");
                assert!(done.out().contains("Fixed: the `add()` function"), "the answer is on stdout\n{done}");
                project.assert_fixed();
                let host = provider.results("fix").swap_remove(0).text;
                let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
                assert!(!host.starts_with(&own), "the command ran here: {host}");
            }
            _ if key == "docker ps" => {
                let listed = run().ok().says("CONTAINER ID");
                assert!(home.containers().is_empty(), "something is left\n{listed}");
            }
            "hmz apply -f first-run.yaml" => {
                project.write("calc.py", support::project::BUGGY);
                copy("first-run.yaml");
                copy("first-run.steps.yaml");
                let _ = run().ok().says("first-run").says("● coder is working");
                project.assert_fixed();
            }
            "hmz apply -f environment.yaml" => {
                copy("environment.yaml");
                let _ = run().ok().says("busybox:latest");
            }
            _ => panic!("{}: nothing here knows how to check this block", block.at),
        }
        seen.push(key);
    }
    assert_eq!(seen, ["hmz exec", "docker ps", "hmz apply", "hmz apply"]);
    home.assert_no_container_left(LIMIT);
}
