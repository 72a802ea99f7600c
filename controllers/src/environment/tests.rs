//! Plans of every situation, as snapshots: the step, and each condition.

use super::admission::{Patience, no_room};
use super::outcome;
use super::plan::{self, Boxes, Observed, Owner, Step};
use super::{FINALIZER, ROLE_LABEL};
use crate::placement::Place;
use crate::target::Saved;
use hmz_api::condition::ConditionStatus::False;
use hmz_api::kinds::condition::{NO_HARNESS, SCHEDULED};
use hmz_api::kinds::{
    Admission, BoxedAgent, Endpoint, Environment, EnvironmentSpec, EnvironmentStatus, Harness, PassedFor, PassedOver,
    RestartPolicy, RuntimeSpec, Share,
};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{Backend, Cpus, Memory, OwnerReference, Resource, RuntimeRef, Span};
use hmz_drivers::{BoxState, DriverError, Ending, Exit, GuestFiles, Started};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use uuid::Uuid;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn seen(now: i64) -> Observed {
    let runtime = RuntimeSpec {
        endpoint: Endpoint::Unix("/d.sock".into()),
        cpus: Some(Cpus::whole(4)),
        memory: Some(Memory::from_bytes(8 << 30)),
        ..RuntimeSpec::default()
    };
    Observed {
        now: at(now),
        instance: "us".into(),
        carrier: crate::environment::address::Carrier::new([7; 32], &Default::default()),
        runtime: Some(runtime),
        saved: Saved::default(),
        places: Vec::new(),
        asked: Vec::new(),
        unreadable: None,
        settings: Vec::new(),
        stale: Vec::new(),
        driven: true,
        local_endpoint: None,
        owner: Owner::Nobody,
        served: None,
        boxes: Boxes::NotAsked,
        ending: None,
    }
}

fn declared() -> Resource<Environment> {
    let spec = EnvironmentSpec {
        runtime: RuntimeRef::named(Backend::Docker, "here"),
        workdir: Some("/w".into()),
        image: None,
        cpus: Some(Cpus::whole(2)),
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Never,
        admission: None,
        wait_for: None,
    };
    let mut env = Resource::<Environment>::new("box", spec);
    env.metadata.uid = Some(Uuid::from_u128(7));
    env.metadata.generation = 1;
    env.metadata.finalizers.push(FINALIZER.into());
    env
}

fn owned(mut env: Resource<Environment>) -> Resource<Environment> {
    env.metadata.labels.insert(ROLE_LABEL.into(), "role".into());
    let owner = OwnerReference { kind: "Run".into(), name: "r".into(), uid: Uuid::from_u128(9) };
    env.metadata.owner_references.push(owner);
    env
}

/// What is to be written, and then done.
struct Plan {
    status: EnvironmentStatus,
    step: Step,
}

fn plan(env: &Resource<Environment>, seen: &Observed) -> Plan {
    let mut env = env.clone();
    let step = plan::plan(&mut env, seen);
    Plan { status: env.status, step }
}

/// Applies a plan's status.
fn planned(mut env: Resource<Environment>, seen: &Observed) -> Resource<Environment> {
    env.status = plan(&env, seen).status;
    env
}

fn share() -> Share {
    Share { cpus: Some(Cpus::whole(2)), ..Share::default() }
}

fn held() -> Resource<Environment> {
    let mut env = planned(declared(), &seen(0));
    outcome::held(&mut env, share(), at(1));
    env
}

fn pulled() -> Resource<Environment> {
    let mut env = planned(held(), &seen(1));
    outcome::pulled(&mut env, at(2));
    env
}

fn started() -> Resource<Environment> {
    let mut env = planned(pulled(), &seen(2));
    let files = GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/t".into() };
    outcome::started(
        &mut env,
        &Started { id: "id".into(), name: "box-1".into(), pid: 12, node: None, reach: None },
        &files,
        at(3),
    );
    env
}

fn ready() -> Resource<Environment> {
    let mut env = started();
    outcome::probed(&mut env, &Ok(()), at(4));
    env
}

