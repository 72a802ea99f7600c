//! Plans and refusals of every situation, as snapshots.

use super::plan::{Observed, Plan, Step, environment_name, no_room, plan};
use super::refusal::{self, check, message};
use super::walk::{Stage, Walk};
use super::{FINALIZER, plan::complete};
use crate::environment::outcome;
use crate::target::Saved;
use crate::world::RunnerState;
use hmz_api::journal::Outcome;
use hmz_api::kinds::{
    Admission, BoxedAgent, Environment, FlowEnvironment, FlowSpec, Harness, Run, RunSpec, Runtime, RuntimeSpec, Share,
    Step as FlowStep,
};
use hmz_api::launch::{CallerContext, Told};
use hmz_api::{Backend, Cpus, Error, Resource, RuntimeRef, Span};
use hmz_drivers::{GuestFiles, Started};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use uuid::Uuid;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn boxed() -> FlowSpec {
    let asked = FlowEnvironment { image: Some("python:3.12-slim".into()), cpus: Some(Cpus::whole(2)), ..Default::default() };
    FlowSpec {
        description: None,
        agents: BTreeMap::from([("coder".into(), Default::default())]),
        environments: BTreeMap::from([("box".into(), asked)]),
        params: BTreeMap::new(),
        steps: vec![FlowStep::Turn { agent: "coder".into(), environment: "box".into(), prompt: "{{ task }}".into(), id: None }],
    }
}

fn declared(environments: &[(&str, &str)]) -> Resource<Run> {
    let spec: RunSpec = serde_json::from_value(serde_json::json!({
        "flow": "boxed",
        "agents": {"coder": "claude/claude-haiku-4-5:low"},
        "environments": environments.iter().copied().collect::<BTreeMap<_, _>>(),
    }))
    .unwrap();
    let mut run = Resource::<Run>::new("fix", spec);
    run.metadata.uid = Some(Uuid::from_u128(9));
    run.metadata.generation = 1;
    run.metadata.finalizers.push(FINALIZER.into());
    run
}

fn runtimes(saved: &[(&str, RuntimeSpec)], run: &Resource<Run>) -> refusal::Runtimes {
    let find = |r: &RuntimeRef| {
        let name = r.resource_name();
        saved.iter().find(|(n, _)| *n == name).map(|(n, s)| Resource::<Runtime>::new(*n, s.clone()))
    };
    let places: Vec<RuntimeRef> = run.spec.environments.values().map(|e| e.place().runtime).collect();
    let second = |r: &RuntimeRef| match find(r)?.spec.harness {
        Harness::On(named) => Some(named),
        Harness::Env | Harness::Local => None,
    };
    places.iter().cloned().chain(places.iter().filter_map(second)).map(|r| (r.clone(), find(&r))).collect()
}

fn local() -> RuntimeSpec {
    RuntimeSpec { harness: Harness::Local, ..RuntimeSpec::default() }
}

fn harness(setting: &str) -> RuntimeSpec {
    RuntimeSpec { harness: setting.parse().unwrap(), ..RuntimeSpec::default() }
}

