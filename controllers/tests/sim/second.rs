//! The second box of a run: it comes with the run's own, is counted where it is, and goes with them.

use crate::scenario::{INSTANCE, Sim};
use hmz_api::kinds::{
    Admission, EnvironmentRequest, Run, RunParams, RunSpec, WorkPlace, condition::ENVIRONMENTS_READY, condition::RUNNING,
};
use hmz_api::{Backend, Cpus, Resource, RuntimeRef};
use std::collections::BTreeMap;
use std::time::Duration;

fn paired() -> RunSpec {
    let place = |_| {
        EnvironmentRequest::Place(WorkPlace {
            runtime: RuntimeRef::named(Backend::Docker, "b"),
            workdir: Some("/w".into()),
            image: None,
            cpus: Some(Cpus::whole(1)),
            memory: None,
            gpus: None,
            gpu_memory: None,
        })
    };
    RunSpec {
        flow: "paired".into(),
        task: String::new(),
        agents: [("coder".to_owned(), "script/s".parse().unwrap())].into(),
        environments: BTreeMap::from(["e_0", "e_1"].map(|role| (role.to_owned(), place(role)))),
        params: RunParams::default(),
        admission: Some(Admission::Wait),
        wait_for: None,
        ttl_after_finish: None,
    }
}

/// Of two roles an agent works in one, whose runtime has its harnesses on the other daemon.
#[test]
fn it_comes_with_its_run_and_goes_with_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut sim = Sim::calm(1);
        sim.pass(Duration::from_secs(5)).await;
        let boxes = |sim: &Sim| [0, 1].map(|n| sim.daemons[n].boxes_of(INSTANCE).len());
        // while its daemon is away the run waits, and has nothing
        sim.daemons[0].state().unreachable = true;
        sim.store.create(Resource::<Run>::new("run", paired())).await.unwrap();
        sim.pass(Duration::from_secs(45)).await;
        let run = sim.store.get::<Run>("run").await.unwrap().unwrap();
        let why = run.status.conditions.get(ENVIRONMENTS_READY).unwrap();
        assert_eq!((why.reason.as_str(), boxes(&sim)), ("Waiting", [0, 0]), "{run:#?}");
        sim.daemons[0].state().unreachable = false;
        let mut most = [0, 0];
        for _ in 0..4000 {
            sim.pass(Duration::from_millis(250)).await;
            let now = boxes(&sim);
            most = [most[0].max(now[0]), most[1].max(now[1])];
            let run = sim.store.get::<Run>("run").await.unwrap().unwrap();
            if run.status.conditions.is_true(RUNNING) {
                assert_eq!(now, [1, 2], "it began without its boxes");
                let second = run.status.environments["e_0"].harness.clone().unwrap();
                assert_eq!((second.environment.as_str(), second.runtime.to_string()), ("run-e-0.harness", "docker:a".into()));
                assert_eq!(run.status.environments["e_1"].harness, None);
            }
            if run.status.is_complete() && now == [0, 0] {
                assert_eq!(most, [1, 2]);
                return;
            }
        }
        panic!("it does not end: {:?}", boxes(&sim));
    });
}
