//! Plans of small worlds, told word by word.

use super::{Somebody, accounts, manifests, rest, simulated};
use crate::daemon::NO_IMAGE;
use crate::scenario::{INSTANCE, Sim};
use hmz_api::AnyResource;
use hmz_api::kinds::{Environment, Run, Runtime, condition};
use hmz_api::rest::{Applied, ApplyRequest, Effect};
use hmz_controllers::declare::{apply, plan};
use hmz_manifest::{Context, read_declared};
use hmz_store::Store;
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

/// An environment on that daemon, as its metadata and its CPUs say.
fn declared(metadata: &str, cpus: u64) -> ApplyRequest {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{{metadata}}}\nspec: {{runtime: 'docker:a', workdir: /w, cpus: \
         {cpus}}}\n"
    );
    let declared = read_declared(&text, "m.yaml", &Context::new("/w", None)).unwrap();
    let (resources, written) = declared.into_iter().map(|one| (one.resource, one.written)).unzip();
    ApplyRequest { resources, written, ..ApplyRequest::default() }
}

#[test]
fn a_change_on_a_daemon_that_is_away_would_wait_and_one_for_people_alone_asks_nobody() {
    simulated(async {
        let mut sim = Sim::calm(3);
        apply(&sim.store, &Somebody(sim.dice.clone()), &declared("name: env0", 1)).await.unwrap();
        rest(&mut sim).await;
        let is_ready = async |sim: &Sim| {
            let env = sim.store.get::<Environment>("env0").await.unwrap().unwrap();
            env.status.conditions.is_true(condition::READY)
        };
        assert!(is_ready(&sim).await);
        // the controllers have not looked since
        sim.daemons[0].state().unreachable = true;
        let planned = plan(sim.world(), &declared("name: env0", 2)).await.unwrap();
        assert_eq!(planned[0].outcome, Ok(Applied::Configured));
        let [Effect::Wait { why }] = planned[0].effects.as_slice() else { panic!("{planned:?}") };
        assert!(why.contains("connection refused"), "{why}");

        let asked = sim.daemons[0].state().asked;
        let planned = plan(sim.world(), &declared("name: env0, labels: {team: red}, annotations: {owner: me}", 1)).await.unwrap();
        assert_eq!((&planned[0].outcome, planned[0].effects.as_slice()), (&Ok(Applied::Configured), [].as_slice()));
        assert_eq!(sim.daemons[0].state().asked, asked);
    });
}

#[test]
fn who_is_not_made_yet_is_told_of_by_no_name_that_it_will_not_have() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let planned = plan(sim.world(), &declared("generateName: gen-", 1)).await.unwrap();
        let [Effect::Start { role, .. }] = planned[0].effects.as_slice() else { panic!("{planned:?}") };
        assert_eq!((planned[0].name.as_str(), role.as_str()), ("gen-?", "gen-?"));
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

/// Applies what these texts declare, and lets it come to rest.
pub(super) async fn applied(sim: &mut Sim, texts: &[String], set: Option<&str>) {
    let request = ApplyRequest { set: set.map(str::to_owned), ..manifests::of(&texts.join("---\n")) };
    for result in apply(&sim.store, &Somebody(sim.dice.clone()), &request).await.unwrap() {
        assert!(result.outcome.is_ok(), "{result:?}");
    }
    sim.pass(Duration::from_secs(60)).await;
}

/// What an apply of these texts is told to do: each line of what it would do and set off.
pub(super) async fn words(sim: &Sim, request: &ApplyRequest) -> Vec<String> {
    let mut lines = Vec::new();
    for one in plan(sim.world(), request).await.unwrap() {
        let of = accounts::shown(&(one.kind.clone(), one.name.clone()));
        lines.push(match &one.outcome {
            Ok(applied) => format!("{of} {}", applied.word()),
            Err(error) => format!("{of}: {}", error.message),
        });
        lines.extend(one.effects.iter().map(|effect| format!("  {}", effect.words())));
        for other in &one.others {
            let of = accounts::shown(&(other.kind.clone(), other.name.clone()));
            lines.extend(other.effects.iter().map(|effect| format!("  {of} {}", effect.words())));
        }
    }
    lines
}

pub(super) fn set(texts: &[String], prune: bool) -> ApplyRequest {
    ApplyRequest { set: Some("one".into()), prune, ..manifests::of(&texts.join("---\n")) }
}

