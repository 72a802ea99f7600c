//! What this process itself uses, under the names that Prometheus' own clients give it.

use super::exposition::{Exposition, Type};
use std::fs;

/// Adds it; what /proc does not say is left out.
pub(super) fn add(text: &mut Exposition) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // the name in parentheses may hold anything
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect());
    let field = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok());
    let tick = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let mut one = |name, kind, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            text.family(name, kind, help).sample(&[], value);
        }
    };
    let seconds = field(11).zip(field(12)).map(|(user, system)| (user + system) / tick);
    one("process_cpu_seconds_total", Type::Counter, "CPU time of the daemon in seconds.", seconds);
    one("process_resident_memory_bytes", Type::Gauge, "Resident memory of the daemon in bytes.", field(21).map(|n| n * page));
    one("process_virtual_memory_bytes", Type::Gauge, "Virtual memory of the daemon in bytes.", field(20));
    one("process_threads", Type::Gauge, "Threads of the daemon.", field(17));
    let fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
    one("process_open_fds", Type::Gauge, "Open descriptors of the daemon.", fds);
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.map(|n| n as f64);
    one("process_max_fds", Type::Gauge, "The most descriptors the daemon may open.", most);
    let boot = fs::read_to_string("/proc/stat").ok();
    let boot = boot.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<f64>().ok()));
    let start = boot.zip(field(19)).map(|(boot, start)| boot + start / tick);
    one("process_start_time_seconds", Type::Gauge, "When the daemon started, in seconds since 1970.", start);
}
