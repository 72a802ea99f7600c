//! Bodies of the API on the daemon's socket. Paths are in `hmz-server`; both ends share these.

mod edit;
mod event;
mod plan;
mod runtime;
mod set;
pub mod table;
mod usage;

pub use edit::Edit;
pub use event::{Event, EventType};
pub use plan::{Affected, Effect, Planned};
pub use runtime::{
    AddRuntime, AddedRuntime, CheckRuntime, CheckState, Checked, DaemonHas, FoundSshHost, ImportSsh, ImportedSsh, RemovedRuntime,
};
pub use set::{SET_KIND, SetState};
pub use usage::{EnvironmentUsage, GpuUsage, Usage, UsageRequest};

use crate::error::Error;
use crate::kinds::AnyResource;
use crate::launch::CallerContext;
use serde::{Deserialize, Serialize};

/// `POST /v1/apply`, and `POST /v1/plan`, which says what the same would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplyRequest {
    /// What is declared, in order.
    pub resources: Vec<AnyResource>,
    /// The spec of each as its manifest writes it, in the same order: what is not written is not asked for. Where there is none
    /// (or `null`), all of the spec is.
    #[serde(default)]
    pub written: Vec<serde_json::Value>,
    /// Who asks.
    pub caller: CallerContext,
    /// Whether a run belongs to this connection's verb: `hmz exec`, whose end cancels it.
    #[serde(default)]
    pub attached: bool,
    /// Whether each becomes what is declared in all, whoever set the rest; a run that has started is begun anew for it.
    #[serde(default)]
    pub replace: bool,
    /// The set that they are members of.
    #[serde(default)]
    pub set: Option<String>,
    /// Whether members of the set that are not among them are deleted.
    #[serde(default)]
    pub prune: bool,
    /// Whether that may be all of them.
    #[serde(default)]
    pub allow_empty: bool,
}

/// What became of one resource of an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// It is new.
    Created,
    /// Its spec or metadata changed.
    Configured,
    /// Nothing changed.
    Unchanged,
    /// What it had started was ended, and it is new.
    Replaced,
    /// It is deleted: its set has lost it.
    Pruned,
    /// Its set has lost it, and its deletion was asked for before.
    Going,
}

impl Applied {
    /// The word a person reads.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Replaced => "replaced",
            Self::Pruned => "pruned",
            Self::Going => "going already",
        }
    }

    /// Whether this made it another than it was.
    pub const fn is_change(self) -> bool {
        !matches!(self, Self::Unchanged | Self::Going)
    }

    /// Whether it is on its way out.
    pub const fn goes(self) -> bool {
        matches!(self, Self::Pruned | Self::Going)
    }
}

/// One line of an apply's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplyResult {
    /// The kind.
    pub kind: String,
    /// The name it got.
    pub name: String,
    /// What became of it, or why not.
    pub outcome: Result<Applied, Error>,
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WatchLine {
    /// It is there, or changed.
    Modified(AnyResource),
    /// It is gone.
    Deleted(AnyResource),
    /// Everything that was there at the start has been sent.
    Bookmark,
}

/// `GET /v1/settings`: what the daemon makes of settings.yaml as it is at this moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingsAnswer {
    /// Where the file is.
    pub path: String,
    /// The file as a whole first, then each runtime.
    pub conditions: Vec<SettingsLine>,
}

/// One condition of settings.yaml or of a runtime it names, or named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsLine {
    /// `settings.yaml`, or the runtime.
    pub name: String,
    /// `SettingsValid`, or `Saved` of a runtime that is not named any more and still in use.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds; `Unknown` of a runtime that stays as it was while the file cannot be read.
    pub status: crate::condition::ConditionStatus,
    /// One CamelCase word for programs.
    pub reason: String,
    /// What is wrong, with file, line and column.
    #[serde(default)]
    pub message: String,
}
