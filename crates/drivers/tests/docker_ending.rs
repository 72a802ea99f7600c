//! How a box ended, as a real daemon tells it: to one that listened, and to one that asks afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, HANG, between, docker, until, up};
use futures::StreamExt as _;
use hmz_api::kinds::RuntimeSpec;
use hmz_drivers::docker::DockerDriver;
use hmz_drivers::{BoxEvents, BoxSpec, Driver, Ending};
use std::time::Duration;

/// How the daemon tells the end of a box that `end` was done to.
async fn ends(lease: Option<Duration>, end: impl FnOnce(&Corner, &str)) -> Ending {
    let c = Corner::new(Default::default());
    let driver = c.driver();
    let mut events = driver.events(&c.target).await.unwrap();
    let listening = tokio::spawn(async move { while let Some(Ok(_)) = events.next().await {} });
    let started = up(&driver, &c.target, &BoxSpec { lease, ..c.spec(&c.key("box")) }).await;
    end(&c, &started.id);
    let ending = async |driver: &DockerDriver| {
        tokio::time::timeout(HANG, driver.ending(&c.target, &started.id)).await.expect("it is bounded").unwrap()
    };
    let heard = ending(&driver).await;
    listening.abort();
    if let Some(asked) = ending(&c.driver()).await {
        // one that asks afterwards knows the same, unless so much happened since that the daemon forgot
        assert_eq!(Some(&asked), heard.as_ref());
    }
    heard.expect("who listened knows")
}

#[tokio::test]
async fn who_ended_a_box_is_told() {
    let by = |code, stopped, killed, removed| Ending { code: Some(code), oom: false, stopped, killed, removed, why: None };
    for lease in [None, Some(Duration::from_secs(600))] {
        // the first process of a test does not heed being asked
        assert_eq!(ends(lease, |_, id| drop(docker(&["stop", "-t", "1", id]))).await, by(137, true, true, false));
        assert_eq!(ends(lease, |_, id| drop(docker(&["rm", "-f", id]))).await, by(137, false, true, true));
        // by nobody the daemon knows
        let alone = ends(lease, |_, id| {
            let pid = docker(&["inspect", "--format", "{{.State.Pid}}", id]).parse().unwrap();
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
        });
        assert_eq!(alone.await, by(137, false, false, false));
    }
    assert_eq!(ends(None, |_, id| drop(docker(&["kill", id]))).await, by(137, false, true, false));
}

/// A container that is not ours; it goes with the value.
struct Theirs(String);

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rm", "-fv", &self.0]).output();
    }
}

#[tokio::test]
async fn the_end_of_a_container_that_is_not_ours_is_heard_and_told() {
    let by = |code, stopped, killed, removed| Ending { code: Some(code), oom: false, stopped, killed, removed, why: None };
    for (end, told) in [
        (&["stop", "-t", "60"][..], by(0, true, false, false)),
        (&["kill"], by(137, false, true, false)),
        (&["rm", "-f"], by(137, false, true, true)),
    ] {
        let loops = "trap 'exit 0' TERM; while :; do sleep 1; done";
        let theirs = Theirs(docker(&["run", "-d", "busybox", "sh", "-c", loops]));
        let mut c = Corner::new(RuntimeSpec { container: Some(theirs.0.clone()), ..RuntimeSpec::default() });
        // what the daemon remembers is not to be had: who knows has heard it
        let socket = between(&c, |line| assert!(!line.contains("/events?since="), "{line}"));
        c.target.local_endpoint = Some(format!("unix://{socket}"));
        let listen = |mut events: BoxEvents| tokio::spawn(async move { while let Some(Ok(_)) = events.next().await {} });
        // one that hears of the mark, and one that finds it
        let (before, after) = (c.driver(), c.driver());
        let hears = listen(before.events(&c.target).await.unwrap());
        let spec = BoxSpec { workdir: "/home".into(), ..c.spec(&c.key("box")) };
        let started = up(&before, &c.target, &spec).await;
        let finds = listen(after.events(&c.target).await.unwrap());
        docker(&[end, &[&theirs.0]].concat());
        for driver in [&before, &after] {
            let ending = async || driver.ending(&c.target, &started.id).await == Ok(Some(told.clone()));
            until(&format!("{end:?} was heard"), ending).await;
        }
        hears.abort();
        finds.abort();
        before.remove(&c.target, &spec.key).await.unwrap();
    }
}

#[tokio::test]
async fn a_box_that_runs_has_no_end() {
    let c = Corner::new(Default::default());
    let driver = c.driver();
    let started = up(&driver, &c.target, &c.spec(&c.key("box"))).await;
    assert_eq!(driver.ending(&c.target, &started.id).await, Ok(None));
    assert_eq!(driver.ending(&c.target, "0123456789ab").await, Ok(None), "nor has one that never was");
}

#[tokio::test]
async fn one_killed_for_memory_is_told() {
    let c = Corner::new(Default::default());
    let driver = c.driver();
    let mut events = driver.events(&c.target).await.unwrap();
    let listening = tokio::spawn(async move { while let Some(Ok(_)) = events.next().await {} });
    let started = up(&driver, &c.target, &c.spec(&c.key("box"))).await;
    docker(&["kill", &started.id]);
    docker(&["wait", &started.id]);
    std::fs::write(c.work().join("eat"), "").unwrap();
    docker(&["start", &started.id]);
    docker(&["wait", &started.id]);
    let ending = driver.ending(&c.target, &started.id).await.unwrap().expect("who listened knows");
    // that it was killed before it was started again is over
    assert_eq!((ending.code, ending.stopped, ending.killed), (Some(137), false, false));
    // the daemon may tell of the two in either order, and late; or not at all, and then the kernel does
    until("it is told", async || driver.ending(&c.target, &started.id).await.unwrap().is_some_and(|e| e.oom)).await;
    listening.abort();
}
