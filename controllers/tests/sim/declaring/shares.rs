//! What a plan says of what is given: GPUs that nobody can name yet, images that are not there, containers that run already.

use super::fixed::{applied, set, words};
use super::{manifests, simulated};
use crate::daemon::NO_IMAGE;
use crate::scenario::Sim;
use hmz_api::kinds::{Environment, condition};
use std::time::Duration;

#[test]
fn the_gpus_of_a_swarm_are_told_of_though_nobody_knows_which() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let s = manifests::runtime("swarm:s", "s", ", gpu_resource: GPU");
        applied(&mut sim, &[s], None).await;
        let told = words(&sim, &manifests::of(&manifests::environment("box", "swarm:s", ", cpus: 1, gpus: 1"))).await;
        let starts = "  would start container 'box' of python:3.12-slim (to be pulled), 1 CPU, 1 GPU, on swarm:s";
        let unsure = "  whether swarm@s has room is known only when it is asked for it";
        assert_eq!(told, ["env/box created", unsure, starts]);
    });
}

#[test]
fn who_works_in_a_container_that_runs_already_takes_nothing_from_those_beside_it() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let k = |container: &str| manifests::runtime("docker:k", "b", &format!(", container: {container}"));
        applied(&mut sim, &[k("build")], Some("one")).await;
        let of =
            |name: &str, runtime: &str, cpus: u32| manifests::environment(name, runtime, &format!(", cpus: {cpus}, memory: 1G"));
        let both = [of("in", "docker:k", 4), of("beside", "docker:b", 4)];
        let beside = "  would start container 'beside' of python:3.12-slim (to be pulled), 4 CPUs, 1G of memory, on docker:b";
        let told = words(&sim, &manifests::of(&both.join("---\n"))).await;
        assert_eq!(
            told,
            ["env/in created", "  would have 'in' work in container build on docker:k", "env/beside created", beside]
        );
        applied(&mut sim, &both, None).await;
        for name in ["in", "beside"] {
            let now = sim.store.get::<Environment>(name).await.unwrap().unwrap().status;
            assert!(now.conditions.is_true(condition::READY), "{now:#?}");
        }
        // one that is not there has nobody work in it
        applied(&mut sim, &[k("nowhere")], Some("one")).await;
        let told = words(&sim, &manifests::of(&of("late", "docker:k", 1))).await;
        assert_eq!(told, ["env/late: docker@k: cannot work in the container nowhere: there is none of that name"]);
    });
}

#[test]
fn an_image_that_is_not_there_is_told_to_be_pulled_and_one_that_was_refused_everywhere_to_be_asked_for_again() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = |more: &str| manifests::runtime("docker:c", "b", &format!(", fallback: ['docker:a']{more}"));
        applied(&mut sim, &[c("")], Some("one")).await;
        let of = |image: &str| manifests::environment("box", "docker:c", &format!(", image: '{image}'"));
        let told = words(&sim, &manifests::of(&of(NO_IMAGE))).await;
        let starts = format!("  would start container 'box' of {NO_IMAGE} (to be pulled) on docker:c");
        assert_eq!(told, ["env/box created".to_owned(), starts]);
        applied(&mut sim, &[of(NO_IMAGE)], None).await;
        let now = sim.store.get::<Environment>("box").await.unwrap().unwrap().status;
        assert_eq!(now.conditions.get(condition::READY).unwrap().reason, "Refused", "{now:#?}");
        let again = "  env/box what was refused of it is asked for again within 10 minutes";
        assert_eq!(words(&sim, &set(&[c(", cpus: 2")], false)).await, ["runtime/docker:c configured", again]);
        // one that is there is not pulled
        sim.daemons[1].state().images.insert("node:22".into());
        let told = words(&sim, &manifests::of(&of("node:22"))).await;
        assert_eq!(told, ["env/box configured", "  would start container 'box' of node:22 on docker:c"]);
    });
}
