//! Whom a plan tells of though nobody applies them: by their flow, and by the runtime of their second boxes.

use super::fixed::{applied, set, words};
use super::{Somebody, manifests, simulated};
use crate::scenario::Sim;
use hmz_api::kinds::{Run, condition};
use hmz_api::rest::ApplyRequest;
use hmz_controllers::declare::apply;
use std::time::Duration;

fn flow(roles: &str) -> String {
    format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: own}}\nspec: {{environments: {{{roles}}}, steps: [{{exec: \
         {{environment: e_0, command: ls}}}}]}}\n"
    )
}

fn run(flow: &str, runtime: &str, more: &str) -> String {
    let role = |n: u32| format!("e_{n}: {{runtime: '{runtime}', workdir: /w, cpus: 1}}");
    format!(
        "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: r}}\nspec: {{flow: {flow}, environments: {{{}, {}}}, admission: \
         wait{more}}}\n",
        role(0),
        role(1)
    )
}

/// Carries it out; whether the run is at work then.
async fn runs_after(sim: &mut Sim, request: &ApplyRequest) -> bool {
    sim.runners.lasting.store(true, std::sync::atomic::Ordering::Relaxed);
    apply(&sim.store, &Somebody(sim.dice.clone()), request).await.unwrap();
    sim.pass(Duration::from_secs(60)).await;
    let run = sim.store.get::<Run>("r").await.unwrap().unwrap();
    run.status.conditions.is_true(condition::RUNNING)
}

#[test]
fn a_flow_that_asks_for_less_begins_who_waits_to_do_it() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let full = manifests::environment("full", "docker:b", ", cpus: 3");
        applied(&mut sim, &[flow("e_0: {}, e_1: {}")], Some("one")).await;
        applied(&mut sim, &[full], None).await;
        applied(&mut sim, &[run("own", "docker:b", "")], None).await;
        let less = set(&[flow("e_0: {}")], false);
        let told = words(&sim, &less).await;
        let starts = "  run/r would start container 'e_0' of python:3.12-slim, 1 CPU, on docker:b";
        assert_eq!(told, ["flow/own configured", starts, "  run/r would run flow 'own'"]);
        assert!(runs_after(&mut sim, &less).await);
    });
}

#[test]
fn a_flow_whose_role_has_no_place_in_a_run_that_waits_changes_nothing() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        applied(&mut sim, &[flow("e_0: {}, e_1: {}")], Some("one")).await;
        applied(&mut sim, &[manifests::environment("full", "docker:b", ", cpus: 3")], None).await;
        applied(&mut sim, &[run("own", "docker:b", "")], None).await;
        let more = set(&[flow("e_0: {}, e_1: {}, e_2: {}")], false);
        assert_eq!(words(&sim, &more).await, ["flow/own configured"]);
        assert!(!runs_after(&mut sim, &more).await);
    });
}

#[test]
fn a_runtime_of_second_boxes_with_more_room_begins_who_waits_for_one() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = manifests::runtime("docker:c", "b", ", harness: 'docker:d'");
        let d = |cpus: u32| manifests::runtime("docker:d", "a", &format!(", cpus: {cpus}, default_request: {{cpus: 1}}"));
        applied(&mut sim, &[c, d(1)], Some("one")).await;
        applied(&mut sim, &[manifests::environment("full", "docker:d", ", cpus: 1")], Some("two")).await;
        applied(&mut sim, &[run("paired", "docker:c", ", agents: {coder: script/s}")], None).await;
        let starts = [
            "  run/r would start container 'e_0' of python:3.12-slim (to be pulled), 1 CPU, on docker:c",
            "  run/r would start container 'harness' of python:3.12-slim, 1 CPU, on docker:d",
            "  run/r would start container 'e_1' of python:3.12-slim (to be pulled), 1 CPU, on docker:c",
            "  run/r would run flow 'paired'",
        ];
        let wider = set(&[d(2)], false);
        assert_eq!(words(&sim, &wider).await, [&["runtime/docker:d configured"][..], &starts].concat());
        // so does what gives room back there
        let nothing = ApplyRequest { set: Some("two".into()), prune: true, allow_empty: true, ..set(&[], true) };
        let told = words(&sim, &nothing).await;
        assert_eq!((told[0].as_str(), &told[2..]), ("env/full pruned", &starts.map(str::to_owned)[..]), "{told:#?}");
        // and what another runtime is does nothing to it
        let other = set(&[manifests::runtime("docker:e", "a", ", cpus: 2")], false);
        assert_eq!(words(&sim, &other).await, ["runtime/docker:e created"]);
        assert!(runs_after(&mut sim, &wider).await);
    });
}