fn running(now: i64) -> Observed {
    Observed { boxes: Boxes::Seen(Some(BoxState::Running(12))), ..seen(now) }
}

fn show(Plan { status, step }: &Plan) -> String {
    let mut out = format!("{step:?}\n");
    for c in &status.conditions.0 {
        out +=
            &format!("  {} {:?} {} {:?} since {}\n", c.kind, c.status, c.reason, c.message, c.last_transition_time.as_second());
    }
    out += &format!("  incarnation {} at {:?}", status.incarnation, status.endpoint);
    out
}

#[test]
fn the_way_up() {
    let mut fresh = declared();
    fresh.metadata.finalizers.clear();
    let mut out = Vec::new();
    for (what, env, seen) in [
        ("just declared", fresh, seen(0)),
        ("with its finalizer", declared(), seen(0)),
        ("held", held(), seen(1)),
        ("image there", pulled(), seen(2)),
        ("started", started(), running(3)),
        ("ready", ready(), running(4)),
    ] {
        out.push(format!("{what}: {}", show(&plan(&env, &seen))));
    }
    insta::assert_snapshot!(out.join("\n\n"));
}

#[test]
fn what_cannot_be() {
    let nothing = Observed { runtime: None, ..seen(0) };
    let unreadable = Observed { unreadable: Some("the docker host 'here' cannot be read".into()), ..seen(0) };
    let undriven = Observed { driven: false, ..seen(0) };
    let mut nowhere = declared();
    nowhere.spec.workdir = None;
    let other = RuntimeSpec { endpoint: "ssh://x".parse().unwrap(), ..RuntimeSpec::default() };
    let local = RuntimeSpec::default();
    let mut refused = planned(pulled(), &seen(2));
    let no = DriverError::Refused("docker@here has no /w to run a container: no directory to give the container".into());
    outcome::start_failed(&mut refused, &no, false, at(3));
    let mut out = Vec::new();
    for (what, env, seen) in [
        ("no runtime", declared(), nothing),
        ("unreadable", declared(), unreadable),
        ("no driver", declared(), undriven),
        ("no workdir", nowhere, seen(0)),
        ("endpoint elsewhere", declared(), Observed { runtime: Some(other), ..seen(0) }),
        ("local, unresolved", declared(), Observed { runtime: Some(local), ..seen(0) }),
        ("refused start, soon after", refused.clone(), seen(10)),
        ("refused start, later", refused, seen(90)),
    ] {
        out.push(format!("{what}: {}", show(&plan(&env, &seen))));
    }
    insta::assert_snapshot!(out.join("\n\n"));
}

#[test]
fn deaths_and_healing() {
    let exited = |exit: Exit| Observed { boxes: Boxes::Seen(Some(BoxState::Exited(exit))), ..seen(60) };
    let oom = exited(Exit { code: Some(137), oom: true, at: None });
    let killed = exited(Exit { code: Some(137), oom: false, at: None });
    let nobody_knows = exited(Exit { code: None, oom: false, at: None });
    let gone = Observed { boxes: Boxes::Seen(None), ..seen(60) };
    let unreachable = Observed { boxes: Boxes::Unreachable("could not connect to docker@here".into()), ..seen(60) };
    let mut always = ready();
    always.spec.restart = RestartPolicy::Always;
    let mut down = planned(always.clone(), &gone);
    let half = planned(ready(), &gone);
    outcome::discarded(&mut down);
    let mut stays = half.clone();
    outcome::discarded(&mut stays);
    let mut changed = stays.clone();
    changed.metadata.generation = 2;
    let mut drifted = ready();
    drifted.spec.image = Some("node:22".into());
    drifted.metadata.generation = 2;
    let mut same = ready();
    same.spec.restart = RestartPolicy::Always;
    same.metadata.generation = 2;
    let mut out = Vec::new();
    for (what, env, seen) in [
        ("killed for memory", ready(), oom),
        ("killed", ready(), killed),
        ("ended somehow", ready(), nobody_knows),
        ("removed", ready(), gone.clone()),
        ("a run's box gone", owned_ready(), Observed { owner: Owner::Running, ..gone }),
        ("daemon unreachable", ready(), unreachable),
        ("down, not all of it removed", half, seen(61)),
        ("down, to be restarted, at once", down.clone(), seen(60)),
        ("down, to be restarted, a second later", down, seen(62)),
        ("down for good", stays, seen(600)),
        ("down, declared anew", changed, seen(600)),
        ("another image", drifted, running(60)),
        ("another restart policy", same, running(60)),
    ] {
        out.push(format!("{what}: {}", show(&plan(&env, &seen))));
    }
    insta::assert_snapshot!(out.join("\n\n"));
}

