//! `hmz runtime`: runtimes saved, asked, removed and imported, by whole outputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "runtime/add.rs"]
mod add;
#[path = "runtime/api.rs"]
mod api;
#[path = "runtime/check.rs"]
mod check;
#[path = "runtime/played.rs"]
mod played;
#[path = "runtime/remove.rs"]
mod remove;
#[path = "runtime/ssh.rs"]
mod ssh;
#[path = "runtime/unsaved.rs"]
mod unsaved;

use support::docker::docker;
use support::home::TestHome;

/// settings.yaml, as messages name it.
fn file(home: &TestHome) -> String {
    home.hmz_home().join("settings.yaml").display().to_string()
}

/// What it says.
fn text(home: &TestHome) -> String {
    std::fs::read_to_string(file(home)).unwrap()
}

/// What the docker daemon here says of itself, as the answers line has it, from docker's own command line.
fn daemon() -> String {
    let said = docker(&[
        "info",
        "--format",
        "{{.ServerVersion}}|{{.NCPU}}|{{.MemTotal}}|{{.DefaultRuntime}}|{{range $name, $_ := .Runtimes}}{{$name}} {{end}}",
    ]);
    let parts: Vec<&str> = said.split('|').collect();
    let [version, cpus, memory, default, runtimes] = parts[..] else { panic!("{said}") };
    let others = runtimes.split_whitespace().filter(|name| *name != default);
    let runtimes: Vec<&str> = std::iter::once(default).chain(others).collect();
    let memory = memory.parse::<u64>().unwrap() >> 30;
    format!("docker {version}; {cpus} CPUs, {memory}G; OCI runtimes {}", runtimes.join(", "))
}

/// Whether a daemon of ours has been started in the home.
fn has_daemon(home: &TestHome) -> bool {
    home.processes().into_iter().any(|pid| support::processes::line(pid).contains(" controller "))
}
