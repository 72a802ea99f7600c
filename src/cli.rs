//! The command line as it is typed.

mod controller;
mod declare;
mod find;
mod observe;
mod runtime;

pub use controller::Controller;
pub use declare::{AppliedOutput, Apply, Diff, Files, Summary, What};
pub use find::{Form, Get, Mark, Which};
pub use observe::{Debug, DebugAction, Of, Top, TopOrder, TopOutput};
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
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 900)]
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
  hmz apply -f manifests/ --set team --prune --wait --summary junit=report.xml
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
  hmz get settings -w
  hmz get run/fix-add -o yaml
  hmz get all -l hmz/set=team
  hmz get sets -w
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
    #[command(
        after_help = "Examples:\n  hmz describe env box\n  hmz describe run/fix-add\n  hmz describe set/team\n  hmz describe settings"
    )]
    Describe(Named),
    /// Show what boxes use of CPU, memory and network, beside what they hold
    #[command(after_help = "Examples:
  hmz top envs
  hmz top envs --sort-by memory -o wide
  hmz top envs -l hmz/set=team --no-stream
  hmz top runtimes
  hmz top envs box -o json --interval 5s

On a terminal it goes on until it is interrupted; elsewhere it prints once. CPU is CPUs in use between two looks, of those the
box is limited to. - is what its daemon does not tell; -o wide says why.")]
    Top(Top),
    /// Print the daemon's metrics, as Prometheus reads them
    #[command(after_help = "Examples:
  hmz metrics
  hmz metrics | grep hmz_tokens_total

To have them scraped: hmz controller --metrics 9464, and then http://127.0.0.1:9464/metrics")]
    Metrics,
    /// Gather what a report of a fault is accompanied by
    #[command(after_help = "Examples:
  hmz debug bundle
  hmz debug bundle -o /tmp/report.tar.gz && tar -tzf /tmp/report.tar.gz")]
    Debug(Debug),
    /// Show what happened to resources
    #[command(
        after_help = "Examples:\n  hmz events\n  hmz events -w --for env/box\n  hmz events --for set/team\n  hmz events -o json"
    )]
    Events(Events),
    /// Explain a kind or a field of it
    #[command(after_help = "Examples:
  hmz explain run
  hmz explain run.spec.environments
  hmz explain envs.spec --recursive
  hmz explain settings.runtimes.docker.gpubox")]
    Explain(Explain),
    /// Print a JSON Schema, for editors and for pipelines
    #[command(after_help = "Examples:
  hmz schema > manifest.json
  hmz schema run
  hmz schema settings > ~/.hmz/settings.schema.json
  hmz schema steps > steps.json

An editor with the YAML language server holds a file to it where the first line of the file says
  # yaml-language-server: $schema=manifest.json
The path begins at the folder of the file; an absolute one is right for each file of this machine.")]
    Schema(Schema),
    /// List the kinds there are
    #[command(after_help = "Examples:\n  hmz api-resources\n  hmz api-resources -o name")]
    ApiResources(ApiResources),
    /// Remove resources and everything they started
    #[command(after_help = "Examples:
  hmz delete run/fix-add
  hmz delete env box
  hmz delete runs -l team=red
  hmz delete envs --all
  hmz delete -f run.yaml

What belongs to a run goes with the run. Exit status: 0 when all of it is gone (or was, of manifests).")]
    Delete(Delete),
    /// Show the transcript of a run
    #[command(after_help = "Examples:\n  hmz logs run/fix-add\n  hmz logs -f fix-add\n  hmz logs -f fix-add --fold github")]
    Logs(Logs),
    /// Wait until resources are as you want them, each of them
    #[command(after_help = "Examples:
  hmz wait --for=condition=Complete run/fix-add
  hmz wait --for=condition=Ready env/box env/db --timeout 2m
  hmz wait --for=condition=Ready envs -l team=red
  hmz wait --for=condition=Complete -f runs/ --timeout 1h
  hmz wait --for=delete envs --all
  hmz wait --for=condition=Synced set/fleet
  hmz wait --for=jsonpath={.status.used}=docker:spare env/box

