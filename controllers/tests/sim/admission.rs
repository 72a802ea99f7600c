//! An environment that declines to wait is refused once and for all, one that waits for so long is when that is over, and what is
//! planned of them is what comes.

use crate::daemon::{CPUS, Daemon};
use crate::scenario::{INSTANCE, Sim};
use hmz_api::kinds::{Admission, Environment, EnvironmentSpec, RestartPolicy, condition};
use hmz_api::rest::{Applied, ApplyRequest, Effect};
use hmz_api::{AnyResource, Backend, Cpus, Resource, RuntimeRef, Span};
use hmz_controllers::declare::plan;
use hmz_controllers::environment::plan::key_of;
use hmz_drivers::BoxKey;
use std::future::Future;
use std::time::Duration;

/// One that falls back from `a` to `b`, and one in which `a` is alone.
const FALLS: u64 = 1;
const ALONE: u64 = 3;

fn play(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work);
}

/// An environment on `a` that asks for half of what that has.
fn declared(admission: Option<Admission>, wait_for: Option<u64>) -> Resource<Environment> {
    let spec = EnvironmentSpec {
        runtime: RuntimeRef::named(Backend::Docker, "a"),
        workdir: Some("/w".into()),
        image: None,
        cpus: Some(Cpus::whole(CPUS / 2)),
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Always,
        admission,
        wait_for: wait_for.map(Span::from_secs),
    };
    Resource::new("env", spec)
}

/// A world whose daemons are full.
async fn full(seed: u64) -> Sim {
    let mut sim = Sim::calm(seed);
    assert_eq!(sim.falls, seed == FALLS);
    sim.pass(Duration::from_secs(5)).await;
    sim.daemons.iter().for_each(|daemon| fill(&sim, daemon));
    sim
}

fn fill(sim: &Sim, daemon: &Daemon) {
    for _ in 0..CPUS {
        daemon.stranger_takes(1, &sim.dice);
    }
}

async fn env(sim: &Sim) -> Resource<Environment> {
    sim.store.get::<Environment>("env").await.unwrap().unwrap()
}

/// Why it is not ready, and what is said of it.
async fn said(sim: &Sim) -> (String, String) {
    let ready = env(sim).await.status.conditions.get(condition::READY).unwrap().clone();
    (ready.reason, ready.message)
}

fn boxes(sim: &Sim) -> usize {
    sim.daemons.iter().map(|daemon| daemon.boxes_of(INSTANCE).len()).sum()
}

#[test]
fn one_that_declines_to_wait_is_refused_for_good_with_every_reason() {
    play(async {
        let mut sim = full(FALLS).await;
        sim.store.create(declared(Some(Admission::Refuse), None)).await.unwrap();
        sim.pass(Duration::from_secs(2)).await;
        let (reason, message) = said(&sim).await;
        assert_eq!(reason, "Refused");
        for part in ["docker:a cannot hold 'env': ", "; swarm:none cannot hold 'env': ", "; docker:b cannot hold 'env': "] {
            assert!(message.contains(part), "{message}");
        }
        // there is room, and nobody asks for it
        sim.daemons.iter().for_each(|daemon| daemon.strangers_leave());
        let refused = env(&sim).await;
        sim.pass(Duration::from_secs(3600)).await;
        assert_eq!((env(&sim).await, boxes(&sim)), (refused.clone(), 0));
        let mut changed = refused;
        changed.spec.cpus = Some(Cpus::whole(1));
        sim.store.update(changed).await.unwrap();
        sim.pass(Duration::from_secs(120)).await;
        assert_eq!((said(&sim).await.0, boxes(&sim)), ("Ready".into(), 1));
    });
}

#[test]
fn a_wait_ends_when_it_was_long_enough_and_each_incarnation_has_its_own() {
    play(async {
        let mut sim = full(ALONE).await;
        sim.store.create(declared(None, Some(60))).await.unwrap();
        sim.pass(Duration::from_secs(50)).await;
        assert_eq!(said(&sim).await.0, "Insufficient");
        let daemon = sim.daemons[0].clone();
        daemon.strangers_leave();
        sim.pass(Duration::from_secs(100)).await;
        let up = env(&sim).await;
        assert_eq!((said(&sim).await.0, up.status.waiting_since), ("Ready".into(), None));
        // its box dies, and its place is somebody else's before it is started again
        let name = daemon.boxes_of(INSTANCE).remove(0);
        let key = daemon.state().containers.remove(&name).unwrap().seen.key.clone().unwrap();
        fill(&sim, &daemon);
        daemon.tell_of(&key);
        sim.pass(Duration::from_secs(50)).await;
        assert_eq!((said(&sim).await.0, env(&sim).await.status.incarnation), ("Insufficient".into(), 2));
        sim.pass(Duration::from_secs(20)).await;
        let (reason, message) = said(&sim).await;
        assert!(reason == "Refused" && message.ends_with(" (it waited 1m)"), "{reason}: {message}");
        daemon.strangers_leave();
        sim.pass(Duration::from_secs(600)).await;
        assert_eq!((said(&sim).await, boxes(&sim)), ((reason, message), 0));
    });
}

