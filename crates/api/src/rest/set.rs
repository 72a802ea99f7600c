//! Sets, and what keeps one in step: `GET /v1/sets`.

use crate::condition::Conditions;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The word in `kind:` of a set, and of the events of one. It is no resource: nothing declares it.
pub const SET_KIND: &str = "Set";

/// A set: what was applied with its name, and the source it is kept in step with, if there is one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetState {
    /// The name.
    pub name: String,
    /// The directory or the repository it is kept in step with; none of one that is applied by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The folders below the source that have its manifests; none: the source itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Whether the folders below those are read too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// The branch or tag; none: what the repository has for its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What was applied last, whole: a commit, or the digest of a directory's manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The first line of what that commit says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was found last, whether or not it could be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// When `revision` was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<Timestamp>,
    /// How many resources are in it.
    #[serde(default)]
    pub members: usize,
    /// How many of them are what they were applied for: an environment is ready, a run has ended well, and a flow or a runtime is
    /// there. Absent where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<usize>,
    /// Whether a controller keeps it in step at this moment.
    #[serde(default)]
    pub active: bool,
    /// `Fetched`: the source could be read. `Synced`: what was found last is what is declared.
    #[serde(default)]
    pub conditions: Conditions,
}
