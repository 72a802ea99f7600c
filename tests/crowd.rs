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

/// The names of the environments that are ready, and of those that wait, each with what it is told.
fn standing(scene: &Scene) -> (Vec<String>, Vec<(String, String)>) {
    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for env in scene.list("envs") {
        let name = env["metadata"]["name"].as_str().unwrap().to_owned();
        match (condition(&env, "Ready"), condition(&env, "Scheduled")) {
            (Some((status, ..)), _) if status == "True" => ready.push(name),
            (_, Some((status, reason, said))) if status == "False" && reason == "Insufficient" => waiting.push((name, said)),
            _ => {}
        }
    }
    (ready, waiting)
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
    let manifests: Vec<String> =
        (0..ALL).map(|n| std::fs::read_to_string(scene.environment_manifest(&format!("e{n}"), "")).unwrap()).collect();
    let applying = scene.home.hmz(["apply", "-f", "-"]).stdin(manifests.join("---\n")).start();
    let settled = |what: &str, run: usize, wait: usize| {
        eventually(what, LIMIT * 2, || {
            let (ready, waiting) = standing(&scene);
            (ready.len() == run && waiting.len() == wait).then_some((ready, waiting))
        })
    };
    let (ready, waiting) = settled("twenty run and thirty wait", 2 * PLACES, ALL - 2 * PLACES);
    for (env, said) in &waiting {
        let full = |runtime: &str| {
            format!("docker:{runtime} cannot hold '{env}': docker@{runtime} runs {PLACES} of the {PLACES} containers it may")
        };
        assert_eq!(*said, format!("{}; {}", full(&name), full(&format!("{name}-far"))));
    }
    let _ = applying.wait();
    // who does not wait is refused beside them, with the same words
    let place = format!("box=docker@{name}{}", scene.project.path());
    let agent = format!("coder=script/{}", scene.project.file("steps.yaml").display());
    let refused = [(); 5].map(|()| scene.home.hmz(["exec", "-f", "boxed", "-a", &agent, "-e", &place, "t"]).start());
    for one in refused {
        let one = one.wait().expect_code(2).says(&format!("docker:{name}-far cannot hold 'box': "));
        assert!(one.err().contains(&format!("docker@{name} runs {PLACES} of the {PLACES} containers it may")), "{one}");
    }
    // those that run go: as many of those that waited have their places
    let all: Vec<String> = ready.iter().map(|name| format!("env/{name}")).collect();
    let _ = scene.home.hmz(["delete"]).args(&all).run().ok();
    let (next, _) = settled("the next twenty run", 2 * PLACES, ALL - 4 * PLACES);
    assert!(next.iter().all(|name| !ready.contains(name)));
    let left: Vec<String> = standing(&scene).1.iter().map(|(name, _)| name.clone()).chain(next).collect();
    let left: Vec<String> = left.iter().map(|name| format!("env/{name}")).collect();
    let _ = scene.home.hmz(["delete"]).args(&left).run().ok();
    let (looks, most) = watcher.end();
    assert!(looks > 10 && most == [PLACES; 2], "{looks} looks, {most:?} at most");
    // nobody found the lock taken for longer than it is waited for
    let log = std::fs::read_to_string(scene.home.hmz_home().join("state/daemon.log")).unwrap();
    assert!(!log.contains("stays taken"), "{log}");
    scene.assert_nothing_left();
    assert_eq!(listed(&["-H", &far.socket()], &format!("{name}-far")), BTreeSet::new());
}
