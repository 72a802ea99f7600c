//! What a daemon tells of late, wrongly or never is found all the same, and one that is away loses nothing.

use crate::daemon::{Daemon, NO_IMAGE};
use crate::scenario::{INSTANCE, Sim};
use hmz_api::ConditionStatus::{False, True, Unknown};
use hmz_api::kinds::{
    Admission, Environment, EnvironmentRequest, EnvironmentSpec, RestartPolicy, Run, RunParams, RunSpec, Runtime, WorkPlace,
    condition,
};
use hmz_api::{Backend, ConditionStatus, Cpus, Resource, RuntimeRef};
use hmz_drivers::BoxKey;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub fn play(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work);
}

/// An environment that is ready, and its daemon.
async fn ready(seed: u64, restart: RestartPolicy) -> (Sim, Arc<Daemon>) {
    let mut sim = Sim::calm(seed);
    let spec = EnvironmentSpec {
        runtime: RuntimeRef::named(Backend::Docker, "a"),
        workdir: Some("/w".into()),
        image: None,
        cpus: Some(Cpus::whole(2)),
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart,
        admission: None,
        wait_for: None,
    };
    sim.pass(Duration::from_secs(5)).await;
    sim.store.create(Resource::<Environment>::new("env", spec)).await.unwrap();
    sim.pass(Duration::from_secs(200)).await;
    assert_eq!(state(&sim).await, (True, "Ready".into(), 1));
    let daemon = sim.daemons[0].clone();
    (sim, daemon)
}

/// Whether the environment is ready, why not, and its incarnation.
pub async fn state(sim: &Sim) -> (ConditionStatus, String, u64) {
    let env = sim.store.get::<Environment>("env").await.unwrap().unwrap();
    let ready = env.status.conditions.get(condition::READY).unwrap();
    (ready.status, ready.reason.clone(), env.status.incarnation)
}

fn lose(daemon: &Daemon) {
    let name = daemon.boxes_of(INSTANCE).remove(0);
    daemon.state().containers.remove(&name);
}

#[test]
fn what_no_event_tells_is_found_by_looking_now_and_then() {
    play(async {
        let (mut sim, daemon) = ready(1, RestartPolicy::Always).await;
        daemon.state().mute = true;
        lose(&daemon);
        sim.pass(Duration::from_secs(5)).await;
        assert_eq!(state(&sim).await.2, 1, "somebody told of it");
        sim.pass(Duration::from_secs(100)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 2));
        assert_eq!(daemon.boxes_of(INSTANCE).len(), 1);
    });
}

#[test]
fn what_happens_between_two_connections_is_found_at_the_second() {
    play(async {
        let (mut sim, daemon) = ready(2, RestartPolicy::Never).await;
        sim.pass(Duration::from_secs(40)).await; // the next look of itself is far away
        daemon.state().mute = true;
        daemon.hang_up();
        lose(&daemon);
        sim.pass(Duration::from_secs(3)).await;
        let (status, reason, incarnation) = state(&sim).await;
        assert_eq!((status, incarnation), (False, 1), "{reason}");
        assert!(daemon.state().containers.is_empty(), "its share is given back");
    });
}

#[test]
fn an_event_that_names_a_box_has_that_one_looked_at() {
    play(async {
        let (mut sim, daemon) = ready(5, RestartPolicy::Always).await;
        let name = daemon.boxes_of(INSTANCE).remove(0);
        let key = daemon.state().containers.remove(&name).unwrap().seen.key.clone().unwrap();
        // what others are told of is nothing to it
        daemon.tell_of(&BoxKey { uid: uuid::Uuid::nil(), ..key.clone() });
        sim.pass(Duration::from_secs(2)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 1));
        daemon.tell_of(&key);
        sim.pass(Duration::from_secs(10)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 2));
    });
}

#[test]
fn what_is_handed_out_is_told_of_soon_and_the_last_change_of_many_too() {
    play(async {
        let (mut sim, daemon) = ready(6, RestartPolicy::Never).await;
        let held = async |sim: &Sim| {
            let runtime = sim.store.get::<Runtime>("docker:a").await.unwrap().unwrap();
            runtime.status.held_cpus.map(Cpus::millis)
        };
        assert_eq!(held(&sim).await, Some(2000));
        daemon.stranger_takes(1, &sim.dice);
        sim.pass(Duration::from_secs(1)).await;
        assert_eq!(held(&sim).await, Some(3000));
        for _ in 0..5 {
            daemon.strangers_leave();
            sim.pass(Duration::from_millis(250)).await;
            daemon.stranger_takes(2, &sim.dice);
            sim.pass(Duration::from_millis(250)).await;
        }
        sim.pass(Duration::from_secs(6)).await;
        assert_eq!(held(&sim).await, Some(4000));
        daemon.strangers_leave();
        // of a box of ours its environment finds out
        let name = daemon.boxes_of(INSTANCE).remove(0);
        let key = daemon.state().containers.remove(&name).unwrap().seen.key.clone().unwrap();
        daemon.tell_of(&key);
        sim.pass(Duration::from_secs(7)).await;
        assert_eq!(held(&sim).await, Some(0));
    });
}