#[test]
fn a_daemon_that_is_away_has_no_room() {
    for (admission, wait_for, end) in
        [(Some(Admission::Refuse), None, "Refused"), (None, Some(60), "Refused"), (None, None, "Unreachable")]
    {
        play(async move {
            let mut sim = Sim::calm(ALONE);
            sim.pass(Duration::from_secs(5)).await;
            sim.daemons[0].state().unreachable = true;
            sim.store.create(declared(admission, wait_for)).await.unwrap();
            sim.pass(Duration::from_secs(20)).await;
            let soon = if admission.is_some() { end } else { "Unreachable" };
            assert_eq!(said(&sim).await.0, soon);
            sim.pass(Duration::from_secs(50)).await;
            let (reason, message) = said(&sim).await;
            assert_eq!((reason.as_str(), message.contains("connection refused")), (end, true), "{message}");
            assert_eq!(message.ends_with(" (it waited 1m)"), wait_for.is_some());
            sim.daemons[0].state().unreachable = false;
            sim.daemons[0].hang_up();
            sim.pass(Duration::from_secs(120)).await;
            assert_eq!(boxes(&sim), usize::from(end == "Unreachable"));
        });
    }
}

#[test]
fn who_holds_nothing_on_a_daemon_that_is_away_may_go_to_another_one() {
    for admission in [Some(Admission::Refuse), None] {
        play(async move {
            let mut sim = Sim::calm(ALONE);
            sim.pass(Duration::from_secs(5)).await;
            sim.daemons[0].state().unreachable = true;
            sim.store.create(declared(admission, None)).await.unwrap();
            sim.pass(Duration::from_secs(20)).await;
            let mut changed = env(&sim).await;
            changed.spec.runtime = RuntimeRef::named(Backend::Docker, "b");
            sim.store.update(changed).await.unwrap();
            sim.pass(Duration::from_secs(120)).await;
            assert_eq!((said(&sim).await.0, sim.daemons[1].boxes_of(INSTANCE).len()), ("Ready".into(), 1));
        });
    }
}

#[test]
fn what_comes_late_of_one_that_was_refused_goes() {
    play(async {
        let mut sim = full(ALONE).await;
        sim.store.create(declared(Some(Admission::Refuse), None)).await.unwrap();
        sim.pass(Duration::from_secs(2)).await;
        let (refused, daemon) = (env(&sim).await, sim.daemons[0].clone());
        assert!(refused.is_refused() && refused.status.incarnation == 2, "{refused:?}");
        daemon.starts_late(&BoxKey { incarnation: 1, ..key_of(&refused, INSTANCE) });
        assert_eq!(boxes(&sim), 1);
        sim.pass(Duration::from_secs(300)).await;
        assert_eq!((boxes(&sim), env(&sim).await), (0, refused));
    });
}

#[test]
fn what_is_planned_of_it_is_what_comes() {
    for seed in [FALLS, ALONE] {
        play(async move {
            let mut sim = full(seed).await;
            let ask = |admission, wait_for| {
                let one = AnyResource::Environment(Box::new(declared(admission, wait_for)));
                ApplyRequest { resources: vec![one], ..ApplyRequest::default() }
            };
            let waits = plan(sim.world(), &ask(None, Some(60))).await.unwrap().remove(0);
            assert!(waits.outcome == Ok(Applied::Created) && matches!(&waits.effects[..], [Effect::Wait { .. }]), "{waits:?}");
            let refused = plan(sim.world(), &ask(Some(Admission::Refuse), None)).await.unwrap().remove(0);
            let refused = refused.outcome.unwrap_err().message;
            sim.store.create(declared(Some(Admission::Refuse), None)).await.unwrap();
            sim.pass(Duration::from_secs(2)).await;
            assert_eq!(said(&sim).await, ("Refused".into(), refused));
            let again = plan(sim.world(), &ask(Some(Admission::Refuse), None)).await.unwrap().remove(0);
            assert!(!again.differs(), "{again:?}");
        });
    }
}
