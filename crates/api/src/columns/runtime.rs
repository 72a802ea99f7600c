//! What of a runtime is handed out and what is free, in words.

use super::{NONE, UNKNOWN};
use crate::kinds::RuntimeSource;
use crate::{Cpus, Memory, Resource, Runtime};

/// How much of the allowance is left: `2/4`. A runtime that declares no allowance hands out what the daemon has.
fn free<T: Copy>(
    allowance: Option<T>,
    has: Option<T>,
    held: Option<T>,
    less: impl Fn(T, T) -> T,
    show: impl Fn(T) -> String,
) -> String {
    match (allowance.or(has), held) {
        (Some(total), Some(held)) => format!("{}/{}", show(less(total, held)), show(total)),
        (Some(total), None) => format!("?/{}", show(total)),
        (None, _) => UNKNOWN.into(),
    }
}

/// An amount of memory in one short word: exact when it is whole in M or more, else whole G (or M, K under one) rounded
/// down, as `2015G`.
pub fn memory(amount: Memory) -> String {
    let bytes = amount.bytes();
    let whole = |shift: u32| bytes >> shift > 0;
    if bytes.is_multiple_of(1 << 20) && whole(20) {
        return amount.to_string();
    }
    match [("G", 30), ("M", 20), ("K", 10)].into_iter().find(|(_, shift)| whole(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// CPUs free of all, `2/4`.
pub fn free_cpus(r: &Resource<Runtime>) -> String {
    let less = |total: Cpus, held: Cpus| Cpus::from_millis(total.millis().saturating_sub(held.millis()));
    let (held, total) = (r.status.held_cpus.map(Cpus::millis), r.spec.cpus.or(r.status.cpus).map(Cpus::millis));
    let over = over(held, total, |beyond| Cpus::from_millis(beyond).to_string());
    free(r.spec.cpus, r.status.cpus, r.status.held_cpus, less, |c| c.to_string()) + &over
}

/// Memory free of all, `4G/8G`.
pub fn free_memory(r: &Resource<Runtime>) -> String {
    let less = |total: Memory, held: Memory| Memory::from_bytes(total.bytes().saturating_sub(held.bytes()));
    let (held, total) = (r.status.held_memory.map(Memory::bytes), r.spec.memory.or(r.status.memory).map(Memory::bytes));
    let over = over(held, total, |beyond| memory(Memory::from_bytes(beyond)));
    free(r.spec.memory, r.status.memory, r.status.held_memory, less, memory) + &over
}

/// The GPUs it hands out: those that were saved, else those its daemon lists.
pub fn gpus(r: &Resource<Runtime>) -> &[String] {
    if r.spec.gpus.is_empty() { &r.status.gpus } else { &r.spec.gpus }
}

/// GPUs free of all, `1/2`; `<none>` where there are none.
pub fn free_gpus(r: &Resource<Runtime>) -> String {
    let all = gpus(r);
    match (all.len(), r.status.held_gpus.len()) {
        (0, 0) => NONE.into(),
        (_, _) => format!("{}/{}", which_gpus_free(r).len(), all.len()),
    }
}

/// The GPUs it hands out that nobody has and that answer, as far as that is known.
pub fn which_gpus_free(r: &Resource<Runtime>) -> Vec<&str> {
    let s = &r.status;
    gpus(r).iter().filter(|id| !s.held_gpus.contains(id) && !s.silent_gpus.contains(id)).map(String::as_str).collect()
}

/// How much more is handed out than there is: ` (2 over)`, or nothing.
fn over(held: Option<u64>, total: Option<u64>, show: impl Fn(u64) -> String) -> String {
    let beyond = held.zip(total).map_or(0, |(held, total)| held.saturating_sub(total));
    if beyond > 0 { format!(" ({} over)", show(beyond)) } else { String::new() }
}

/// Containers that run, of those it may: `1/2`, or `1` without a limit.
pub fn containers(r: &Resource<Runtime>) -> String {
    let running = r.status.containers.map_or_else(|| "?".to_owned(), |n| n.to_string());
    match r.spec.max_containers {
        Some(most) => format!("{running}/{most}"),
        None if r.status.containers.is_none() => UNKNOWN.into(),
        None => running,
    }
}

/// What is handed out: `2.5 CPUs, 4G, 1 GPU`.
pub fn handed_out(r: &Resource<Runtime>) -> String {
    let s = &r.status;
    if s.held_cpus.is_none() {
        return UNKNOWN.into();
    }
    let cpus =
        s.held_cpus.filter(|c| *c != Cpus::default()).map(|c| format!("{c} CPU{}", if c == Cpus::whole(1) { "" } else { "s" }));
    let memory = s.held_memory.filter(|m| *m != Memory::default()).map(memory);
    let gpus = match s.held_gpus.len() {
        0 => None,
        1 => Some("1 GPU".to_owned()),
        n => Some(format!("{n} GPUs")),
    };
    let all: Vec<String> = [cpus, memory, gpus].into_iter().flatten().collect();
    if all.is_empty() { NONE.into() } else { all.join(", ") }
}

/// The word for where a runtime was declared.
pub fn source(r: &Resource<Runtime>) -> &'static str {
    match r.status.source {
        RuntimeSource::Manifest => "manifest",
        RuntimeSource::Settings => "settings",
        RuntimeSource::Unsaved => "unsaved",
    }
}
