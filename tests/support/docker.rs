//! The docker daemon, asked through docker's own command line.

use super::command::Invocation;

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
    let mut docker = Invocation::new("docker").args(words);
    for name in ["PATH", "HOME"] {
        if let Some(value) = std::env::var_os(name) {
            docker = docker.env(name, value);
        }
    }
    if let Some(host) = host() {
        docker = docker.env("DOCKER_HOST", host);
    }
    docker.run().ok().out().trim_end().to_owned()
}

/// The ids of all containers with that label, running or not.
#[track_caller]
pub fn containers(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// Removes those containers, running or not.
pub fn remove(containers: &[String]) {
    if !containers.is_empty() {
        let mut words = vec!["rm", "-f", "-v"];
        words.extend(containers.iter().map(String::as_str));
        docker(&words);
    }
}