#[test]
fn the_reason_of_a_death_is_what_is_known_and_no_more() {
    let exited = |code: Option<i64>, oom: bool| Some(BoxState::Exited(Exit { code, oom, at: None }));
    let ending = |code, oom, stopped, killed| Some(Ending { code: Some(code), oom, stopped, killed, ..Ending::default() });
    let removed = Some(Ending { code: Some(137), killed: true, removed: true, ..Ending::default() });
    let lease = Some(120);
    for (state, ending, lease, reason) in [
        // there still
        (exited(Some(0), false), ending(0, false, true, false), None, "Stopped"),
        (exited(Some(137), false), ending(137, false, true, true), None, "Stopped"),
        (exited(Some(137), false), ending(137, false, false, true), None, "KilledByHand"),
        (exited(Some(137), false), ending(137, true, false, false), None, "OutOfMemory"),
        (exited(Some(137), true), None, None, "OutOfMemory"),
        (exited(None, true), None, None, "OutOfMemory"),
        // a command in it was, some time, and then somebody else did it, or it ended by itself
        (exited(Some(137), true), ending(137, true, false, true), None, "KilledByHand"),
        (exited(Some(1), true), None, None, "Exited"),
        (exited(Some(137), false), ending(137, false, false, false), None, "Unknown"),
        (exited(Some(137), false), None, None, "Unknown"),
        (exited(Some(139), false), None, None, "Exited"),
        (exited(Some(3), false), ending(3, false, false, false), None, "Exited"),
        (exited(None, false), None, None, "Unknown"),
        // about to be gone
        (exited(Some(137), false), removed, None, "RemovedByHand"),
        (exited(Some(137), false), ending(137, false, false, true), lease, "RemovedByHand"),
        (exited(Some(0), false), ending(0, false, false, false), lease, "Exited"),
        (exited(Some(0), false), None, lease, "Exited"),
        // gone
        (None, None, None, "RemovedByHand"),
        (None, ending(137, false, false, true), None, "RemovedByHand"),
        (None, ending(137, false, false, true), lease, "RemovedByHand"),
        (None, ending(0, false, true, false), lease, "Stopped"),
        (None, ending(137, true, false, false), lease, "OutOfMemory"),
        (None, ending(0, false, false, false), lease, "Exited"),
        (None, ending(1, false, false, false), lease, "Exited"),
        (None, ending(137, false, false, false), lease, "Unknown"),
        (None, None, lease, "Unknown"),
    ] {
        let (said, message) = outcome::death(state.as_ref(), ending.as_ref(), lease);
        assert_eq!(said, reason, "{state:?} {ending:?} {lease:?}: {message}");
        assert!(outcome::is_death(said) && message.starts_with("the box "), "{message}");
    }
}

fn owned_ready() -> Resource<Environment> {
    let mut env = owned(ready());
    env.status.lease_seconds = Some(120);
    env
}

