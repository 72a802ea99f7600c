//! The daemon in the foreground: `controller`.

use crate::complete;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use hmz_api::Span;
use std::path::PathBuf;

/// `controller`.
#[derive(Debug, Args)]
pub struct Controller {
    /// Detached: started by a verb, ends when there is nothing to do
    #[arg(long, hide = true, conflicts_with = "sync")]
    pub background: bool,
    /// Tell metrics at this port of this machine too (also HMZ_METRICS, which daemons that verbs start take over)
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub metrics: Option<String>,
    /// Let --metrics be an address that other machines reach; nobody signs in there
    #[arg(long)]
    pub metrics_anywhere: bool,
    /// Keep a set in step with a directory of manifests, or with a repository that git fetches from here
    #[arg(long, value_name = "DIR|URL", value_hint = clap::ValueHint::AnyPath)]
    pub sync: Option<String>,
    /// The set [default: named after the directory or the repository]
    #[arg(long, requires = "sync", value_name = "NAME", add = ArgValueCompleter::new(complete::set))]
    pub sync_set: Option<String>,
    /// A folder of manifests below the source; may be said again [default: the source itself]
    #[arg(long, requires = "sync", value_name = "SUBDIR")]
    pub sync_path: Vec<PathBuf>,
    /// Read the folders below those as well, but for those that begin with a dot
    #[arg(long, requires = "sync")]
    pub sync_recursive: bool,
    /// The branch or tag of a repository [default: the repository's own default branch]
    #[arg(long, requires = "sync", value_name = "BRANCH")]
    pub sync_ref: Option<String>,
    /// How often a repository is fetched; a directory is watched
    #[arg(long, requires = "sync", value_name = "DURATION", default_value = "1m")]
    pub sync_interval: Span,
    /// Let a source that declares nothing delete every member of the set
    #[arg(long, requires = "sync")]
    pub sync_allow_empty: bool,
    /// Go on with a set that was kept in step with another source; what this one does not have of it is deleted
    #[arg(long, requires = "sync")]
    pub sync_adopt: bool,
}
