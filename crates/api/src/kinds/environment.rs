//! Environment: a box an agent's work lands in.

use super::{Admission, Harness};
use crate::condition::Conditions;
use crate::quantity::{Cpus, Memory, Span};
use crate::reference::RuntimeRef;
use crate::resource::{Kind, Resource};
use crate::way::Reach;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Environment kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Environment;

impl Kind for Environment {
    const KIND: &'static str = "Environment";
    const PLURAL: &'static str = "environments";
    const SHORT: &'static [&'static str] = &["env", "envs"];
    type Spec = EnvironmentSpec;
    type Status = EnvironmentStatus;
}

/// Whether a box that died is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    /// It stays down; the conditions say why.
    #[default]
    Never,
    /// A new incarnation is started.
    Always,
}

/// What an environment is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentSpec {
    /// The runtime it runs on, such as `docker:gpubox`.
    pub runtime: RuntimeRef,
    /// The directory mounted at its own path; absolute once applied (a relative one resolves against the manifest's folder).
    /// Absent: the runtime's own workdir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The image; absent: the runtime's, else `python:3.12-slim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPUs of its share; absent asks for none and is limited to the runtime's allowance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory of its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// How many GPUs its share has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory each of them is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Memory>,
    /// What happens when the box dies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: RestartPolicy,
    /// What happens when there is no room for a box of it; absent: `wait`. What is refused stays so until it is declared otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How long it waits for room, each time it begins to; then it is refused. Absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A share that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// CPUs; absent when none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory; absent when none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// GPU ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
}

/// Why a runtime was passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PassedFor {
    /// Nothing can be started there, whatever it has: it is not saved, cannot be read, is not driven yet.
    Unusable,
    /// It has no room now.
    Full,
    /// It never has as much.
    TooSmall,
    /// It does not answer.
    Unreachable,
    /// The image, the directory or the start was refused there.
    Refused,
}

/// A runtime that could not hold an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PassedOver {
    /// Which.
    pub runtime: RuntimeRef,
    /// Why, in a word.
    pub reason: PassedFor,
    /// Why, as it was said.
    pub message: String,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// An agent that works in an environment, whose CLI its box needs where the harness of its runtime is `env`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoxedAgent {
    /// The agent's word, such as `claude`.
    pub cli: String,
    /// The program's name on the PATH of the box.
    pub program: String,
    /// The line that installs it.
    pub install: String,
}

/// The environment that a second box was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// Its name.
    pub environment: String,
    /// The runtime it is on, whose `harness` says where the second box is.
    pub runtime: RuntimeRef,
}

/// What an environment is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentStatus {
    /// `Scheduled`, `ImageReady`, `Created`, `GuestReady`, `Ready`.
    pub conditions: Conditions,
    /// How many boxes it has had; written before each create, since the container's name derives from it.
    #[serde(skip_serializing_if = "is_default")]
    pub incarnation: u64,
    /// The runtime it really runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<RuntimeRef>,
    /// The runtimes before it in the order they are tried, which could not hold it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// Since when it waits for room.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub waiting_since: Option<Timestamp>,
    /// The generation that was refused for want of room: what is declared so is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_generation: Option<u64>,
    /// The daemon's address as resolved when it was scheduled, such as `unix:///var/run/docker.sock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The image as it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The container's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// The container's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Of a swarm: the name of the node its task is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The box's pid 1 as this machine sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How the box is reached where it is not on this machine's kernel, or has a first process that is not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// The workdir on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The directory here that holds the guest's socket (`g.sock`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_dir: Option<String>,
    /// The scratch directory, at the same path on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    /// The share it was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Seconds without an owner after which the box ends; absent: it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
    /// The agents whose CLIs its box needs where they run in it; written when its run declares it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<BoxedAgent>,
    /// Where the CLIs of the agents that work in it run, as its runtime said when its box was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harness: Option<Harness>,
    /// Whose agents' CLIs run in it, when it is the second box of a role and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<Served>,
    /// When it last became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
}

impl Resource<Environment> {
    /// Whether what is declared was refused for want of room, which stays so until it is declared otherwise.
    pub fn is_refused(&self) -> bool {
        self.status.refused_generation == Some(self.metadata.generation)
    }
}
