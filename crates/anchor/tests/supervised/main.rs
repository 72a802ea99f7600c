//! The supervisor with real programs in place of the CLI and a real container in place of the box.
//!
//! This one program is the tests, the supervisor (`supervisor`), and the guest in the container (`guest`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and clippy does not see that this is one"
)]

#[path = "../../../../tests/support/agent.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod agent;
#[path = "../../../../tests/support/container.rs"]
mod container;
#[path = "../../../../tests/support/listed.rs"]
mod listed;
#[path = "../../../../tests/provider/mod.rs"]
mod provider;

mod borders;
mod claude;
mod commands;
mod ends;
mod refusals;
mod shell;
mod stops;
mod world;

use std::process::ExitCode;

/// Before the name of a test that is run with a box which is reached over a stream.
const FAR: &str = "over_a_stream_";

/// What only a box of this machine can show: its socket, its pid, and what starts boxes of its own.
const NEAR_ALONE: [&str; 6] = [
    "a_box_that_cannot_be_had_starts_nothing",
    "a_box_without_terminals_gets_one_of_ours",
    "a_plain_user_needs_nothing",
    "what_a_command_costs",
    "what_is_told_ahead_is_what_the_stand_in_tells",
    "without_landlock_in_the_box_nothing_starts",
];

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
    let tests: Vec<Test> =
        [commands::TESTS, borders::TESTS, ends::TESTS, refusals::TESTS, shell::TESTS, stops::TESTS, claude::TESTS].concat();
    let is_near = |test: &&Test| NEAR_ALONE.contains(&test.0);
    // each name is made once, and is needed to the end
    let far = tests.iter().filter(|test| !is_near(test)).map(|(name, test)| (&*format!("{FAR}{name}").leak(), (true, *test)));
    let all: Vec<_> = tests.iter().map(|(name, test)| (*name, (false, *test))).chain(far).collect();
    let (mut here, mut there) = (None, None);
    listed::main(&all, |(is_far, test)| match is_far {
        true => test(there.get_or_insert_with(|| world::World::far(0))),
        false => test(here.get_or_insert_with(|| world::World::new(0))),
    })
}