#[test]
fn refusals_say_what_to_do() {
    let saved = [
        ("docker", RuntimeSpec::default()),
        ("docker:here", local()),
        ("docker:env", RuntimeSpec::default()),
        ("docker:far", harness("docker:here")),
        ("docker:far-ssh", harness("docker:ssh")),
        ("docker:far-nope", harness("docker:nope")),
        ("docker:far-swarm", harness("swarm:nodes")),
        ("docker:far-slurm", harness("slurm:x")),
        ("docker:ssh", RuntimeSpec { endpoint: "ssh://gpu".parse().unwrap(), ..local() }),
    ];
    let names = Saved {
        path: "/home/me/.hmz/settings.yaml".into(),
        names: ["here", "env", "far", "ssh"].map(|name| RuntimeRef::named(Backend::Docker, name)).into(),
    };
    let mut out = Vec::new();
    let mut says = |what: &str, run: Resource<Run>| {
        let result = check(&run, &boxed(), &runtimes(&saved, &run), &[Backend::Docker, Backend::Swarm], &names, None);
        let text = result.map_or_else(|e| message(&e), |()| "accepted".into());
        out.push(format!("# {what}\n{text}"));
    };
    says("well formed", declared(&[("box", "docker@here/w")]));
    says("no environment", declared(&[]));
    says("another role", declared(&[("box", "docker@here/w"), ("other", "docker@here/w")]));
    says("not saved", declared(&[("box", "docker@nope/w")]));
    says("a slip of the hand", declared(&[("box", "docker@hree/w")]));
    says("no workdir", declared(&[("box", "docker@here")]));
    says("another backend", declared(&[("box", "slurm@x/w")]));
    says("endpoint elsewhere", declared(&[("box", "docker@ssh/w")]));
    says("nothing saved", declared(&[("box", "docker/home/me/p")]));
    says("harness in the box", declared(&[("box", "docker@env/w")]));
    says("harness in a second box", declared(&[("box", "docker@far/w")]));
    says("harness on another machine", declared(&[("box", "docker@far-ssh/w")]));
    says("harness on what is not saved", declared(&[("box", "docker@far-nope/w")]));
    says("harness on a swarm", declared(&[("box", "docker@far-swarm/w")]));
    says("harness on what is not driven", declared(&[("box", "docker@far-slurm/w")]));
    let mut nobody = declared(&[("box", "docker@here/w")]);
    nobody.spec.agents.clear();
    says("no agent", nobody);
    let mut other = declared(&[("box", "docker@here/w")]);
    let coder = other.spec.agents["coder"].clone();
    other.spec.agents.insert("x".into(), coder);
    says("another agent", other);
    let mut slip = declared(&[("bxo", "docker@here/w")]);
    let coder = slip.spec.agents["coder"].clone();
    slip.spec.agents = BTreeMap::from([("codr".into(), coder)]);
    says("a slip in a role", slip.clone());
    slip.spec.agents = declared(&[]).spec.agents;
    says("a slip in an environment role", slip);
    let mut param = declared(&[("box", "docker@here/w")]);
    param.spec.params.own.insert("dpeth".into(), 3.into());
    says("a parameter of a flow without any", param.clone());
    insta::assert_snapshot!(out.join("\n\n"));
}

#[test]
fn parameters_are_those_the_flow_has() {
    let mut flow = boxed();
    flow.params =
        serde_json::from_value(serde_json::json!({"depth": {}, "width": {"default": 2}, "note": {"default": null}})).unwrap();
    let said = |params: serde_json::Value| {
        let mut run = declared(&[("box", "docker@here/w")]);
        run.spec.params = serde_json::from_value(params).unwrap();
        let known = runtimes(&[("docker:here", local())], &run);
        check(&run, &flow, &known, &[Backend::Docker], &Saved::default(), None).map_err(|e| message(&e))
    };
    assert_eq!(said(serde_json::json!({"depth": 3})), Ok(()));
    assert_eq!(said(serde_json::json!({"depth": null, "width": 1, "note": "x", "budget": {"duration": "10m"}})), Ok(()));
    let needs = "boxed needs a value for its parameter 'depth'; give it with -p depth=VALUE";
    assert_eq!(said(serde_json::json!({"width": 1})), Err(needs.into()));
    let has = "its parameters are 'depth', 'note', 'width'";
    let slip = format!("boxed has no parameter 'widht'; {has}\n\n-p width=4");
    assert_eq!(said(serde_json::json!({"depth": 3, "widht": 4})), Err(slip));
    let slip = format!("boxed has no parameter 'budget.duraton'; {has}\n\n-p budget.duration=1h");
    assert_eq!(said(serde_json::json!({"depth": 3, "budget.duraton": "1h"})), Err(slip));
    assert_eq!(said(serde_json::json!({"depth": 3, "zzz": 4})), Err(format!("boxed has no parameter 'zzz'; {has}")));
}

