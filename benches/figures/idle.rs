//! What the daemon costs while nothing happens, with an environment and three runtimes declared.

use crate::http;
use crate::table::{Aim, Figure, Unit};
use crate::world::{World, daemon_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long it is looked at.
const SPAN: Duration = Duration::from_secs(20);
/// How long it is left alone before.
const SETTLED: Duration = Duration::from_secs(5);

/// Measures it, once: what it costs has no baseline.
pub fn measure(_rounds: usize) -> Vec<Figure> {
    let world = World::new();
    world.environment("box", &world.home.project("p"));
    let daemon = daemon_of(&world.home);
    std::thread::sleep(SETTLED);
    let writes = Arc::new(AtomicUsize::new(0));
    for kind in ["Environment", "Run", "Runtime", "Flow"] {
        let changes = http::stream(&world.socket(), &format!("/v1/{kind}?watch=true")).changes();
        let writes = Arc::clone(&writes);
        // it ends with the daemon
        std::thread::spawn(move || {
            changes.for_each(|_| {
                writes.fetch_add(1, Ordering::Relaxed);
            })
        });
    }
    let before = cpu(daemon);
    std::thread::sleep(SPAN);
    let used = cpu(daemon) - before;
    let seen = writes.load(Ordering::Relaxed);
    let of = |file: &str, name: &str| kilobytes(&format!("/proc/{daemon}/{file}"), name) * 1024.0;
    vec![
        Figure::alone("idle daemon, resident (RSS)", Unit::Bytes, of("status", "VmRSS:"), Aim::Value(25e6)),
        Figure::alone("idle daemon, its own part (PSS)", Unit::Bytes, of("smaps_rollup", "Pss:"), Aim::Told),
        Figure::alone("status writes while idle for 20 s", Unit::Count, seen as f64, Aim::Value(0.0)),
        Figure::alone("CPU time while idle for 20 s", Unit::Seconds, used, Aim::Told),
    ]
}

fn kilobytes(file: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{file} has no {name}"));
    line.trim().trim_end_matches("kB").trim().parse().unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// The CPU time its threads have used, in seconds.
fn cpu(pid: i32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon's threads");
    let nanos = |stat: String| stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok()).map(nanos).sum::<f64>() / 1e9
}
