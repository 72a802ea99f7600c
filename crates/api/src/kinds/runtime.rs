//! Runtime: a place that hands out shares of CPUs, memory and GPUs to environments.

use crate::condition::Conditions;
use crate::quantity::{Cpus, Memory, Span};
use crate::reference::{Backend, RuntimeRef};
use crate::resource::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod endpoint;

pub use endpoint::{Endpoint, Harness, SshAddress, is_ssh_word};

/// The Runtime kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime;

impl Kind for Runtime {
    const KIND: &'static str = "Runtime";
    const PLURAL: &'static str = "runtimes";
    const SHORT: &'static [&'static str] = &["rt"];
    type Spec = RuntimeSpec;
    type Status = RuntimeStatus;
}

/// What a role asks for that declares no amount of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultRequest {
    /// CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// How many GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// What a runtime is to hand out, and how it is reached. The field names are those of settings.yaml; which of them a
/// backend has, [`RuntimeSpec::fields`] says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSpec {
    /// The daemon; `local` by default.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoint: Endpoint,
    /// A directory with `ca.pem`, `cert.pem` and `key.pem`, for a `tcp://` endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_dir: Option<String>,
    /// Where an agent's CLI runs; `env` by default, and `local` on a swarm.
    #[serde(skip_serializing_if = "is_default")]
    pub harness: Harness,
    /// A container that runs already and is worked in; none is started then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Whom every command runs as, `UID[:GID]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_user: Option<String>,
    /// Variables of every command, `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exec_env: Vec<String>,
    /// Words put before every command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exec_wrapper: Vec<String>,
    /// The image of environments that declare none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The OCI runtime; absent: the daemon's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Further arguments of `docker run` or `docker service create`, those of a list only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_args: Vec<String>,
    /// What the names of its boxes begin with; absent: `humanize-` and the runtime's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// CPUs it hands out in total; absent: all the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory it hands out in total; absent: all the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Ids of the GPUs it hands out; empty: every one the daemon lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// Memory of each GPU; absent: unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Memory>,
    /// How many containers it may run at once; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_containers: Option<u32>,
    /// What a role asks for that declares nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_request: Option<DefaultRequest>,
    /// Seconds without an owner after which a run's box ends itself; 120 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// The directory of an environment that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Runtimes to try in order when this one cannot hold an environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<RuntimeRef>,
    /// Of a swarm: the generic resource its nodes advertise GPUs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_resource: Option<String>,
    /// Of a swarm: where tasks may land, `ATTRIBUTE==VALUE` or `ATTRIBUTE!=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Of a swarm: how many tasks it may run at once; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Of a swarm: a node's host name, and a saved ssh host or `[user@]host[:port]` it is reached at.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, String>,
    /// Of an ssh host: its name or address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Of an ssh host: a `Host` of ssh's configuration, which ssh is then told to go to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Of an ssh host: the login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Of an ssh host: the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Of an ssh host: the key's file, which is never read here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<String>,
    /// Of an ssh host: the hosts on the way to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_jump: Option<String>,
    /// Of an ssh host: further keywords of ssh's configuration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Of an ssh host: ssh's configuration file to read in place of the user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl RuntimeSpec {
    /// What is saved of a runtime of a backend that says nothing: on a swarm an agent's CLI runs here.
    pub fn of(backend: Backend) -> Self {
        let harness = if backend == Backend::Swarm { Harness::Local } else { Harness::default() };
        Self { harness, ..Self::default() }
    }

    /// The fields runtimes of a backend have, in the order they are written; none for backends that are not saved yet.
    pub const fn fields(backend: Backend) -> &'static [&'static str] {
        match backend {
            Backend::Docker => &DOCKER,
            Backend::Swarm => &SWARM,
            Backend::Ssh => &SSH,
            Backend::Local | Backend::AppleContainer | Backend::Slurm => &[],
        }
    }
}

const DOCKER: [&str; 20] = [
    "endpoint",
    "tls_dir",
    "harness",
    "container",
    "exec_user",
    "exec_env",
    "exec_wrapper",
    "image",
    "runtime",
    "run_args",
    "name_prefix",
    "cpus",
    "memory",
    "gpus",
    "gpu_memory",
    "max_containers",
    "default_request",
    "lease",
    "workdir",
    "fallback",
];

const SWARM: [&str; 17] = [
    "endpoint",
    "tls_dir",
    "harness",
    "image",
    "run_args",
    "name_prefix",
    "cpus",
    "memory",
    "default_request",
    "lease",
    "workdir",
    "fallback",
    "gpu_memory",
    "gpu_resource",
    "constraints",
    "max_tasks",
    "nodes",
];

const SSH: [&str; 11] =
    ["host", "alias", "user", "port", "identity_file", "proxy_jump", "options", "config", "harness", "workdir", "fallback"];

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where a runtime was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeSource {
    /// A manifest.
    #[default]
    Manifest,
    /// settings.yaml, which owns what it names.
    Settings,
    /// Nobody: the backend's default.
    Unsaved,
}

/// Who holds a share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Holder {
    /// The container's name.
    pub name: String,
    /// The host that asked for it.
    pub host: String,
    /// The environment role.
    pub role: String,
    /// CPUs held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Ids of the GPUs held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// The run it is for: its name where it is one of this home, else its uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// What a runtime is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeStatus {
    /// `Reachable`, `Sufficient`.
    pub conditions: Conditions,
    /// Where it was declared.
    pub source: RuntimeSource,
    /// The daemon's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// CPUs the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The GPUs its daemon lists, by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// Those it hands out that did not answer when they were asked last: they are not handed out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_gpus: Vec<String>,
    /// The OCI runtimes it has, its own choice first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<String>,
    /// CPUs handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_cpus: Option<Cpus>,
    /// Memory handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_memory: Option<Memory>,
    /// Ids of the GPUs handed out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_gpus: Vec<String>,
    /// Containers of this name that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
    /// Who holds what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}
