//! What a plan says is what an apply then does, and after it there is nothing left to plan: over random manifests, in random
//! worlds.

use crate::daemon::{CPUS, Daemon};
use crate::scenario::Sim;
use async_trait::async_trait;
use hmz_api::kinds::{Environment, Run, annotation, condition};
use hmz_api::launch::CallerContext;
use hmz_api::rest::{Applied, ApplyRequest, Effect, Planned};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Cpus, Error};
use hmz_controllers::declare::{Applier, apply, plan, spec};
use hmz_manifest::{Context, read_declared};
use hmz_store::{Ids, Store};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Seeds of a normal test run, shared out among the tests below.
const SEEDS: u64 = 60;
const PARTS: u64 = 2;
/// Longer than anything that an apply sets off takes in a calm world.
const RESTS: Duration = Duration::from_secs(420);

/// Who applies in the simulation.
struct Somebody(crate::dice::Dice);

#[async_trait]
impl Applier for Somebody {
    fn uid(&self) -> Uuid {
        self.0.uid()
    }
    fn put(&self, _: Uuid, _: &CallerContext) {}
    fn knows(&self, _: Uuid) -> bool {
        true
    }
    fn forget(&self, _: Uuid) {}
    async fn gone(&self, store: &Store, kind: &'static str, name: &str) -> Result<(), Error> {
        while store.get_any(kind, name).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// A manifest, as somebody might write it. `small`: what it asks for fits, whatever else is there.
fn manifest(sim: &Sim, nth: u64, small: bool) -> String {
    let dice = &sim.dice;
    let runtime = dice.pick(&["docker:a", "docker@a", "docker:b", "docker", "docker:nope", "docker:broken"]).unwrap();
    let cpus = if small { "0.1".to_owned() } else { (1 + dice.below(5)).to_string() };
    let cpus = if dice.one_in(6) { String::new() } else { format!(", cpus: {cpus}") };
    let labels = dice.pick(&["", ", labels: {team: red}", ", labels: {team: blue, more: x}"]).unwrap();
    if dice.one_in(3) {
        let (flow, n) = dice.pick(&[("one", 1), ("one", 1), ("two", 2), ("five", 5), ("none", 0)]).unwrap();
        let roles: Vec<String> = (0..n).map(|i| format!("e_{i}: {{runtime: '{runtime}', workdir: /w{cpus}}}")).collect();
        let roles = if dice.one_in(8) { String::new() } else { roles.join(", ") };
        let admission = dice.pick(&["", ", admission: wait", ", admission: refuse"]).unwrap();
        return format!(
            "apiVersion: hmz/v1\nkind: Run\nmetadata: {{name: run{nth}{labels}}}\nspec: {{flow: {flow}, environments: \
             {{{roles}}}{admission}}}\n"
        );
    }
    let image = dice.pick(&["", "", ", image: 'node:22'"]).unwrap();
    let restart = dice.pick(&["", ", restart: never", ", restart: always"]).unwrap();
    let workdir = if dice.one_in(9) { "" } else { ", workdir: /w" };
    format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: env{nth}{labels}}}\nspec: {{runtime: \
         '{runtime}'{workdir}{cpus}{image}{restart}}}\n"
    )
}

/// Several, and how they are applied.
fn request(sim: &Sim) -> ApplyRequest {
    let dice = &sim.dice;
    // where several ask for the last room, who has it is chance; so either one asks, or there is room for all
    let is_full = sim.daemons.iter().any(|daemon| daemon.state().held(&[]) + 1000 > CPUS * 1000);
    let alone = is_full || dice.one_in(2);
    let n = if alone { 1 } else { 2 + dice.below(3) };
    let mut names: Vec<u64> = (0..5).collect();
    let mut texts = Vec::new();
    for _ in 0..n {
        let nth = names.remove(dice.below(names.len() as u64) as usize);
        texts.push(manifest(sim, nth, !alone));
    }
    let declared = read_declared(&texts.join("---\n"), "m.yaml", &Context::new("/w", None)).unwrap_or_else(|e| panic!("{e:?}"));
    let (resources, written) = declared.into_iter().map(|one| (one.resource, one.written)).unzip();
    let set = dice.pick(&[None, Some("one"), Some("one"), Some("two")]).flatten().map(str::to_owned);
    let caller = CallerContext { cwd: "/w".into(), docker_endpoint: Some("unix:///a.sock".into()), ..CallerContext::default() };
    let (prune, replace) = (set.is_some() && dice.one_in(2), dice.one_in(3));
    ApplyRequest { resources, written, caller, set, prune, replace, ..ApplyRequest::default() }
}

