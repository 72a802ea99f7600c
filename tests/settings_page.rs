//! Every command block of the page on settings is run as it stands, in its order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::document::{file, shell_blocks};
use support::home::TestHome;

#[test]
fn the_page_on_settings_does_what_it_says() {
    let home = TestHome::new();
    std::fs::remove_file(home.hmz_home().join("settings.yaml")).unwrap();
    let mut seen = Vec::new();
    for block in shell_blocks("docs/settings.md") {
        let first = block.text.lines().next().unwrap_or_default();
        let done = home.shell(&block.text).run().ok();
        match first.split_whitespace().take(3).collect::<Vec<_>>().join(" ").as_str() {
            "hmz settings set" => {
                assert!(
                    done.out().ends_with("endpoint: local\nharness: local\nmemory: 8G\nruntimes.docker.gpubox.memory unset\n"),
                    "{done}"
                );
            }
            "hmz settings validate" => {
                let _ = done.says("is valid: 1 runtime\n").says("docker:gpubox   SettingsValid=True   Read");
            }
            "mkdir -p ~/.hmz" => {
                let written = std::fs::read(home.home().join(".hmz/settings.schema.json")).unwrap();
                assert!(written == std::fs::read(file("schemas/settings.json")).unwrap());
            }
            _ => panic!("{}: nothing here knows how to check this block", block.at),
        }
        seen.push(first.to_owned());
    }
    assert_eq!(seen.len(), 3);
    let text = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    assert_eq!(text, "runtimes:\n  docker:\n    gpubox: {endpoint: local, harness: local}\n");
}
