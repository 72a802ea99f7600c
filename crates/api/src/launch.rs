//! What a runner is given to start: everything it needs, on its standard input, never on disk.
//!
//! It carries the user's own variables (an API key may be among them), so it is kept in memory and passed over pipes only.

use crate::grammar::AgentSpec;
use crate::journal::Outcome;
use crate::kinds::{FlowSpec, Harness, RunParams};
use crate::link::Link;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a verb passes along with a run or an environment, for whoever starts processes on its behalf.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallerContext {
    /// The caller's directory.
    pub cwd: String,
    /// The caller's variables that a run needs: PATH, HOME, USER, LANG, LC_*, TERM, and the agents' own (`ANTHROPIC_*`, …).
    pub env: BTreeMap<String, String>,
    /// What endpoint `local` means to the caller, such as `unix:///var/run/docker.sock`.
    pub docker_endpoint: Option<String>,
    /// The trace it is of: a `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// A box, as one who works in it reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxAddress {
    /// The environment resource's name.
    pub environment: String,
    /// The runtime really used.
    pub used: String,
    /// The way to its guest.
    pub link: Link,
    /// The workdir, the same path on both sides.
    pub workdir: String,
    /// The scratch directory, the same path on both sides.
    pub scratch: String,
}

/// The file in an epic directory that tells a runner what became of the boxes it was started before.
pub const BOXES_FILE: &str = "boxes.json";

/// What became of the boxes of a run whose runner was started before they were up. The controller writes it once it knows,
/// as often as it likes; who reads it takes the first it finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// They are up, by role. No link here is awaited.
    Up(BTreeMap<String, BoxAddress>),
    /// One did not come up: how the run ends by it (`Refused` or `Failed`), and one sentence.
    Down {
        /// How.
        outcome: Outcome,
        /// Why.
        message: String,
    },
}

/// Everything a runner needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLaunch {
    /// The run's name.
    pub name: String,
    /// The run's uid.
    pub uid: Uuid,
    /// The flow's name, for the journal.
    pub flow_name: String,
    /// The flow.
    pub flow: FlowSpec,
    /// The task.
    pub task: String,
    /// Role → agent.
    pub agents: BTreeMap<String, AgentSpec>,
    /// Role → where it was put, as that was given.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Role → box. Where its link is awaited, the rest of the address is what it will have.
    pub boxes: BTreeMap<String, BoxAddress>,
    /// Environment role → where the CLIs of the agents that work in it run; here, where it says nothing.
    #[serde(default)]
    pub harnesses: BTreeMap<String, Harness>,
    /// Environment role → the second box, where the CLIs of the agents that work in it run in one.
    #[serde(default)]
    pub seconds: BTreeMap<String, BoxAddress>,
    /// Parameters and budget.
    pub params: RunParams,
    /// The epic directory (exists; the journal is `epic.jsonl` in it).
    pub epic: String,
    /// The caller's variables.
    pub caller: CallerContext,
}

impl RunLaunch {
    /// Where the CLI of an agent that works in an environment role runs.
    pub fn harness(&self, environment: &str) -> &Harness {
        self.harnesses.get(environment).unwrap_or(&Harness::Local)
    }
}

/// What a runner is told after its launch, one JSON object a line on its standard input. The end of the input alone
/// means nothing: a daemon may die and the run goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum RunnerCommand {
    /// End the run now: agents are interrupted, everything is taken down, the journal ends with `Cancelled`.
    /// A runner does the same on SIGTERM and SIGINT.
    Cancel,
}
