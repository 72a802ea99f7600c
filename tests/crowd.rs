//! Fifty environments at once where twenty fit: on ten places here, and on ten of the daemon that is fallen back to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "crash/scene.rs"]
mod scene;

use scene::{Scene, condition};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::far::Far;
use support::{LIMIT, docker, eventually};

/// How many are declared at once.
const ALL: usize = 50;
/// How many each of the two runtimes may have.
const PLACES: usize = 10;

/// Looks at both daemons' own lists again and again, and fails as soon as one has more of ours than it may; says how often it
/// looked and what it saw at most.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(usize, [usize; 2])>,
}

impl Watcher {
    fn of(here: String, there: String, socket: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut looks, mut most) = (0, [0; 2]);
            while !stopped.load(Ordering::SeqCst) {
                let seen = [listed(&[], &here), listed(&["-H", &socket], &there)];
                for (most, seen) in most.iter_mut().zip(seen) {
                    *most = seen.len().max(*most);
                }
                assert!(most.iter().all(|most| *most <= PLACES), "of {PLACES} places each: {most:?}");
                looks += 1;
            }
            (looks, most)
        });
        Self { stop, thread }
    }

    fn end(self) -> (usize, [usize; 2]) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The environments that have a box or a hold of a runtime, by its daemon's own list.
fn listed(host: &[&str], runtime: &str) -> BTreeSet<String> {
    let label = format!("label=humanize.provider={runtime}");
    let list = ["ps", "-a", "--filter", &label, "--format", "{{.Label \"hmz.uid\"}}"];
    docker::docker(&[host, &list].concat()).lines().map(str::to_owned).collect()
}

/// The names of the environments that are ready, and of those that wait and are refused, each with what it is told.
#[derive(Default)]
struct Standing {
    ready: Vec<String>,
    waiting: Vec<(String, String)>,
    refused: Vec<(String, String)>,
}

impl Standing {
    fn of(scene: &Scene) -> Self {
        let mut all = Self::default();
        for env in scene.list("envs") {
            let name = env["metadata"]["name"].as_str().unwrap().to_owned();
            match (condition(&env, "Ready"), condition(&env, "Scheduled")) {
                (Some((status, ..)), _) if status == "True" => all.ready.push(name),
                (_, Some((status, reason, said))) if status == "False" => match reason.as_str() {
                    "Insufficient" => all.waiting.push((name, said)),
                    "Refused" => all.refused.push((name, said)),
                    _ => {}
                },
                _ => {}
            }
        }
        all
    }

    /// As [`Standing::of`], once everything stands and so many of it run.
    fn settled(scene: &Scene, what: &str, all: usize, run: usize) -> Self {
        eventually(what, LIMIT * 2, || {
            let now = Self::of(scene);
            let stands = now.ready.len() + now.waiting.len() + now.refused.len() == all;
            (stands && now.ready.len() == run).then_some(now)
        })
    }
}

/// Whether it is one that declines to wait.
fn declines(name: &str) -> bool {
    name.starts_with("now")
}

