//! The journal of a run: what the runner writes, one JSON object a line, and everybody else reads.
//!
//! It is the truth of a run. The file is `epic.jsonl` in the run's epic directory; a reader ignores a last line
//! without a newline (a runner that was killed while writing) and events it does not know.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its flow returned.
    Succeeded,
    /// A limit was reached; no failure.
    BudgetExceeded,
    /// Its flow failed.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// Nothing of it started.
    Refused,
}

impl Outcome {
    /// The condition's reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::BudgetExceeded => "BudgetExceeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
            Self::Refused => "Refused",
        }
    }
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Seconds since the epoch.
    pub at: f64,
    /// The agent role it concerns, or empty.
    #[serde(default)]
    pub agent: String,
    /// The agent's CLI, or empty.
    #[serde(default)]
    pub cli: String,
    /// The model, or empty.
    #[serde(default)]
    pub model: String,
    /// The CLI's own session id, or empty.
    #[serde(default)]
    pub session: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// The runner began; the first line. Written once its environments are ready.
    Began {
        /// The run's name.
        run: String,
        /// The run's uid.
        uid: String,
        /// The flow's name.
        flow: String,
        /// Role → where it was put, as that was given, such as `docker@here/home/me/p`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        envs: BTreeMap<String, String>,
        /// Role → the runtime really used, such as `docker:here`.
        used: BTreeMap<String, String>,
    },
    /// Where an agent's CLI runs; shown as a transcript line: `coder's harness runs here`.
    Placed {
        /// The line.
        text: String,
    },
    /// A turn began.
    Begins,
    /// The agent said something.
    Text {
        /// What.
        text: String,
    },
    /// The agent thought aloud.
    Reasoning {
        /// What.
        text: String,
    },
    /// The agent used a tool.
    Tool {
        /// The tool, such as `Bash`.
        name: String,
        /// What it is used on: the command, the path.
        about: String,
    },
    /// A tool answered.
    ToolResult {
        /// Whether it failed.
        is_error: bool,
        /// The beginning of what it said, bounded.
        text: String,
    },
    /// A command of the flow's own (`exec` step) ran.
    Exec {
        /// The environment role.
        environment: String,
        /// The command as text.
        command: String,
        /// Its exit status; 128+n for a signal.
        status: i32,
        /// What it wrote to stdout, bounded.
        stdout: String,
        /// What it wrote to stderr, bounded.
        stderr: String,
    },
    /// We have something to say: a retry, a refusal of a permission, a cut.
    Notice {
        /// What.
        text: String,
    },
    /// Something failed.
    Failed {
        /// What.
        text: String,
    },
    /// A turn's usage.
    Result {
        /// Kind → tokens: `input`, `output`, `cache_read`, `cache_write`, `reasoning`.
        spent: BTreeMap<String, u64>,
        /// US dollars, when the CLI says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
    },
    /// A turn ended.
    Ends {
        /// How long it took, in seconds.
        seconds: f64,
        /// Its final answer; `hmz exec` writes it to stdout.
        answer: String,
    },
    /// The run ended; the last line.
    Ended {
        /// How.
        outcome: Outcome,
        /// One sentence; empty when there is nothing to say.
        message: String,
    },
    /// An event of a newer version.
    #[serde(other)]
    Unknown,
}
