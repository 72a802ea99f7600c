//! A runtime's status from what its daemon said. Pure.

use hmz_api::condition::ConditionStatus::{False, True, Unknown};
use hmz_api::kinds::condition::{REACHABLE, SUFFICIENT};
use hmz_api::kinds::{Holder, Runtime, RuntimeStatus};
use hmz_api::{Cpus, Memory, Resource};
use hmz_drivers::{BoxState, DriverError, Facts, ObservedBox, Purpose};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// The reason of a daemon that does not answer.
const NO_ANSWER: &str = "NoAnswer";

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The runtime as refusals say it.
    pub at: String,
    /// The value of its boxes' provider label.
    pub provider: String,
    /// The names of the runs there are, by uid.
    pub runs: BTreeMap<Uuid, String>,
    /// What the daemon said; `Err(None)` when there is none to ask.
    pub daemon: Result<(Facts, Arc<Vec<ObservedBox>>), Option<DriverError>>,
}

/// Whether a container of ours holds its share: a hold does until it is gone, a box until it ended.
pub fn holds(one: &ObservedBox) -> bool {
    match one.purpose {
        Purpose::Lock | Purpose::Probe => false,
        Purpose::Hold => true,
        Purpose::Box => matches!(one.state, BoxState::Created | BoxState::Running(_)),
        Purpose::Foreign => matches!(one.state, BoxState::Running(_)),
    }
}

/// Brings the status to what was seen.
pub fn plan(runtime: &mut Resource<Runtime>, seen: &Observed) {
    let status = std::mem::take(&mut runtime.status);
    runtime.status = planned(runtime, status, seen);
}

