//! What is done for an environment is told in spans: each piece once, below the one in which it becomes ready, and nothing of looks
//! that find nothing to do.

use crate::daemon::NO_IMAGE;
use crate::healing::{play, state};
use crate::scenario::{INSTANCE, Sim};
use hmz_api::ConditionStatus::{False, True};
use hmz_api::kinds::{Admission, Environment, EnvironmentSpec, RestartPolicy, annotation::TRACE};
use hmz_api::{Backend, Cpus, Resource, RuntimeRef};
use hmz_telemetry::Ended;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PARENT: &str = "00f067aa0ba902b7";

async fn declare(sim: &mut Sim, image: Option<&str>, admission: Option<Admission>) {
    let spec = EnvironmentSpec {
        runtime: RuntimeRef::named(Backend::Docker, "a"),
        workdir: Some("/w".into()),
        image: image.map(str::to_owned),
        cpus: Some(Cpus::whole(2)),
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Always,
        admission,
        wait_for: None,
    };
    sim.pass(Duration::from_secs(5)).await;
    let mut env = Resource::<Environment>::new("env", spec);
    env.metadata.annotations.insert(TRACE.into(), format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{PARENT}-01"));
    sim.store.create(env).await.unwrap();
}

/// What was told since the last time, by name.
fn told(heard: &Mutex<Vec<Ended>>) -> (Vec<&'static str>, Vec<Ended>) {
    let spans = std::mem::take(&mut *heard.lock().unwrap());
    let mut names: Vec<_> = spans.iter().map(|span| span.name).collect();
    names.sort_unstable();
    (names, spans)
}

/// The span in which it became ready, with all its parts in it.
fn whole<'a>(spans: &'a [Ended], but: &[&str]) -> &'a Ended {
    let whole = spans.iter().find(|span| span.name == "environment").unwrap();
    assert_eq!(whole.context.parent_id(), Some(PARENT));
    for part in spans.iter().filter(|span| span.name != "environment" && !but.contains(&span.name)) {
        assert_eq!(part.context.parent_id(), Some(whole.context.span_id()), "{part:?}");
        assert!(whole.began <= part.began && part.began <= part.ended && part.ended <= whole.ended, "{part:?} in {whole:?}");
    }
    whole
}

const PARTS: [&str; 6] = ["admission", "environment", "place", "probe", "pull", "start"];

#[test]
fn what_an_environment_waited_for_and_was_given_is_one_span_each() {
    play(async {
        let (mut sim, heard) = Sim::heard(3);
        let daemon = sim.daemons[0].clone();
        daemon.stranger_takes(3, &sim.dice);
        declare(&mut sim, None, None).await;
        sim.pass(Duration::from_secs(60)).await;
        assert_eq!(told(&heard).0, Vec::<&str>::new(), "it only waits");
        daemon.strangers_leave();
        sim.pass(Duration::from_secs(200)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 1));
        let (names, spans) = told(&heard);
        assert_eq!(names, PARTS);
        let first = whole(&spans, &[]).context.clone();
        let admission = spans.iter().find(|span| span.name == "admission").unwrap();
        let waited = admission.attributes.iter().find(|(name, _)| *name == "waited_ms").unwrap().1.as_u64().unwrap();
        assert!((60_000..100_000).contains(&waited), "{waited}");
        sim.pass(Duration::from_secs(3600)).await;
        assert_eq!(told(&heard).0, Vec::<&str>::new(), "it is only looked at");

        // the next box is another span of the same trace
        let name = daemon.boxes_of(INSTANCE).remove(0);
        daemon.state().containers.remove(&name);
        sim.pass(Duration::from_secs(200)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 2));
        let (names, spans) = told(&heard);
        assert_eq!(names, ["admission", "environment", "place", "probe", "pull", "start", "teardown"]);
        let second = whole(&spans, &["teardown"]);
        assert_eq!(second.context.trace_id(), first.trace_id());
        assert_ne!(second.context.span_id(), first.span_id());

        sim.store.delete::<Environment>("env").await.unwrap();
        sim.pass(Duration::from_secs(60)).await;
        let (names, spans) = told(&heard);
        assert_eq!(names, ["teardown"]);
        assert_eq!(spans[0].context.parent_id(), Some(PARENT));
    });
}

#[test]
fn what_is_written_at_the_second_try_is_told_once() {
    play(async {
        let (mut sim, heard) = Sim::heard(3);
        // a pull that is begun anew each time takes longer than a share is held for
        sim.daemons[0].state().images.insert("node:22".into());
        sim.contended.store(true, Ordering::Relaxed);
        declare(&mut sim, Some("node:22"), None).await;
        sim.pass(Duration::from_secs(200)).await;
        assert_eq!(state(&sim).await, (True, "Ready".into(), 1));
        sim.store.delete::<Environment>("env").await.unwrap();
        sim.pass(Duration::from_secs(200)).await;
        assert!(sim.store.get::<Environment>("env").await.unwrap().is_none());
        let (mut names, _) = told(&heard);
        // a piece of work that was done again is two
        names.retain(|name| !["place", "pull", "start"].contains(name));
        assert_eq!(names, ["admission", "environment", "probe", "teardown"]);
    });
}

#[test]
fn what_came_to_nothing_says_why() {
    play(async {
        let (mut sim, heard) = Sim::heard(3);
        declare(&mut sim, Some(NO_IMAGE), None).await;
        sim.pass(Duration::from_secs(30)).await;
        assert_eq!(state(&sim).await, (False, "Refused".into(), 1));
        sim.store.delete::<Environment>("env").await.unwrap();
        sim.pass(Duration::from_secs(30)).await;
        let (names, spans) = told(&heard);
        assert_eq!(names, ["admission", "environment", "pull", "teardown"]);
        let failure = whole(&spans, &["teardown"]).failure.as_deref().unwrap();
        assert!(failure.contains(NO_IMAGE), "{failure}");
        let pull = spans.iter().find(|span| span.name == "pull").unwrap();
        assert!(pull.failure.as_deref().is_some_and(|why| why.contains(NO_IMAGE)), "{pull:?}");
    });
}

#[test]
fn one_that_declines_to_wait_is_told_once() {
    play(async {
        let (mut sim, heard) = Sim::heard(3);
        sim.daemons[0].stranger_takes(3, &sim.dice);
        declare(&mut sim, None, Some(Admission::Refuse)).await;
        sim.pass(Duration::from_secs(30)).await;
        assert_eq!(state(&sim).await.1, "Refused");
        let (names, spans) = told(&heard);
        assert_eq!(names, ["environment", "teardown"]);
        let failure = whole(&spans, &["teardown"]).failure.as_deref().unwrap();
        assert!(failure.contains("lacks CPUs"), "{failure}");
        sim.store.delete::<Environment>("env").await.unwrap();
        sim.pass(Duration::from_secs(60)).await;
        assert!(sim.store.get::<Environment>("env").await.unwrap().is_none());
        assert_eq!(told(&heard).0, Vec::<&str>::new());
    });
}
