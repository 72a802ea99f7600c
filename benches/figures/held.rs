//! What many resources in the store cost: a listing of them, the completion of a name, the daemon's memory.

use crate::listed;
use crate::rounds::{compared, take_turns, timed};
use crate::support::command::Invocation;
use crate::support::docker;
use crate::support::home::TestHome;
use crate::table::{Aim, Figure, Unit};
use crate::world::{World, daemon_of};
use hmz_api::clock::{Clock, SystemClock};
use hmz_api::condition::ConditionStatus::False;
use hmz_api::kinds::{Environment, EnvironmentSpec, RestartPolicy, Share, condition};
use hmz_api::{AnyResource, Backend, Cpus, Resource, RuntimeRef};
use hmz_store::{Backend as _, Change, Expect, Sqlite, Write};
use std::sync::Arc;
use std::time::Duration;

/// How long a daemon is left alone before its memory is read.
const SETTLED: Duration = Duration::from_secs(5);

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let few = memory(&holding(1));
    let (some, many) = (holding(1_000), holding(10_000));
    let mut figures = vec![
        listing("hmz get envs, 1,000 of them", &some, rounds, None),
        listing("hmz get envs, 10,000 of them", &many, rounds, None),
        completion("completion of a name, 1,000 of them", &some, rounds, Aim::Value(20e-3)),
        completion("completion of a name, 10,000 of them", &many, rounds, Aim::Told),
        listing("hmz get envs, 1,000 of them", &some, rounds, Some((1_000, "docker ps of 1,000"))),
        listing("hmz get envs, 10,000 of them", &many, rounds, Some((10_000, "docker ps of 10,000"))),
    ];
    // a daemon that has listed them has given back what that took, or has not
    let listed = (memory(&many) - few) / 10_000.0;
    drop(many);
    let held = (memory(&holding(10_000)) - few) / 10_000.0;
    figures.push(Figure::alone("memory of the daemon for one more of 10,000", Unit::Bytes, held, Aim::Value(2e3)));
    figures.push(Figure::alone("the same after they were listed", Unit::Bytes, listed, Aim::Told));
    figures
}

/// A home whose daemon has so many environments, whose boxes have died and are not begun again.
pub fn holding(environments: usize) -> World {
    let home = TestHome::new();
    let state = home.hmz_home().join("state");
    std::fs::create_dir_all(&state).expect("a directory for the store");
    let store = Sqlite::open(&state.join("store.db")).expect("a store");
    let fill = async {
        for n in 0..environments {
            let change = Change::Applied(Arc::new(AnyResource::Environment(Box::new(environment(n)))));
            // nothing is lost here by a loss of power
            store.write(Write { expect: Expect::Absent, durable: false, change }).await.expect("an environment");
        }
    };
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(fill);
    drop(store);
    let world = World::with(home);
    std::thread::sleep(SETTLED);
    world
}

fn environment(n: usize) -> Resource<Environment> {
    let runtime = RuntimeRef::named(Backend::Docker, "here");
    let spec = EnvironmentSpec {
        runtime: runtime.clone(),
        workdir: Some("/home/me/projects/one".into()),
        image: Some("python:3.12-slim".into()),
        cpus: Some(Cpus::whole(2)),
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Never,
        admission: None,
        wait_for: None,
    };
    let mut made = Resource::<Environment>::new(format!("environment-{n:05}"), spec);
    made.metadata.finalizers = vec!["hmz/box".into()];
    made.metadata.uid = Some(uuid::Uuid::from_u128(n as u128 + 1));
    made.metadata.generation = 1;
    made.metadata.creation_timestamp = Some(SystemClock.now());
    let status = &mut made.status;
    status.used = Some(runtime);
    status.image = Some("python:3.12-slim".into());
    status.workdir = Some("/home/me/projects/one".into());
    status.share = Some(Share { cpus: Some(Cpus::whole(2)), ..Share::default() });
    status.incarnation = 1;
    let now = SystemClock.now();
    for (kind, reason, why) in [
        (condition::SCHEDULED, "Released", ""),
        (condition::IMAGE_READY, "Pending", ""),
        (condition::CREATED, "RemovedByHand", "its container was removed by hand"),
        (condition::GUEST_READY, "RemovedByHand", ""),
        (condition::READY, "RemovedByHand", "its container was removed by hand"),
    ] {
        status.conditions.set(kind, False, reason, why, 1, now);
    }
    made
}

/// Beside `docker ps` of the daemon that is there, which runs next to nothing; or of one that lists so many.
fn listing(name: &'static str, world: &World, rounds: usize, listed: Option<(usize, &'static str)>) -> Figure {
    let mut theirs = Invocation::new("docker").arg("ps");
    for name in ["PATH", "HOME"] {
        theirs = theirs.env(name, std::env::var_os(name).unwrap_or_default());
    }
    let dir = tempfile::Builder::new().prefix("hmz-t").tempdir_in("/var/tmp").expect("a directory");
    let host = match listed {
        Some((boxes, _)) => Some(format!("unix://{}", listed::listing(dir.path(), boxes).display())),
        None => docker::host(),
    };
    if let Some(host) = host {
        theirs = theirs.env("DOCKER_HOST", host);
    }
    let ours = world.home.hmz(["get", "envs"]);
    let (a, b) = take_turns(rounds, |_| timed(&ours).0, |_| timed(&theirs).0);
    match listed {
        Some((_, what)) => compared(name, Unit::Seconds, &a, what, &b, Aim::Told),
        None => compared(name, Unit::Seconds, &a, "docker ps", &b, Aim::Ratio(1.0)),
    }
}

/// What a shell waits for that asks for the rest of a name.
fn completion(name: &'static str, world: &World, rounds: usize, aim: Aim) -> Figure {
    let ask = world.home.hmz(["--", "hmz", "describe", "env", "environment-0001"]);
    let ask = ask.env("COMPLETE", "zsh").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", "3");
    let nothing = Invocation::new("/bin/true");
    let ours = |_| {
        let (took, said) = timed(&ask);
        assert_eq!(String::from_utf8_lossy(&said).lines().filter(|line| line.contains("environment-0001")).count(), 10);
        took
    };
    let (a, b) = take_turns(rounds, ours, |_| timed(&nothing).0);
    compared(name, Unit::Seconds, &a, "/bin/true", &b, aim)
}

/// The memory of a home's daemon, in bytes.
fn memory(world: &World) -> f64 {
    let daemon = daemon_of(&world.home);
    let text = std::fs::read_to_string(format!("/proc/{daemon}/status")).expect("a daemon");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number") * 1024.0
}
