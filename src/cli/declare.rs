//! What declares: `apply` and `diff`.

use super::CheckOutput;
use crate::complete;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use hmz_api::Span;
use hmz_manifest::Depth;
use std::path::PathBuf;

/// Manifests by their files.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Files {
    /// A manifest, a directory of manifests, or - for standard input; may be said again
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Read the directories below a directory of manifests as well; what begins with a dot is never read
    #[arg(short = 'R', long, requires = "filename")]
    pub recursive: bool,
}

impl Files {
    /// How much of a directory is read.
    pub fn depth(&self) -> Depth {
        if self.recursive { Depth::Whole } else { Depth::Alone }
    }
}

/// What is applied, and how.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("files").arg("filename").required(true))]
pub struct What {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: Files,
    /// Make each what its manifest says in all, also where somebody else set something; end a run that has started and begin
    /// it anew when it is to do something else
    #[arg(long)]
    pub replace: bool,
    /// Make these members of a set
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::set))]
    pub set: Option<String>,
    /// Delete what is in the set and in none of these manifests
    #[arg(long, requires = "set")]
    pub prune: bool,
    /// Let --prune delete every member when the manifests declare nothing
    #[arg(long, requires = "prune")]
    pub allow_empty: bool,
}

/// `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub what: What,
    /// Say what would be done, as hmz diff does, and do nothing
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Wait until environments are ready and runs have ended; a run's result is the exit status
    #[arg(long)]
    pub wait: bool,
    /// How long to wait at most [default: as long as it takes]
    #[arg(long, requires = "wait", value_name = "DURATION")]
    pub timeout: Option<Span>,
    /// How to print what became of each resource
    #[arg(short, long, value_enum)]
    pub output: Option<AppliedOutput>,
    /// Write what became of each resource to a file as well, for a pipeline: junit=FILE or json=FILE; may be said again
    #[arg(long, value_name = "FORM=FILE", value_parser = Summary::read)]
    pub summary: Vec<Summary>,
}

/// How what became of each is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppliedOutput {
    /// `kind/name`, a line each
    Name,
    /// One JSON document, at the end: how many passed, failed and were refused, and each
    Json,
}

/// Where a summary goes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Summary {
    /// JUnit's XML.
    Junit(PathBuf),
    /// JSON.
    Json(PathBuf),
}

impl Summary {
    fn read(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("junit", file)) if !file.is_empty() => Ok(Self::Junit(file.into())),
            Some(("json", file)) if !file.is_empty() => Ok(Self::Json(file.into())),
            _ => Err("expected junit=FILE or json=FILE".into()),
        }
    }
}

/// `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub what: What,
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<CheckOutput>,
}
