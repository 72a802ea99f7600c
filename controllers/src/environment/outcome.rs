//! What became of a step, as conditions. Pure.

use crate::placement::Placed;
use hmz_api::Resource;
use hmz_api::condition::ConditionStatus::{self, False, True, Unknown};
use hmz_api::kinds::condition::{CREATED, DEATHS, FELL_BACK, GUEST_READY, IMAGE_READY, NO_HARNESS, READY, SCHEDULED};
pub use hmz_api::kinds::condition::{
    EXITED, GUEST_SILENT, KILLED_BY_HAND, MOVED, OUT_OF_MEMORY, REMOVED_BY_HAND, STOPPED, UNKNOWN,
};
use hmz_api::kinds::{Environment, Harness, PassedFor, PassedOver, Share};
use hmz_drivers::{BoxState, DriverError, Ending, Exit, GuestFiles, Started};
use jiff::Timestamp;

/// Reason: it cannot be as declared.
pub const REFUSED: &str = "Refused";
/// Reason: its share is given back, because its start was refused or its box ended.
pub const RELEASED: &str = "Released";
/// Reason: its share was lost before its box was there; it is asked for again.
pub const LOST: &str = "Lost";
/// Reason: the runtime that held it refused the image or the start; the next one is asked.
pub const PASSED_OVER: &str = "PassedOver";
/// Reason: there is no room at the moment.
pub const INSUFFICIENT: &str = "Insufficient";
/// Reason: the box is removed because another is declared.
pub const REPLACING: &str = "Replacing";

/// Whether a reason says that a box ended.
pub fn is_death(reason: &str) -> bool {
    DEATHS.contains(&reason)
}

/// Sets a condition at the environment's generation.
pub fn set(env: &mut Resource<Environment>, kind: &str, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) {
    env.status.conditions.set(kind, status, reason, message, env.metadata.generation, now);
}

/// Says that a condition still holds at this generation.
pub fn keep(env: &mut Resource<Environment>, kind: &str) {
    let generation = env.metadata.generation;
    for condition in env.status.conditions.0.iter_mut().filter(|c| c.kind == kind) {
        condition.observed_generation = generation;
    }
}

/// `Ready` is what the first of the others that does not hold says.
pub fn sum_up(env: &mut Resource<Environment>, now: Timestamp) {
    let short = [SCHEDULED, IMAGE_READY, CREATED, GUEST_READY].into_iter().find_map(|kind| {
        let condition = env.status.conditions.get(kind);
        match condition {
            Some(c) if c.status == True => None,
            Some(c) => Some((c.status, c.reason.clone(), c.message.clone())),
            None => Some((False, "Pending".into(), String::new())),
        }
    });
    // how a box ended says more than that its share was given back
    let death = env
        .status
        .conditions
        .get(CREATED)
        .filter(|c| c.status != True && (is_death(&c.reason) || [REFUSED, NO_HARNESS].contains(&c.reason.as_str())));
    let death = death.map(|c| (c.status, c.reason.clone(), c.message.clone()));
    let image = env.status.conditions.get(IMAGE_READY).filter(|c| c.status != True && c.reason == REFUSED);
    let image = image.map(|c| (c.status, c.reason.clone(), c.message.clone()));
    let was = env.status.conditions.is_true(READY);
    match short.map(|short| death.or(image).unwrap_or(short)) {
        Some((status, reason, message)) => set(env, READY, status, &reason, &message, now),
        None => {
            // as old as the oldest of them: what was started for another generation is not what is declared
            let conditions = &mut env.status.conditions;
            let observed = [SCHEDULED, IMAGE_READY, CREATED, GUEST_READY].into_iter().filter_map(|kind| conditions.get(kind));
            let observed = observed.map(|c| c.observed_generation).min().unwrap_or_default();
            conditions.set(READY, True, "Ready", "", observed, now);
            if !was {
                env.status.started_at = Some(now);
            }
        }
    }
}

/// Its share is held.
pub fn held(env: &mut Resource<Environment>, share: Share, now: Timestamp) {
    env.status.share = Some(share);
    set(env, SCHEDULED, True, "Held", "", now);
    for kind in [CREATED, GUEST_READY] {
        if env.status.conditions.get(kind).is_none_or(|c| c.status != True) {
            set(env, kind, False, "Pending", "", now);
        }
    }
    sum_up(env, now);
}

