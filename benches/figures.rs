//! The figures this project promises, each measured beside its baseline in one run: `make bench`.
//!
//! `BENCH_ROUNDS` says how many rounds each takes, words on the command line which parts are measured, and
//! `HMZ_TEST_PROGRAM` names another build of `hmz` to measure.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what cannot be measured ends its part by a panic")]

#[path = "../tests/provider/mod.rs"]
mod provider;
#[path = "../tests/support/mod.rs"]
mod support;

#[path = "figures/admission.rs"]
mod admission;
#[path = "figures/channel.rs"]
mod channel;
#[path = "figures/command.rs"]
mod command;
#[path = "figures/crowd.rs"]
mod crowd;
#[path = "figures/files.rs"]
mod files;
#[path = "figures/held.rs"]
mod held;
#[path = "figures/http.rs"]
mod http;
#[path = "figures/idle.rs"]
mod idle;
#[path = "figures/job.rs"]
mod job;
#[path = "figures/listed.rs"]
mod listed;
#[path = "figures/output.rs"]
mod output;
#[path = "figures/plan.rs"]
mod plan;
#[path = "figures/ready.rs"]
mod ready;
#[path = "figures/rounds.rs"]
mod rounds;
#[path = "figures/scale.rs"]
mod scale;
#[path = "figures/session.rs"]
mod session;
#[path = "figures/settings.rs"]
mod settings;
#[path = "figures/table.rs"]
mod table;
#[path = "figures/verbs.rs"]
mod verbs;
#[path = "figures/work.rs"]
mod work;
#[path = "figures/world.rs"]
mod world;

use std::panic::catch_unwind;
use std::process::ExitCode;
use table::Figure;

/// What a part is called, and what it measures in so many rounds.
type Part = (&'static str, fn(usize) -> Vec<Figure>);

/// The parts, in the order of the table.
const PARTS: [Part; 14] = [
    ("job", job::measure),
    ("ready", ready::measure),
    ("crowd", crowd::measure),
    ("admission", admission::measure),
    ("command", command::measure),
    ("channel", channel::measure),
    ("files", files::measure),
    ("output", output::measure),
    ("verbs", verbs::measure),
    ("settings", settings::measure),
    ("idle", idle::measure),
    ("held", held::measure),
    ("plan", plan::measure),
    ("scale", scale::measure),
];

/// How many rounds, when nobody says.
const ROUNDS: usize = 9;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = work::play(&words) {
        return done;
    }
    if !words.iter().any(|word| word == "--bench") {
        println!("figures are measured by `make bench`");
        return ExitCode::SUCCESS;
    }
    let rounds = match std::env::var("BENCH_ROUNDS").ok().filter(|n| !n.is_empty()).map(|n| n.parse()) {
        None => ROUNDS,
        Some(Ok(n @ 1..)) => n,
        Some(_) => {
            eprintln!("BENCH_ROUNDS is the number of rounds, from 1");
            return ExitCode::from(2);
        }
    };
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let (mut figures, mut missing) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        eprintln!("measuring {name} …");
        match catch_unwind(|| measure(rounds)) {
            Ok(found) => figures.extend(found),
            Err(_) => missing.push(*name),
        }
    }
    print!("{}", table::table(&figures));
    println!("\n{rounds} rounds; measured and baseline are medians, a ratio is the median of the rounds' own ratios");
    if missing.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("could not be measured: {}", missing.join(", "));
    ExitCode::FAILURE
}
