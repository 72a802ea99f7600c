//! Bodies about saved runtimes: adding one, asking its daemon, importing hosts of ssh's configuration.

use crate::quantity::{Cpus, Memory};
use crate::reference::RuntimeRef;
use serde::{Deserialize, Serialize};

/// `POST /v1/settings/runtimes`: one more entry of settings.yaml.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddRuntime {
    /// Its backend and name.
    pub runtime: RuntimeRef,
    /// Its settings, as settings.yaml has them.
    #[serde(default)]
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// Whether what its daemon has of CPUs, memory and GPUs is written where the fields say nothing.
    #[serde(default)]
    pub detect: bool,
    /// What endpoint `local` is to whoever asks; absent: what it is to the daemon.
    #[serde(default)]
    pub docker_endpoint: Option<String>,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddedRuntime {
    /// The file it is saved in.
    pub path: String,
    /// What was detected and written, as settings.yaml has it.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub detected: serde_json::Map<String, serde_json::Value>,
    /// What its daemon says.
    pub checked: Checked,
}

/// `DELETE /v1/settings/runtimes/NAME`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedRuntime {
    /// The runtime.
    pub runtime: RuntimeRef,
    /// The file it was saved in.
    pub path: String,
    /// What other entries still say of it, a sentence each.
    pub dangling: Vec<String>,
}

/// `POST /v1/Runtime/NAME/check`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckRuntime {
    /// What endpoint `local` is to whoever asks; absent: what it is to the daemon.
    #[serde(default)]
    pub docker_endpoint: Option<String>,
}

/// Whether a runtime's daemon answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckState {
    /// It did, and has what was saved to be handed out.
    Answers,
    /// It did, and has less.
    Lacks,
    /// It did not.
    NoAnswer,
    /// It was not asked: this version cannot.
    NotAsked,
}

/// What came of asking a runtime's daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The runtime.
    pub runtime: RuntimeRef,
    /// Whether it answered.
    pub state: CheckState,
    /// Why it did not, or was not asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What it has, when it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<DaemonHas>,
    /// What was saved to be handed out and it has not got, a clause each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// What a daemon or a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonHas {
    /// Its version; empty of an ssh host.
    pub version: String,
    /// CPUs.
    pub cpus: Cpus,
    /// Memory.
    pub memory: Memory,
    /// The GPUs it lists, by id; absent when it may have some and lists none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<String>>,
    /// OCI runtimes, its own choice first.
    pub runtimes: Vec<String>,
    /// Of an ssh host: the memory that each of its GPUs has at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Memory>,
    /// Of an ssh host: the home directory there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Of a swarm: the names of the nodes that may take its tasks, of which the amounts are the sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
}

/// `POST /v1/settings/ssh-hosts`: hosts of ssh's configuration become runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportSsh {
    /// Which; none: each that can be.
    #[serde(default)]
    pub names: Vec<String>,
    /// Another configuration than the user's own, absolute.
    #[serde(default)]
    pub config: Option<String>,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedSsh {
    /// The file they are saved in.
    pub path: String,
    /// Each host that is a runtime now, and whether its entry is new or changed.
    pub hosts: Vec<(RuntimeRef, super::Applied)>,
    /// Why others are not, a sentence each.
    pub left: Vec<String>,
}

/// `GET /v1/settings/ssh-hosts`: one host of ssh's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSshHost {
    /// Its `Host`.
    pub alias: String,
    /// The runtime it is imported as, when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<RuntimeRef>,
}
