//! What `hmz diff` costs where there is much: one change among many environments, and many that are new.

use crate::held::holding;
use crate::rounds::{compared, take_turns};
use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::table::{Aim, Figure, Unit};
use crate::world::World;
use serde_json::json;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

/// Measures it, each beside the same of few.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let (few, many) = (holding(1), holding(1_000));
    let (one, of_many) =
        (diff(&few, &manifests(&few.home, "environment", 1)), diff(&many, &manifests(&many.home, "environment", 1)));
    let (some, all) = (manifests(&few.home, "new", 100), manifests(&few.home, "new", 1_000));
    let (some, all) = (diff(&few, &some), diff(&few, &all));
    let figure = |name, ours: &Invocation, count, what, theirs: &Invocation, counted, aim| {
        let (a, b) = take_turns(rounds, |_| planned(ours, count), |_| planned(theirs, counted));
        compared(name, Unit::Seconds, &a, what, &b, aim)
    };
    vec![
        figure("hmz diff of one change, 1,000 environments", &of_many, 1, "1 environment", &one, 1, Aim::Told),
        // what is ten times as much may cost twenty times as much, and not a hundred times
        figure("hmz diff of 1,000 new environments", &all, 1_000, "100 new", &some, 100, Aim::Ratio(20.0)),
    ]
}

/// A file that declares so many environments; those called as the ones that are there ask for something else.
fn manifests(home: &TestHome, name: &str, count: usize) -> PathBuf {
    let workdir = home.root().join("project");
    std::fs::create_dir_all(&workdir).expect("a directory");
    let items: Vec<_> = (0..count)
        .map(|n| {
            let spec = json!({"runtime": "docker:here", "workdir": workdir, "image": crate::world::IMAGE, "cpus": 0.001});
            let metadata = json!({"name": format!("{name}-{n:05}")});
            json!({"apiVersion": "hmz/v1", "kind": "Environment", "metadata": metadata, "spec": spec})
        })
        .collect();
    let file = home.root().join(format!("{name}-{count}.json"));
    std::fs::write(&file, json!({"kind": "List", "items": items}).to_string()).expect("a manifest");
    file
}

fn diff(world: &World, file: &std::path::Path) -> Invocation {
    world.home.hmz(["diff", "-f"]).arg(file)
}

/// How long a plan takes in which so many containers would be started.
fn planned(diff: &Invocation, starts: usize) -> f64 {
    let began = Instant::now();
    let output = diff.command().stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{}: {e}", diff.line()));
    let took = began.elapsed().as_secs_f64();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}{}", told, String::from_utf8_lossy(&output.stderr));
    assert_eq!(told.matches("would start container").count(), starts, "{told}");
    took
}
