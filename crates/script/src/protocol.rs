//! What a session and the process that plays its steps say to each other: one JSON object a line.

use crate::steps::Steps;
use hmz_api::journal::Event;
use serde::{Deserialize, Serialize};

/// To the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// First of all: what it plays.
    Begin {
        /// The steps of all turns.
        steps: Steps,
        /// How many turns were played before.
        before: usize,
    },
    /// A turn.
    Prompt {
        /// What is asked.
        text: String,
    },
    /// The turn is to end now.
    Interrupt,
}

/// From the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Say {
    /// Something happened.
    Event {
        /// What.
        event: Event,
    },
    /// The turn ended with this answer.
    Answered {
        /// The answer.
        text: String,
    },
    /// The turn failed.
    Failed {
        /// Why.
        text: String,
    },
    /// The turn was interrupted.
    Interrupted,
}