/// What was done on the daemons since: boxes that were started, and those of before that were removed.
fn done(daemons: &[Arc<Daemon>]) -> (Vec<String>, BTreeSet<String>) {
    let mut started = Vec::new();
    let mut removed = BTreeSet::new();
    for daemon in daemons {
        let state = daemon.state();
        let ours = state.made.iter().filter(|one| one.key.as_ref().is_some_and(|k| k.instance == crate::scenario::INSTANCE));
        started.extend(ours.map(|one| format!("{} {} on {}", one.role, cpus(one.share.cpus), one.provider)));
        removed.extend(state.before.iter().filter(|name| !state.containers.contains_key(*name)).cloned());
    }
    started.sort();
    (started, removed)
}

fn cpus(cpus: Option<Cpus>) -> u64 {
    cpus.map_or(0, Cpus::millis)
}

/// The same as it is planned.
fn planned_to_do(planned: &[Planned]) -> (Vec<String>, BTreeSet<String>) {
    let effects = || planned.iter().flat_map(|one| &one.effects);
    let started = effects().filter_map(|effect| match effect {
        Effect::Start { role, share, runtime, .. } => Some(format!("{role} {} on {}", cpus(share.cpus), runtime.provider())),
        _ => None,
    });
    let removed = effects().filter_map(|effect| match effect {
        Effect::Remove { container, .. } => Some(container.clone()),
        _ => None,
    });
    let mut started: Vec<String> = started.collect();
    started.sort();
    (started, removed.collect())
}

/// A world in which nothing moves, after all sorts of things have happened in it.
async fn quiet(seed: u64) -> (Sim, ApplyRequest) {
    let mut sim = Sim::calm(seed);
    let mut last = None;
    for _ in 0..sim.dice.below(5) {
        let request = request(&sim);
        let _ = apply(&sim.store, &Somebody(sim.dice.clone()), &request).await;
        last = Some(request);
        sim.pass(sim.dice.millis(20_000)).await;
    }
    if sim.dice.one_in(2) {
        sim.hurt_a_box();
    }
    if sim.dice.one_in(3) {
        sim.strangers();
    }
    if sim.dice.one_in(6) {
        sim.cut_off();
    }
    sim.pass(RESTS).await;
    // whoever waits might get what is given back
    for one in sim.store.list_any(None).await.unwrap().items {
        let waits = matches!(verdict::of(&one), Some(Verdict::Waits(_)) | None);
        let name = &one.metadata().name;
        if waits || one.metadata().is_deleting() {
            let _ = sim.store.delete_any(one.kind(), name).await;
        }
    }
    sim.pass(RESTS).await;
    let again = last.filter(|_| sim.dice.one_in(5));
    let next = again.unwrap_or_else(|| request(&sim));
    (sim, next)
}

async fn play(seed: u64) {
    let (mut sim, request) = quiet(seed).await;
    for one in &request.resources {
        let text = hmz_manifest::to_yaml(one).unwrap();
        sim.tell(format!("replace {} set {:?} prune {}\n{text}", request.replace, request.set, request.prune));
    }
    let revision = sim.store.revision().await.unwrap();
    sim.daemons.iter().for_each(|daemon| daemon.remember());
    let contents =
        |sim: &Sim| sim.daemons.iter().map(|d| d.state().containers.keys().cloned().collect()).collect::<Vec<BTreeSet<_>>>();
    let before = contents(&sim);
    let planned = plan(sim.world(), &request).await;
    assert_eq!(contents(&sim), before, "a plan changed a daemon");
    assert_eq!(sim.store.revision().await.unwrap(), revision, "a plan changed the store");
    let applied = apply(&sim.store, &Somebody(sim.dice.clone()), &request).await;
    let planned = match (planned, &applied) {
        (Ok(planned), Ok(_)) => planned,
        (Err(planned), Err(applied)) => return assert_eq!(planned, *applied),
        (planned, applied) => panic!("planned {planned:?}\napplied {applied:?}"),
    };
    for one in &planned {
        sim.tell(format!("planned {} {} {:?} {:?}", one.kind, one.name, one.outcome, one.effects));
    }
    sim.pass(RESTS).await;
    assert_eq!(done(&sim.daemons), planned_to_do(&planned), "what was done, and what was planned");
    for (one, applied) in planned.iter().zip(applied.unwrap()) {
        assert_eq!((&one.kind, &one.name), (&applied.kind, &applied.name));
        let stored = sim.store.get_any(&one.kind, &one.name).await.unwrap();
        let verdict = stored.as_ref().and_then(verdict::of);
        match (&one.outcome, &applied.outcome) {
            (Err(planned), Err(refused)) => assert_eq!(planned.message, refused.message),
            // taken, and then refused by the controllers
            (Err(planned), Ok(_)) => match verdict {
                Some(Verdict::Refused(error)) => assert_eq!(lasting(&planned.message), lasting(&error.message)),
                other => panic!("planned to be refused ({planned}), and it is {other:?}"),
            },
            (Ok(planned), Ok(applied)) => {
                assert_eq!(planned, applied);
                let waits = matches!(verdict, Some(Verdict::Waits(_)));
                let was_to = one.effects.iter().any(|effect| matches!(effect, Effect::Wait { .. }));
                let is_told = matches!(planned, Applied::Unchanged | Applied::Pruned) || waits == was_to;
                assert!(is_told, "{} {}: {verdict:?} and {:?}", one.kind, one.name, one.effects);
                let declared = |one: &Option<AnyResource>| one.as_ref().map(|one| (spec(one).unwrap(), kept(one)));
                // one that is on a daemon that is away goes when that is back
                let stays = stored.filter(|stored| !stored.metadata().is_deleting());
                assert_eq!(declared(&one.after), declared(&stays));
            }
            (planned, applied) => panic!("planned {planned:?}, applied {applied:?}"),
        }
    }
    // what is pruned is not declared, and what was generated is new each time
    let again = plan(sim.world(), &request).await.unwrap();
    let differs: Vec<&Planned> = again.iter().filter(|one| one.differs()).collect();
    assert!(differs.is_empty(), "it was applied, and still differs: {differs:#?}");
}

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
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
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
        assert_eq!(planned_to_do(&planned), (Vec::new(), BTreeSet::new()));
    });
}

