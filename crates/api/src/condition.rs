//! Conditions: what is true of a resource, why, and since when.
//!
//! A phase is printed, never branched on: controllers read and write these only.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold; the reason says why.
    False,
    /// Nobody could find out.
    Unknown,
}

/// One condition of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which condition, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One CamelCase word for programs.
    pub reason: String,
    /// One sentence for people; may be empty.
    #[serde(default)]
    pub message: String,
    /// The `metadata.generation` this was observed at.
    pub observed_generation: u64,
    /// When `status` last changed.
    #[schemars(with = "String")]
    pub last_transition_time: Timestamp,
}

/// The conditions of one resource, in the order they were first set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Conditions(pub Vec<Condition>);

impl Conditions {
    /// The condition called `kind`.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.0.iter().find(|c| c.kind == kind)
    }

    /// Whether `kind` is `True`.
    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|c| c.status == ConditionStatus::True)
    }

    /// Whether `kind` is `False`.
    pub fn is_false(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|c| c.status == ConditionStatus::False)
    }

    /// Sets a condition. `last_transition_time` moves only when the status changes, so that an unchanged status
    /// compares equal and is not written again. Returns whether anything changed.
    pub fn set(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: impl Into<String>,
        generation: u64,
        now: Timestamp,
    ) -> bool {
        let message = message.into();
        match self.0.iter_mut().find(|c| c.kind == kind) {
            None => {
                self.0.push(Condition {
                    kind: kind.into(),
                    status,
                    reason: reason.into(),
                    message,
                    observed_generation: generation,
                    last_transition_time: now,
                });
                true
            }
            Some(c) => {
                let same =
                    c.status == status && c.reason == reason && c.message == message && c.observed_generation == generation;
                if same {
                    return false;
                }
                if c.status != status {
                    c.last_transition_time = now;
                }
                c.status = status;
                c.reason = reason.into();
                c.message = message;
                c.observed_generation = generation;
                true
            }
        }
    }
}
