//! What observes: `top`, `metrics`, `debug`.

use super::Which;
use crate::complete;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use hmz_api::Span;
use std::path::PathBuf;

/// Whose use is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Of {
    /// The box of each environment
    #[value(name = "envs", aliases = ["env", "environment", "environments"])]
    Environments,
    /// All boxes of this home on each runtime
    #[value(name = "runtimes", aliases = ["runtime"])]
    Runtimes,
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopOrder {
    /// Who uses most CPU
    Cpu,
    /// Who uses most memory
    Memory,
    /// By name
    Name,
}

/// How what is used is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopOutput {
    /// With shares, containers and why something is not known
    Wide,
    /// As JSON
    Json,
}

/// `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Whose
    #[arg(value_enum)]
    pub what: Of,
    /// Names; none: all
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub names: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub which: Which,
    /// What comes first
    #[arg(long, value_enum, default_value = "name")]
    pub sort_by: TopOrder,
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<TopOutput>,
    /// Go on, also where stdout is no terminal (on one it does anyway); with -o json a document a line
    #[arg(short, long, conflicts_with = "no_stream")]
    pub watch: bool,
    /// Print once and end
    #[arg(long)]
    pub no_stream: bool,
    /// The time between two looks; rates are of that time
    #[arg(long, default_value = "1s", value_name = "DURATION")]
    pub interval: Span,
}

/// `debug`.
#[derive(Debug, Args)]
pub struct Debug {
    /// What to do.
    #[command(subcommand)]
    pub action: DebugAction,
}

/// What is gathered.
#[derive(Debug, Subcommand)]
pub enum DebugAction {
    /// Write versions, facts of this machine, resources, events, metrics, the ends of logs and the shapes of journals into one
    /// file; tasks, prompts, answers, commands, secrets and values of variables are not in it
    #[command(after_help = "Examples:
  hmz debug bundle
  hmz debug bundle -o /tmp/report.tar.gz && tar -tzf /tmp/report.tar.gz")]
    Bundle {
        /// The file, or - for standard output [default: hmz-debug-TIME.tar.gz here]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Take the place of a file that is there
        #[arg(long, visible_alias = "force")]
        overwrite: bool,
    },
}