#[test]
fn a_refusal_is_read_back_with_its_hints() {
    let mut run = declared(&[]);
    assert_eq!(refusal::of(&run), None);
    let error = Error::refused("it cannot be").hint("a:\n  b: c").hint("-e box=docker@here/w");
    complete(&mut run, Outcome::Refused, &message(&error), at(0));
    assert_eq!(refusal::of(&run), Some(error));
    let mut failed = declared(&[]);
    complete(&mut failed, Outcome::Failed, "no", at(0));
    assert_eq!(refusal::of(&failed), None);
}

fn seen(now: i64, run: &Resource<Run>) -> Observed {
    Observed {
        now: at(now),
        instance: "us".into(),
        carrier: crate::environment::address::Carrier::new([7; 32], &Default::default()),
        driven: vec![Backend::Docker],
        flow: Some(Ok(boxed())),
        agents: Ok(()),
        runtimes: runtimes(&[("docker:here", local())], run),
        saved: Saved::default(),
        settings: Vec::new(),
        places: BTreeMap::new(),
        walk: Walk::default(),
        settings_broken: false,
        owned: BTreeMap::new(),
        taken: Vec::new(),
        runner: None,
        lost: Vec::new(),
        boxed: BTreeMap::new(),
        caller: CallerContext { docker_endpoint: Some("unix:///d.sock".into()), ..CallerContext::default() },
    }
}

fn planned(mut run: Resource<Run>, seen: &Observed) -> Resource<Run> {
    run.status = plan(&run, seen).status;
    run
}

/// The environment as the plan declares it.
fn environment(run: &Resource<Run>, seen: &Observed) -> Resource<Environment> {
    let Step::CreateEnvironments(mut made) = plan(run, seen).step else { panic!("no environments are made") };
    let mut env = made.remove(0);
    env.metadata.uid = Some(Uuid::from_u128(7));
    env
}

fn with(mut seen: Observed, env: &Resource<Environment>) -> Observed {
    seen.owned.insert(env.metadata.name.clone(), env.clone());
    seen
}

fn show(Plan { status, step }: &Plan) -> String {
    let mut out = format!("{step:?}\n");
    for c in &status.conditions.0 {
        out += &format!("  {} {:?} {} {:?}\n", c.kind, c.status, c.reason, c.message);
    }
    out
}

