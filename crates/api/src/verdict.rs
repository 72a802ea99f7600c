//! Whether the controllers take what was declared, as its conditions say it.

use crate::condition::{Condition, ConditionStatus, Conditions};
use crate::error::Error;
use crate::kinds::{AnyResource, condition};

/// What they make of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It goes on by itself.
    Taken,
    /// It waits for something, in one sentence.
    Waits(String),
    /// It cannot be as declared.
    Refused(Error),
}

/// What the controllers make of a resource; `None` while they have not said.
pub fn of(resource: &AnyResource) -> Option<Verdict> {
    match resource {
        AnyResource::Run(run) => {
            let conditions = &run.status.conditions;
            if let Some(refused) = refused(conditions, condition::COMPLETE) {
                return Some(refused);
            }
            match conditions.get(condition::ENVIRONMENTS_READY) {
                _ if run.status.is_complete() => Some(Verdict::Taken),
                Some(ready) if ready.reason == "Waiting" || ready.status == ConditionStatus::Unknown => waits(ready),
                Some(_) => Some(Verdict::Taken),
                None => None,
            }
        }
        AnyResource::Environment(environment) => {
            let conditions = &environment.status.conditions;
            // what was said of what was declared before says nothing yet
            let scheduled = conditions.get(condition::SCHEDULED)?;
            if scheduled.observed_generation < environment.metadata.generation {
                return None;
            }
            if let Some(refused) = refused(conditions, condition::SCHEDULED).or_else(|| refused(conditions, condition::READY)) {
                return Some(refused);
            }
            match scheduled.reason.as_str() {
                "Insufficient" => waits(scheduled),
                _ if scheduled.status == ConditionStatus::Unknown => waits(scheduled),
                "Pending" => None,
                _ => Some(Verdict::Taken),
            }
        }
        AnyResource::Runtime(_) | AnyResource::Flow(_) => Some(Verdict::Taken),
    }
}

/// Whether a refusal stays, whatever is mended: until a run is declared anew, and an environment otherwise.
pub fn is_final(resource: &AnyResource) -> bool {
    match resource {
        AnyResource::Run(_) => true,
        AnyResource::Environment(environment) => environment.is_refused(),
        AnyResource::Runtime(_) | AnyResource::Flow(_) => false,
    }
}

/// A refusal as a condition's message has it: the sentence, then its hints, an empty line between each.
pub fn refusal(message: &str) -> Error {
    let mut parts = message.split("\n\n").map(str::to_owned);
    let error = Error::refused(parts.next().unwrap_or_default());
    parts.fold(error, Error::hint)
}

fn refused(conditions: &Conditions, kind: &str) -> Option<Verdict> {
    let refused = |c: &&Condition| matches!(c.reason.as_str(), "Refused" | "RuntimeMissing");
    conditions.get(kind).filter(refused).map(|c| Verdict::Refused(refusal(&c.message)))
}

fn waits(condition: &Condition) -> Option<Verdict> {
    let why = if condition.message.is_empty() { &condition.reason } else { &condition.message };
    Some(Verdict::Waits(why.clone()))
}
