//! What boxes use at this moment: `POST /v1/usage`. Counters as a daemon has them; who wants a rate asks twice.

use crate::kinds::Share;
use crate::quantity::{Cpus, Memory};
use crate::reference::RuntimeRef;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which environments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageRequest {
    /// Their names; absent: every one.
    #[serde(default)]
    pub names: Option<Vec<String>>,
}

/// What a box uses. What its daemon does not tell is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// When it was read, by the daemon's clock.
    pub at: Timestamp,
    /// CPU time since the box began, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_nanos: Option<u64>,
    /// The CPUs it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<Cpus>,
    /// Memory in use, without what the kernel would give back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The memory it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Memory>,
    /// Bytes received since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// Bytes sent since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Processes and threads in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Its GPUs, as they say it themselves; absent where it has none, or they were not to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuUsage>,
}

/// What the GPUs of a box do, all together. They are the box's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuUsage {
    /// How much of the time of the last moments they worked, in per cent, on the average.
    pub percent: u64,
    /// Memory in use.
    pub memory: Memory,
    /// Memory there is.
    pub memory_limit: Memory,
}

/// One environment, and what its box uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentUsage {
    /// Its name.
    pub environment: String,
    /// The runtime it is on, or is to be on.
    pub runtime: RuntimeRef,
    /// The container's id: another one is another box, whose counters began anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The container's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Of a swarm: the node it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The share it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// What it uses; absent where that cannot be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why nothing is known of it, or not all; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}