#[test]
fn a_runtime_with_more_room_starts_who_waited_for_it_and_one_that_goes_refuses_them() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = |more: &str| manifests::runtime("docker:c", "b", more);
        let of = |name: &str, cpus: &str| manifests::environment(name, "docker:c", &format!(", cpus: {cpus}"));
        applied(&mut sim, &[c(", cpus: 1")], Some("one")).await;
        applied(&mut sim, &[of("first", "1")], None).await;
        applied(&mut sim, &[of("second", "1"), of("third", "3")], None).await;
        let wider = [c(", cpus: 2")];
        let started = "  env/second would start container 'second' of python:3.12-slim, 1 CPU, on docker:c";
        assert_eq!(words(&sim, &set(&wider, false)).await, ["runtime/docker:c configured", started]);
        // both of two that ask for the same
        let both = [c(", cpus: 2"), of("fourth", "1")];
        let luck = "docker@c has no room for all of env/fourth, env/second, and who asks first has it";
        assert_eq!(
            words(&sim, &set(&both, false)).await,
            [
                "runtime/docker:c configured".to_owned(),
                format!("  env/second {luck}"),
                "env/fourth created".into(),
                "  would start container 'fourth' of python:3.12-slim, 1 CPU, on docker:c".into(),
                format!("  {luck}"),
            ]
        );
        // another image, a limit of containers and a list do nothing to whom they cannot serve
        for more in [", cpus: 1, image: 'node:20'", ", cpus: 1, max_containers: 1", ", cpus: 1, lease: 30s"] {
            assert_eq!(words(&sim, &set(&[c(more)], false)).await, ["runtime/docker:c configured"], "{more}");
        }
        let falls = [c(", cpus: 1, fallback: ['docker:a']")];
        let told = words(&sim, &set(&falls, false)).await;
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(told[1].contains("env/second would start container 'second'") && told[1].contains("using docker:a"), "{told:#?}");
        // one that goes stays for whoever is on it, and takes in nobody
        let nothing = ApplyRequest { allow_empty: true, ..set(&[], true) };
        let missing = "would be refused: no docker runtime is saved as 'c'; save one on the runtimes page of /settings, or write \
                       docker/x for docker on this machine";
        assert_eq!(
            words(&sim, &nothing).await,
            [
                "runtime/docker:c pruned".to_owned(),
                "  would wait: it goes when nothing is on it: env/first".into(),
                format!("  env/second {missing}"),
                format!("  env/third {missing}"),
            ]
        );
    });
}

#[test]
fn who_falls_back_to_another_runtime_of_the_same_daemon_may_as_well_be_the_first() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = manifests::runtime("docker:c", "b", ", max_containers: 1, fallback: ['docker:b']");
        applied(&mut sim, &[c], None).await;
        let of = |name: &str| manifests::environment(name, "docker:c", ", cpus: 0.1");
        let told = words(&sim, &manifests::of(&[of("first"), of("second")].join("---\n"))).await;
        let luck = "  docker@c has no room for all of env/first, env/second, and who asks first has it";
        assert_eq!(told.iter().filter(|line| *line == luck).count(), 2, "{told:#?}");
    });
}

#[test]
fn what_goes_lets_those_begin_that_waited_for_its_room() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let of = |name: &str, cpus: u64| manifests::environment(name, "docker:b", &format!(", cpus: {cpus}"));
        applied(&mut sim, &[of("big", 3)], Some("one")).await;
        applied(&mut sim, &[of("next", 2)], None).await;
        let container = sim.daemons[1].boxes_of(INSTANCE).remove(0);
        let gone = format!("  would remove container {container} from docker:b");
        let starts = "  env/next would start container 'next' of python:3.12-slim, 2 CPUs, on docker:b";
        let nothing = ApplyRequest { allow_empty: true, ..set(&[], true) };
        assert_eq!(words(&sim, &nothing).await, ["env/big pruned".to_owned(), gone.clone(), starts.into()]);
        let smaller = words(&sim, &set(&[of("big", 1)], false)).await;
        let restarts = "  would start container 'big' of python:3.12-slim, 1 CPU, on docker:b";
        assert_eq!(smaller, ["env/big configured".to_owned(), gone, restarts.into(), starts.into()]);
        // who waits for another daemon is not asked about
        let listed = sim.daemons[0].state().listed;
        let _ = words(&sim, &nothing).await;
        assert_eq!(sim.daemons[0].state().listed, listed);
    });
}

