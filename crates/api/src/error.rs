//! The one error a person sees: a kind that decides the exit status, a message, and hints that can be pasted.

use serde::{Deserialize, Serialize};

/// What sort of failure it is; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Refused before anything started (exit 2).
    Refused,
    /// The command line or a manifest is wrong (exit 2).
    Usage,
    /// The named thing does not exist (exit 1).
    NotFound,
    /// Somebody else changed it meanwhile (exit 1).
    Conflict,
    /// Something outside did not answer or failed (exit 1).
    Failed,
    /// A fault of ours (exit 1).
    Internal,
}

/// An error at the edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What sort of failure.
    pub kind: ErrorKind,
    /// One sentence, in the words of the seeds where they have one.
    pub message: String,
    /// What to do about it; each can be pasted.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Error {
    /// An error without hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new() }
    }

    /// A refusal (exit 2).
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// A wrong command line or manifest (exit 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// A failure of something outside (exit 1).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// A missing thing (exit 1).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The exit status this ends a verb with.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Refused | ErrorKind::Usage => 2,
            _ => 1,
        }
    }
}
