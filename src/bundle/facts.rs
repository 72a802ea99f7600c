//! Facts of this machine that a fault may come of: versions, the kernel, what it lets us do, room, and the names of variables.

use hmz_server::Paths;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// Variables whose being there may matter; their values are not told.
const NAMES: [&str; 10] = [
    "HMZ_",
    "DOCKER_",
    "ANTHROPIC_",
    "CLAUDE_",
    "OTEL_",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// All of them. `daemon` is its version, when one runs.
pub fn facts(paths: &Paths, daemon: Option<&str>, env: &BTreeMap<String, String>) -> Value {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    let line = |file: &str| fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    let release = line("/etc/os-release").unwrap_or_default();
    let os = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"').to_owned());
    let memory = line("/proc/meminfo").and_then(|text| text.lines().next().map(str::to_owned));
    let nofile = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let room = |dir: &std::path::Path| {
        rustix::fs::statvfs(dir)
            .ok()
            .map(|room| json!({"freeBytes": room.f_bavail.saturating_mul(room.f_frsize), "freeFiles": room.f_favail}))
    };
    let names = env.keys().filter(|name| NAMES.iter().any(|known| name.eq_ignore_ascii_case(known) || name.starts_with(known)));
    json!({
        "hmz": env!("CARGO_PKG_VERSION"),
        "daemon": daemon,
        "kernel": {"release": text(uname.release()), "version": text(uname.version()), "machine": text(uname.machine())},
        "os": os,
        "cgroups": if fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false) { "v2" } else { "v1" },
        "landlock": hmz_anchor::landlock_abi(),
        "securityModules": line("/sys/kernel/security/lsm"),
        "seccompActions": line("/proc/sys/kernel/seccomp/actions_avail"),
        "ptraceScope": line("/proc/sys/kernel/yama/ptrace_scope"),
        "cpus": std::thread::available_parallelism().map(std::num::NonZero::get).ok(),
        "memory": memory,
        "openFiles": {"soft": nofile.current, "hard": nofile.maximum},
        "uid": rustix::process::getuid().as_raw(),
        "paths": {"home": paths.home, "state": paths.state, "runtime": paths.runtime, "boxes": paths.boxes},
        "room": {"home": room(&paths.home), "state": room(&paths.state), "boxes": room(&paths.boxes)},
        "variables": names.collect::<Vec<_>>(),
    })
}
