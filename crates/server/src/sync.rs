//! Keeping a set in step with a source: a directory of manifests that is watched, or a repository that is fetched.
//!
//! - A revision is applied whole or not at all: one that cannot be read or would be refused keeps the last good one.
//! - What is changed by hand is put back by the same merge as an apply: a field that no manifest sets stays.
//! - It holds nothing in memory that matters: after a kill it goes on from [`record`], and from the store.
//! - Where nothing changes, nothing is written.

mod files;
mod git;
mod keep;
mod pass;
mod record;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use keep::Keeper;
pub(crate) use record::Records;
pub use source::Source;

use hmz_api::launch::CallerContext;
use hmz_manifest::Depth;
use std::path::PathBuf;
use std::time::Duration;

/// What of a source is read.
#[derive(Debug, Clone, Default)]
pub struct Folders {
    /// The folders below it that have manifests; none: the source itself.
    pub paths: Vec<PathBuf>,
    /// Whether those below them are read too.
    pub depth: Depth,
}

/// What is kept in step with what.
#[derive(Debug, Clone)]
pub struct SyncConfig {
    /// Where the manifests are.
    pub source: Source,
    /// The set.
    pub set: String,
    /// Whether somebody said its name; one that was made from the source's takes no set over.
    pub is_named: bool,
    /// What of it is read.
    pub folders: Folders,
    /// The branch or tag.
    pub reference: Option<String>,
    /// How often a repository is fetched.
    pub interval: Duration,
    /// Whether a source that declares nothing empties the set.
    pub allow_empty: bool,
    /// Whether a set that was kept in step with another source is gone on with.
    pub adopt: bool,
    /// Who runs it: what is declared is declared by them.
    pub caller: CallerContext,
    /// What `~` is in manifests.
    pub home: Option<PathBuf>,
}
