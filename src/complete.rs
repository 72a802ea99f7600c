//! What the shell offers: kinds, names, flows, roles and places. Names are asked of a daemon that runs already; none is
//! started, and one that does not answer at once is done without.

mod bash;
mod zsh;

use crate::client::Client;
use crate::output::explain;
use crate::verbs::name::is_set;
use crate::verbs::schema;
use crate::{cli, edge};
use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Fish, Shells};
use hmz_api::kinds::{FlowParam, FlowSpec, Runtime, label};
use hmz_api::{AnyResource, Backend, Error, Kind, RuntimeRef};
use hmz_manifest::{Context, settings};
use hmz_server::{Paths, SavedRuntimes};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a daemon may take to answer all of a completion's question.
const AT_ONCE: Duration = Duration::from_millis(500);

/// What the keys of labels and annotations begin with that are ours.
const OURS: &str = "hmz/";

/// The words of the line, as far as the shell had to be asked for them otherwise than it gives them.
static LINE: OnceLock<Vec<String>> = OnceLock::new();

/// Answers a shell that asks (`COMPLETE` is set), and ends the program then.
pub fn answer() {
    let shells = Shells(&[&bash::Bash, &zsh::Zsh, &Fish]);
    CompleteEnv::with_factory(cli::Cli::command).shells(shells).complete();
}

/// The words of the line that are there, the program first.
fn line() -> Vec<String> {
    LINE.get().cloned().unwrap_or_else(|| {
        let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    })
}

/// Those of `words` that the text is the beginning of.
fn beginning(text: &OsStr, words: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let Some(text) = text.to_str() else { return Vec::new() };
    let words: BTreeSet<String> = words.into_iter().filter(|word| word.starts_with(text)).collect();
    words.into_iter().map(CompletionCandidate::new).collect()
}

/// A kind, or `kind/name`.
pub fn kind_or_name(text: &OsStr) -> Vec<CompletionCandidate> {
    match text.to_str().and_then(|text| text.split_once('/')) {
        Some((word, _)) => beginning(text, names_of_word(word).into_iter().map(|name| format!("{word}/{name}"))),
        None => {
            let sets = ["set", "sets"].into_iter().filter(|_| takes_sets());
            let kinds = ["env", "envs", "flow", "flows", "run", "runs", "runtime", "runtimes"];
            beginning(text, kinds.into_iter().chain(sets).map(str::to_owned))
        }
    }
}

/// Whether the verb on the line takes a set, which is no kind, where a resource is named.
fn takes_sets() -> bool {
    line().get(1).is_some_and(|verb| ["describe", "events", "get", "wait"].contains(&verb.as_str()))
}

/// The same with `all` and `settings`, which are no kinds.
pub fn kind_or_all(text: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = kind_or_name(text);
    found.extend(beginning(text, ["all", "settings"].map(str::to_owned)));
    found
}

/// A name of the kind that is on the line, or another `kind/name`.
pub fn name(text: &OsStr) -> Vec<CompletionCandidate> {
    let line = line();
    let is_kind = |word: &str| AnyResource::kind_of_word(word).is_some() || is_set(word);
    let kind = line.iter().skip(2).find(|word| is_kind(word) || word.contains('/'));
    match kind {
        Some(word) if !word.contains('/') => beginning(text, names_of_word(word)),
        _ => kind_or_name(text),
    }
}

/// A run, with or without its kind.
pub fn run(text: &OsStr) -> Vec<CompletionCandidate> {
    of_kind("run", text)
}

/// An environment, with or without its kind.
pub fn environment(text: &OsStr) -> Vec<CompletionCandidate> {
    of_kind("env", text)
}

fn of_kind(word: &str, text: &OsStr) -> Vec<CompletionCandidate> {
    let names = names_of_word(word);
    let plain = text.to_str().is_none_or(|text| !text.contains('/') && !text.is_empty());
    let shown = names.into_iter().map(|name| if plain { name } else { format!("{word}/{name}") });
    beginning(text, shown)
}