#[test]
fn the_way_of_a_run() {
    let run = declared(&[("box", "docker@here/w")]);
    let mut out = Vec::new();
    let mut says = |what: &str, run: &Resource<Run>, seen: &Observed| {
        let text = show(&plan(run, seen));
        out.push(format!("# {what}\n{text}"));
    };
    let mut fresh = run.clone();
    fresh.metadata.finalizers.clear();
    says("just declared", &fresh, &seen(0, &run));
    says("with its finalizer", &run, &seen(0, &run));
    let env = environment(&run, &seen(0, &run));
    let run = planned(run, &with(seen(0, &declared(&[("box", "docker@here/w")])), &env));
    says("its environment is there", &run, &with(seen(1, &run), &env));
    let mut waiting = run.clone();
    waiting.spec.wait_for = Some(Span::from_secs(20));
    let step = no_room(&mut waiting, "docker@here has 1 of 4 CPUs free, and 'box' asks for 2", true, at(2));
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
    says("it waits for room", &waiting, &with(seen(5, &run), &env));
    says("it waited long enough", &waiting, &with(seen(25, &run), &env));
    let mut up = env.clone();
    outcome::held(&mut up, Share { cpus: Some(Cpus::whole(2)), ..Share::default() }, at(2));
    says("admitted", &run, &with(seen(3, &run), &up));
    outcome::pulled(&mut up, at(3));
    let files = GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/t".into() };
    up.status.workdir = Some("/w".into());
    up.status.harness = Some(Harness::Local);
    says("its image is there", &run, &with(seen(4, &run), &up));
    let mut boxed = up.clone();
    boxed.status.harness = Some(Harness::Env);
    let mut early = run.clone();
    early.status.epic = Some("/epic".into());
    says("its agents live in the box that starts", &early, &with(seen(4, &run), &boxed));
    says("its image and its journal are there", &early, &with(seen(4, &run), &up));
    let mut far = up.clone();
    far.status.endpoint = Some("ssh://far".into());
    says("its box starts elsewhere", &early, &with(seen(4, &run), &far));
    let awaits =
        |env: &Resource<Environment>| Observed { runner: Some(("1:2".into(), RunnerState::Alive)), ..with(seen(5, &run), env) };
    says("its runner waits for its box", &early, &awaits(&up));
    let mut none = up.clone();
    outcome::start_failed(&mut none, &hmz_drivers::DriverError::Refused("no such runtime".into()), false, at(5));
    says("its box did not come up", &early, &awaits(&none));
    let mut told = early.clone();
    super::plan::told(&mut told, &Told::Down { outcome: Outcome::Refused, message: "no such runtime".into() }, at(5));
    says("its runner was told so", &told, &awaits(&none));
    let gone = Observed { owned: BTreeMap::new(), ..awaits(&up) };
    says("its box was deleted meanwhile", &early, &gone);
    outcome::started(&mut up, &Started { id: "id".into(), name: "n".into(), pid: 12, node: None, reach: None }, &files, at(4));
    outcome::probed(&mut up, &Ok(()), at(5));
    says("its environment is ready", &run, &with(seen(6, &run), &up));
    let mut opened = run.clone();
    opened.status.epic = Some("/epic".into());
    says("its journal is there", &opened, &with(seen(6, &run), &up));
    let follow = |state: RunnerState| Observed { runner: Some(("1:2".into(), state)), ..with(seen(9, &run), &up) };
    let mut begun = early;
    begun.status.conditions = run.status.conditions.clone();
    says("its runner waits, and its box is up", &begun, &awaits(&up));
    opened = planned(opened, &with(seen(6, &run), &up));
    says("at work", &opened, &follow(RunnerState::Alive));
    says("ended", &opened, &follow(RunnerState::Ended(Outcome::BudgetExceeded, "10m are over".into())));
    says("its runner died", &opened, &follow(RunnerState::Died));
    let ended = planned(opened.clone(), &follow(RunnerState::Died));
    says("ended, with its environment", &ended, &with(seen(10, &run), &up));
    says("ended, alone", &ended, &seen(11, &run));
    let mut short = ended;
    short.spec.ttl_after_finish = Some(Span::from_secs(30));
    says("ended, for a while", &short, &seen(20, &run));
    says("ended, long ago", &short, &seen(40, &run));
    let mut cancelled = opened.clone();
    cancelled.metadata.annotations.insert(crate::CANCEL.into(), at(8).to_string());
    says("cancelled at work", &cancelled, &follow(RunnerState::Alive));
    let late = Observed { now: at(18), ..follow(RunnerState::Alive) };
    says("cancelled and stubborn", &cancelled, &late);
    says("cancelled before", &cancelled, &with(seen(9, &run), &env));
    let mut deleted = opened;
    deleted.metadata.deletion_timestamp = Some(at(9));
    says("deleted at work", &deleted, &follow(RunnerState::Alive));
    says("deleted, its runner ended", &deleted, &follow(RunnerState::Died));
    says("deleted, all gone", &deleted, &seen(20, &run));
    insta::assert_snapshot!(out.join("\n"));
}

#[test]
fn an_environment_that_will_not_be_ends_the_run() {
    let run = declared(&[("box", "docker@here/w")]);
    let env = environment(&run, &seen(0, &run));
    let run = planned(run.clone(), &with(seen(0, &run), &env));
    let mut out = Vec::new();
    let mut says = |what: &str, seen: &Observed| out.push(format!("# {what}\n{}", show(&plan(&run, seen))));
    let mut refused = env.clone();
    let no = hmz_drivers::DriverError::Refused("could not start a container of x: no such image".into());
    outcome::pull_failed(&mut refused, &no, false, at(1));
    says("its image cannot be had", &with(seen(2, &run), &refused));
    let mut died = env.clone();
    outcome::died(&mut died, None, None, at(1));
    says("its box died", &with(seen(2, &run), &died));
    let mut going = env;
    going.metadata.deletion_timestamp = Some(at(1));
    says("somebody deletes it", &with(seen(2, &run), &going));
    says("somebody deleted it", &seen(2, &run));
    let no_flow = Observed { flow: Some(Err(Error::refused("there is no flow 'boxed'"))), ..seen(2, &run) };
    says("its flow is gone", &no_flow);
    insta::assert_snapshot!(out.join("\n"));
}

