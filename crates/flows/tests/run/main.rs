//! Whole runs: a real container whose first process is the guest, a runner, supervised agents.
//!
//! This one program is the tests, and every process of a run: the runner, the supervisor, the script agent and the guest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "../../../../tests/support/agent.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod agent;
#[path = "../../../../tests/support/container.rs"]
mod container;
#[path = "../../../../tests/support/listed.rs"]
mod listed;
#[path = "../../../../tests/provider/mod.rs"]
mod provider;

mod claude;
mod script;
mod world;

use std::process::ExitCode;

/// A test and its name.
type Test = (&'static str, fn(&world::World));

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("supervisor") => return hmz_anchor::main(),
        Some("guest") => return hmz_guest::main(args),
        Some("runner") => return hmz_flows::runner::main(std::env::current_exe().unwrap().canonicalize().unwrap()),
        Some(hmz_agents::script::VERB) => return hmz_agents::script::main(args),
        _ => {}
    }
    let tests: Vec<Test> = [script::TESTS, claude::TESTS].concat();
    listed::main(&tests, |test| test(&world::World::new()))
}
