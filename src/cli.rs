//! The command line as it is typed.

mod declare;
mod find;
mod runtime;

pub use declare::{Apply, Diff, What};
pub use find::{Form, Get, Mark};
pub use runtime::{
    Add, AddBackend, AddDocker, AddSsh, AddSwarm, Check, Common, Daemon, ImportSsh, Remove, Runtime, RuntimeAction,
};

use crate::complete;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use std::path::PathBuf;

/// Runs coding agents whose work lands in an environment of its own, declaratively.
#[derive(Debug, Parser)]
#[command(name = "hmz", version, max_term_width = 100)]
#[command(after_help = "Examples:
  hmz exec -f boxed -a coder=claude/claude-haiku-4-5:low \\
      -e box=docker@here/home/me/myproject \"fix add() in calc.py\"
  hmz apply -f run.yaml && hmz logs -f run/fix-add
  hmz get envs")]
pub struct Cli {
    /// Log what happens inside to stderr (also HMZ_LOG=debug)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Declare runs, environments, runtimes and flows from manifests
    #[command(after_help = "Examples:
  hmz apply -f run.yaml
  hmz apply -f manifests/ --dry-run
  hmz apply -f run.yaml --wait --timeout 30m
  hmz apply -f manifests/ --set team --prune
  cat run.yaml | hmz apply -f -

A field that no manifest sets and somebody else did stays. Exit status: 0 done, 1 failed, 2 refused; with --wait a run's own.")]
    Apply(Apply),
    /// Say what apply would do, and do nothing
    #[command(after_help = "Examples:
  hmz diff -f run.yaml
  hmz diff -f manifests/ --set team --prune
  hmz diff -f manifests/ -o json

Exit status: 0 nothing differs, 1 something does, 2 something would be refused, 3 it could not be found out.")]
    Diff(Diff),
    /// List resources
    #[command(after_help = "Examples:
  hmz get envs
  hmz get runs -w
  hmz get run/fix-add -o yaml
  hmz get all -l hmz/set=team
  hmz get envs --field-selector status.used=docker:here --sort-by .spec.cpus
  hmz get runs -o custom-columns=NAME:.metadata.name,FLOW:.spec.flow
  hmz get envs -o jsonpath='{range .items[*]}{.metadata.name} {.status.used}{\"\\n\"}{end}'")]
    Get(Get),
    /// Set labels, or take them away
    #[command(after_help = "Examples:
  hmz label env/box team=red
  hmz label envs a b old- team=blue --overwrite
  hmz label runs -l team=red done=yes")]
    Label(Mark),
    /// Set annotations, or take them away
    #[command(after_help = "Examples:\n  hmz annotate run/fix-add note='ask Ann'\n  hmz annotate env box note-")]
    Annotate(Mark),
    /// Change a resource in $VISUAL or $EDITOR; what cannot be read is not stored
    #[command(
        after_help = "Examples:\n  hmz edit env/box\n\nA later apply leaves what is edited here as it is, but for the fields its manifest writes."
    )]
    Edit(Named),
    /// Run the same once more, as a run of its own
    #[command(after_help = "Examples:\n  hmz rerun run/fix-add\n  hmz rerun fix-add --name fix-add-2")]
    Rerun(Rerun),
    /// End runs; what they did so far stays
    #[command(after_help = "Examples:\n  hmz cancel run/fix-add\n  hmz cancel fix-add other --no-wait")]
    Cancel(Cancel),
    /// Show one resource with its conditions
    #[command(after_help = "Examples:\n  hmz describe env box\n  hmz describe run/fix-add")]
    Describe(Named),
    /// Show what happened to resources
    #[command(after_help = "Examples:\n  hmz events\n  hmz events -w --for env/box\n  hmz events -o json")]
    Events(Events),
    /// Explain a kind or a field of it
    #[command(after_help = "Examples:
  hmz explain run
  hmz explain run.spec.environments
  hmz explain envs.spec --recursive
  hmz explain settings.runtimes.docker.gpubox")]
    Explain(Explain),
    /// List the kinds there are
    #[command(after_help = "Examples:\n  hmz api-resources\n  hmz api-resources -o name")]
    ApiResources(ApiResources),
    /// Remove resources and everything they started
    #[command(after_help = "Examples:\n  hmz delete run/fix-add\n  hmz delete env box\n  hmz delete -f run.yaml")]
    Delete(Delete),
    /// Show the transcript of a run
    #[command(after_help = "Examples:\n  hmz logs run/fix-add\n  hmz logs -f fix-add")]
    Logs(Logs),
    /// Wait until a resource is as you want it
    #[command(
        after_help = "Examples:\n  hmz wait --for=condition=Complete run/fix-add\n  hmz wait --for=condition=Ready env/box --timeout 2m\n  hmz wait --for=delete env/box\n  hmz wait --for=jsonpath={.status.used}=docker:spare env/box\n\nWhat was observed of an earlier generation than the one that is declared does not count.\nExit status: 0 when it is so. Of a run that is Complete: 0 when it went well, 1 failed, 2 refused."
    )]
    Wait(Wait),
    /// Run a flow now and show what it does
    #[command(after_help = "Examples:
  hmz exec -f boxed -a coder=claude/claude-haiku-4-5:low \\
      -e box=docker@here/home/me/myproject -p budget.duration=10m \"fix add() in calc.py\"
  hmz exec -f boxed -a script/./steps.yaml -e box=docker@here/home/me/myproject \"try it\"

