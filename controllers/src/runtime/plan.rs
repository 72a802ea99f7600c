//! A runtime's status from what its daemon said. Pure.

use hmz_api::condition::ConditionStatus::{False, True, Unknown};
use hmz_api::kinds::condition::{REACHABLE, SUFFICIENT};
use hmz_api::kinds::{Holder, Runtime, RuntimeStatus};
use hmz_api::{Cpus, Memory, Resource};
use hmz_drivers::{BoxState, DriverError, Facts, ObservedBox, Purpose};
use jiff::Timestamp;

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
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
            let short = hmz_drivers::lacking(&runtime.spec, facts);
            if short.is_empty() {
                status.conditions.set(SUFFICIENT, True, "Enough", "", generation, now);
            } else {
                status.conditions.set(SUFFICIENT, False, "TooLittle", short.join("; "), generation, now);
            }
            status.version = Some(facts.version.clone());
            status.cpus = Some(facts.cpus);
            status.memory = Some(facts.memory);
            status.gpus = facts.gpus.clone().unwrap_or_default();
            status.runtimes = facts.runtimes.clone();
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

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::kinds::{RuntimeSpec, Share};
    use hmz_drivers::{BoxKey, Exit};
    use uuid::Uuid;

    fn listed(name: &str, purpose: Purpose, uid: u128, cpus: u64, state: BoxState) -> ObservedBox {
        let key = BoxKey { instance: "us".into(), uid: Uuid::from_u128(uid), incarnation: 1, role: "box".into() };
        ObservedBox {
            id: "id".into(),
            name: name.into(),
            purpose,
            key: (uid > 0).then_some(key),
            run: None,
            provider: "here".into(),
            host: "host".into(),
            role: "box".into(),
            share: Share { cpus: Some(Cpus::whole(cpus)), ..Share::default() },
            state,
            created: None,
            program: None,
        }
    }

    #[test]
    fn what_is_handed_out_is_what_runs_and_what_is_held() {
        let spec = RuntimeSpec { cpus: Some(Cpus::whole(8)), ..RuntimeSpec::default() };
        let mut runtime = Resource::<Runtime>::new("docker:here", spec);
        let ended = BoxState::Exited(Exit { code: Some(0), oom: false, at: None });
        let boxes = vec![
            listed("b", Purpose::Box, 1, 1, BoxState::Running(1)),
            listed("a", Purpose::Hold, 2, 2, BoxState::Created),
            listed("c", Purpose::Box, 3, 4, ended.clone()),
            listed("theirs", Purpose::Foreign, 0, 1, BoxState::Running(2)),
            listed("copy", Purpose::Foreign, 0, 1, ended),
            listed("lock", Purpose::Lock, 0, 1, BoxState::Created),
        ];
        let facts = Facts { version: "20.10".into(), cpus: Cpus::whole(4), ..Facts::default() };
        let now = Timestamp::UNIX_EPOCH;
        let seen = Observed { now, provider: "here".into(), daemon: Ok((facts, boxes)) };
        runtime.status = plan(&runtime, &seen);
        assert_eq!((runtime.status.held_cpus, runtime.status.containers), (Some(Cpus::whole(4)), Some(3)));
        let holders: Vec<&str> = runtime.status.holders.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(holders, ["a", "b", "theirs"]);
        let short = runtime.status.conditions.get(SUFFICIENT).unwrap();
        assert_eq!((short.status, short.message.as_str()), (False, "it is to hand out 8 CPUs and has 4"));
        // the same again later is the same status
        let later = Observed { now: now + jiff::SignedDuration::from_secs(9), ..seen.clone() };
        assert_eq!(plan(&runtime, &later), runtime.status);
        // a daemon that does not answer leaves what was known of it
        let error = DriverError::Unreachable { at: "docker@here".into(), why: "refused".into() };
        let gone = plan(&runtime, &Observed { daemon: Err(Some(error)), ..later });
        assert!(gone.conditions.is_false(REACHABLE) && gone.cpus == runtime.status.cpus);
    }
}