/// Its share is held there.
pub fn placed(env: &mut Resource<Environment>, place: &Placed, share: Share, now: Timestamp) {
    let status = &mut env.status;
    let moved = status.used.as_ref() != Some(&place.runtime) || (place.endpoint.is_some() && status.endpoint != place.endpoint);
    status.used = Some(place.runtime.clone());
    status.endpoint = place.endpoint.clone().or(status.endpoint.take());
    status.passed_over.clone_from(&place.passed);
    if !place.passed.is_empty() {
        status.workdir.clone_from(&place.workdir);
    }
    if moved && env.status.conditions.is_true(IMAGE_READY) {
        set(env, IMAGE_READY, False, "Pending", "", now);
    }
    held(env, share, now);
    if !place.passed.is_empty() {
        set(env, SCHEDULED, True, FELL_BACK, &place.told, now);
    }
}

/// It is where it is declared to be: that it fell back there before that was declared is past.
pub fn at_home(env: &mut Resource<Environment>, now: Timestamp) {
    // also where the share was asked for anew since, and so is simply held
    let fell_back = env.status.conditions.get(SCHEDULED).is_some_and(|c| c.status == True && c.reason == FELL_BACK);
    if (fell_back || !env.status.passed_over.is_empty()) && env.status.used.as_ref() == Some(&env.spec.runtime) {
        env.status.passed_over.clear();
        set(env, SCHEDULED, True, "Held", "", now);
    }
}

/// The runtime that held its share refused the image or the start, and holds nothing of it any more.
fn passed_over(env: &mut Resource<Environment>, error: &DriverError, now: Timestamp) {
    let runtime = env.status.used.clone().unwrap_or_else(|| env.spec.runtime.clone());
    let message = error.to_string();
    env.status.passed_over.retain(|p| p.runtime != runtime);
    env.status.passed_over.push(PassedOver { runtime, reason: PassedFor::Refused, message: message.clone(), at: now });
    env.status.share = None;
    set(env, SCHEDULED, False, PASSED_OVER, &message, now);
    for kind in [IMAGE_READY, CREATED, GUEST_READY] {
        set(env, kind, False, "Pending", "", now);
    }
    sum_up(env, now);
}

/// Its share is not held, for this reason.
pub fn not_held(env: &mut Resource<Environment>, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) {
    env.status.share = None;
    set(env, SCHEDULED, status, reason, message, now);
    sum_up(env, now);
}

/// The daemon failed before the share was held.
pub fn admission_failed(env: &mut Resource<Environment>, error: &DriverError, now: Timestamp) {
    let (status, reason) = match error {
        DriverError::Unreachable { .. } => (Unknown, "Unreachable"),
        DriverError::Refused(_) | DriverError::NoRoom(_) | DriverError::Foreign(_) | DriverError::NoProgram { .. } => {
            (False, REFUSED)
        }
        DriverError::Transient(_) => (False, "Failed"),
    };
    not_held(env, status, reason, &error.to_string(), now);
}

/// Its runtime is another daemon now, on which neither its share nor its image is.
pub fn elsewhere(env: &mut Resource<Environment>, now: Timestamp) {
    for kind in [SCHEDULED, IMAGE_READY] {
        if env.status.conditions.is_true(kind) {
            set(env, kind, False, "Pending", "", now);
        }
    }
    env.status.share = None;
}

/// How far the pull is.
pub fn pulling(env: &mut Resource<Environment>, progress: &str, now: Timestamp) {
    set(env, IMAGE_READY, False, "Pulling", progress, now);
    sum_up(env, now);
}

/// What its start waits for.
pub fn starting(env: &mut Resource<Environment>, progress: &str, now: Timestamp) {
    set(env, CREATED, False, "Starting", progress, now);
    sum_up(env, now);
}

/// The image is there.
pub fn pulled(env: &mut Resource<Environment>, now: Timestamp) {
    set(env, IMAGE_READY, True, "Present", "", now);
    sum_up(env, now);
}

/// What is done after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Another place is asked.
    NextPlace,
    /// The same is tried again, later.
    Again,
}

/// The image could not be had. The hold of one that was refused is given back before; then the next place is asked, if there
/// is one.
pub fn pull_failed(env: &mut Resource<Environment>, error: &DriverError, falls_back: bool, now: Timestamp) -> Then {
    if falls_back && !error.is_retryable() {
        passed_over(env, error, now);
        return Then::NextPlace;
    }
    let (status, reason) = match error {
        DriverError::Unreachable { .. } => (Unknown, "Unreachable"),
        DriverError::Transient(_) => (False, "Failed"),
        DriverError::Refused(_) | DriverError::NoRoom(_) | DriverError::Foreign(_) | DriverError::NoProgram { .. } => {
            (False, REFUSED)
        }
    };
    set(env, IMAGE_READY, status, reason, &error.to_string(), now);
    if reason == REFUSED {
        env.status.share = None;
        set(env, SCHEDULED, False, RELEASED, "", now);
    }
    sum_up(env, now);
    Then::Again
}

/// Its share was held, and there is no room for it all the same: it is where it was before it asked.
pub fn no_node(env: &mut Resource<Environment>, why: &str, now: Timestamp) {
    set(env, CREATED, False, "Pending", "", now);
    not_held(env, False, INSUFFICIENT, why, now);
}