#[test]
fn a_box_that_cannot_run_the_cli_refuses_the_run_and_says_how_it_could_run_here() {
    let refused = |place: &str, saved: &[(&str, RuntimeSpec)]| {
        let run = declared(&[("box", place)]);
        let mut seen = seen(0, &run);
        seen.runtimes = runtimes(saved, &run);
        let agent = BoxedAgent { cli: "claude".into(), program: "claude".into(), install: "npm i -g claude".into() };
        seen.boxed = [("coder".to_owned(), agent)].into();
        let mut env = environment(&run, &seen);
        outcome::start_failed(
            &mut env,
            &hmz_drivers::DriverError::NoProgram { program: "claude".into(), image: "x".into() },
            true,
            at(1),
        );
        let run = planned(planned(run, &seen), &with(seen, &env));
        refusal::of(&run).unwrap()
    };
    let error = refused("docker@in/w", &[("docker:in", RuntimeSpec::default())]);
    let said = "docker@in: claude's harness cannot run where its harness setting (env) says: claude is not installed on docker@in: \
                npm i -g claude there, or set the harness of the runtime it is on to local";
    assert_eq!(error.message, said);
    let entry = |name: &str| {
        format!("# in settings.yaml\nruntimes:\n  docker:\n    {name}:\n      endpoint: local\n      harness: local")
    };
    assert_eq!(error.hints, [entry("in")]);
    let error = refused("docker/w", &[("docker", RuntimeSpec::default())]);
    assert_eq!(error.message, said.replace("docker@in", "docker"));
    assert_eq!(error.hints, [entry("here"), "-e box=docker@here/w".to_owned()]);
}

