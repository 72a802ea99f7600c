//! A home with a warm daemon, environments in it, and the docker daemon beside it.

use crate::http;
use crate::support::docker;
use crate::support::home::TestHome;
use crate::support::processes;
use crate::support::project::Project;
use hmz_api::launch::BoxAddress;
use hmz_api::link::Link;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// The image of everything measured.
pub const IMAGE: &str = "python:3.12-slim";

/// Three names of the one daemon here.
const SETTINGS: &str = "runtimes:\n  docker:\n    here: {endpoint: local, harness: local}\n    \
                        second: {endpoint: local, harness: local}\n    third: {endpoint: local, harness: local}\n";

/// A home whose daemon stays while something is measured; all of it ends with this value.
pub struct World {
    /// The home.
    pub home: TestHome,
}

impl World {
    /// A home with a daemon that is up.
    pub fn new() -> Self {
        Self::with(TestHome::new())
    }

    /// That home, with a daemon that is up.
    pub fn with(mut home: TestHome) -> Self {
        home.set("HMZ_IDLE", "3600");
        home.settings(SETTINGS);
        let _ = home.hmz(["get", "runtimes"]).run().ok();
        Self { home }
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        let said = |name: &str| (name.to_owned(), self.home.variable(name).unwrap_or_default().to_owned());
        let env = BTreeMap::from([said("HMZ_HOME"), said("HOME"), said("XDG_RUNTIME_DIR")]);
        hmz_server::Paths::from_env(&env).expect("the paths of the home").socket()
    }

    /// The manifest of an environment on `project`, as a file.
    pub fn manifest(&self, name: &str, project: &Project) -> PathBuf {
        let file = self.home.root().join(format!("{name}.yaml"));
        let spec = json!({"runtime": "docker:here", "workdir": project.path(), "image": IMAGE});
        let document = json!({"apiVersion": "hmz/v1", "kind": "Environment", "metadata": {"name": name}, "spec": spec});
        std::fs::write(&file, document.to_string()).expect("a manifest");
        file
    }

    /// Applies an environment on `project` and waits until it is ready; where it is, and its container.
    pub fn environment(&self, name: &str, project: &Project) -> (BoxAddress, String) {
        let manifest = self.manifest(name, project);
        let watched = self.watch(name);
        let _ = self.home.hmz(["apply", "-f"]).arg(manifest).run().ok();
        let (_, env) = ready(watched);
        let text = |name: &str| env["status"][name].as_str().unwrap_or_else(|| panic!("no {name} in {env}")).to_owned();
        let address = BoxAddress {
            environment: name.to_owned(),
            used: text("used"),
            link: Link::Direct {
                socket: format!("{}/{}", text("socket_dir"), hmz_wire::SOCKET_NAME),
                pid: env["status"]["pid"].as_i64().and_then(|pid| pid.try_into().ok()).expect("a pid"),
            },
            workdir: text("workdir"),
            scratch: text("scratch"),
        };
        (address, text("container_id"))
    }

    /// What becomes of an environment from now on.
    pub fn watch(&self, name: &str) -> http::Stream {
        http::stream(&self.socket(), &format!("/v1/Environment?watch=true&name={name}"))
    }
}

/// When a watched environment is ready, and the resource as it is then.
pub fn ready(stream: http::Stream) -> (Instant, Value) {
    for line in stream {
        let env = &line["object"];
        let conditions = env["status"]["conditions"].as_array();
        if conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True") {
            return (Instant::now(), env.clone());
        }
    }
    panic!("the daemon ended before the environment was ready")
}

/// The docker daemon's socket.
pub fn docker_socket() -> PathBuf {
    let host = docker::host().unwrap_or_else(|| "unix:///var/run/docker.sock".into());
    let path = host.strip_prefix("unix://").unwrap_or_else(|| panic!("{host} is no Unix socket"));
    PathBuf::from(path)
}

/// The pid of a home's daemon.
pub fn daemon_of(home: &TestHome) -> i32 {
    let found = processes::with_variable(&home.mark());
    let is_daemon = |pid: &i32| processes::is_alive(*pid) && processes::line(*pid).contains(" controller");
    found.into_iter().find(is_daemon).expect("a daemon runs in the home")
}
