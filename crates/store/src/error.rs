//! What the store can fail with.

use hmz_api::{Error, ErrorKind};
use std::path::PathBuf;

/// Why the store could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such resource.
    #[error("there is no {} '{name}'", kind.to_lowercase())]
    NotFound {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// One of that name is there already.
    #[error("{} '{name}' is there already", kind.to_lowercase())]
    AlreadyExists {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// It changed since it was read: read it again and decide again.
    #[error("{} '{name}' was changed by somebody else meanwhile", kind.to_lowercase())]
    Conflict {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The resource cannot be stored as it is.
    #[error("{0}")]
    Invalid(String),
    /// The changes asked for are no longer remembered: list again and watch from there.
    #[error("the changes after revision {since} are no longer remembered; list again")]
    Expired {
        /// The revision the watcher was at.
        since: u64,
    },
    /// A newer version of this program wrote it.
    #[error("the store {} was written by a newer hmz: its schema is {found}, and this one knows {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema it has.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// Another process has it open.
    #[error("the store {} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read as a store.
    #[error("the store {} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Reading or writing failed.
    #[error("the store could not {doing}: {why}")]
    Failed {
        /// What was being done.
        doing: &'static str,
        /// The reason.
        why: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether reading again and deciding again is the way on.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::AlreadyExists { .. } | Self::NotFound { .. })
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::NotFound { .. } => ErrorKind::NotFound,
            StoreError::AlreadyExists { .. } | StoreError::Conflict { .. } | StoreError::Expired { .. } => ErrorKind::Conflict,
            StoreError::Invalid(_) => ErrorKind::Usage,
            StoreError::Newer { .. } => ErrorKind::Refused,
            StoreError::InUse { .. } | StoreError::Unreadable { .. } => ErrorKind::Failed,
            StoreError::Failed { .. } | StoreError::Closed => ErrorKind::Internal,
        };
        let out = Self::new(kind, error.to_string());
        match &error {
            StoreError::Newer { .. } => out.hint("install that hmz again; nothing of the store was changed"),
            StoreError::Unreadable { path, .. } => {
                out.hint(format!("mv {0} {0}.unreadable  # to begin with an empty one; boxes that run are swept", path.display()))
            }
            _ => out,
        }
    }
}
