//! What a driver can fail with. Controllers branch on the variant, people read the text.

/// Why a driver could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The daemon could not be reached; nothing is known. Retried, never taken for "gone".
    #[error("could not connect to {at}: {why}")]
    Unreachable {
        /// The runtime, as `docker@here`.
        at: String,
        /// The reason.
        why: String,
    },
    /// It can never be as declared: a missing directory, an image that cannot be had. Text in the seeds' words.
    #[error("{0}")]
    Refused(String),
    /// There is no room for it, which is known only now that it was asked for: no node of a swarm took it.
    #[error("{0}")]
    NoRoom(String),
    /// A program that was asked for is not on the PATH of the box.
    #[error("{program} is not on the PATH of {image}")]
    NoProgram {
        /// The program.
        program: String,
        /// The image.
        image: String,
    },
    /// Something of that name is there and is not ours.
    #[error("{0}")]
    Foreign(String),
    /// It may work when tried again.
    #[error("{0}")]
    Transient(String),
}

impl DriverError {
    /// Whether trying again without a change of spec can help.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Transient(_))
    }
}
