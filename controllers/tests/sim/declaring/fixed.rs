//! Plans of small worlds, told word by word.

use super::{Somebody, accounts, manifests, simulated};
use crate::scenario::{INSTANCE, Sim};
use hmz_api::kinds::{Environment, Run, condition};
use hmz_api::rest::{Applied, ApplyRequest, Effect};
use hmz_controllers::declare::{apply, plan};
use hmz_manifest::{Context, read_declared};
use std::collections::BTreeMap;
use std::time::Duration;

/// An environment whose image is to be pulled first.
fn pulled(labels: &str) -> ApplyRequest {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: env0, labels: {{{labels}}}}}\nspec: {{runtime: 'docker:a', \
         workdir: /w, cpus: 1, image: 'node:22'}}\n"
    );
    let declared = read_declared(&text, "m.yaml", &Context::new("/w", None)).unwrap();
    let (resources, written) = declared.into_iter().map(|one| (one.resource, one.written)).unzip();
    ApplyRequest { resources, written, ..ApplyRequest::default() }
}

#[test]
fn nothing_is_planned_on_a_daemon_that_holds_a_share_and_is_away() {
    simulated(async {
        let mut sim = Sim::calm(3);
        apply(&sim.store, &Somebody(sim.dice.clone()), &pulled("")).await.unwrap();
        let status = async |sim: &Sim| sim.store.get::<Environment>("env0").await.unwrap().unwrap().status;
        while status(&sim).await.share.is_none() {
            sim.pass(Duration::from_millis(50)).await;
        }
        sim.daemons[0].state().unreachable = true;
        sim.pass(Duration::from_secs(90)).await;
        let now = status(&sim).await;
        assert!(now.share.is_some() && now.container_id.is_none(), "{now:?}");
        let planned = plan(sim.world(), &pulled("team: red")).await.unwrap();
        assert_eq!(planned[0].outcome, Ok(Applied::Configured));
        assert_eq!(accounts::to_do(&accounts::told(&planned)), BTreeMap::new());
    });
}

#[test]
fn a_run_at_work_is_ended_and_begun_anew_when_it_is_replaced() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let of = |cpus: u64, replace: bool| {
            let text = format!(
                "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: r}}\nspec: {{flow: one, environments: {{e_0: {{runtime: \
                 'docker:b', workdir: /w, cpus: {cpus}}}}}}}\n"
            );
            let declared = read_declared(&text, "r.yaml", &Context::new("/w", None)).unwrap().remove(0);
            let (resources, written) = (vec![declared.resource], vec![declared.written]);
            ApplyRequest { resources, written, replace, ..ApplyRequest::default() }
        };
        let somebody = Somebody(sim.dice.clone());
        apply(&sim.store, &somebody, &of(1, false)).await.unwrap();
        let run = async |sim: &Sim| sim.store.get::<Run>("r").await.unwrap().unwrap();
        while !run(&sim).await.status.conditions.is_true(condition::RUNNING) {
            sim.pass(Duration::from_millis(250)).await;
        }
        let refused = plan(sim.world(), &of(2, false)).await.unwrap().remove(0).outcome.unwrap_err();
        assert_eq!(refused.message, "it has started, so what it does cannot be changed");
        let before = run(&sim).await;
        let planned = plan(sim.world(), &of(2, true)).await.unwrap().remove(0);
        assert_eq!(planned.outcome, Ok(Applied::Replaced));
        let words: Vec<String> = planned.effects.iter().map(Effect::words).collect();
        let container = sim.daemons[1].boxes_of(INSTANCE).remove(0);
        assert_eq!(
            words,
            [
                "would end what its flow is doing".to_owned(),
                format!("would remove container {container} from docker:b"),
                "would start container 'e_0' of python:3.12-slim, 2 CPUs, on docker:b".into(),
                "would run flow 'one'".into(),
            ]
        );
        let applied = apply(&sim.store, &somebody, &of(2, true)).await.unwrap().remove(0);
        assert_eq!(applied.outcome, Ok(Applied::Replaced));
        let after = run(&sim).await;
        assert_ne!(after.metadata.uid, before.metadata.uid);
        assert!(!sim.daemons[1].state().containers.contains_key(&container));
        let again = plan(sim.world(), &of(2, true)).await.unwrap().remove(0);
        assert_eq!(again.outcome, Ok(Applied::Unchanged));
    });
}