/// Its box runs.
pub fn started(env: &mut Resource<Environment>, started: &Started, files: &GuestFiles, now: Timestamp) {
    env.status.waiting_since = None;
    env.status.container_id = Some(started.id.clone());
    env.status.container_name = Some(started.name.clone());
    env.status.pid = Some(started.pid);
    env.status.node.clone_from(&started.node);
    env.status.reach.clone_from(&started.reach);
    env.status.socket_dir = Some(files.socket_dir.display().to_string());
    env.status.scratch = Some(files.scratch.display().to_string());
    set(env, CREATED, True, "Started", &started.name, now);
    set(env, GUEST_READY, False, "Pending", "", now);
    sum_up(env, now);
}

/// Its box could not be started; then neither box nor hold is left, unless the daemon does not answer, and the next place is
/// asked, if there is one.
pub fn start_failed(env: &mut Resource<Environment>, error: &DriverError, falls_back: bool, now: Timestamp) -> Then {
    // where a CLI is to run is no question of room: no other place is asked for it
    if falls_back && !error.is_retryable() && !matches!(error, DriverError::NoProgram { .. }) {
        passed_over(env, error, now);
        return Then::NextPlace;
    }
    let mut message = error.to_string();
    let reason = match error {
        DriverError::NoProgram { program, .. } => {
            message = not_installed(env, program).unwrap_or(message);
            NO_HARNESS
        }
        _ => REFUSED,
    };
    match error {
        DriverError::Unreachable { .. } => set(env, CREATED, Unknown, "Unreachable", &message, now),
        DriverError::Transient(_) => {
            set(env, CREATED, False, "Failed", &message, now);
            env.status.share = None;
            set(env, SCHEDULED, False, LOST, &message, now);
        }
        DriverError::Refused(_) | DriverError::NoRoom(_) | DriverError::Foreign(_) | DriverError::NoProgram { .. } => {
            set(env, CREATED, False, reason, &message, now);
            // the image may be what was wrong: it is looked for again
            set(env, IMAGE_READY, False, "Pending", "", now);
            env.status.share = None;
            set(env, SCHEDULED, False, RELEASED, "", now);
        }
    }
    sum_up(env, now);
    Then::Again
}

/// What is said of an agent whose CLI is not in its box.
fn not_installed(env: &Resource<Environment>, program: &str) -> Option<String> {
    let agent = env.status.agents.iter().find(|agent| agent.program == program)?;
    let used = env.status.used.as_ref().unwrap_or(&env.spec.runtime);
    let (works, setting) = match &env.status.serves {
        Some(served) => (&served.runtime, Harness::On(used.clone())),
        None => (used, Harness::Env),
    };
    let why = format!("{program} is not installed on {}: {} there, or", used.at(), agent.install);
    let why = format!("{why} set the harness of the runtime it is on to local");
    Some(harness_cannot_run(&works.at(), &agent.cli, &setting, &why))
}

/// What is said where an agent's CLI cannot run where a runtime says.
pub fn harness_cannot_run(at: &str, cli: &str, setting: &Harness, why: &str) -> String {
    format!("{at}: {cli}'s harness cannot run where its harness setting ({setting}) says: {why}")
}

/// The hold aged out before the box was there.
pub fn hold_lost(env: &mut Resource<Environment>, why: &str, now: Timestamp) {
    not_held(env, False, LOST, why, now);
}

/// The guest answered, or did not.
pub fn probed(env: &mut Resource<Environment>, answer: &Result<(), String>, now: Timestamp) {
    match answer {
        Ok(()) => set(env, GUEST_READY, True, "Answered", "", now),
        Err(why) => set(env, GUEST_READY, False, "NotAnswering", why, now),
    }
    sum_up(env, now);
}

/// Its box is not running any more.
pub fn died(env: &mut Resource<Environment>, state: Option<&BoxState>, ending: Option<&Ending>, now: Timestamp) {
    let (reason, message) = death(state, ending, env.status.lease_seconds);
    down(env, reason, &message, now);
}

/// Why a box is not running any more, from its state, if it is there, and from what is remembered of its end: the reason and
/// one sentence. What is not known is not guessed.
pub fn death(state: Option<&BoxState>, ending: Option<&Ending>, lease: Option<u64>) -> (&'static str, String) {
    if let Some(why) = ending.and_then(|e| e.why.as_ref()) {
        return (MOVED, why.clone());
    }
    match state {
        // of a box that removes itself it is chance whether it is there still
        Some(BoxState::Exited(_)) if lease.is_some() && ending.is_some() => gone(ending, lease),
        Some(BoxState::Exited(_)) if ending.is_some_and(|e| e.removed) => gone(ending, lease),
        Some(BoxState::Exited(exit)) => ended(exit, ending).unwrap_or_else(|| by_status(exit.code)),
        Some(BoxState::Created | BoxState::Running(_)) => (UNKNOWN, "the box does not run".into()),
        None => gone(ending, lease),
    }
}

