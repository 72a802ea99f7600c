//! Many environments in the controllers' simulated world: a bench of theirs, since it needs no daemon, which is run as it is.

use crate::table::{Aim, Figure, Unit};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// Environments of the largest world.
const MOST: f64 = 100_000.0;
/// How many are to settle in a second.
const A_SECOND: f64 = 5_000.0;

/// Measures it, once a size: what it counts is this machine's own time, and there is a lot of it.
pub fn measure(_rounds: usize) -> Vec<Figure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let child = Command::new(cargo)
        .args(["bench", "--quiet", "-p", "hmz-controllers", "--bench", "scale"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(child.status.success(), "the simulated world: {}", child.status);
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let found: BTreeMap<&str, f64> = lines.filter_map(|(name, n)| Some((name, n.parse().ok()?))).collect();
    let of = |name: &str| *found.get(name).unwrap_or_else(|| panic!("no {name} in {said}"));
    // what one costs with few is what it is compared with
    let flat = |name, what: &str, few: &str, aim| Figure {
        name,
        unit: Unit::Seconds,
        measured: of(what),
        baseline: Some(("1,000 held", of(few))),
        ratio: Some(of(what) / of(few)),
        aim,
    };
    vec![
        Figure::alone(
            "100,000 environments settle (simulated)",
            Unit::Seconds,
            of("settled-100000"),
            Aim::Value(MOST / A_SECOND),
        ),
        Figure::alone("writes in an idle minute of 100,000", Unit::Count, of("idle-writes-100000"), Aim::Value(0.0)),
        Figure::alone("CPU time of that minute", Unit::Seconds, of("idle-minute-100000"), Aim::Told),
        Figure::alone("listings of each daemon in it", Unit::Count, of("idle-listings-100000"), Aim::Told),
        flat("an event of a daemon, 10,000 held", "event-10000", "event-1000", Aim::Ratio(2.0)),
        flat("the same, 100,000 held", "event-100000", "event-1000", Aim::Ratio(2.0)),
        flat("a box dies and is begun again, 100,000 held", "death-100000", "death-1000", Aim::Ratio(2.0)),
    ]
}