#[test]
fn one_that_never_held_anything_on_a_daemon_that_is_away_is_moved_from_it() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        sim.daemons[1].state().unreachable = true;
        applied(&mut sim, &[manifests::environment("box", "docker:b", ", cpus: 1")], None).await;
        let to_a = [manifests::environment("box", "docker:a", ", cpus: 1")];
        let told = words(&sim, &manifests::of(&to_a[0])).await;
        let starts = "  would start container 'box' of python:3.12-slim (to be pulled), 1 CPU, on docker:a";
        assert_eq!(told, ["env/box configured", starts]);
        applied(&mut sim, &to_a, None).await;
        let now = sim.store.get::<Environment>("box").await.unwrap().unwrap().status;
        assert!(now.conditions.is_true(condition::READY), "{now:#?}");
    });
}

#[test]
fn an_image_that_is_another_is_asked_for_at_once_where_one_was_refused() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = |image: &str, more: &str| manifests::runtime("docker:c", "b", &format!(", image: '{image}'{more}"));
        let of = [c(NO_IMAGE, ""), manifests::environment("box", "docker:c", "")];
        applied(&mut sim, &of, Some("one")).await;
        let box_now = async |sim: &Sim| sim.store.get::<Environment>("box").await.unwrap().unwrap().status;
        assert_eq!(box_now(&sim).await.conditions.get(condition::READY).unwrap().reason, "Refused");
        let unsure = "  env/box what was refused of it is asked for again within 10 minutes";
        assert_eq!(words(&sim, &set(&[c(NO_IMAGE, ", cpus: 2")], false)).await, ["runtime/docker:c configured", unsure]);
        let mended = [c("node:20", "")];
        let starts = "  env/box would start container 'box' of node:20 (to be pulled) on docker:c";
        assert_eq!(words(&sim, &set(&mended, false)).await, ["runtime/docker:c configured", starts]);
        sim.daemons[1].state().images.insert("node:20".into());
        let request = set(&mended, false);
        let _ = apply(&sim.store, &Somebody(sim.dice.clone()), &request).await.unwrap();
        sim.pass(Duration::from_secs(5)).await;
        assert!(box_now(&sim).await.conditions.is_true(condition::READY));
    });
}

#[test]
fn a_run_that_was_accepted_keeps_a_runtime_that_goes_and_nobody_writes_for_ever() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.runners.lasting.store(true, std::sync::atomic::Ordering::Relaxed);
        sim.pass(Duration::from_secs(5)).await;
        let run = |name: &str| {
            format!(
                "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: {name}}}\nspec: {{flow: one, environments: {{e_0: {{runtime: \
                 'docker:c', workdir: /w, cpus: 1}}}}, admission: wait}}\n"
            )
        };
        applied(&mut sim, &[manifests::runtime("docker:c", "b", ", cpus: 1")], Some("one")).await;
        applied(&mut sim, &[run("first")], None).await;
        applied(&mut sim, &[run("second")], None).await;
        let nothing = ApplyRequest { allow_empty: true, ..set(&[], true) };
        let stays = "  would wait: it goes when nothing is on it: env/first-e-0, run/first, run/second";
        assert_eq!(words(&sim, &nothing).await, ["runtime/docker:c pruned", stays]);
        apply(&sim.store, &Somebody(sim.dice.clone()), &nothing).await.unwrap();
        sim.pass(Duration::from_secs(30)).await;
        let before = sim.store.revision().await.unwrap();
        sim.pass(Duration::from_secs(60)).await;
        assert_eq!(sim.store.revision().await.unwrap(), before, "something is written while nothing happens");
        sim.store.delete_any("Run", "first").await.unwrap();
        sim.pass(Duration::from_secs(60)).await;
        let second = sim.store.get::<Run>("second").await.unwrap().unwrap().status;
        assert!(second.conditions.is_true(condition::RUNNING), "{second:#?}");
        sim.store.delete_any("Run", "second").await.unwrap();
        sim.pass(Duration::from_secs(60)).await;
        assert_eq!(sim.store.get_any("Runtime", "docker:c").await.unwrap(), None);
    });
}