What was observed of an earlier generation than the one that is declared does not count.
Exit status: 0 when all are so. Of a run that is Complete: 0 when it went well, 1 failed, 2 refused; of several, the worst.")]
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
    #[command(after_help = "Examples:
  hmz controller
  hmz controller --metrics 9464
  hmz controller --sync ./manifests
  hmz controller --sync ./manifests --sync-recursive
  hmz controller --sync https://git.example.com/team/fleet.git --sync-path envs --sync-ref main

With --sync a set is kept in step with what the source declares: what is new or changed is applied,
what is gone is deleted, and what is changed by hand is put back. How it goes: hmz get sets,
hmz events -w --for set/NAME.")]
    Controller(Controller),
    /// Write everything that is declared and known to one file
    #[command(after_help = "Examples:
  hmz backup hmz.db
  hmz backup --overwrite /backups/hmz.db

In it is what `hmz get all -o yaml` shows; no sign-in and no key is in it. Settings.yaml, flows and transcripts are files of
their own.")]
    Backup(Backup),
    /// Put a backup in the place of what is declared and known
    #[command(after_help = "Examples:
  hmz restore hmz.db

What was there before is kept beside it. Boxes of environments that are not in the backup are removed. Exit status: 0 done,
1 failed, 2 refused: it is damaged, of a newer hmz, or a run is at work. Then nothing was changed.")]
    Restore(Restore),
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
    #[command(after_help = "Examples:\n  hmz version")]
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
#[command(group = clap::ArgGroup::new("files").arg("filename").conflicts_with_all(["what", "all", "selector", "field_selector"]))]
pub struct Delete {
    /// A kind, or kind/name
    #[arg(required_unless_present = "filename", add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: Option<String>,
    /// Names within the kind
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub names: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: Files,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub which: Which,
    /// Every one of the kind
    #[arg(long, conflicts_with_all = ["selector", "field_selector"])]
    pub all: bool,
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
    /// Fold each turn and each command as a pipeline's log does; auto: as the pipeline this runs in, if it is one of these
    #[arg(long, value_enum, default_value = "auto", conflicts_with = "json", value_name = "HOW")]
    pub fold: FoldHow,
}

/// How a transcript is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FoldHow {
    /// As GITHUB_ACTIONS or GITLAB_CI say; not at all without them
    Auto,
    /// `::group::`, for GitHub Actions
    Github,
    /// `section_start`, for GitLab
    Gitlab,
    /// Not at all
    None,
}