#[test]
fn of_fifty_environments_at_once_twenty_run_and_the_others_wait_or_are_refused() {
    let far = Far::new(Duration::ZERO);
    let scene = Scene::new();
    let name = scene.runtime.clone();
    scene.home.settings(&format!(
        "runtimes:\n  docker:\n    {name}: {{endpoint: local, harness: local, max_containers: {PLACES}, fallback: \
         ['docker:{name}-far']}}\n    {name}-far: {{{}, harness: local, max_containers: {PLACES}, workdir: {}}}\n",
        far.tls(),
        far.work.0.display()
    ));
    let watcher = Watcher::of(name.clone(), format!("{name}-far"), far.socket());
    let manifests = |prefix: &str, more: &str| -> String {
        let one = |n: usize| std::fs::read_to_string(scene.environment_manifest(&format!("{prefix}{n}"), more)).unwrap();
        (0..ALL / 2).map(one).collect::<Vec<_>>().join("---\n")
    };
    let now = manifests("now", "  admission: refuse\n");
    // more than there are places, and so some of them are refused
    let declining = scene.home.hmz(["apply", "--wait", "-f", "-"]).stdin(now.clone()).limit(LIMIT * 2).start();
    let waiting = scene.home.hmz(["apply", "-f", "-"]).stdin(manifests("later", "")).start();
    let first = Standing::settled(&scene, "twenty run, and nobody is in between", ALL, 2 * PLACES);
    let full = |env: &str| {
        let at = |runtime: &str| {
            format!("docker:{runtime} cannot hold '{env}': docker@{runtime} runs {PLACES} of the {PLACES} containers it may")
        };
        format!("{}; {}", at(&name), at(&format!("{name}-far")))
    };
    for (env, said) in first.waiting.iter().chain(&first.refused) {
        assert_eq!(*said, full(env));
    }
    assert!(first.waiting.iter().all(|(name, _)| !declines(name)) && first.refused.iter().all(|(name, _)| declines(name)));
    let _ = waiting.wait().ok();
    let declining = declining.wait().expect_code(2);
    for (env, said) in &first.refused {
        assert!(declining.err().contains(&format!("env/{env}: {said}")), "{declining}");
    }
    // nothing of those that have no place is on the daemons
    let ids = |names: &[String]| -> BTreeSet<String> {
        let of = |env: &serde_json::Value| env["metadata"]["uid"].as_str().unwrap().to_owned();
        let envs = scene.list("envs");
        envs.iter().filter(|env| names.iter().any(|name| env["metadata"]["name"] == **name)).map(of).collect()
    };
    let there = &listed(&[], &name) | &listed(&["-H", &far.socket()], &format!("{name}-far"));
    assert_eq!(there, ids(&first.ready));
    // who does not wait is refused beside them, with the same words
    let place = format!("box=docker@{name}{}", scene.project.path());
    let agent = format!("coder=script/{}", scene.project.file("steps.yaml").display());
    let refused = [(); 5].map(|()| scene.home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "t"]).start());
    for one in refused {
        let one = one.wait().expect_code(2).says(&format!("docker:{name}-far cannot hold 'box': "));
        assert!(one.err().contains(&format!("docker@{name} runs {PLACES} of the {PLACES} containers it may")), "{one}");
    }
    // a refusal is final: nobody waits for it, and it is said how to try again
    let (env, said) = &first.refused[0];
    let _ = scene.home.hmz(["wait", "--for=condition=Ready", &format!("env/{env}")]).run().expect_code(2).says(said);
    assert!(scene.home.hmz(["get", "env", env]).run().ok().out().contains("False (Refused)"));
    let again = scene.home.hmz(["apply", "-f", "-"]).stdin(now).run().expect_code(2);
    assert!(again.err().contains(&format!("to try again, delete it first: hmz delete env/{env}")), "{again}");
    let delete = |names: &[String]| {
        let all: Vec<String> = names.iter().map(|name| format!("env/{name}")).collect();
        let _ = scene.home.hmz(["delete"]).args(&all).run().ok();
    };
    // one that is not there yet: what a plan says of it, and how long it waits
    let plan = scene.home.hmz(["diff", "-f"]).arg(scene.environment_manifest("soon", "  admission: refuse\n")).run();
    let _ = plan.expect_code(2).says(&format!("env/soon: {}", full("soon")));
    let waited = scene.home.hmz(["apply", "--wait", "-f"]).arg(scene.environment_manifest("soon", "  wait_for: 1s\n")).run();
    let _ = waited.expect_code(2).says(&format!("env/soon: {} (it waited 1s)", full("soon")));
    delete(&["soon".to_owned()]);
    // those that run go: as many of those that waited have their places, and of those that were refused none
    delete(&first.ready);
    let run = first.waiting.len().min(2 * PLACES);
    let next = Standing::settled(&scene, "those that waited run", ALL - 2 * PLACES, run);
    assert_eq!((next.ready.iter().all(|name| !declines(name)), &next.refused), (true, &first.refused));
    // declared otherwise it is asked for again
    let free = 2 * PLACES > run;
    let changed = std::fs::read_to_string(scene.environment_manifest(env, "  admission: refuse\n  cpus: 0.01\n")).unwrap();
    let changed = scene.home.hmz(["apply", "--wait", "-f", "-"]).stdin(changed).run();
    assert_eq!(changed.code(), if free { 0 } else { 2 }, "{changed}");
    let left: Vec<String> = scene.list("envs").iter().map(|env| env["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    delete(&left);
    let (looks, most) = watcher.end();
    assert!(looks > 10 && most == [PLACES; 2], "{looks} looks, {most:?} at most");
    // nobody found the lock taken for longer than it is waited for
    let log = std::fs::read_to_string(scene.home.hmz_home().join("state/daemon.log")).unwrap();
    assert!(!log.contains("stays taken"), "{log}");
    scene.assert_nothing_left();
    assert_eq!(listed(&["-H", &far.socket()], &format!("{name}-far")), BTreeSet::new());
}