#[test]
fn a_runs_environment() {
    let of = |owner, seen: Observed| Observed { owner, ..seen };
    let silent = planned(owned(started()), &of(Owner::Preparing, running(3)));
    let mut out = Vec::new();
    for (what, env, seen) in [
        ("waits for its gang", owned(declared()), of(Owner::Preparing, seen(0))),
        ("admitted", owned(held()), of(Owner::Preparing, seen(1))),
        ("ready before its runner", owned_ready(), of(Owner::Preparing, running(50))),
        ("ready under its runner", owned_ready(), of(Owner::Running, running(50))),
        ("its guest is silent", silent, of(Owner::Preparing, running(80))),
        ("its run ended", owned_ready(), of(Owner::Ended, running(50))),
    ] {
        out.push(format!("{what}: {}", show(&plan(&env, &seen))));
    }
    insta::assert_snapshot!(out.join("\n\n"));
}

#[test]
fn the_way_out_is_there_from_every_state() {
    let stages = [declared(), held(), pulled(), started(), ready(), planned(ready(), &seen(60))];
    for env in stages {
        let mut env = env;
        let begun = env.status.incarnation > 0;
        env.metadata.deletion_timestamp = Some(at(100));
        for runtime in [seen(100).runtime, None] {
            let step = plan(&env, &Observed { runtime, ..seen(100) }).step;
            match step {
                Step::Release => assert!(!begun),
                Step::Teardown(target, key) => {
                    assert!(begun && key.incarnation == 1 && key.role == "box");
                    let reached = target.local_endpoint.clone().unwrap_or_else(|| target.spec.endpoint.to_string());
                    assert_eq!(reached, "unix:///d.sock");
                }
                other => panic!("{other:?}"),
            }
        }
        env.metadata.annotations.insert(crate::ABANDON.into(), String::new());
        assert_eq!(plan(&env, &seen(100)).step, Step::Release);
    }
}

#[test]
fn a_change_made_while_the_daemon_was_away_is_not_forgotten() {
    let mut env = ready();
    env.spec.cpus = Some(Cpus::whole(3));
    env.metadata.generation = 2;
    let away = Observed { boxes: Boxes::Unreachable("away".into()), ..seen(50) };
    let back = plan(&planned(env, &away), &running(60)).step;
    assert!(matches!(back, Step::Replace(..)), "{back:?}");
}

#[test]
fn a_look_at_what_is_as_it_was_changes_nothing() {
    let gone = Observed { boxes: Boxes::Seen(None), ..seen(60) };
    for (env, seen) in [(ready(), running(500)), (planned(ready(), &gone), seen(600))] {
        let once = planned(env, &seen);
        let later = Observed { now: at(900), ..seen };
        assert_eq!(plan(&once, &later).status, once.status);
    }
}

fn with_list(now: i64) -> Observed {
    let place = |name: &str, workdir: &str| Place {
        runtime: RuntimeRef::named(Backend::Docker, name),
        spec: RuntimeSpec {
            endpoint: Endpoint::Unix(format!("/{name}.sock")),
            workdir: (workdir != "/w").then(|| workdir.to_owned()),
            ..RuntimeSpec::default()
        },
        endpoint: Some(format!("unix:///{name}.sock")),
        workdir: Some(workdir.into()),
        unusable: None,
        harness: None,
    };
    let none = Place { unusable: Some("no docker runtime is saved as 'none'".into()), ..place("none", "/w") };
    Observed { places: vec![place("here", "/w"), none, place("spare", "/own")], ..seen(now) }
}

fn passed(name: &str, reason: PassedFor, message: &str) -> PassedOver {
    PassedOver { runtime: RuntimeRef::named(Backend::Docker, name), reason, message: message.into(), at: at(1) }
}

