//! A daemon is asked again: of a saved runtime, of the default, of one that a manifest declares.

use super::{daemon, has_daemon};
use crate::support::home::TestHome;
use crate::support::{LIMIT, eventually};
use serde_json::Value;

#[test]
fn a_runtime_is_asked_by_any_of_its_names_without_a_daemon_of_ours() {
    let home = TestHome::new();
    for name in ["here", "docker/here", "docker@here", "docker:here"] {
        assert_eq!(
            home.hmz(["runtime", "check", name]).run().ok().out(),
            format!("docker/here answers: {}\n", daemon()),
            "{name}"
        );
    }
    assert_eq!(home.hmz(["runtime", "check", "docker"]).run().ok().out(), format!("docker answers: {}\n", daemon()));
    let json = home.hmz(["runtime", "check", "here", "-o", "json"]).run().ok().out();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["runtime"], &json["state"]), (&"docker:here".into(), &"Answers".into()));
    assert!(json["has"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{json}");
    assert!(!has_daemon(&home));
    let missing = home.hmz(["runtime", "check", "hree"]).run().expect_code(1);
    assert_eq!(
        missing.err(),
        "hmz runtime check: error: no runtime is saved as 'hree'; did you mean 'here'?\n  hint: hmz runtime add docker hree\n"
    );
}

#[test]
fn one_that_a_manifest_declares_is_asked_too() {
    let home = TestHome::new();
    let manifest = "apiVersion: hmz/v1\nkind: Runtime\nmetadata: {name: 'docker:declared'}\nspec: {cpus: 100000}\n";
    let _ = home.hmz(["apply", "-f", "-"]).stdin(manifest).run().ok();
    let done = home.hmz(["runtime", "check", "docker/declared"]).run().expect_code(1);
    let _ =
        done.says(&format!("docker/declared answers: {}\nlacks configured resources: it is to hand out 100000 CPUs", daemon()));
    let missing = home.hmz(["runtime", "check", "docker/decalred"]).run().expect_code(1);
    assert!(missing.err().starts_with("hmz runtime check: error: no docker runtime is saved as 'decalred'"), "{missing}");
}

#[test]
fn a_listing_says_what_is_not_enough() {
    let home = TestHome::new();
    home.settings("runtimes:\n  docker:\n    here: {endpoint: local}\n    big: {endpoint: local, cpus: 100000}\n");
    let row = |name: &str| {
        eventually("an answer of its daemon", LIMIT, || {
            let shown = home.hmz(["get", "runtimes"]).run().ok().out();
            let (head, rows) = shown.split_once('\n').unwrap();
            let at = |header: &str| head.split_whitespace().position(|h| h == header).unwrap();
            let row = rows.lines().find(|line| line.starts_with(&format!("{name} ")))?;
            let cells: Vec<&str> = row.split_whitespace().collect();
            (cells[at("REACHABLE")] == "True").then(|| cells[at("SUFFICIENT")].to_owned())
        })
    };
    assert_eq!((row("docker:here"), row("docker:big")), ("True".into(), "False".into()));
    let shown = home.hmz(["describe", "runtime/docker:big"]).run().ok().out();
    assert!(shown.contains("TooLittle"), "{shown}");
    assert!(shown.contains("it is to hand out 100000 CPUs and has "), "{shown}");
    assert!(shown.contains("OCI runtimes:"), "{shown}");
}
