//! What has to hold: always, and in the end.

use crate::daemon::{Daemon, HOLD_AGE, NO_IMAGE};
use crate::scenario::{INSTANCE, Sim};
use hmz_api::kinds::{Admission, Environment, Run, Runtime, condition};
use hmz_api::{Cpus, Kind, Resource};
use hmz_controllers::RunnerState;
use hmz_controllers::environment::plan::{is_down, key_of};
use hmz_drivers::{BoxState, Purpose};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Nothing that must never be has been.
pub fn never(broken: &Mutex<Vec<String>>) {
    let broken = broken.lock().unwrap();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Whether it may go to another runtime than the one it names.
fn falls(sim: &Sim, env: &Resource<Environment>) -> bool {
    sim.falls && env.spec.runtime.name.as_deref() == Some("a")
}

fn asked(env: &Resource<Environment>) -> u64 {
    env.spec.cpus.map_or(0, Cpus::millis)
}

fn free(daemon: &Daemon) -> u64 {
    let state = daemon.state();
    let held: u64 = state
        .containers
        .values()
        .filter(|c| matches!(c.seen.state, BoxState::Running(_)))
        .filter_map(|c| c.seen.share.cpus)
        .map(Cpus::millis)
        .sum();
    daemon.cpus * 1000 - held
}

/// Everything is as declared, or says why it cannot be, and nothing is there that nobody declared. What comes back are the
/// holds of gangs that wait and are trying their lists again at this moment: they have to be given back soon.
pub async fn converged(sim: &Sim, everything_goes: bool) -> BTreeSet<String> {
    let mut trying = BTreeSet::new();
    let environments = sim.store.list::<Environment>().await.unwrap();
    let runs = sim.store.list::<Run>().await.unwrap();
    if everything_goes {
        assert!(environments.is_empty() && runs.is_empty(), "left: {environments:#?} {runs:#?}");
    }
    let mut wanted = BTreeSet::new();
    for env in &environments {
        assert!(!env.metadata.is_deleting(), "still there: {env:#?}");
        let conditions = &env.status.conditions;
        if conditions.is_true(condition::READY) {
            wanted.insert(key_of(env, INSTANCE));
            let used = env.status.used.as_ref().unwrap();
            let scheduled = conditions.get(condition::SCHEDULED).unwrap();
            if *used == env.spec.runtime {
                assert!(scheduled.reason == "Held" && env.status.passed_over.is_empty(), "{env:#?}");
            } else {
                assert!(falls(sim, env) && used.name.as_deref() == Some("b") && scheduled.reason == "FellBack", "{env:#?}");
                let passed: Vec<String> = env.status.passed_over.iter().map(|p| p.runtime.to_string()).collect();
                assert_eq!(passed, ["docker:a", "swarm:none"], "{env:#?}");
                assert!(scheduled.message.ends_with("; using docker:b"), "{env:#?}");
            }
            assert_eq!(env.status.share.as_ref().map(|s| s.cpus), Some(env.spec.cpus), "{env:#?}");
            continue;
        }
        let ready = conditions.get(condition::READY).unwrap_or_else(|| panic!("says nothing: {env:#?}"));
        let excused = match ready.reason.as_str() {
            "Refused" => env.is_refused() || env.spec.image.as_deref() == Some(NO_IMAGE),
            // whoever declines to wait, or waited long enough, is refused
            "Insufficient" if env.spec.admission == Some(Admission::Refuse) || env.spec.wait_for.is_some() => false,
            // it can be held nowhere, or could be where its image is not to be had
            "Insufficient" if falls(sim, env) && env.metadata.owner_references.is_empty() => {
                env.spec.image.as_deref() == Some(NO_IMAGE) || sim.daemons.iter().all(|d| free(d) < asked(env))
            }
            "Insufficient" if falls(sim, env) => true,
            "Insufficient" => sim.daemons.iter().any(|d| {
                let here = |e: &Resource<Environment>| e.status.endpoint == Some(d.endpoint());
                let gang = gang(env, &environments).into_iter().filter(|e| here(e)).map(asked).sum::<u64>();
                free(d) < gang
            }),
            _ => is_down(env) && env.spec.restart == hmz_api::kinds::RestartPolicy::Never,
        };
        assert!(excused, "not ready without an excuse: {env:#?}");
        assert!(ready.reason == "Insufficient" || !ready.message.is_empty(), "{env:#?}");
    }
    for run in &runs {
        assert!(!run.metadata.is_deleting(), "still there: {run:#?}");
        if run.status.is_complete() {
            let mine = environments.iter().find(|e| e.metadata.owner_references.iter().any(|o| Some(o.uid) == run.metadata.uid));
            assert!(mine.is_none(), "a run ended and its environment stays: {mine:#?}");
            assert!(run.spec.ttl_after_finish.is_none(), "outlived its time: {run:#?}");
            continue;
        }
        let why = run.status.conditions.get(condition::ENVIRONMENTS_READY);
        assert!(why.is_some_and(|c| c.reason == "Waiting"), "neither ended nor waiting: {run:#?} {environments:#?}");
    }
    for daemon in &sim.daemons {
        let state = daemon.state();
        for (name, one) in &state.containers {
            let key = one.seen.key.as_ref().unwrap();
            // one that came late for an environment that waits counts no more, and whoever admits next clears it away
            let waits = environments.iter().any(|e| key_of(e, INSTANCE) == *key && !is_down(e));
            if one.seen.purpose == Purpose::Hold && one.made.elapsed() > HOLD_AGE && waits {
                continue;
            }
            // a gang holds one daemon's part while it asks the next
            let of_a_gang = |e: &Resource<Environment>| key_of(e, INSTANCE) == *key && gang(e, &environments).len() > 1;
            if one.seen.purpose == Purpose::Hold && !wanted.contains(key) && environments.iter().any(of_a_gang) {
                trying.insert(one.seen.id.clone());
                continue;
            }
            assert!(wanted.contains(key), "{}: leaked {name}", daemon.name);
            assert_eq!(one.seen.purpose, Purpose::Box, "{}: leaked {name}", daemon.name);
            assert!(matches!(one.seen.state, BoxState::Running(_)), "{name}");
        }
    }
    let boxes: usize = sim.daemons.iter().map(|d| d.boxes_of(INSTANCE).len()).sum();
    assert_eq!(boxes, wanted.len(), "a ready environment has no box");
    // one that waits to be started again may have its files already
    let may = |e: &&Resource<Environment>| !is_down(e);
    let known: BTreeSet<_> = environments.iter().filter(may).map(|e| key_of(e, INSTANCE)).collect();
    let files = sim.files.there.lock().unwrap().clone();
    assert!(files.is_superset(&wanted) && files.is_subset(&known), "files: {files:#?} wanted: {wanted:#?}");
    for (epic, runner) in sim.runners.runners.lock().unwrap().iter() {
        let uid = Some(runner.launch.uid);
        let of = runs.iter().find(|r| r.metadata.uid == uid && !r.status.is_complete());
        assert!(of.is_some() || runner.state != RunnerState::Alive, "a runner nobody follows: {epic}");
    }
    let runtimes: Vec<String> = sim.store.list::<Runtime>().await.unwrap().into_iter().map(|r| r.metadata.name).collect();
    assert_eq!(runtimes, ["docker", "docker:a", "docker:b", "docker:broken"], "{}", Runtime::KIND);
    trying
}

/// None of these holds is there any more.
pub fn given_back(sim: &Sim, holds: &BTreeSet<String>) {
    for daemon in &sim.daemons {
        let state = daemon.state();
        let stays = state.containers.values().map(|one| &one.seen).find(|seen| holds.contains(&seen.id));
        assert!(stays.is_none(), "{}: a gang that waits keeps {stays:#?}", daemon.name);
    }
}

/// An environment and those its run needs besides.
fn gang<'a>(env: &'a Resource<Environment>, all: &'a [Resource<Environment>]) -> Vec<&'a Resource<Environment>> {
    let owner = |e: &Resource<Environment>| e.metadata.owner_references.first().map(|o| o.uid);
    if owner(env).is_none() { vec![env] } else { all.iter().filter(|e| owner(e) == owner(env)).collect() }
}

/// How many runs of several environments wait for room.
pub async fn gangs_that_wait(sim: &Sim) -> usize {
    let waits = |r: &Resource<Run>| {
        r.spec.environments.len() > 1 && !r.status.is_complete() && !r.status.conditions.is_true(condition::RUNNING)
    };
    sim.store.list::<Run>().await.unwrap().into_iter().filter(waits).count()
}

/// Whether an environment waits for the cause of a refusal to go away.
pub async fn any_refused(sim: &Sim) -> bool {
    let refused = |e: &Resource<Environment>| {
        let waits = e.spec.image.as_deref() == Some(NO_IMAGE) && !e.status.passed_over.is_empty();
        waits || e.status.conditions.get(condition::READY).is_some_and(|c| c.reason == "Refused")
    };
    sim.store.list::<Environment>().await.unwrap().iter().any(refused)
}