fn planned(runtime: &Resource<Runtime>, mut status: RuntimeStatus, seen: &Observed) -> RuntimeStatus {
    let (generation, now) = (runtime.metadata.generation, seen.now);
    match &seen.daemon {
        Err(error) => {
            let (condition, reason) = match error {
                Some(DriverError::Refused(_)) | None => (False, "Unsupported"),
                Some(_) => (False, NO_ANSWER),
            };
            let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
            status.conditions.set(REACHABLE, condition, reason, why, generation, now);
            status.conditions.set(SUFFICIENT, Unknown, reason, "", generation, now);
        }
        Ok((facts, boxes)) => {
            status.conditions.set(REACHABLE, True, "Answered", "", generation, now);
            let holding = holding(boxes);
            let (less, over) = (hmz_drivers::lacking(&runtime.spec, facts), overcommitted(runtime, seen, facts, &holding));
            let reason = if over.is_empty() { "TooLittle" } else { "OverCommitted" };
            let said: Vec<String> = over.into_iter().chain(less).collect();
            if said.is_empty() {
                status.conditions.set(SUFFICIENT, True, "Enough", "", generation, now);
            } else {
                status.conditions.set(SUFFICIENT, False, reason, said.join("; "), generation, now);
            }
            status.version = Some(facts.version.clone());
            status.cpus = Some(facts.cpus);
            status.memory = Some(facts.memory);
            status.gpus = facts.gpus.clone().unwrap_or_default();
            status.runtimes = facts.runtimes.clone();
            status.silent_gpus = hmz_drivers::silent_gpus(&runtime.spec, facts);
            let gpus = if runtime.spec.gpus.is_empty() { &status.gpus } else { &runtime.spec.gpus };
            // by the word it has here, whichever its holder has for it
            let same = |id: &String| facts.gpu_answers.same(id).to_owned();
            let named = |id: &String| gpus.iter().find(|own| same(own) == same(id)).unwrap_or(id).clone();
            let held: BTreeSet<String> = holding.iter().flat_map(|b| &b.share.gpus).map(named).collect();
            status.held_gpus = if held.contains("all") { gpus.clone() } else { held.into_iter().collect() };
            let cpus = holding.iter().filter_map(|b| b.share.cpus).map(Cpus::millis).sum();
            let memory = holding.iter().filter_map(|b| b.share.memory).map(Memory::bytes).fold(0, u64::saturating_add);
            status.held_cpus = Some(Cpus::from_millis(cpus));
            status.held_memory = Some(Memory::from_bytes(memory));
            // a box and the hold it replaces are one environment
            let mut own: Vec<_> = holding.iter().filter(|b| b.provider == seen.provider).map(|b| (&b.key, name_of(b))).collect();
            own.sort();
            own.dedup();
            status.containers = u32::try_from(own.len()).ok();
            status.holders = holding.iter().map(|b| holder(b, &seen.runs)).collect();
            status.holders.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    status
}

/// What tells two containers apart that say of no environment whose they are.
fn name_of(one: &ObservedBox) -> &str {
    if one.key.is_some() { "" } else { &one.name }
}

/// Whether the default of a backend is listed by what was seen of it: it answers, or did once and says nothing now. One that
/// says that it is none is not there any more.
pub fn is_listed(status: &RuntimeStatus) -> bool {
    let reachable = status.conditions.get(REACHABLE);
    reachable.is_some_and(|c| c.status == True || (status.version.is_some() && c.reason == NO_ANSWER))
}

/// Who holds a share; of a box and the hold it replaces, the box.
fn holding(boxes: &[ObservedBox]) -> Vec<&ObservedBox> {
    let boxed = |hold: &ObservedBox| {
        let same = |b: &ObservedBox| b.purpose == Purpose::Box && b.key == hold.key && holds(b);
        hold.purpose == Purpose::Hold && hold.key.is_some() && boxes.iter().any(same)
    };
    boxes.iter().filter(|b| holds(b) && !boxed(b)).collect()
}

/// What is handed out beyond what there is, and to whom. Holds are left out: one that nobody renews counts no more, and is
/// still there.
fn overcommitted(runtime: &Resource<Runtime>, seen: &Observed, facts: &Facts, holding: &[&ObservedBox]) -> Vec<String> {
    let (at, spec) = (&seen.at, &runtime.spec);
    let run: Vec<&ObservedBox> = holding.iter().filter(|b| b.purpose != Purpose::Hold).copied().collect();
    let to = |part: &dyn Fn(&ObservedBox) -> Option<String>| {
        let of = |b: &&ObservedBox| part(b).map(|part| format!("{part} to {} on {}", b.name, b.host));
        run.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    };
    let mut said = Vec::new();
    let has = spec.cpus.unwrap_or(facts.cpus);
    let out: u64 = run.iter().filter_map(|b| b.share.cpus).map(Cpus::millis).fold(0, u64::saturating_add);
    if out > has.millis() {
        let to = to(&|b| b.share.cpus.map(|c| format!("{c} CPUs")));
        said.push(format!("{at} has handed out {} CPUs, and has {has}: {to}", Cpus::from_millis(out)));
    }
    let has = spec.memory.unwrap_or(facts.memory);
    let out: u64 = run.iter().filter_map(|b| b.share.memory).map(Memory::bytes).fold(0, u64::saturating_add);
    if out > has.bytes() {
        let to = to(&|b| b.share.memory.map(Memory::in_words));
        said.push(format!(
            "{at} has handed out {} of memory, and has {}: {to}",
            Memory::from_bytes(out).in_words(),
            has.in_words()
        ));
    }
    let same = |id: &String| facts.gpu_answers.same(id).to_owned();
    let mut told = BTreeSet::new();
    let mut ids: Vec<&String> = run.iter().flat_map(|b| &b.share.gpus).collect();
    ids.sort();
    for id in ids.into_iter().filter(|id| told.insert(same(id))) {
        let of = |b: &ObservedBox| b.share.gpus.iter().find(|held| same(held) == same(id)).cloned();
        if run.iter().filter(|b| of(b).is_some()).count() > 1 {
            let to = to(&|b| of(b).map(|held| format!("GPU {held}")));
            said.push(format!("{at} has handed out GPU {id} more than once: {to}"));
        }
    }
    let own = run.iter().filter(|b| b.provider == seen.provider).count() as u64;
    if let Some(may) = spec.max_containers.filter(|may| *may > 0 && u64::from(*may) < own) {
        said.push(format!("{at} runs {own} containers, and may run {may}"));
    }
    said
}

fn holder(one: &ObservedBox, runs: &BTreeMap<Uuid, String>) -> Holder {
    Holder {
        gpus: one.share.gpus.clone(),
        run: one.run.map(|uid| runs.get(&uid).cloned().unwrap_or_else(|| uid.to_string())),
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
    use hmz_drivers::{BoxKey, Exit, Labels};

    fn plan(runtime: &Resource<Runtime>, seen: &Observed) -> RuntimeStatus {
        planned(runtime, runtime.status.clone(), seen)
    }

    fn listed(name: &str, purpose: Purpose, uid: u128, cpus: u64, state: BoxState) -> ObservedBox {
        let key = BoxKey { instance: "us".into(), uid: Uuid::from_u128(uid), incarnation: 1, role: "box".into() };
        ObservedBox {
            id: "id".into(),
            name: name.into(),
            labels: Labels {
                purpose,
                key: (uid > 0).then_some(key),
                run: None,
                provider: "here".into(),
                host: "host".into(),
                role: "box".into(),
                share: Share { cpus: Some(Cpus::whole(cpus)), ..Share::default() },
            },
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
        let runs = BTreeMap::new();
        let seen = Observed { now, at: "docker@here".into(), provider: "here".into(), runs, daemon: Ok((facts, boxes.into())) };
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

    #[test]
    fn what_is_handed_out_beyond_what_there_is_is_said_with_to_whom() {
        let gib = |n: u64| Some(Memory::from_bytes(n << 30));
        let spec = RuntimeSpec { cpus: Some(Cpus::whole(4)), memory: gib(8), max_containers: Some(1), ..RuntimeSpec::default() };
        let runtime = Resource::<Runtime>::new("docker:here", spec);
        let mut boxes = vec![
            listed("b", Purpose::Box, 1, 3, BoxState::Running(1)),
            listed("theirs", Purpose::Foreign, 0, 2, BoxState::Running(2)),
            listed("b-hold", Purpose::Hold, 1, 3, BoxState::Created),
            listed("c-hold", Purpose::Hold, 2, 4, BoxState::Created),
        ];
        boxes[0].labels.share = Share { memory: gib(6), gpus: vec!["0".into(), "1".into()], ..boxes[0].share.clone() };
        boxes[0].labels.run = Some(Uuid::from_u128(9));
        boxes[1].labels.share = Share { memory: gib(3), gpus: vec!["1".into()], ..boxes[1].share.clone() };
        boxes[1].labels.run = Some(Uuid::from_u128(8));
        let mut by_uuid = boxes.clone();
        by_uuid[1].labels.share.gpus = vec!["GPU-b".into()];
        let facts = Facts { cpus: Cpus::whole(8), memory: Memory::from_bytes(16 << 30), ..Facts::default() };
        let runs = BTreeMap::from([(Uuid::from_u128(9), "fix-add".to_owned())]);
        let now = Timestamp::UNIX_EPOCH;
        let seen = Observed { now, at: "docker@here".into(), provider: "here".into(), runs, daemon: Ok((facts, boxes.into())) };
        let status = plan(&runtime, &seen);
        let said = status.conditions.get(SUFFICIENT).unwrap();
        assert_eq!((said.status, said.reason.as_str()), (False, "OverCommitted"));
        // one that another has under its other name is handed out twice too
        let mut heard = seen.daemon.clone().unwrap().0;
        heard.gpu_answers.uuids = [("1".to_owned(), "GPU-b".to_owned())].into();
        heard.gpu_answers.silent = ["0".to_owned()].into();
        heard.gpus = Some(vec!["0".into(), "1".into(), "2".into()]);
        let twice = plan(&runtime, &Observed { daemon: Ok((heard, by_uuid.into())), ..seen.clone() });
        let words = &twice.conditions.get(SUFFICIENT).unwrap().message;
        let both = "docker@here has handed out GPU 1 more than once: GPU 1 to b on host, GPU GPU-b to theirs on host; ";
        assert!(words.contains(both) && words.ends_with("; GPU 0 does not answer"), "{words}");
        assert_eq!((twice.held_gpus, twice.silent_gpus), (vec!["0".to_owned(), "1".into()], vec!["0".to_owned()]));
        assert_eq!(
            said.message,
            "docker@here has handed out 5 CPUs, and has 4: 3 CPUs to b on host, 2 CPUs to theirs on host; \
             docker@here has handed out 9 GiB of memory, and has 8 GiB: 6 GiB to b on host, 3 GiB to theirs on host; \
             docker@here has handed out GPU 1 more than once: GPU 1 to b on host, GPU 1 to theirs on host; \
             docker@here runs 2 containers, and may run 1"
        );
        // a box and its hold are one holder, and a hold of its own is one too
        let holders: Vec<&str> = status.holders.iter().map(|h| h.name.as_str()).collect();
        assert_eq!((holders, status.held_cpus), (vec!["b", "c-hold", "theirs"], Some(Cpus::whole(9))));
        assert_eq!(status.held_gpus, ["0", "1"]);
        let runs: Vec<Option<&str>> = status.holders.iter().map(|h| h.run.as_deref()).collect();
        assert_eq!(runs, [Some("fix-add"), None, Some("00000000-0000-0000-0000-000000000008")]);
    }
}
