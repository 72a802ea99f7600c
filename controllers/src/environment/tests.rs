//! Plans of every situation, as snapshots: the step, and each condition.

use super::outcome;
use super::plan::{Boxes, Observed, Owner, Plan, Step, plan};
use super::{FINALIZER, ROLE_LABEL};
use crate::target::Saved;
use hmz_api::kinds::{Endpoint, Environment, EnvironmentSpec, RestartPolicy, RuntimeSpec, Share};
use hmz_api::{Backend, Cpus, Memory, OwnerReference, Resource, RuntimeRef};
use hmz_drivers::{BoxState, DriverError, Exit, GuestFiles, Started};
use jiff::{SignedDuration, Timestamp};
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
        runtime: Some(runtime),
        saved: Saved::default(),
        unreadable: None,
        settings: Vec::new(),
        driven: true,
        local_endpoint: None,
        owner: Owner::Nobody,
        boxes: Boxes::NotAsked,
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
        restart: RestartPolicy::Never,
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
    outcome::started(&mut env, &Started { id: "id".into(), name: "box-1".into(), pid: 12, daemon: None }, &files, at(3));
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
    outcome::start_failed(&mut refused, &no, at(3));
    let mut out = Vec::new();
    for (what, env, seen) in [
        ("no runtime", declared(), nothing),
        ("unreadable", declared(), unreadable),
        ("no driver", declared(), undriven),
        ("no workdir", nowhere, seen(0)),
        ("other endpoint", declared(), Observed { runtime: Some(other), ..seen(0) }),
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
