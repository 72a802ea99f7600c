//! `hmz runtime` as it is typed. Each field of settings.yaml has a flag of its name; what it may say is checked where the
//! file is read, in the same words.

use crate::complete;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;

/// `runtime`.
#[derive(Debug, Args)]
pub struct Runtime {
    /// What to do with it.
    #[command(subcommand)]
    pub action: RuntimeAction,
}

/// What is done with saved runtimes.
#[derive(Debug, Subcommand)]
pub enum RuntimeAction {
    /// Save a runtime in settings.yaml and ask its daemon what it has
    #[command(after_help = "Examples:
  hmz runtime add docker gpubox --cpus 4 --memory 8G --harness local
  hmz runtime add docker gpubox --detect
  hmz runtime add ssh far --host far.example --user me

Exit status: 0 saved, and its daemon or host answers;
1 saved, and it does not answer or has less than it is to hand out; 2 refused: nothing is saved.")]
    Add(Box<Add>),
    /// Ask a runtime's daemon what it has
    #[command(
        after_help = "Examples:\n  hmz runtime check gpubox\n  hmz runtime check docker/gpubox -o json\n  hmz runtime check docker

Exit status: 0 it answers, 1 it does not or has less than it is to hand out, 2 it cannot be asked."
    )]
    Check(Check),
    /// Take a runtime out of settings.yaml; what is on it stays until it ends
    #[command(after_help = "Examples:\n  hmz runtime remove gpubox\n  hmz runtime remove docker/gpubox")]
    Remove(Remove),
    /// Save hosts of ssh's configuration as runtimes; no key is read
    #[command(
        after_help = "Examples:\n  hmz runtime import-ssh\n  hmz runtime import-ssh build-box gpu-1\n  hmz runtime import-ssh --list"
    )]
    ImportSsh(ImportSsh),
}

/// `runtime add`.
#[derive(Debug, Args)]
pub struct Add {
    /// What kind of runtime.
    #[command(subcommand)]
    pub backend: AddBackend,
}

