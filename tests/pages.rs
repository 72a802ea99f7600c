//! Every page of documentation with commands has a test that runs them: each `sh` block as it stands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use std::path::Path;
use support::document::{file, shell_blocks};

/// The pages whose blocks are run, and the test that runs them; it fails at a block it does not know.
const RUN: &[(&str, &str)] = &[
    ("README.md", "tests/readme.rs"),
    ("docs/capacity.md", "tests/fallback.rs"),
    ("docs/harness.md", "tests/in_box.rs"),
    ("docs/declaring.md", "tests/declaring_page.rs"),
    ("docs/gitops.md", "tests/gitops_page.rs"),
    ("docs/backup.md", "tests/backup.rs"),
    ("docs/completion.md", "tests/completion.rs"),
    ("docs/settings.md", "tests/settings_page.rs"),
    ("docs/runtimes.md", "tests/runtimes_page.rs"),
    ("docs/observing.md", "tests/observing_page.rs"),
];

/// The pages below a folder of the repository, by path.
fn pages(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(file(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        if entry.file_type().unwrap().is_dir() {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_page_with_commands_is_run_by_a_test() {
    let mut all = pages("docs");
    assert!(all.contains(&"docs/architecture.md".to_owned()), "{all:?}");
    all.push("README.md".to_owned());
    for page in &all {
        let blocks = shell_blocks(page);
        let runner = RUN.iter().find(|(run, _)| run == page).map(|(_, runner)| *runner);
        match (blocks.first(), runner) {
            (Some(block), None) => panic!("{}: no test runs the commands of this page", block.at),
            (None, Some(runner)) => panic!("{page} has no command any more, and {runner} runs them"),
            _ => {}
        }
    }
    for (page, runner) in RUN {
        assert!(all.iter().any(|known| known == page), "{page} is not there");
        let text = std::fs::read_to_string(Path::new(&file(runner))).unwrap_or_else(|e| panic!("{runner}: {e}"));
        assert!(text.contains(&format!("shell_blocks(\"{page}\")")), "{runner} does not run the blocks of {page}");
    }
}
