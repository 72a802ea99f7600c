//! Whole runs: a real container whose first process is the guest, a runner, supervised agents.
//!
//! This one program is the tests, and every process of a run: the runner, the supervisor, the proxy, the script agent and the
//! guest.
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

mod boxed;
mod claude;
mod script;
mod world;

use std::process::ExitCode;

/// A test and its name.
type Test = (&'static str, fn(&world::World));

/// One that makes the box it needs.
type OwnBox = (&'static str, fn());

/// What a test is given.
#[derive(Clone, Copy)]
enum Given {
    Box(fn(&world::World)),
    /// A box that is reached over a stream alone.
    Far(fn(&world::World)),
    Nothing(fn()),
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some("supervisor") => return hmz_anchor::main(),
        Some("proxy") => return hmz_anchor::proxy::main(),
        Some("guest") => return hmz_guest::main(args),
        Some("runner") => return hmz_flows::runner::main(std::env::current_exe().unwrap().canonicalize().unwrap()),
        Some(hmz_agents::script::VERB) => return hmz_agents::script::main(args),
        _ => {}
    }
    let given = [script::TESTS, claude::TESTS, boxed::TESTS].concat().into_iter().map(|(name, test)| (name, Given::Box(test)));
    let own = boxed::OWN.iter().map(|(name, test)| (*name, Given::Nothing(*test)));
    // each name is made once, and is needed to the end
    let far = boxed::TESTS.iter().map(|(name, test)| (&*format!("over_a_stream_{name}").leak(), Given::Far(*test)));
    let tests: Vec<_> = given.chain(own).chain(far).collect();
    listed::main(&tests, |test| match test {
        Given::Box(test) => test(&world::World::new()),
        Given::Far(test) => test(&world::World::far(&[])),
        Given::Nothing(test) => test(),
    })
}