#[test]
fn a_daemon_that_is_away_is_known_as_such_soon_and_nothing_else_changes() {
    play(async {
        let (mut sim, daemon) = ready(3, RestartPolicy::Always).await;
        let before = daemon.boxes_of(INSTANCE);
        daemon.state().unreachable = true;
        daemon.hang_up();
        sim.pass(Duration::from_secs(3)).await;
        let runtime = async |sim: &Sim| {
            let runtime = sim.store.get::<Runtime>("docker:a").await.unwrap().unwrap();
            runtime.status.conditions.get(condition::REACHABLE).map(|c| c.status)
        };
        assert_eq!(runtime(&sim).await, Some(False));
        assert_eq!(state(&sim).await, (Unknown, "Unreachable".into(), 1));
        sim.pass(Duration::from_secs(3600)).await;
        assert_eq!((state(&sim).await, daemon.boxes_of(INSTANCE)), ((Unknown, "Unreachable".into(), 1), before.clone()));
        daemon.state().unreachable = false;
        sim.pass(Duration::from_secs(10)).await;
        assert_eq!((runtime(&sim).await, state(&sim).await), (Some(True), (True, "Ready".into(), 1)));
        assert_eq!(daemon.boxes_of(INSTANCE), before);
    });
}

#[test]
fn a_box_that_dies_at_once_is_not_started_again_and_again() {
    play(async {
        let (mut sim, daemon) = ready(4, RestartPolicy::Always).await;
        // each is gone a second after it was there
        for _ in 0..300 {
            if !daemon.boxes_of(INSTANCE).is_empty() {
                lose(&daemon);
                daemon.tell();
            }
            sim.pass(Duration::from_secs(1)).await;
        }
        let (_, _, incarnation) = state(&sim).await;
        assert!((3..=14).contains(&incarnation), "{incarnation} in 5 minutes");
        sim.pass(Duration::from_secs(120)).await;
        assert_eq!(state(&sim).await.0, True);
    });
}

#[test]
fn a_change_while_another_is_carried_out_leaves_it_running() {
    for seed in 0..40 {
        play(async move {
            let (mut sim, daemon) = ready(100 + seed, RestartPolicy::Never).await;
            // there, and back again before it was there
            for cpus in [1, 2] {
                loop {
                    let mut env = sim.store.get::<Environment>("env").await.unwrap().unwrap();
                    env.spec.cpus = Some(Cpus::whole(cpus));
                    if sim.store.update(env).await.is_ok() {
                        break;
                    }
                }
                sim.pass(sim.dice.millis(120)).await;
            }
            sim.pass(Duration::from_secs(200)).await;
            let (ready, reason, incarnation) = state(&sim).await;
            assert_eq!(ready, True, "seed {seed}: {reason}, incarnation {incarnation}");
            assert_eq!(daemon.boxes_of(INSTANCE).len(), 1);
        });
    }
}

#[test]
fn what_was_refused_everywhere_is_asked_for_again_as_soon_as_it_is_declared_otherwise() {
    play(async {
        let mut sim = Sim::calm(1);
        assert!(sim.falls, "there is nowhere else to go");
        let spec = EnvironmentSpec {
            runtime: RuntimeRef::named(Backend::Docker, "a"),
            workdir: Some("/w".into()),
            image: Some(NO_IMAGE.into()),
            cpus: Some(Cpus::whole(2)),
            memory: None,
            gpus: None,
            gpu_memory: None,
            restart: RestartPolicy::Always,
            admission: None,
            wait_for: None,
        };
        sim.pass(Duration::from_secs(5)).await;
        sim.store.create(Resource::<Environment>::new("env", spec)).await.unwrap();
        sim.pass(Duration::from_secs(30)).await;
        assert_eq!(state(&sim).await, (False, "Refused".into(), 1));
        let mut env = sim.store.get::<Environment>("env").await.unwrap().unwrap();
        assert_eq!(env.status.passed_over.len(), 3);
        env.spec.image = Some("node:22".into());
        sim.store.update(env).await.unwrap();
        sim.pass(Duration::from_secs(120)).await;
        let env = sim.store.get::<Environment>("env").await.unwrap().unwrap();
        assert_eq!((state(&sim).await.0, env.status.image.as_deref()), (True, Some("node:22")), "{env:#?}");
        // and on the one that was named, which refused only what was declared before
        assert_eq!(env.status.used, Some(env.spec.runtime));
    });
}

#[test]
fn a_gang_that_waits_on_one_daemon_under_two_names_holds_nothing_of_it() {
    play(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let place = |name: Option<&str>, cpus| {
            EnvironmentRequest::Place(WorkPlace {
                runtime: RuntimeRef { backend: Backend::Docker, name: name.map(str::to_owned) },
                workdir: Some("/w".into()),
                image: None,
                cpus: Some(Cpus::whole(cpus)),
                memory: None,
                gpus: None,
                gpu_memory: None,
            })
        };
        let spec = RunSpec {
            flow: "two".into(),
            task: String::new(),
            agents: BTreeMap::new(),
            environments: [("e_0".to_owned(), place(None, 1)), ("e_1".to_owned(), place(Some("a"), 3))].into(),
            params: RunParams::default(),
            admission: Some(Admission::Wait),
            wait_for: None,
            ttl_after_finish: None,
        };
        // there is room for either of them, and not for both
        let daemon = sim.daemons[0].clone();
        daemon.stranger_takes(1, &sim.dice);
        sim.store.create(Resource::<Run>::new("run", spec)).await.unwrap();
        sim.pass(Duration::from_secs(20)).await;
        let run = sim.store.get::<Run>("run").await.unwrap().unwrap();
        assert_eq!(run.status.conditions.get(condition::ENVIRONMENTS_READY).unwrap().reason, "Waiting", "{run:#?}");
        let held = daemon.holds();
        sim.pass(Duration::from_secs(60)).await;
        assert_eq!(daemon.holds(), held, "it was held and given back again and again");
        daemon.strangers_leave();
        sim.pass(Duration::from_secs(300)).await;
        let run = sim.store.get::<Run>("run").await.unwrap().unwrap();
        assert!(run.status.conditions.is_true(condition::RUNNING) || run.status.is_complete(), "{run:#?}");
    });
}