/// `wait`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).args(["what", "filename"]))]
#[command(group = clap::ArgGroup::new("files").arg("filename").conflicts_with_all(["what", "all", "selector", "field_selector"]))]
pub struct Wait {
    /// condition=NAME[=true|false|unknown], jsonpath={PATH}[=VALUE], or delete
    #[arg(long = "for", value_name = "WISH", add = ArgValueCompleter::new(complete::until))]
    pub until: String,
    /// A kind, or kind/name
    #[arg(add = ArgValueCompleter::new(complete::kind_or_name))]
    pub what: Option<String>,
    /// Names within the kind, or more kind/name
    #[arg(add = ArgValueCompleter::new(complete::name))]
    pub names: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: Files,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub which: Which,
    /// Every one of the kind
    #[arg(long, conflicts_with_all = ["selector", "field_selector"])]
    pub all: bool,
    /// How long at most, for all of them together
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
    /// Only what happened to this: kind/name, or set/name
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

/// `schema`.
#[derive(Debug, Args)]
pub struct Schema {
    /// manifest (any kind, and several in one file), a kind (run, env, runtime, flow), settings, or steps (of a script agent)
    #[arg(default_value = "manifest", add = ArgValueCompleter::new(complete::schema))]
    pub what: String,
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

/// `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// Where to; only this user can read it. - is standard output
    pub file: PathBuf,
    /// Take the place of a file that is there
    #[arg(long)]
    pub overwrite: bool,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// A file that hmz backup wrote
    pub file: PathBuf,
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
    #[command(after_help = "Examples:
  hmz settings get
  hmz settings get runtimes.docker.here.cpus
  hmz settings get runtimes -o json")]
    Get {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: Option<String>,
        /// How to print
        #[arg(short, long, value_enum)]
        output: Option<SettingsOutput>,
    },
    /// Give a field a value; every other byte of the file stays as it is
    #[command(after_help = "Examples:
  hmz settings set runtimes.docker.here '{endpoint: local, harness: local}'
  hmz settings set runtimes.docker.here.memory 8G
  hmz settings set 'runtimes.docker.\"gpu.box\".cpus' 4")]
    Set {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: String,
        /// The value as YAML: 4, 8G, [a, b], {endpoint: local}
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Take a field out; every other byte of the file stays as it is
    #[command(
        after_help = "Examples:\n  hmz settings unset runtimes.docker.here.memory\n  hmz settings unset runtimes.docker.here"
    )]
    Unset {
        /// The field, such as runtimes.docker.here.cpus
        #[arg(add = ArgValueCompleter::new(complete::field))]
        path: String,
    },
    /// Open it in $VISUAL or $EDITOR; what cannot be read is not saved
    #[command(after_help = "Examples:\n  hmz settings edit")]
    Edit,
    /// Say everything that is wrong with it
    #[command(
        after_help = "Examples:\n  hmz settings validate\n  hmz settings validate ./settings.yaml\n  hmz settings validate - < settings.yaml"
    )]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of each `hmz` command of a script; quotes are taken off, and variables are words as any other.
    fn commands(script: &str) -> Vec<Vec<String>> {
        let script = script.replace("\\\n", " ");
        let starts = script.match_indices("hmz ").filter(|(at, _)| {
            let before = script[..*at].trim_end_matches(' ');
            before.is_empty()
                || before.ends_with(['\n', '(', '|'])
                || before.ends_with("&&")
                || before.ends_with("  -")
                || before.ends_with("    -")
        });
        let mut all = Vec::new();
        for (at, _) in starts {
            let line = script[at..].lines().next().unwrap_or_default();
            let (mut words, mut quote) = (vec![String::new()], None);
            for c in line.chars() {
                match c {
                    '"' | '\'' if quote.is_none() => quote = Some(c),
                    c if quote == Some(c) => quote = None,
                    ' ' if quote.is_none() => words.push(String::new()),
                    '>' | '<' | '|' | '&' | ')' | ';' if quote.is_none() => break,
                    c => words.last_mut().unwrap().push(c),
                }
            }
            words.retain(|word| !word.is_empty() && word != "2");
            all.push(words);
        }
        all
    }

    /// Every command that does something, with the words before it.
    fn leaves(command: &clap::Command, above: &str, found: &mut Vec<(String, clap::Command)>) {
        let path = format!("{above}{} ", command.get_name());
        let below: Vec<&clap::Command> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
        if below.is_empty() {
            found.push((path.trim_end().to_owned(), command.clone()));
        }
        below.into_iter().for_each(|command| leaves(command, &path, found));
    }

    #[test]
    fn every_verb_has_examples_and_each_of_them_is_read() {
        let mut found = Vec::new();
        leaves(&<Cli as clap::CommandFactory>::command(), "", &mut found);
        assert!(found.len() > 25, "{}", found.len());
        for (path, command) in found {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = after.strip_prefix("Examples:\n").unwrap_or_else(|| panic!("{path} has no examples"));
            let examples: String =
                examples.lines().take_while(|line| !line.is_empty()).map(|line| format!("{}\n", line.trim())).collect();
            let commands = commands(&examples);
            assert!(commands.iter().any(|words| words.join(" ").starts_with(&path)), "{path}: {commands:?}");
            for words in commands {
                if let Err(e) = Cli::try_parse_from(&words) {
                    panic!("{path}: {words:?}: {e}");
                }
            }
            for line in after.lines() {
                assert!(line.chars().count() <= 130, "{path}: a line of its help is long: {line}");
            }
        }
    }

    #[test]
    fn the_commands_of_the_pipelines_are_read() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ci");
        for (name, count) in [("pipeline.sh", 4), ("github.yaml", 2), ("gitlab.yaml", 2)] {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            let text: String =
                text.lines().filter(|line| !line.trim_start().starts_with('#')).map(|l| format!("{l}\n")).collect();
            let found = commands(&text);
            assert_eq!(found.len(), count, "{name}: {found:?}");
            for words in found {
                // a variable stands for a name or a duration
                let words: Vec<String> =
                    words.iter().map(|word| if word.starts_with("${") { "30m".into() } else { word.clone() }).collect();
                if let Err(e) = Cli::try_parse_from(&words) {
                    panic!("{name}: {words:?}: {e}");
                }
            }
        }
    }
}