Exit status: 0 done (or the budget was spent), 1 failed, 2 refused, 128+n ended by signal n.")]
    Exec(Exec),
    /// Open a shell, or run one command, in an environment
    #[command(after_help = "Examples:\n  hmz sh env/box\n  hmz sh box -- python3 -V")]
    Sh(Sh),
    /// Run the daemon in the foreground (verbs start one in the background by themselves)
    Controller(Controller),
    /// Read and change settings.yaml, one field at a time
    #[command(after_help = "Examples:
  hmz settings set runtimes.docker.gpubox '{endpoint: local, harness: local}'
  hmz settings set runtimes.docker.gpubox.memory 8G
  hmz settings get runtimes.docker.gpubox
  hmz settings unset runtimes.docker.gpubox.memory
  hmz settings edit")]
    Settings(Settings),
    /// Save runtimes, and ask their daemons what they have
    #[command(after_help = "Examples:
  hmz runtime add docker gpubox --endpoint local --cpus 4 --memory 8G --harness local
  hmz runtime check gpubox
  hmz runtime remove gpubox
  hmz runtime import-ssh")]
    Runtime(Runtime),
    /// Show the versions of this program and of the daemon
    Version,
}

/// How a listing is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// More columns
    Wide,
    /// Whole resources
    Yaml,
    /// Whole resources, one JSON document
    Json,
    /// `kind/name`, a line each
    Name,
}

/// One resource: `env box` or `env/box`.
#[derive(Debug, Args)]
pub struct Named {
    /// A kind, or kind/name
    #[arg(add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: String,
    /// The name
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub name: Option<String>,
}

/// `delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// A kind, or kind/name
    #[arg(required_unless_present = "filename", add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: Option<String>,
    /// Names within the kind
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub names: Vec<String>,
    /// Remove what these manifests declare
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with = "what")]
    pub filename: Vec<PathBuf>,
    /// Give up what is on a daemon that is gone for good; says what is left behind
    #[arg(long)]
    pub abandon: bool,
    /// Return at once instead of waiting until everything is gone
    #[arg(long)]
    pub no_wait: bool,
}

/// `logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The run
    #[arg(add = ArgValueCompleter::new(complete::run))]
    pub run: String,
    /// Follow it until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// One JSON object an event
    #[arg(long)]
    pub json: bool,
}

/// `wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// condition=NAME[=true|false|unknown], jsonpath={PATH}[=VALUE], or delete
    #[arg(long = "for", value_name = "WHAT", add = ArgValueCompleter::new(complete::until))]
    pub until: String,
    /// A kind, or kind/name
    #[arg(add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: String,
    /// The name
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub name: Option<String>,
    /// How long at most
    #[arg(long, default_value = "30s", value_name = "DURATION")]
    pub timeout: hmz_api::Span,
}

