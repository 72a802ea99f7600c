//! A runtime's status from what its daemon said. Pure.

use hmz_api::condition::ConditionStatus::{False, True, Unknown};
use hmz_api::kinds::condition::{REACHABLE, SUFFICIENT};
use hmz_api::kinds::{Holder, Runtime, RuntimeStatus};
use hmz_api::{Cpus, Memory, Resource};
use hmz_drivers::{BoxState, DriverError, Facts, ObservedBox, Purpose};
use jiff::Timestamp;

/// Condition of a runtime of settings.yaml: whether its entry can be read.
pub const READABLE: &str = "Readable";

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The runtime as refusals say it.
    pub at: String,
    /// The value of its boxes' provider label.
    pub provider: String,
    /// What the daemon said; `Err(None)` when there is none to ask.
    pub daemon: Result<(Facts, Vec<ObservedBox>), Option<DriverError>>,
}

/// Whether a container of ours holds its share: a hold does until it is gone, a box until it ended.
pub fn holds(one: &ObservedBox) -> bool {
    match one.purpose {
        Purpose::Lock => false,
        Purpose::Hold => true,
        Purpose::Box => matches!(one.state, BoxState::Created | BoxState::Running(_)),
        Purpose::Foreign => matches!(one.state, BoxState::Running(_)),
    }
}

/// The status.
pub fn plan(runtime: &Resource<Runtime>, seen: &Observed) -> RuntimeStatus {
    let mut status = runtime.status.clone();
    let (generation, now) = (runtime.metadata.generation, seen.now);
    match &seen.daemon {
        Err(error) => {
            let (condition, reason) = match error {
                Some(DriverError::Refused(_)) | None => (False, "Unsupported"),
                Some(_) => (False, "NoAnswer"),
            };
            let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
            status.conditions.set(REACHABLE, condition, reason, why, generation, now);
            status.conditions.set(SUFFICIENT, Unknown, reason, "", generation, now);
        }
        Ok((facts, boxes)) => {
            status.conditions.set(REACHABLE, True, "Answered", "", generation, now);
            let short = shortages(runtime, &seen.at, facts);
            if short.is_empty() {
                status.conditions.set(SUFFICIENT, True, "Enough", "", generation, now);
            } else {
                status.conditions.set(SUFFICIENT, False, "TooLittle", short.join("; "), generation, now);
            }
            status.version = Some(facts.version.clone());
            status.cpus = Some(facts.cpus);
            status.memory = Some(facts.memory);
            let holding: Vec<&ObservedBox> = boxes.iter().filter(|b| holds(b)).collect();
            let cpus = holding.iter().filter_map(|b| b.share.cpus).map(Cpus::millis).sum();
            let memory = holding.iter().filter_map(|b| b.share.memory).map(Memory::bytes).fold(0, u64::saturating_add);
            status.held_cpus = Some(Cpus::from_millis(cpus));
            status.held_memory = Some(Memory::from_bytes(memory));
            // a box and the hold it replaces are one environment
            let mut own: Vec<_> = holding.iter().filter(|b| b.provider == seen.provider).map(|b| (&b.key, name_of(b))).collect();
            own.sort();
            own.dedup();
            status.containers = u32::try_from(own.len()).ok();
            status.holders = holding.iter().map(|b| holder(b)).collect();
            status.holders.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    status
}

/// What tells two containers apart that say of no environment whose they are.
fn name_of(one: &ObservedBox) -> &str {
    if one.key.is_some() { "" } else { &one.name }
}

fn holder(one: &ObservedBox) -> Holder {
    Holder {
        name: one.name.clone(),
        host: one.host.clone(),
        role: one.role.clone(),
        cpus: one.share.cpus,
        memory: one.share.memory,
    }
}

fn shortages(runtime: &Resource<Runtime>, at: &str, facts: &Facts) -> Vec<String> {
    let mut short = Vec::new();
    if let Some(saved) = runtime.spec.cpus.filter(|saved| *saved > facts.cpus) {
        short.push(format!("{at} is to hand out {saved} CPUs and has {}", facts.cpus));
    }
    if let Some(saved) = runtime.spec.memory.filter(|saved| *saved > facts.memory) {
        short.push(format!("{at} is to hand out {} of memory and has {}", saved.in_words(), facts.memory.in_words()));
    }
    short
}
