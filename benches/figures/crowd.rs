//! Fifty environments started together, against as many containers made, started and used once by docker's API alone, as many
//! at the same time.

use crate::http;
use crate::ready::bare;
use crate::rounds::{compared, take_turns};
use crate::support::project::Project;
use crate::table::{Aim, Figure, Unit};
use crate::world::{IMAGE, World};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many.
const CROWD: usize = 50;
/// How many of them hmz starts at the same time.
const TOGETHER: usize = 32;
/// More rounds than this say nothing more, and each is a hundred containers.
const ROUNDS: usize = 3;

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let project = world.home.project("p");
    let _ = world.environment("warm", &project);
    bare(&project);
    let (a, b) = take_turns(rounds.min(ROUNDS), |_| once(&world, &project), |_| by_hand(&project));
    vec![compared("50 environments together, ready", Unit::Seconds, &a, "create + start + exec", &b, Aim::Ratio(1.3))]
}

fn once(world: &World, project: &Project) -> f64 {
    let names: BTreeSet<String> = (0..CROWD).map(|n| format!("crowd-{n}")).collect();
    let documents = names.iter().map(|name| {
        let spec = json!({"runtime": "docker:here", "workdir": project.path(), "image": IMAGE});
        json!({"apiVersion": "hmz/v1", "kind": "Environment", "metadata": {"name": name}, "spec": spec}).to_string()
    });
    let documents = documents.collect::<Vec<_>>().join("\n---\n");
    let changes = http::stream(&world.socket(), "/v1/Environment?watch=true").changes();
    let apply = world.home.hmz(["apply", "-f", "-"]).stdin(documents);
    let began = Instant::now();
    let applied = apply.start();
    let mut waited = names.clone();
    for line in changes {
        let env = &line["object"];
        let conditions = env["status"]["conditions"].as_array();
        if conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True") {
            waited.remove(env["metadata"]["name"].as_str().unwrap_or_default());
        }
        if waited.is_empty() {
            break;
        }
    }
    let took = began.elapsed().as_secs_f64();
    assert!(waited.is_empty(), "the daemon ended before these were ready: {waited:?}");
    let _ = applied.wait().ok();
    let _ = world.home.hmz(["delete"]).args(names.iter().map(|name| format!("env/{name}"))).run().ok();
    took
}

/// The same by hand; what is made is removed outside of what is measured.
fn by_hand(project: &Project) -> f64 {
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let ends = std::thread::scope(|scope| {
        let one = || {
            let mut made = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < CROWD {
                made.push(crate::ready::make(project));
            }
            (made, Instant::now())
        };
        let threads: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("containers are made")).collect::<Vec<_>>()
    });
    let last = ends.iter().map(|(_, at)| *at).max().expect("some were made");
    for container in ends.iter().flat_map(|(made, _)| made) {
        crate::ready::remove(container);
    }
    last.duration_since(began).as_secs_f64()
}