/// A condition that may be waited for, or `delete`.
pub fn until(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(
        text,
        [
            "condition=Complete",
            "condition=Ready",
            "condition=Reachable",
            "condition=Running",
            "condition=Synced",
            "delete",
            "jsonpath=",
        ]
        .map(str::to_owned),
    )
}

/// How what is found is printed.
pub fn form(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, cli::Form::words())
}

/// A kind, or a field of it.
pub fn explained(text: &OsStr) -> Vec<CompletionCandidate> {
    let Some((above, _)) = text.to_str().and_then(|text| text.rsplit_once('.')) else {
        return beginning(text, ["env", "flow", "run", "runtime", "settings"].map(str::to_owned));
    };
    let (word, path) = above.split_once('.').unwrap_or((above, ""));
    let schema = match AnyResource::kind_of_word(word) {
        Some(kind) => explain::schema_of(kind),
        None => explain::schema("settings.json"),
    };
    let schema = schema.unwrap_or_default();
    beginning(text, explain::below(&schema, path).into_iter().map(|name| format!("{above}.{name}")))
}

/// A schema.
pub fn schema(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, schema::NAMES.map(str::to_owned))
}

/// A label that something has: `KEY`, and `KEY=VALUE` once the key is typed.
pub fn selector(text: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(typed), Some(paths)) = (text.to_str(), home()) else { return Vec::new() };
    let (before, last) = typed.rfind(',').map_or(("", typed), |comma| typed.split_at(comma + 1));
    let kind = line().iter().skip(2).find_map(|word| AnyResource::kind_of_word(word));
    let kinds: Vec<&str> = kind.map_or_else(|| vec!["Run", "Environment", "Runtime", "Flow"], |kind| vec![kind]);
    let found = kinds.into_iter().flat_map(|kind| asked(&paths, kind)).flat_map(|found| found.metadata().labels.clone());
    let shown =
        found.map(|(key, value)| if last.contains('=') { format!("{before}{key}={value}") } else { format!("{before}{key}=") });
    beginning(text, shown)
}

/// What follows a kind where labels or annotations are changed: a name where there is none yet, then a key that something of the
/// kind has, to be set or taken away.
pub fn marked(text: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(typed), Some(paths)) = (text.to_str(), home()) else { return Vec::new() };
    let line = line();
    let is_kind = |word: &str| AnyResource::kind_of_word(word.split('/').next().unwrap_or_default());
    let mut found = if typed.contains('=') { Vec::new() } else { name(text) };
    let Some(kind) = line.iter().skip(2).find_map(|word| is_kind(word)) else { return found };
    let is_label = line.get(1).is_some_and(|verb| verb == "label");
    let of = |one: &AnyResource| {
        let metadata = one.metadata();
        if is_label { metadata.labels.clone() } else { metadata.annotations.clone() }
    };
    let marks: BTreeSet<(String, String)> = asked(&paths, kind).iter().flat_map(of).collect();
    let changes = marks.into_iter().flat_map(|(key, value)| match (key.starts_with(OURS), typed.contains('=')) {
        // of ours, that it is in a set is all that may be taken away
        (true, false) if key == label::SET => vec![format!("{key}-")],
        (true, _) => Vec::new(),
        (false, true) => vec![format!("{key}={value}")],
        (false, false) => vec![format!("{key}="), format!("{key}-")],
    });
    found.extend(beginning(text, changes));
    found
}

/// A set that something is a member of, or that is or was kept in step.
pub fn set(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, sets())
}

/// A flow.
pub fn flow(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, names_of_word("flow"))
}

/// `ROLE=CLI/MODEL`: a role of the flow on the line, a CLI, the file of a `script`.
pub fn agent(text: &OsStr) -> Vec<CompletionCandidate> {
    let typed = text.to_str().unwrap_or_default();
    let (role, spec) = typed.split_once('=').map_or(("", typed), |(role, spec)| (&typed[..=role.len()], spec));
    if let Some(path) = spec.strip_prefix("script/") {
        return paths(&PathCompleter::any(), path, &format!("{role}script/"));
    }
    let clis = ["claude/", "script/"].map(|cli| format!("{role}{cli}"));
    let flow = if role.is_empty() { flow_on_line() } else { None };
    let roles = flow.into_iter().flat_map(|flow| flow.agents.into_keys()).map(|role| format!("{role}="));
    beginning(text, roles.chain(clis))
}