#[test]
fn the_way_down_a_list() {
    let full = || passed("here", PassedFor::Full, "docker@here runs 2 of the 2 containers it may");
    let spare_full = || passed("spare", PassedFor::Full, "docker@spare runs 1 of the 1 containers it may");
    let asked = |now: i64, asked: Vec<PassedOver>| Observed { asked, ..with_list(now) };
    let mut out = Vec::new();
    let mut says = |what: &str, env: &Resource<Environment>, seen: &Observed| {
        let planned = plan(env, seen);
        let used = planned.status.used.as_ref().map(ToString::to_string);
        out.push(format!("# {what}\n{}\n  used {used:?} in {:?}", show(&planned), planned.status.workdir));
    };
    let env = planned(declared(), &with_list(0));
    says("the one that was named is asked first", &declared(), &with_list(0));
    says("then the next that can be used", &env, &asked(1, vec![full()]));
    says("none of them has room: it waits, and asks all again", &env, &asked(2, vec![full(), spare_full()]));
    let mut declines = env.clone();
    declines.spec.admission = Some(Admission::Refuse);
    let refused = asked(2, vec![full(), spare_full()]);
    says("none of them has room, and it declines to wait", &declines, &refused);
    let mut declines = planned(declines, &refused);
    outcome::withdrawn(&mut declines, at(3));
    says("it is refused, and not asked for again", &declines, &with_list(700));
    declines.metadata.generation = 2;
    says("it is declared otherwise", &declines, &with_list(700));
    let never = |name| passed(name, PassedFor::TooSmall, "too small");
    says("none of them ever has", &env, &asked(2, vec![never("here"), never("spare")]));
    let Step::Place(attempt) = plan(&env, &asked(1, vec![full()])).step else { panic!("it is asked") };
    let mut moved = env.clone();
    outcome::placed(&mut moved, &attempt.placed, share(), at(2));
    let there = |now: i64| Observed { runtime: Some(with_list(0).places[2].spec.clone()), ..with_list(now) };
    says("held by the spare", &moved, &there(3));
    let moved = planned(moved, &there(3));
    let mut refused = moved.clone();
    outcome::pull_failed(&mut refused, &DriverError::Refused("no such image".into()), true, at(4));
    says("its image is refused there: the list from its beginning, but for that one", &refused, &with_list(5));
    says("and nothing else has room", &refused, &asked(6, vec![full()]));
    says("long after, it is asked again", &refused, &asked(700, vec![full()]));
    let gone = Observed { places: Vec::new(), ..with_list(7) };
    says("the list is taken away before it is anywhere", &refused, &gone);
    // a box that runs there stays, and one that dies begins at the one that was named
    let mut up = moved;
    outcome::pulled(&mut up, at(5));
    let files = GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/t".into() };
    outcome::started(
        &mut up,
        &Started { id: "id".into(), name: "box-1".into(), pid: 12, node: None, reach: None },
        &files,
        at(6),
    );
    outcome::probed(&mut up, &Ok(()), at(7));
    let up_there = |now: i64| Observed { places: Vec::new(), boxes: Boxes::Seen(Some(BoxState::Running(12))), ..there(now) };
    says("its box runs", &up, &up_there(8));
    let mut changed = up.clone();
    changed.metadata.generation = 2;
    says("a change that does not concern it", &changed, &up_there(9));
    let mut home = changed.clone();
    home.spec.runtime = up.status.used.clone().expect("it fell back");
    home.spec.workdir.clone_from(&up.status.workdir);
    let home = planned(home, &up_there(9));
    let scheduled = home.status.conditions.get(SCHEDULED).expect("it is held");
    assert!(home.status.passed_over.is_empty() && scheduled.reason == "Held", "what it fell back to is what is declared now");
    changed.spec.runtime = RuntimeRef::named(Backend::Docker, "other");
    says("another runtime is named", &changed, &up_there(9));
    up.spec.restart = RestartPolicy::Always;
    outcome::died(&mut up, None, None, at(60));
    outcome::discarded(&mut up);
    outcome::next_incarnation(&mut up, at(61));
    says("the next one", &up, &with_list(62));
    // one of a run waits for the run
    says("a run's", &owned(declared()), &Observed { owner: Owner::Preparing, ..with_list(0) });
    insta::assert_snapshot!(out.join("\n\n"));
}

/// A run's environment whose share is held and image there, in which claude works.
fn about_to_start() -> Resource<Environment> {
    let mut env = owned(declared());
    let agent = BoxedAgent { cli: "claude".into(), program: "claude".into(), install: "npm i -g claude".into() };
    env.status.agents = vec![agent];
    let mut env = planned(env, &Observed { owner: Owner::Preparing, ..seen(0) });
    outcome::held(&mut env, share(), at(1));
    outcome::pulled(&mut env, at(2));
    env
}

