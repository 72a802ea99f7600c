//! What the end-to-end tests stand on is sound itself: it sees what it is there to see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use support::command::Invocation;
use support::document::{file, shell_blocks};
use support::home::TestHome;
use support::processes;
use support::terminal::Terminal;
use support::{LIMIT, eventually};

fn sh(script: &str) -> Invocation {
    Invocation::new("/bin/sh").args(["-c", script]).env("PATH", "/usr/bin:/bin")
}

#[test]
fn a_terminal_has_its_size_follows_a_resize_and_sends_signals() {
    let script =
        "stty size; trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo ready; while :; do read word; done";
    let mut terminal = Terminal::start(sh(script), 24, 91);
    terminal.wait_for("24 91");
    terminal.wait_for("ready");
    terminal.resize(30, 77);
    // dash runs a trap once its read has come back
    terminal.type_in("\n");
    terminal.wait_for("30 77");
    terminal.type_in("\x03");
    terminal.type_in("\n");
    terminal.wait_for("interrupted");
    assert_eq!(terminal.wait(), 3);
}

#[test]
fn a_program_is_run_with_nothing_of_ours_and_its_end_is_seen() {
    let finished = sh("env | sort; cat; exit 7").env("A", "1").stdin("typed").run().expect_code(7);
    assert_eq!(finished.out(), "A=1\nPATH=/usr/bin:/bin\nPWD=/\ntyped");
    let running = sh("echo begun; exec sleep 600").start();
    running.signal(Signal::TERM);
    let _ = running.wait().expect_code(143);
}

#[test]
#[should_panic(expected = "the end of the output")]
fn who_holds_the_output_after_the_end_is_noticed() {
    let _ = sh("sleep 20 & exit 0").limit(Duration::from_secs(4)).run();
}

#[test]
fn a_home_ends_what_was_started_in_it() {
    let home = TestHome::new();
    let mark = home.mark();
    let background = home.run(sh("setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!")).run().ok();
    let pid: i32 = background.out().trim().parse().unwrap();
    // a process that is just executing its program has no variables for a moment
    eventually("it is one of the home's", LIMIT, || processes::with_variable(&mark).contains(&pid).then_some(()));
    drop(home);
    eventually("the process is gone", LIMIT, || (!processes::is_alive(pid)).then_some(()));
}

#[test]
fn every_page_has_blocks_that_end_and_the_readme_has_some_to_run() {
    let readme = shell_blocks("README.md");
    assert!(readme.iter().any(|block| block.text.starts_with("hmz exec -f boxed ")), "{readme:?}");
    assert!(readme.iter().all(|block| !block.text.contains("make test")), "make test would run itself");
    shell_blocks("docs/architecture.md");
}

/// What a pipeline runs, with another `make` than the real one.
#[test]
fn a_pipeline_is_told_how_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let make = dir.path().join("make");
    for (script, status, told) in [
        ("exit 0", 0, "exit 0"),
        ("exit 3", 3, "exit 3"),
        ("kill -TERM $PPID; while kill -0 $PPID 2>/dev/null; do :; done", 143, "ended by a signal"),
    ] {
        std::fs::write(&make, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&make, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
        let ended = Invocation::new(file(".ci/run")).env("PATH", path).run().expect_code(status).out();
        assert!(ended.starts_with(&format!("\n.ci/run: {told} after ")), "{script}: {ended}");
    }
}