/// `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// The flow
    #[arg(short, long, add = ArgValueCompleter::new(complete::flow))]
    pub flow: String,
    /// Who plays a role: [ROLE=]CLI[@ACCOUNT]/MODEL[:EFFORT]
    #[arg(short, long = "agent", value_name = "SPEC", add = ArgValueCompleter::new(complete::agent))]
    pub agent: Vec<String>,
    /// Where a role's work lands: ROLE=BACKEND[@NAME][/WORKDIR]
    #[arg(short, long = "env", value_name = "SPEC", add = ArgValueCompleter::new(complete::place))]
    pub env: Vec<String>,
    /// A parameter, such as budget.duration=10m
    #[arg(short, long = "param", value_name = "KEY=VALUE", add = ArgValueCompleter::new(complete::param))]
    pub param: Vec<String>,
    /// One JSON object an event, on stdout
    #[arg(long)]
    pub json: bool,
    /// The task
    pub task: String,
}

/// `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Only what happened to this: kind/name
    #[arg(long = "for", value_name = "RESOURCE", add = ArgValueCompleter::new(complete::kind_or_name))]
    pub of: Option<String>,
    /// Go on showing what happens
    #[arg(short, long)]
    pub watch: bool,
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<CheckOutput>,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// A kind, or a field of it: run.spec.environments
    #[arg(add = ArgValueCompleter::new(complete::explained))]
    pub what: String,
    /// Show the fields of the fields
    #[arg(long)]
    pub recursive: bool,
}

/// `api-resources`.
#[derive(Debug, Args)]
pub struct ApiResources {
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<NameOutput>,
}

/// How names alone are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NameOutput {
    /// A name a line
    Name,
}

/// `rerun`.
#[derive(Debug, Args)]
pub struct Rerun {
    /// The run
    #[arg(add = ArgValueCompleter::new(complete::run))]
    pub run: String,
    /// The name of the new one [default: one that begins with the old one's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `cancel`.
#[derive(Debug, Args)]
pub struct Cancel {
    /// The runs
    #[arg(required = true, add = ArgValueCompleter::new(complete::run))]
    pub runs: Vec<String>,
    /// Return at once instead of waiting until they have ended
    #[arg(long)]
    pub no_wait: bool,
}

/// `sh`.
#[derive(Debug, Args)]
pub struct Sh {
    /// The environment
    #[arg(add = ArgValueCompleter::new(complete::environment))]
    pub environment: String,
    /// A command instead of a shell
    #[arg(last = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// `settings`.
#[derive(Debug, Args)]
pub struct Settings {
    /// What to do with them.
    #[command(subcommand)]
    pub action: SettingsAction,
}

/// What is done with settings.yaml. A path is keys with dots between; a key with a dot in it is quoted, as in
/// runtimes.docker."gpu.box".cpus
#[derive(Debug, Subcommand)]
pub enum SettingsAction {
    /// Print a field, or the whole file
    Get {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: Option<String>,
        /// How to print
        #[arg(short, long, value_enum)]
        output: Option<SettingsOutput>,
    },
    /// Give a field a value; every other byte of the file stays as it is
    Set {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: String,
        /// The value as YAML: 4, 8G, [a, b], {endpoint: local}
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Take a field out; every other byte of the file stays as it is
    Unset {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: String,
    },
    /// Open it in $VISUAL or $EDITOR; what cannot be read is not saved
    Edit,
    /// Say everything that is wrong with it
    Validate {
        /// Another file, or - for standard input
        file: Option<PathBuf>,
    },
}

/// How a field is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SettingsOutput {
    /// As YAML
    Yaml,
    /// As JSON
    Json,
}

/// How what a daemon says is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// As JSON
    Json,
}

/// `controller`.
#[derive(Debug, Args)]
pub struct Controller {
    /// Detached: started by a verb, ends when there is nothing to do
    #[arg(long, hide = true)]
    pub background: bool,
}
