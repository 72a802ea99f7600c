//! The docker daemon, asked through docker's own command line.

use super::command::Invocation;
use std::time::Duration;

/// Where the daemon is, when it is not where everybody looks.
pub fn host() -> Option<String> {
    let said = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    said("HMZ_TEST_DOCKER_HOST").or_else(|| said("DOCKER_HOST")).filter(|at| at != "unix:///var/run/docker.sock")
}

/// Runs `docker WORD…` and gives its stdout without the last newline.
///
/// # Panics
/// When it fails, in docker's own words.
#[track_caller]
pub fn docker(words: &[&str]) -> String {
    command(words).run().ok().out().trim_end().to_owned()
}

fn command(words: &[&str]) -> Invocation {
    let mut docker = Invocation::new("docker").args(words);
    for name in ["PATH", "HOME"] {
        if let Some(value) = std::env::var_os(name) {
            docker = docker.env(name, value);
        }
    }
    if let Some(host) = host() {
        docker = docker.env("DOCKER_HOST", host);
    }
    docker
}

/// The ids of all containers with that label, running or not.
#[track_caller]
pub fn containers(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// Removes those containers, running or not.
#[track_caller]
pub fn remove(containers: &[String]) {
    if !containers.is_empty() {
        let mut words = vec!["rm", "-f", "-v"];
        words.extend(containers.iter().map(String::as_str));
        docker(&words);
    }
}

/// Sees to it that no container with that label is left, whoever else removes them at the same time.
pub fn clear(label: &str) {
    for _ in 0..100 {
        let left = containers(label);
        if left.is_empty() {
            return;
        }
        // the daemon refuses to remove what is being removed
        let _ = command(&["rm", "-f", "-v"]).args(&left).run();
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("containers with {label} are left");
}