#[test]
fn the_clis_that_run_here_are_those_of_local_runtimes() {
    let here = |place: &str| {
        let run = declared(&[("box", place)]);
        let saved = [("docker:here", local()), ("docker:in", RuntimeSpec::default())];
        refusal::here(&run, &boxed(), &runtimes(&saved, &run)).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(here("docker@here/w"), ["coder"]);
    assert_eq!(here("docker@in/w"), Vec::<String>::new());
    assert_eq!(here("docker@nope/w"), Vec::<String>::new());
}

#[test]
fn a_run_that_lost_its_box_says_why() {
    let run = declared(&[("box", "docker@here/w")]);
    let says = |how: Outcome, lost: &[&str]| {
        let runner = Some(("1:2".into(), RunnerState::Ended(how, "the box of 'box' is gone".into())));
        let seen = Observed { runner, lost: lost.iter().map(|l| (*l).to_owned()).collect(), ..seen(2, &run) };
        planned(run.clone(), &seen).status.conditions.get("Complete").unwrap().message.clone()
    };
    assert_eq!(says(Outcome::Failed, &[]), "the box of 'box' is gone");
    let stopped = "the box was stopped, by somebody or with its daemon";
    assert_eq!(says(Outcome::Failed, &[stopped]), format!("the box of 'box' is gone; {stopped}"));
    assert_eq!(says(Outcome::Cancelled, &[stopped]), "the box of 'box' is gone");
}

#[test]
fn no_room_refuses_or_waits_as_it_says() {
    let declared = declared(&[("box", "docker@here/w")]);
    for (admission, could_fit, refused) in [
        (None, true, false),
        (Some(Admission::Wait), true, false),
        (Some(Admission::Wait), false, true),
        (Some(Admission::Refuse), true, true),
    ] {
        let mut run = declared.clone();
        run.spec.admission = admission;
        no_room(&mut run, "no room", could_fit, at(1));
        assert_eq!(refusal::of(&run).is_some(), refused, "{admission:?} {could_fit}");
    }
}

#[test]
fn environments_are_named_after_their_role() {
    assert_eq!(environment_name("fix", "box"), "fix-box");
    assert_eq!(environment_name("fix", "Test_box_"), "fix-test-box");
    assert!(hmz_api::name::check(&environment_name("fix", "_x")).is_ok());
}

#[test]
fn a_runtime_that_is_missing_tells_what_is_wrong_with_the_settings() {
    let run = declared(&[("box", "docker@nope/w")]);
    let hints = |settings: &[&str]| {
        let runtimes = runtimes(&[], &run);
        let settings = settings.iter().map(|s| (*s).to_owned()).collect();
        let refused = planned(run.clone(), &Observed { runtimes, settings, ..seen(0, &run) });
        refusal::of(&refused).unwrap().hints
    };
    assert_eq!(hints(&[]), ["# in settings.yaml\nruntimes:\n  docker:\n    nope:\n      endpoint: local\n      harness: local"]);
    assert_eq!(
        hints(&["s:1:11: unclosed bracket '['"]),
        ["settings.yaml is not read as it stands: s:1:11: unclosed bracket '['"]
    );
    // what is there is used, whatever else is wrong with the file
    let run = declared(&[("box", "docker@here/w")]);
    let there = planned(run.clone(), &Observed { settings: vec!["s:1:1: no".into()], ..seen(0, &run) });
    assert_eq!(refusal::of(&there), None);
}

/// The names a step is about.
fn about(step: &Step) -> String {
    let names = |all: &[Resource<Environment>]| all.iter().map(|e| e.metadata.name.clone()).collect::<Vec<_>>().join(", ");
    match step {
        Step::CreateEnvironments(all) => format!("create {}", names(all)),
        Step::DeleteEnvironments(all) => format!("delete {}", all.join(", ")),
        Step::Admit(group) => format!("ask {} for {}", group.target.runtime, group.names.join(", ")),
        Step::Weigh(group) => format!("weigh {} for {}", group.target.runtime, group.names.join(", ")),
        Step::NoRoom { message, could_fit, names } => {
            format!("no room for {}, could fit {could_fit}: {message}", names.join(", "))
        }
        Step::Start(launch) => format!("start with {:?}", launch.seconds.keys().collect::<Vec<_>>()),
        other => format!("{other:?}").split_whitespace().next().unwrap_or_default().trim_end_matches('(').to_owned(),
    }
}

#[test]
fn the_second_box_of_a_role_is_a_part_of_its_gang() {
    use crate::placement::Place;
    use hmz_drivers::{Admitted, Shortage};
    let run = declared(&[("box", "docker@far/w")]);
    let place = |name: &str, spec: RuntimeSpec| Place {
        runtime: RuntimeRef::named(Backend::Docker, name),
        spec,
        endpoint: Some("unix:///d.sock".into()),
        workdir: Some("/w".into()),
        unusable: None,
        harness: None,
    };
    let saved = [("docker:far", harness("docker:here")), ("docker:here", local())];
    let mut seen = Observed { runtimes: runtimes(&saved, &run), ..seen(0, &run) };
    let agent = BoxedAgent { cli: "claude".into(), program: "claude".into(), install: "npm i -g claude".into() };
    seen.boxed = [("coder".to_owned(), agent)].into();
    seen.places.insert("fix-box".into(), vec![place("far", harness("docker:here"))]);
    let env = environment(&run, &seen);
    let run = planned(run, &with(seen.clone(), &env));
    let mut seen = with(seen, &env);
    let answers = |seen: &mut Observed, run: &Resource<Run>, answer: Admitted| {
        let Step::Admit(group) = plan(run, seen).step else { panic!("nothing is asked") };
        let now = seen.now;
        seen.walk.answered(*group, Ok(answer), now).unwrap();
    };
    let held = || Admitted::Held(vec![Share::default()]);
    let short = || Admitted::Short(Shortage { message: "docker@here runs 1 of the 1 containers it may".into(), could_fit: true });
    let mut out = Vec::new();
    let mut says =
        |what: &str, run: &Resource<Run>, seen: &Observed| out.push(format!("{what}: {}", about(&plan(run, seen).step)));
    says("the role first", &run, &seen);
    answers(&mut seen, &run, held());
    says("it is held", &run, &seen);
    let Step::CreateEnvironments(made) = plan(&run, &seen).step else { panic!("no second box") };
    let second = made.into_iter().next().unwrap();
    assert_eq!((second.spec.workdir.as_deref(), second.status.agents.len()), (Some("/w"), 1));
    assert_eq!(second.metadata.labels.get(crate::environment::ROLE_LABEL).map(String::as_str), Some("harness"));
    seen.owned.insert(second.metadata.name.clone(), second.clone());
    seen.places.insert(second.metadata.name.clone(), vec![place("here", local())]);
    says("it is there", &run, &seen);
    let mut full = seen.clone();
    answers(&mut full, &run, short());
    says("it has no room", &run, &full);
    // nothing is asked for again before all of it has room
    let weighs = |seen: &mut Observed, answer: Admitted| {
        let (Step::Weigh(group), now) = (plan(&run, seen).step, seen.now) else { panic!("nothing is weighed") };
        seen.walk.stage = Stage::Weighing;
        seen.walk.answered(*group, Ok(answer), now).unwrap();
    };
    let mut again = Observed { walk: Walk::default(), ..full };
    says("the role is weighed", &run, &again);
    weighs(&mut again, held());
    says("and the second", &run, &again);
    let mut room = again.clone();
    weighs(&mut again, short());
    says("which has no room still", &run, &again);
    assert!(again.walk.take_held().is_empty());
    weighs(&mut room, held());
    says("or has by now", &run, &room);
    answers(&mut seen, &run, held());
    says("both are held", &run, &seen);
    // the role goes elsewhere the next time
    let mut moved = Observed { walk: Walk::default(), ..seen.clone() };
    moved.places.insert("fix-box".into(), vec![place("far", local())]);
    weighs(&mut moved, held());
    says("one that is for another place is not weighed", &run, &moved);
    moved.walk.weighed();
    answers(&mut moved, &run, held());
    says("none is needed any more", &run, &moved);
    // written down
    seen.walk = Walk::default();
    for env in seen.owned.values_mut() {
        outcome::held(env, Share::default(), at(2));
    }
    says("held, and on their way", &run, &seen);
    let run = planned(run, &seen);
    assert_eq!(run.status.environments["box"].harness.as_ref().map(|h| h.environment.as_str()), Some("fix-box.harness"));
    let mut gone = seen.clone();
    gone.owned.remove("fix-box.harness");
    let ended = planned(run.clone(), &gone);
    assert_eq!(ended.status.conditions.get("Complete").unwrap().message, "environment 'fix-box.harness' was deleted");
    let files = GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/t".into() };
    for env in seen.owned.values_mut() {
        outcome::pulled(env, at(3));
        env.status.workdir = Some("/w".into());
        outcome::started(env, &Started { id: "id".into(), name: "n".into(), pid: 12, node: None, reach: None }, &files, at(4));
    }
    let mut opened = run;
    opened.status.epic = Some("/epic".into());
    outcome::probed(seen.owned.get_mut("fix-box").unwrap(), &Ok(()), at(5));
    says("the second is late", &opened, &seen);
    outcome::probed(seen.owned.get_mut("fix-box.harness").unwrap(), &Ok(()), at(5));
    says("both are ready", &opened, &seen);
    insta::assert_snapshot!(out.join("\n"));
    // one that has not the CLI is told as of the role's own runtime
    let mut none = second;
    outcome::start_failed(
        &mut none,
        &hmz_drivers::DriverError::NoProgram { program: "claude".into(), image: "x".into() },
        true,
        at(6),
    );
    seen.owned.insert(none.metadata.name.clone(), none);
    let error = refusal::of(&planned(opened, &seen)).unwrap();
    let said = "docker@far: claude's harness cannot run where its harness setting (docker:here) says: claude is not installed on \
                docker@here: npm i -g claude there, or set the harness of the runtime it is on to local";
    assert_eq!(error.message, said);
    assert_eq!(error.hints, ["# in settings.yaml\nruntimes:\n  docker:\n    far:\n      endpoint: local\n      harness: local"]);
}