/// A refusal without what was free at that moment: what is pruned meanwhile gives some back, before it is asked or after.
fn lasting(message: &str) -> String {
    let free = message.split_once(" has ").and_then(|(at, rest)| Some((at, rest.split_once(" of ")?.1)));
    free.map_or_else(|| message.to_owned(), |(at, rest)| format!("{at} has some of {rest}"))
}

/// What is declared of a resource beside its spec.
fn kept(one: &AnyResource) -> Vec<(String, String)> {
    let metadata = one.metadata();
    let ours = [annotation::CANCEL];
    let annotations = metadata.annotations.iter().filter(|(key, _)| !ours.contains(&key.as_str()));
    metadata.labels.iter().chain(annotations).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn play_all(part: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number of seeds"));
    let seeds: Vec<u64> = match number("HMZ_SIM_SEED") {
        Some(seed) => {
            if part == 0 {
                vec![seed]
            } else {
                Vec::new()
            }
        }
        None => (0..number("HMZ_SIM_SEEDS").unwrap_or(SEEDS)).filter(|seed| seed % PARTS == part).collect(),
    };
    for seed in seeds {
        let failed = std::panic::catch_unwind(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(play(seed));
        });
        if let Err(cause) = failed {
            eprintln!("seed {seed} failed; again with HMZ_SIM_SEED={seed} HMZ_SIM_LOG=1");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn what_is_planned_is_what_is_done_1() {
    play_all(0);
}

#[test]
fn what_is_planned_is_what_is_done_2() {
    play_all(1);
}

#[test]
fn the_seeds_plan_all_sorts_of_things() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let planned = runtime.block_on(async {
            let (sim, request) = quiet(seed).await;
            plan(sim.world(), &request).await.unwrap_or_default()
        });
        for one in planned {
            seen.extend(one.effects.iter().map(|effect| match effect {
                Effect::Start { told: Some(_), .. } => "falls back",
                Effect::Start { .. } => "starts",
                Effect::Remove { .. } => "removes",
                Effect::Begin { .. } => "begins",
                Effect::End => "ends",
                Effect::Wait { .. } => "waits",
                Effect::Unsure { .. } => "is unsure",
            }));
            seen.insert(match one.outcome {
                Ok(applied) => applied.word(),
                Err(_) => "refused",
            });
        }
    }
    // whether it replaces one, or is asked again, is a matter of luck in so few
    let luck = ["replaced", "unchanged"];
    let seen: Vec<&str> = seen.into_iter().filter(|word| !luck.contains(word)).collect();
    let all = ["begins", "configured", "created", "falls back", "pruned", "refused", "removes", "starts", "waits"];
    assert_eq!(seen, all);
}

#[test]
fn a_run_at_work_is_ended_and_begun_anew_when_it_is_replaced() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
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
        let container = sim.daemons[1].boxes_of(crate::scenario::INSTANCE).remove(0);
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