/// The backends a runtime can be saved of.
#[derive(Debug, Subcommand)]
pub enum AddBackend {
    /// A docker daemon: environments are containers on it
    #[command(after_help = "Examples:
  hmz runtime add docker here --harness local
  hmz runtime add docker gpubox --endpoint tcp://gpubox.example:2376 --tls-dir ~/.docker/gpubox
  hmz runtime add docker work --container devbox")]
    Docker(AddDocker),
    /// A docker swarm: environments are services of one task
    #[command(after_help = "Examples:
  hmz runtime add swarm fleet --endpoint ssh://me@manager.example --max-tasks 8
  hmz runtime add swarm fleet --constraint node.labels.shared==true")]
    Swarm(AddSwarm),
    /// A host reached over ssh
    #[command(after_help = "Examples:
  hmz runtime add ssh far --host far.example --user me
  hmz runtime add ssh far --alias build-box
  hmz runtime add docker far --endpoint ssh:far")]
    Ssh(AddSsh),
    /// Anything else is told what there is.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// What runtimes of every backend say.
#[derive(Debug, Args)]
pub struct Common {
    /// The name, as -e says it behind the backend: docker@NAME, swarm@NAME
    pub name: String,
    /// Where an agent's CLI runs: env (in the box), local (here), or BACKEND:NAME
    #[arg(long, value_name = "WHERE", add = ArgValueCompleter::new(complete::harness))]
    pub harness: Option<String>,
    /// The directory of an environment that names none
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub workdir: Option<String>,
    /// Runtimes to try in order when this one cannot, such as docker:spare,ssh:far
    #[arg(long, value_name = "RUNTIME", value_delimiter = ',', add = ArgValueCompleter::new(complete::runtime_reference))]
    pub fallback: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<super::CheckOutput>,
}

/// What runtimes with a docker daemon say.
#[derive(Debug, Args)]
pub struct Daemon {
    /// local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:SAVED or context:NAME [default: local]
    #[arg(long, value_name = "ENDPOINT", add = ArgValueCompleter::new(complete::endpoint))]
    pub endpoint: Option<String>,
    /// A directory with ca.pem, cert.pem and key.pem, for tcp://
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub tls_dir: Option<PathBuf>,
    /// The image of environments that declare none
    #[arg(long)]
    pub image: Option<String>,
    /// One further argument of docker run (or service create); repeat it
    #[arg(long = "run-arg", value_name = "ARG", allow_hyphen_values = true)]
    pub run_args: Vec<String>,
    /// What names of its containers begin with
    #[arg(long, value_name = "PREFIX")]
    pub name_prefix: Option<String>,
    /// CPUs it hands out in total [default: all the daemon has]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpus: Option<String>,
    /// Memory it hands out in total, such as 8G [default: all the daemon has]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub memory: Option<String>,
    /// What a role asks for that declares nothing, such as cpus=1,memory=2G
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub default_request: Vec<String>,
    /// How long a box lives without an owner, such as 2m
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<String>,
    /// Write what the daemon has of CPUs, memory and GPUs where nothing is said of it
    #[arg(long)]
    pub detect: bool,
}

/// `runtime add docker`.
#[derive(Debug, Args)]
pub struct AddDocker {
    /// What every runtime says.
    #[command(flatten)]
    pub common: Common,
    /// What every daemon is asked.
    #[command(flatten)]
    pub daemon: Daemon,
    /// The OCI runtime, such as nvidia
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<String>,
    /// Ids of the GPUs it hands out, such as 0,1 [default: every one the daemon lists]
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub gpus: Vec<String>,
    /// Memory of each GPU
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub gpu_memory: Option<String>,
    /// How many containers it may run at once
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_containers: Option<String>,
    /// A container that runs already and is worked in
    #[arg(long, value_name = "NAME", conflicts_with = "detect")]
    pub container: Option<String>,
    /// Whom every command runs as: UID[:GID]
    #[arg(long, value_name = "UID")]
    pub exec_user: Option<String>,
    /// A variable of every command; repeat it
    #[arg(long, value_name = "NAME=VALUE")]
    pub exec_env: Vec<String>,
    /// A word put before every command; repeat it
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub exec_wrapper: Vec<String>,
}

/// `runtime add swarm`.
#[derive(Debug, Args)]
pub struct AddSwarm {
    /// What every runtime says.
    #[command(flatten)]
    pub common: Common,
    /// What every daemon is asked.
    #[command(flatten)]
    pub daemon: Daemon,
    /// Memory of each GPU
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub gpu_memory: Option<String>,
    /// The generic resource its nodes advertise GPUs as
    #[arg(long, value_name = "KIND")]
    pub gpu_resource: Option<String>,
    /// Where tasks may land, such as node.labels.shared==true; repeat it
    #[arg(long = "constraint", value_name = "CONSTRAINT")]
    pub constraints: Vec<String>,
    /// How many tasks it may run at once
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_tasks: Option<String>,
    /// How a node is reached: HOSTNAME=SAVED or HOSTNAME=[USER@]HOST[:PORT]; repeat it
    #[arg(long = "node", value_name = "HOSTNAME=HOST")]
    pub nodes: Vec<String>,
}

/// `runtime add ssh`.
#[derive(Debug, Args)]
pub struct AddSsh {
    /// What every runtime says.
    #[command(flatten)]
    pub common: Common,
    /// Its name or address
    #[arg(long)]
    pub host: Option<String>,
    /// A Host of ssh's configuration
    #[arg(long)]
    pub alias: Option<String>,
    /// The login
    #[arg(long)]
    pub user: Option<String>,
    /// The port
    #[arg(long, allow_negative_numbers = true)]
    pub port: Option<String>,
    /// The key's file; it is named to ssh and never read
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub identity_file: Option<String>,
    /// The hosts on the way to it
    #[arg(long, value_name = "HOST")]
    pub proxy_jump: Option<String>,
    /// A further keyword of ssh's configuration; repeat it
    #[arg(long = "option", value_name = "KEYWORD=VALUE")]
    pub options: Vec<String>,
    /// A configuration file for ssh in place of yours
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

/// `runtime check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The runtime: docker/NAME, NAME alone where only one is saved by it, or docker for the default
    #[arg(add = ArgValueCompleter::new(complete::runtime))]
    pub name: String,
    /// How to print
    #[arg(short, long, value_enum)]
    pub output: Option<super::CheckOutput>,
}

/// `runtime remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The runtime: docker/NAME, or NAME alone where only one is saved by it
    #[arg(add = ArgValueCompleter::new(complete::saved_runtime))]
    pub name: String,
}

/// `runtime import-ssh`.
#[derive(Debug, Args)]
pub struct ImportSsh {
    /// Hosts of the configuration [default: each that can be imported]
    #[arg(add = ArgValueCompleter::new(complete::ssh_host))]
    pub hosts: Vec<String>,
    /// Another configuration than ~/.ssh/config
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Only say which hosts there are
    #[arg(long, conflicts_with = "hosts")]
    pub list: bool,
}
