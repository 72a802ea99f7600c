//! Why a supervisor, a shell or a command in a box failed.

use hmz_wire::ClientError;

/// The failures of this crate.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The box cannot be worked in.
    #[error(transparent)]
    Box(#[from] ClientError),
    /// A call to the kernel failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried, as "cannot …" goes on.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// This machine lacks something without which nothing is started.
    #[error("{0}")]
    Refused(String),
    /// What a supervisor was told does not decode, or is too large.
    #[error("the supervisor's configuration is wrong: {0}")]
    Config(String),
    /// The command could not be started in the box.
    #[error("cannot run {program} in the box: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The errno of the step that failed.
        source: std::io::Error,
    },
}

impl AnchorError {
    /// Wraps a failure of the kernel with what was tried.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The same for an errno of rustix.
    pub(crate) fn errno(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |e| Self::Io { what, source: e.into() }
    }

    /// The same for an errno of nix.
    pub(crate) fn nix(what: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |e| Self::Io { what, source: e.into() }
    }
}

impl From<AnchorError> for hmz_api::Error {
    fn from(e: AnchorError) -> Self {
        match &e {
            AnchorError::Refused(_) => Self::refused(e.to_string()),
            AnchorError::Config(_) => Self::new(hmz_api::ErrorKind::Internal, e.to_string()),
            _ => Self::failed(e.to_string()),
        }
    }
}