#[test]
fn who_falls_back_to_a_runtime_of_second_boxes_waits_for_them_too() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = manifests::runtime("docker:c", "b", ", cpus: 0.5, fallback: ['docker:e']");
        let e = manifests::runtime("docker:e", "b", ", harness: 'docker:d'");
        let d = |cpus: u32| manifests::runtime("docker:d", "a", &format!(", cpus: {cpus}, default_request: {{cpus: 1}}"));
        applied(&mut sim, &[c, e, d(1)], Some("one")).await;
        applied(&mut sim, &[manifests::environment("full", "docker:d", ", cpus: 1")], None).await;
        applied(&mut sim, &[run("paired", "docker:c", ", agents: {coder: script/s}")], None).await;
        let told = words(&sim, &set(&[d(3)], false)).await;
        assert!(told.iter().any(|line| line.contains("container 'harness'") && line.ends_with("on docker:d")), "{told:#?}");
        assert!(runs_after(&mut sim, &set(&[d(3)], false)).await);
    });
}

#[test]
fn a_run_whose_runtime_is_another_daemon_before_its_box_is_there_begins_on_that() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = |daemon: &str| manifests::runtime("docker:c", daemon, "");
        applied(&mut sim, &[c("b")], Some("one")).await;
        let pulled = manifests::of(&run("two", "docker:c", ""));
        apply(&sim.store, &Somebody(sim.dice.clone()), &pulled).await.unwrap();
        let images = |sim: &Sim, n: usize| sim.daemons[n].state().images.len();
        // one of them is at work there, and what was to be started beside it is not
        while images(&sim, 1) == 0 {
            sim.pass(Duration::from_millis(50)).await;
            sim.daemons[1].state().unreachable = images(&sim, 1) > 0;
        }
        sim.pass(Duration::from_secs(60)).await;
        let told = words(&sim, &set(&[c("a")], false)).await;
        let boxes = told.iter().filter(|line| line.contains("would start container") && line.contains("(to be pulled)")).count();
        assert_eq!(boxes, 2, "{told:#?}");
        assert!(runs_after(&mut sim, &set(&[c("a")], false)).await);
        assert_eq!(sim.daemons[0].boxes_of(crate::scenario::INSTANCE).len(), 2);
    });
}

#[test]
fn one_that_fell_back_and_is_declared_where_it_is_now_is_told_to_start_there_and_not_why_it_fell_back() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = manifests::runtime("docker:c", "a", ", max_containers: 1, fallback: ['docker:b']");
        applied(&mut sim, &[c], None).await;
        let of = |name: &str, runtime: &str, cpus: u32| manifests::environment(name, runtime, &format!(", cpus: {cpus}"));
        applied(&mut sim, &[of("full", "docker:c", 1)], None).await;
        applied(&mut sim, &[of("box", "docker:c", 1)], None).await;
        let told = words(&sim, &manifests::of(&of("box", "docker:b", 2))).await;
        assert_eq!(told.last().unwrap(), "  would start container 'box' of python:3.12-slim, 2 CPUs, on docker:b", "{told:#?}");
        // and one that still does is told why
        let told = words(&sim, &manifests::of(&of("box", "docker:c", 2))).await;
        assert!(told.last().unwrap().ends_with("using docker:b)"), "{told:#?}");
    });
}

#[test]
fn one_that_goes_with_the_apply_that_brings_its_runtime_may_begin_before() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        applied(&mut sim, &[manifests::environment("box", "docker:c", "")], Some("one")).await;
        let told = words(&sim, &set(&[manifests::runtime("docker:c", "b", "")], true)).await;
        let unsure = "  docker:c comes with the same apply, and it may begin before it goes";
        assert_eq!(told, ["runtime/docker:c created", "env/box pruned", unsure]);
    });
}

#[test]
fn what_an_earlier_declaration_was_told_does_not_move_a_later_one() {
    for delay in 0..40 {
        simulated(async {
            let mut sim = Sim::calm(3);
            sim.pass(Duration::from_secs(5)).await;
            let c = |more: &str| manifests::runtime("docker:c", "b", &format!(", fallback: ['docker:a']{more}"));
            let of = |cpus: u32| manifests::environment("box", "docker:c", &format!(", cpus: {cpus}"));
            applied(&mut sim, &[c("")], None).await;
            applied(&mut sim, &[of(5)], None).await;
            let somebody = Somebody(sim.dice.clone());
            apply(&sim.store, &somebody, &manifests::of(&c(", lease: 40s"))).await.unwrap();
            // it is asked for as it was, and is another in the middle of that
            tokio::time::sleep(Duration::from_millis(delay)).await;
            apply(&sim.store, &somebody, &manifests::of(&of(1))).await.unwrap();
            sim.pass(Duration::from_secs(60)).await;
            let env = sim.store.get::<hmz_api::kinds::Environment>("box").await.unwrap().unwrap();
            assert_eq!(env.status.used, Some(env.spec.runtime), "after {delay} ms");
        });
    }
}

#[test]
fn a_run_that_does_not_go_is_told_to_be_ended_all_the_same() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let of = |flow: &str| manifests::of(&run(flow, "docker:b", ""));
        assert!(runs_after(&mut sim, &of("two")).await);
        sim.daemons[1].state().unreachable = true;
        sim.pass(Duration::from_secs(60)).await;
        let anew = ApplyRequest { replace: true, ..manifests::of(&run("two", "docker:b", ", ttl_after_finish: 1h")) };
        let told = words(&sim, &anew).await;
        assert_eq!(told, [format!("run/r: {}", super::WOULD_STAY), "  would end what its flow is doing".into()]);
    });
}
