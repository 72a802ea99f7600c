//! Rounds: what is compared takes turns, so that whatever else this machine does meets both.

use crate::support::command::Invocation;
use crate::table::{Aim, Figure, Unit};
use std::process::Stdio;
use std::time::Instant;

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    assert!(!sorted.is_empty(), "nothing was measured");
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], sorted[middle]) } else { sorted[middle] }
}

/// Measures `measured` and `baseline` in turn, who begins alternating; each is told the round and gives its value.
pub fn take_turns(
    rounds: usize,
    mut measured: impl FnMut(usize) -> f64,
    mut baseline: impl FnMut(usize) -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            ours.push(measured(round));
            theirs.push(baseline(round));
        } else {
            theirs.push(baseline(round));
            ours.push(measured(round));
        }
    }
    (ours, theirs)
}

/// The figure of values that were measured in turn; the ratio is the median of the rounds' ratios.
pub fn compared(name: &'static str, unit: Unit, ours: &[f64], what: &'static str, theirs: &[f64], aim: Aim) -> Figure {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    Figure { name, unit, measured: median(ours), baseline: Some((what, median(theirs))), ratio: Some(median(&ratios)), aim }
}

/// Runs it to its end; the seconds that took and its stdout.
///
/// # Panics
/// When it does not end well.
pub fn timed(invocation: &Invocation) -> (f64, Vec<u8>) {
    let began = Instant::now();
    let output = invocation.command().stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{}: {e}", invocation.line()));
    let took = began.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{}`: {}\n{said}", invocation.line(), output.status);
    (took, output.stdout)
}
