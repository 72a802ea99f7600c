//! What happened to whom: `GET /v1/events`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Whether somebody may want to do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// It goes its way.
    Normal,
    /// It does not.
    Warning,
}

/// Something that happened, once or several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The kind of the resource it happened to.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Uuid,
    /// Whether it is as it should be.
    #[serde(rename = "type")]
    pub kind_of: EventType,
    /// One CamelCase word: the condition's reason, or `Created`, `Changed`, `Deleting`, `Deleted`.
    pub reason: String,
    /// One sentence; may be empty.
    #[serde(default)]
    pub message: String,
    /// How often.
    pub count: u64,
    /// When for the first time.
    pub first: Timestamp,
    /// When for the last time.
    pub last: Timestamp,
}

impl Event {
    /// Whether another one is the same thing happening again.
    pub fn is_again(&self, other: &Self) -> bool {
        (self.uid, &self.reason, &self.message) == (other.uid, &other.reason, &other.message)
    }
}