#[test]
fn a_run_whose_runtime_is_gone_is_refused_and_nobody_writes_for_ever() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let run = "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: waits}\nspec: {flow: one, environments: {e_0: {runtime: \
                   'docker:c', workdir: /w, cpus: 1}}, admission: wait}\n";
        let (c, full) = (manifests::runtime("docker:c", "b", ""), manifests::environment("full", "docker:b", ", cpus: 4"));
        applied(&mut sim, &[c, full], None).await;
        applied(&mut sim, &[run.to_owned()], None).await;
        let status = async |sim: &Sim| sim.store.get::<Run>("waits").await.unwrap().unwrap().status;
        assert!(status(&sim).await.conditions.is_true(condition::ACCEPTED));
        // as one does that goes in the moment that the run is accepted
        sim.store.delete::<Runtime>("docker:c").await.unwrap();
        let mut going = sim.store.get::<Runtime>("docker:c").await.unwrap().unwrap();
        going.metadata.finalizers.clear();
        sim.store.update(going).await.unwrap();
        sim.store.delete_any("Environment", "full").await.unwrap();
        rest(&mut sim).await;
        let complete = status(&sim).await.conditions.get(condition::COMPLETE).cloned().unwrap();
        assert_eq!(complete.reason, "Refused");
        assert!(complete.message.starts_with("'e_0': no docker runtime is saved as 'c'; "), "{}", complete.message);
    });
}

#[test]
fn what_others_use_is_applied_before_them_wherever_it_stands_and_told_of_where_it_stands() {
    simulated(async {
        let sim = Sim::calm(3);
        // nobody is at work on this one, so that each is as it was applied
        let store = Store::in_memory(sim.clock.clone());
        let run = "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec: {flow: own, environments: {e: {runtime: \
                   'docker:c', workdir: /w}}}\n";
        let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: own}\nspec: {environments: {e: {}}, steps: [{exec: \
                    {environment: e, command: ls}}]}\n";
        let texts = [run.to_owned(), flow.to_owned(), manifests::runtime("docker:c", "b", "")];
        let results = apply(&store, &Somebody(sim.dice.clone()), &manifests::of(&texts.join("---\n"))).await.unwrap();
        let told: Vec<&str> = results.iter().map(|result| result.kind.as_str()).collect();
        assert_eq!(told, ["Run", "Flow", "Runtime"]);
        let mut made = store.list_any(None).await.unwrap().items;
        made.sort_by_key(|one| one.metadata().resource_version);
        let made: Vec<&str> = made.iter().map(AnyResource::kind).collect();
        assert_eq!(made, ["Flow", "Runtime", "Run"]);
    });
}

#[test]
fn a_run_of_a_flow_that_goes_with_the_same_apply_is_told_as_chance() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let flow = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: own}\nspec: {environments: {e: {}}, steps: [{exec: \
                    {environment: e, command: ls}}]}\n";
        let run = "apiVersion: hmz/v1\nkind: Run\nmetadata: {name: r}\nspec: {flow: own, environments: {e: {runtime: \
                   'docker:b', workdir: /w}}}\n";
        applied(&mut sim, &[flow.to_owned()], Some("one")).await;
        let told = words(&sim, &set(&[run.to_owned()], true)).await;
        let chance = |it: &str| format!("own goes with the same apply, and {it} may look before that or after");
        assert_eq!((told[0].as_str(), told.len()), ("run/r created", 5), "{told:#?}");
        assert!(told[1].starts_with("  would be refused: "), "{told:#?}");
        assert_eq!(told[2..], [format!("  {}", chance("it")), "flow/own pruned".into(), format!("  {}", chance("run/r"))]);
    });
}

#[test]
fn a_runtime_of_many_concerns_only_those_that_are_not_at_rest() {
    simulated(async {
        let mut sim = Sim::calm(3);
        sim.pass(Duration::from_secs(5)).await;
        let c = |cpus: u64| manifests::runtime("docker:c", "b", &format!(", cpus: {cpus}"));
        applied(&mut sim, &[c(3)], Some("one")).await;
        let many: Vec<String> = (0..60).map(|n| manifests::environment(&format!("e{n}"), "docker:c", ", cpus: 0.05")).collect();
        applied(&mut sim, &many, None).await;
        applied(&mut sim, &[manifests::environment("last", "docker:c", ", cpus: 1")], None).await;
        let asked = sim.daemons[1].state().asked;
        let told = words(&sim, &set(&[c(4)], false)).await;
        assert_eq!(told[1..], ["  env/last would start container 'last' of python:3.12-slim, 1 CPU, on docker:c"]);
        let asked = sim.daemons[1].state().asked - asked;
        assert!(asked < 15, "{asked} questions for one of sixty");
        // and nobody is asked anything for a runtime that nobody waits for
        let before: Vec<u64> = sim.daemons.iter().map(|daemon| daemon.state().asked).collect();
        let _ = words(&sim, &set(&[manifests::runtime("docker:d", "a", "")], false)).await;
        assert_eq!(sim.daemons.iter().map(|daemon| daemon.state().asked).collect::<Vec<_>>(), before);
    });
}
