//! What the agent says and does, as its process is told it.

use hmz_api::quantity::Span;
use serde::{Deserialize, Serialize};

/// One thing the agent does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It says this; the last one of a turn is the turn's answer.
    Say(String),
    /// It runs a command by `/bin/sh -c`.
    Run {
        /// The command.
        command: String,
        /// The turn fails when it ends with another status (128+n for a signal).
        expect_status: Option<i32>,
    },
    /// It writes a file.
    Write {
        /// Which.
        path: String,
        /// What is in it.
        content: String,
    },
    /// It replaces a text that is in a file exactly once.
    Edit {
        /// Which.
        path: String,
        /// The text.
        old: String,
        /// What it becomes.
        new: String,
    },
    /// It reads a file.
    Read(String),
    /// It waits until a path is there.
    WaitFor(String),
    /// It does nothing for a while.
    Sleep(Span),
    /// It fails its turn with these words.
    Fail(String),
}

/// The steps of all turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steps {
    /// The same every turn.
    Each(Vec<Step>),
    /// One list a turn.
    Turns(Vec<Vec<Step>>),
}

impl Steps {
    /// The steps of the turn of this number, from 0; `None` when there are no more.
    pub fn of_turn(&self, turn: usize) -> Option<&[Step]> {
        match self {
            Self::Each(steps) => Some(steps),
            Self::Turns(turns) => turns.get(turn).map(Vec::as_slice),
        }
    }
}