/// `ROLE=BACKEND@NAME/WORKDIR`: a role of the flow on the line, a saved runtime, a directory.
pub fn place(text: &OsStr) -> Vec<CompletionCandidate> {
    let typed = text.to_str().unwrap_or_default();
    let Some((role, spec)) = typed.split_once('=') else {
        let roles = flow_on_line().map(|flow| flow.environments.into_keys()).into_iter().flatten();
        return beginning(text, roles.map(|role| format!("{role}=")));
    };
    if let Some(slash) = spec.find('/') {
        let (runtime, path) = spec.split_at(slash);
        return paths(&PathCompleter::dir(), path, &format!("{role}={runtime}"));
    }
    beginning(text, runtimes().into_iter().map(|runtime| format!("{role}={}/", runtime.at())))
}

/// `KEY=`: the budget, and the parameters of the flow on the line.
pub fn param(text: &OsStr) -> Vec<CompletionCandidate> {
    let own: std::collections::BTreeMap<String, FlowParam> = flow_on_line().map(|flow| flow.params).unwrap_or_default();
    beginning(text, own.into_keys().chain(["budget.duration".to_owned()]).map(|key| format!("{key}=")))
}

/// A runtime whose daemon can be asked: a saved or declared one, by its path, and the name alone where that is enough.
pub fn runtime(text: &OsStr) -> Vec<CompletionCandidate> {
    let known = runtimes();
    let bare = text.to_str().is_some_and(|text| !text.is_empty() && !text.contains(['/', ':', '@']));
    let names: Vec<&str> = known.iter().filter_map(|runtime| runtime.name.as_deref()).collect();
    let alone = names.iter().filter(|name| bare && names.iter().filter(|other| other == name).count() == 1);
    beginning(text, alone.map(|name| (*name).to_owned()).chain(known.iter().map(RuntimeRef::path)))
}

/// The same without the defaults, which nobody saved.
pub fn saved_runtime(text: &OsStr) -> Vec<CompletionCandidate> {
    let unsaved = |found: &CompletionCandidate| found.get_value().to_str().is_some_and(|word| Backend::from_word(word).is_some());
    runtime(text).into_iter().filter(|found| !unsaved(found)).collect()
}

/// `BACKEND:NAME`, as settings name another runtime.
pub fn runtime_reference(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, runtimes().into_iter().filter(|runtime| runtime.name.is_some()).map(|runtime| runtime.resource_name()))
}

/// Where a harness runs.
pub fn harness(text: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = beginning(text, ["env", "local"].map(str::to_owned));
    found.extend(runtime_reference(text));
    found
}

/// An endpoint: its forms, and ssh hosts that are saved.
pub fn endpoint(text: &OsStr) -> Vec<CompletionCandidate> {
    let hosts = runtimes().into_iter().filter(|runtime| runtime.backend == Backend::Ssh).map(|runtime| runtime.resource_name());
    beginning(text, ["local", "unix:///", "tcp://", "ssh://", "context:"].map(str::to_owned).into_iter().chain(hosts))
}

/// A host of ssh's configuration.
pub fn ssh_host(text: &OsStr) -> Vec<CompletionCandidate> {
    let Some(paths) = home() else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let found = runtime.block_on(SavedRuntimes::new(&paths, &edge::environment()).ssh_hosts(None));
    beginning(text, found.unwrap_or_default().into_iter().map(|host| host.alias))
}

fn runtimes() -> Vec<RuntimeRef> {
    names_of(Runtime::KIND).into_iter().filter_map(|name| name.parse().ok()).collect()
}

fn paths(completer: &PathCompleter, path: &str, before: &str) -> Vec<CompletionCandidate> {
    completer.complete(OsStr::new(path)).into_iter().map(|found| found.add_prefix(before)).collect()
}

fn names_of_word(word: &str) -> Vec<String> {
    if is_set(word) && takes_sets() {
        return sets();
    }
    AnyResource::kind_of_word(word).map(names_of).unwrap_or_default()
}

