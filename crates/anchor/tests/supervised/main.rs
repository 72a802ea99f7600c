//! The supervisor with real programs in place of the CLI and a real container in place of the box.
//!
//! This one program is the tests, the supervisor (`supervisor`), and the guest in the container (`guest`).
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and clippy does not see that this is one")]

mod borders;
mod claude;
mod commands;
mod ends;
mod refusals;
mod shell;
mod stops;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
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
    // what a test runner says to any test program: `--list --format terse [--ignored]`, or names
    let args: Vec<String> = std::env::args().skip(1).collect();
    let said = |word: &str| args.iter().any(|arg| arg == word);
    let value_of_option = |at: usize| at > 0 && ["--format", "--test-threads", "--skip"].contains(&args[at - 1].as_str());
    let wanted: Vec<&String> =
        args.iter().enumerate().filter(|(at, arg)| !arg.starts_with('-') && !value_of_option(*at)).map(|(_, arg)| arg).collect();
    let is_wanted = |name: &str| {
        wanted.is_empty() || wanted.iter().any(|w| if said("--exact") { name == w.as_str() } else { name.contains(w.as_str()) })
    };
    let tests: Vec<Test> =
        [commands::TESTS, borders::TESTS, ends::TESTS, refusals::TESTS, shell::TESTS, stops::TESTS, claude::TESTS].concat();
    let chosen: Vec<Test> = tests.into_iter().filter(|(name, _)| is_wanted(name) && !said("--ignored")).collect();
    if said("--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let world = world::World::new(0);
    let mut failed = Vec::new();
    for (name, test) in &chosen {
        let good = catch_unwind(AssertUnwindSafe(|| test(&world))).is_ok();
        println!("test {name} ... {}", if good { "ok" } else { "FAILED" });
        if !good {
            failed.push(*name);
        }
    }
    println!("\ntest result: {} passed; {} failed {failed:?}", chosen.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