#[test]
fn a_box_has_the_programs_of_the_agents_that_live_in_it() {
    let started = |env: &Resource<Environment>, harness: Harness, owner: Owner| {
        let mut seen = Observed { owner, ..seen(3) };
        seen.runtime = seen.runtime.map(|runtime| RuntimeSpec { harness, ..runtime });
        let Plan { status, step } = plan(env, &seen);
        let Step::Start(_, start) = step else { panic!("it is not started: {step:?}") };
        (start.programs, status.harness)
    };
    let env = about_to_start();
    let claude = vec!["claude".to_owned()];
    assert_eq!(started(&env, Harness::Env, Owner::Preparing), (claude, Some(Harness::Env)));
    assert_eq!(started(&env, Harness::Local, Owner::Preparing), (vec![], Some(Harness::Local)));
    // nobody works in one that stands alone
    assert_eq!(started(&pulled(), Harness::Env, Owner::Nobody), (vec![], None));
}

#[test]
fn a_box_without_an_agents_program_is_refused_in_the_words_of_its_harness() {
    let mut env = about_to_start();
    outcome::start_failed(&mut env, &DriverError::NoProgram { program: "claude".into(), image: "busybox".into() }, true, at(3));
    let created = env.status.conditions.get("Created").unwrap();
    assert_eq!((created.status, created.reason.as_str()), (False, NO_HARNESS));
    assert_eq!(
        created.message,
        "docker@here: claude's harness cannot run where its harness setting (env) says: claude is not installed on docker@here: npm \
         i -g claude there, or set the harness of the runtime it is on to local"
    );
    assert_eq!(env.status.share, None);
    // its run is told, and nothing is started again
    let step = plan(&env, &Observed { owner: Owner::Preparing, ..seen(90) }).step;
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
}

#[test]
fn one_that_is_where_it_is_declared_to_be_passed_nothing_over() {
    // it fell back there, its share was lost and asked for anew, and by then it was declared to be there
    let mut env = ready();
    let passed = PassedOver {
        runtime: RuntimeRef::named(Backend::Docker, "full"),
        reason: PassedFor::Full,
        message: "it is full".into(),
        at: at(1),
    };
    env.status.passed_over = vec![passed];
    let now = Observed { boxes: Boxes::Seen(Some(BoxState::Running(12))), ..seen(9) };
    assert_eq!(env.status.used, Some(env.spec.runtime.clone()));
    let env = planned(env, &now);
    assert_eq!((env.status.passed_over.len(), env.status.conditions.get(SCHEDULED).unwrap().reason.as_str()), (0, "Held"));
}

#[test]
fn no_room_refuses_or_waits_as_it_says() {
    let full = "docker@here has 1 of 4 CPUs free, and 'box' asks for 2";
    let (wait, refuse, limit) = (Some(Admission::Wait), Some(Admission::Refuse), Some(Span::from_secs(20)));
    let left = |seconds| Patience::Left(Duration::from_secs(seconds));
    let waited = format!("{full} (it waited 20s)");
    for (admission, wait_for, at_first, later, refused) in [
        (None, None, Patience::Endless, Patience::Endless, None),
        (wait, None, Patience::Endless, Patience::Endless, None),
        (None, limit, left(20), left(1), Some(&*waited)),
        (wait, limit, left(20), left(1), Some(&waited)),
        (refuse, None, Patience::Over, Patience::Over, Some(full)),
        (refuse, limit, Patience::Over, Patience::Over, Some(full)),
    ] {
        let mut env = planned(declared(), &seen(0));
        (env.spec.admission, env.spec.wait_for) = (admission, wait_for);
        let mut told = |now| {
            outcome::not_held(&mut env, False, outcome::INSUFFICIENT, full, at(now));
            no_room(&mut env, &[], at(now))
        };
        let patience = (told(10), told(29), told(30));
        let last = if refused.is_some() { Patience::Over } else { Patience::Endless };
        assert_eq!(patience, (at_first, later, last), "{admission:?} {wait_for:?}");
        let ready = env.status.conditions.get("Ready").unwrap();
        let reason = if refused.is_some() { "Refused" } else { "Insufficient" };
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), (reason, refused.unwrap_or(full)));
        env.spec.restart = RestartPolicy::Always;
        assert!(crate::busy::environment(&env));
        if refused.is_some() {
            // nothing of it is left, nothing is asked of anybody any more, and nobody stays up for it
            let step = plan(&env, &seen(900)).step;
            assert!(matches!(&step, Step::Withdraw(_, key) if key.incarnation == 1), "{step:?}");
            outcome::withdrawn(&mut env, at(901));
            let Plan { status, step } = plan(&env, &seen(1000));
            assert!(matches!(step, Step::Wait(_)) && status == env.status, "{step:?}");
            assert!(!crate::busy::environment(&env));
        }
        env.metadata.generation = 2;
        let step = plan(&env, &seen(1000)).step;
        let incarnation = if refused.is_some() { 2 } else { 1 };
        assert!(matches!(&step, Step::Admit(_, want) if want.key.incarnation == incarnation), "{step:?}");
    }
}