/// The end of a box that is there, when more than its status is known.
fn ended(exit: &Exit, ending: Option<&Ending>) -> Option<(&'static str, String)> {
    let code = exit.code.or(ending.and_then(|e| e.code));
    let killed = matches!(code, None | Some(137));
    match ending {
        Some(e) if e.stopped => Some((STOPPED, "the box was stopped, by somebody or with its daemon".into())),
        Some(e) if e.killed && killed => Some((KILLED_BY_HAND, "the box was killed by signal 9, which somebody sent".into())),
        // that something was killed for memory says nothing of an end that came otherwise
        Some(Ending { oom: true, .. }) if killed => Some(out_of_memory()),
        _ if exit.oom && killed => Some(out_of_memory()),
        _ => None,
    }
}

fn out_of_memory() -> (&'static str, String) {
    (OUT_OF_MEMORY, "the box was killed for want of memory".into())
}

/// The end of one of which nobody says who ended it.
fn by_status(code: Option<i64>) -> (&'static str, String) {
    match code {
        None => (UNKNOWN, "the box ended, and the daemon does not know how".into()),
        Some(137) => (UNKNOWN, "the box was killed by signal 9, and the daemon does not know by whom".into()),
        Some(code) if (129..=192).contains(&code) => (EXITED, format!("the box was killed by signal {}", code - 128)),
        Some(code) => (EXITED, format!("the box ended with status {code}")),
    }
}

/// One that is not there any more. A box with a lease removes itself at its end, whatever ended it.
fn gone(ending: Option<&Ending>, lease: Option<u64>) -> (&'static str, String) {
    let removed = (REMOVED_BY_HAND, "the box was removed by somebody".to_owned());
    let Some(lease) = lease else { return removed };
    let Some(ending) = ending else {
        return (UNKNOWN, "the box is gone: it was removed, or ended itself without an owner".into());
    };
    let exit = Exit { code: ending.code, oom: false, at: None };
    match ended(&exit, Some(ending)) {
        // of one that removes itself these two are the same
        Some((KILLED_BY_HAND, _)) => removed,
        Some(known) => known,
        None if ending.code == Some(0) => {
            (EXITED, format!("the box ended with status 0, as one does that has had no owner for {lease} s"))
        }
        None => by_status(ending.code),
    }
}

/// Its box is given up, for this reason.
pub fn down(env: &mut Resource<Environment>, reason: &str, message: &str, now: Timestamp) {
    let status = &mut env.status;
    status.container_id = None;
    status.container_name = None;
    status.pid = None;
    status.node = None;
    status.reach = None;
    status.share = None;
    set(env, SCHEDULED, False, RELEASED, "", now);
    set(env, CREATED, False, reason, message, now);
    set(env, GUEST_READY, False, reason, "", now);
    sum_up(env, now);
}

/// What was left of a box that died is gone. Until this is written it is looked for again.
pub fn discarded(env: &mut Resource<Environment>) {
    env.status.socket_dir = None;
    env.status.scratch = None;
}

/// What was there of the incarnation before is gone: the next one begins, on whatever is declared now.
pub fn next_incarnation(env: &mut Resource<Environment>, now: Timestamp) {
    let incarnation = env.status.incarnation + 1;
    let conditions = std::mem::take(&mut env.status.conditions);
    env.status = hmz_api::kinds::EnvironmentStatus { conditions, incarnation, ..Default::default() };
    for kind in [SCHEDULED, IMAGE_READY, CREATED, GUEST_READY] {
        set(env, kind, False, "Pending", "", now);
    }
    sum_up(env, now);
}

/// It was refused and nothing of it is left: the next incarnation begins when it is declared otherwise.
pub fn withdrawn(env: &mut Resource<Environment>, now: Timestamp) {
    let status = std::mem::take(&mut env.status);
    env.status.refused_generation = status.refused_generation;
    env.status.incarnation = status.incarnation + 1;
    env.status.conditions = status.conditions;
    for kind in [IMAGE_READY, CREATED, GUEST_READY] {
        set(env, kind, False, "Pending", "", now);
    }
    sum_up(env, now);
}

/// Its removal did not get through.
pub fn removal_failed(env: &mut Resource<Environment>, why: &str, unreachable: bool, now: Timestamp) {
    let (status, reason) = if unreachable { (Unknown, "Unreachable") } else { (False, "NotRemoved") };
    set(env, READY, status, reason, &format!("could not remove it: {why}"), now);
}
