//! One word for what the conditions of a resource say. Printed, never branched on.

use crate::kinds::condition as c;
use crate::{ConditionStatus, Conditions, Environment, Resource, Run};

/// `Pending`, `Waiting`, `Starting`, `Running`, `Succeeded`, `BudgetExceeded`, `Failed`, `Refused`, `Cancelled` or `Deleting`.
pub fn run(run: &Resource<Run>) -> String {
    let conditions = &run.status.conditions;
    if run.metadata.is_deleting() {
        return "Deleting".into();
    }
    if let Some(complete) = conditions.get(c::COMPLETE).filter(|c| c.status == ConditionStatus::True) {
        return complete.reason.clone();
    }
    if conditions.is_false(c::ACCEPTED) {
        return "Refused".into();
    }
    if conditions.is_true(c::RUNNING) {
        return "Running".into();
    }
    match conditions.get(c::ENVIRONMENTS_READY) {
        None => "Pending".into(),
        Some(ready) if ready.status != ConditionStatus::True && ready.reason.starts_with("Wait") => "Waiting".into(),
        Some(_) => "Starting".into(),
    }
}

/// `True`, or `False` or `Unknown` with the reason of the first condition that does not hold, such as `False (Pulling)`.
pub fn ready(environment: &Resource<Environment>) -> String {
    if environment.metadata.is_deleting() {
        return "Deleting".into();
    }
    let conditions = &environment.status.conditions;
    if conditions.is_true(c::READY) {
        return "True".into();
    }
    let order = [c::SCHEDULED, c::IMAGE_READY, c::CREATED, c::GUEST_READY, c::READY];
    // a share that was given back is what follows from a refusal and never its cause
    let causes = order.iter().filter_map(|kind| conditions.get(kind)).filter(|c| c.reason != "Released");
    let first =
        causes.clone().find(|c| c.reason == "Refused").or_else(|| causes.clone().find(|c| c.status != ConditionStatus::True));
    let status = conditions.get(c::READY).map_or("False", |c| word(c.status));
    match first {
        Some(cause) if !cause.reason.is_empty() => format!("{status} ({})", cause.reason),
        _ => status.into(),
    }
}

/// The status of one condition, or `Unknown` when it is not there.
pub fn status(conditions: &Conditions, kind: &str) -> &'static str {
    conditions.get(kind).map_or("Unknown", |c| word(c.status))
}

/// The word of a condition's status.
pub fn word(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::RunSpec;
    use jiff::Timestamp;
    use std::collections::BTreeMap;

    #[test]
    fn a_refusal_is_the_cause_and_a_share_given_back_is_not() {
        use ConditionStatus::{False, True};
        type Set = (&'static str, ConditionStatus, &'static str);
        let cases: [(&str, &[Set]); 4] = [
            (
                "False (Pulling)",
                &[(c::SCHEDULED, True, "Held"), (c::IMAGE_READY, False, "Pulling"), (c::READY, False, "Pending")],
            ),
            (
                "False (Refused)",
                &[
                    (c::SCHEDULED, False, "Released"),
                    (c::IMAGE_READY, False, "Pending"),
                    (c::CREATED, False, "Refused"),
                    (c::READY, False, "Refused"),
                ],
            ),
            ("False (Exited)", &[(c::SCHEDULED, False, "Released"), (c::CREATED, False, "Exited"), (c::READY, False, "Exited")]),
            ("False", &[(c::READY, False, "")]),
        ];
        for (shown, conditions) in cases {
            let spec = serde_json::from_value(serde_json::json!({"runtime": "docker", "workdir": "/w"})).unwrap();
            let mut resource = Resource::<Environment>::new("e", spec);
            for (kind, status, reason) in conditions {
                resource.status.conditions.set(kind, *status, reason, "", 1, Timestamp::UNIX_EPOCH);
            }
            assert_eq!(ready(&resource), shown, "{conditions:?}");
        }
    }

    #[test]
    fn each_phase_has_its_conditions() {
        use ConditionStatus::{False, True};
        type Set = (&'static str, ConditionStatus, &'static str);
        let cases: [(&str, &[Set]); 10] = [
            ("Pending", &[]),
            ("Pending", &[(c::ACCEPTED, True, "Accepted")]),
            ("Waiting", &[(c::ACCEPTED, True, "Accepted"), (c::ENVIRONMENTS_READY, False, "Waiting")]),
            ("Starting", &[(c::ACCEPTED, True, "Accepted"), (c::ENVIRONMENTS_READY, False, "Starting")]),
            ("Starting", &[(c::ENVIRONMENTS_READY, True, "Ready")]),
            ("Running", &[(c::ENVIRONMENTS_READY, True, "Ready"), (c::RUNNING, True, "Running")]),
            ("Succeeded", &[(c::RUNNING, False, "Ended"), (c::COMPLETE, True, "Succeeded")]),
            ("BudgetExceeded", &[(c::COMPLETE, True, "BudgetExceeded")]),
            ("Refused", &[(c::ACCEPTED, False, "NoRoom")]),
            ("Running", &[(c::RUNNING, True, "Running"), (c::COMPLETE, False, "Running")]),
        ];
        for (phase, conditions) in cases {
            let spec = RunSpec {
                flow: "f".into(),
                task: String::new(),
                agents: BTreeMap::new(),
                environments: BTreeMap::new(),
                params: Default::default(),
                admission: None,
                wait_for: None,
                ttl_after_finish: None,
            };
            let mut resource = Resource::<Run>::new("r", spec);
            for (kind, status, reason) in conditions {
                resource.status.conditions.set(kind, *status, reason, "", 1, Timestamp::UNIX_EPOCH);
            }
            assert_eq!(run(&resource), phase, "{conditions:?}");
            resource.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
            assert_eq!(run(&resource), "Deleting");
        }
    }
}