/// The names of the sets a daemon has that runs already.
fn sets() -> Vec<String> {
    let found = home().map(|paths| of_running(&paths, async |client| client.sets_of_running().await)).unwrap_or_default();
    found.into_iter().map(|set| set.name).collect()
}

/// The names of a kind: what a daemon that runs says, and what is on disk of what it would find there.
fn names_of(kind: &'static str) -> Vec<String> {
    let Some(paths) = home() else { return Vec::new() };
    let mut names: BTreeSet<String> = stored(&paths, kind).into_iter().collect();
    match kind {
        "Flow" => names.extend(hmz_flows::list(&here(), &paths.home).flows.into_iter().map(|flow| flow.name)),
        "Runtime" => {
            let file = paths.settings();
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let saved = settings::read(&text, &file.display().to_string(), &Context::new(&paths.home, None));
            names.extend(saved.into_iter().flat_map(|saved| saved.runtimes).map(|(runtime, _)| runtime.resource_name()));
        }
        _ => {}
    }
    names.into_iter().collect()
}

/// The flow that the line names.
fn flow_on_line() -> Option<FlowSpec> {
    let line = line();
    let mut words = line.iter();
    let mut name = None;
    while let Some(word) = words.next() {
        name = match word.as_str() {
            "-f" | "--flow" => words.next().cloned(),
            word => word.strip_prefix("--flow=").or_else(|| word.strip_prefix("-f")).map(str::to_owned).or(name),
        };
    }
    let (name, paths) = (name?, home()?);
    let stored = asked(&paths, "Flow").into_iter().find_map(|found| match found {
        AnyResource::Flow(flow) if flow.metadata.name == name => Some(flow.spec),
        _ => None,
    });
    stored.or_else(|| hmz_flows::find(&name, &here(), &paths.home).ok().map(|found| found.spec))
}

/// HMZ_HOME, when it is there: a question makes nothing.
fn home() -> Option<Paths> {
    let env = edge::environment();
    let said = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = said("HMZ_HOME").or_else(|| said("HOME").map(|home| home.join(".hmz")))?;
    home.is_dir().then(|| Paths::from_env(&env).ok()).flatten()
}

/// The path of a field of settings.yaml, a key further than it is typed.
pub fn field(text: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(typed), Some(paths)) = (text.to_str(), home()) else { return Vec::new() };
    let file = paths.settings();
    let origin = file.display().to_string();
    let Ok(Some(said)) = settings::file::read_text(&file) else { return Vec::new() };
    let above = typed.rsplit_once('.').map(|(above, _)| above);
    let value = match above.map(str::parse) {
        None => settings::edit::all(&said, &origin).ok(),
        Some(Ok(path)) => settings::edit::get(&said, &origin, &path).ok().flatten(),
        Some(Err(_)) => None,
    };
    let keys = value.as_ref().and_then(|value| value.as_object()).into_iter().flat_map(|map| map.keys());
    // a key that has to be quoted is typed
    let keys = keys.filter(|key| !key.contains(['.', '"', '\'', ' ']));
    beginning(text, keys.map(|key| above.map_or_else(|| key.clone(), |above| format!("{above}.{key}"))))
}

fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned())
}

/// The names a daemon has stored that runs already.
fn stored(paths: &Paths, kind: &str) -> Vec<String> {
    of_running(paths, async |client| client.names_of_running(kind).await)
}

/// The resources of a kind that a daemon has that runs already.
fn asked(paths: &Paths, kind: &str) -> Vec<AnyResource> {
    of_running(paths, async |client| client.list_of_running(kind).await)
}

/// What a daemon says that runs already; nothing when there is none, or it takes its time.
fn of_running<T>(paths: &Paths, ask: impl AsyncFnOnce(&Client) -> Result<Vec<T>, Error>) -> Vec<T> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let client = Client::new(paths.clone());
    let answer = runtime.block_on(async { tokio::time::timeout(AT_ONCE, ask(&client)).await });
    answer.ok().and_then(Result::ok).unwrap_or_default()
}
