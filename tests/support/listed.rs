//! The main function of a test program that is other programs as well: it is told what any test program is told by a test
//! runner, `--list --format terse [--ignored]` or names, and does as they do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Options that have a value behind them.
const VALUED: [&str; 3] = ["--format", "--test-threads", "--skip"];

/// Lists `tests`, each with its name, or runs those that are wanted one after the other, each by `run`. A panic fails one.
pub fn main<T: Copy>(tests: &[(&'static str, T)], mut run: impl FnMut(T)) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let said = |word: &str| args.iter().any(|arg| arg == word);
    let is_value = |at: usize| at > 0 && VALUED.contains(&args[at - 1].as_str());
    let names = args.iter().enumerate().filter(|(at, arg)| !arg.starts_with('-') && !is_value(*at));
    let wanted: Vec<&str> = names.map(|(_, arg)| arg.as_str()).collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| if said("--exact") { name == *w } else { name.contains(w) });
    let chosen = tests.iter().filter(|(name, _)| is_wanted(name) && !said("--ignored"));
    if said("--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let (mut good, mut failed) = (0, Vec::new());
    for (name, test) in chosen {
        let passed = catch_unwind(AssertUnwindSafe(|| run(*test))).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if passed {
            good += 1;
        } else {
            failed.push(*name);
        }
    }
    println!("\ntest result: {good} passed; {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