#[test]
fn that_no_node_took_it_is_no_room_and_does_not_begin_the_wait_anew() {
    let mut env = planned(declared(), &seen(0));
    (env.spec.admission, env.spec.wait_for) = (Some(Admission::Wait), Some("40s".parse().unwrap()));
    let mut patience = Vec::new();
    for round in [0, 30, 60] {
        outcome::held(&mut env, Share::default(), at(round));
        outcome::no_node(&mut env, "no node took it", at(round + 10));
        patience.push(no_room(&mut env, &[], at(round + 10)));
    }
    assert_eq!(patience, [Patience::Left(Duration::from_secs(40)), Patience::Left(Duration::from_secs(10)), Patience::Over]);
    let ready = env.status.conditions.get("Ready").unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("Refused", "no node took it (it waited 40s)"));
    // what runs waits no more
    env.status.waiting_since = Some(at(0));
    let files = GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/t".into() };
    let started = Started { id: "id".into(), name: "box-1".into(), pid: 12, node: None, reach: None };
    outcome::started(&mut env, &started, &files, at(100));
    assert_eq!(env.status.waiting_since, None);
}

#[test]
fn a_refusal_says_what_is_wrong_with_the_file_that_has_the_runtime() {
    let mut env = planned(declared(), &seen(0));
    env.spec.admission = Some(Admission::Refuse);
    outcome::not_held(&mut env, False, outcome::INSUFFICIENT, "it is full", at(1));
    no_room(&mut env, &["line 3: not YAML".into()], at(1));
    let any = hmz_api::AnyResource::Environment(Box::new(env));
    let Some(Verdict::Refused(error)) = verdict::of(&any) else { panic!("{any:?}") };
    assert_eq!(
        (error.message.as_str(), error.hints),
        ("it is full", vec!["settings.yaml is not read as it stands: line 3: not YAML".into()])
    );
    assert!(verdict::is_final(&any));
}

#[test]
fn what_was_said_of_an_earlier_declaration_is_no_verdict() {
    let mut env = planned(declared(), &seen(0));
    let verdict = |env: &Resource<Environment>| verdict::of(&hmz_api::AnyResource::Environment(Box::new(env.clone())));
    outcome::not_held(&mut env, False, outcome::INSUFFICIENT, "it is full", at(1));
    assert_eq!(verdict(&env), Some(Verdict::Waits("it is full".into())));
    env.spec.admission = Some(Admission::Refuse);
    env.metadata.generation = 2;
    assert_eq!(verdict(&env), None);
    no_room(&mut env, &[], at(2));
    assert!(matches!(verdict(&env), Some(Verdict::Refused(_))));
    env.metadata.generation = 3;
    // looked at, and not asked for yet
    assert_eq!(verdict(&planned(env, &seen(3))), None);
}
