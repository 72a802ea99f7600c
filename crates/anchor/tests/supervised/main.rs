//! The supervisor with real programs in place of the CLI and a real container in place of the box.
//!
//! This one program is the tests, the supervisor (`supervisor`), and the guest in the container (`guest`).
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and clippy does not see that this is one")]

#[path = "../../../../tests/support/agent.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod agent;
#[path = "../../../../tests/support/container.rs"]
mod container;
#[path = "../../../../tests/support/listed.rs"]
mod listed;

mod borders;
mod claude;
mod commands;
mod ends;
mod shell;
mod world;

use std::process::ExitCode;

/// A test and its name.
type Test = (&'static str, fn(&world::World));

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("supervisor") => return hmz_anchor::main(),
        Some("run-shell") => return shell::main(&std::env::args().skip(2).collect::<Vec<_>>()),
        Some("guest") => return hmz_guest::main(args),
        _ => {}
    }
    let tests: Vec<Test> = [commands::TESTS, borders::TESTS, ends::TESTS, shell::TESTS, claude::TESTS].concat();
    let mut world = None;
    listed::main(&tests, |test| test(world.get_or_insert_with(|| world::World::new(0))))
}
