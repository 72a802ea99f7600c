//! `settings.yaml`: the runtimes a user saved, and where metrics are told. One bad entry never hides another, and other top-level
//! keys are nobody's business here.

mod dangling;
pub mod edit;
mod entry;
mod fields;
pub mod file;
pub mod metrics;
pub mod saved;
pub(crate) mod watch;

pub(crate) use entry::{NOTHING, runtime_spec};
pub(crate) use fields::SSH_FIELDS;
pub use metrics::Metrics;
pub use watch::{Loaded, WatchGuard, glance, watch};

use crate::de::Fault;
use crate::document::{broken_report, duplicates, report};
use crate::odd;
use crate::place::Context;
use crate::report::{At, Report};
use crate::suggest::nearest;
use crate::tree::{self, Map, Node, Value};
use hmz_api::kinds::RuntimeSpec;
use hmz_api::{Backend, RuntimeRef};
use std::rc::Rc;

/// What settings.yaml says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Each saved runtime in the order of the file, or what is wrong with its entry. An entry that is wrong is still a
    /// saved name.
    pub runtimes: Vec<(RuntimeRef, Result<RuntimeSpec, Report>)>,
    /// What is wrong beside the entries: a backend or a name that is none.
    pub problems: Vec<Report>,
    /// Where metrics are told, or what is wrong with that; `None` when it says nothing of it.
    pub metrics: Option<Result<Metrics, Report>>,
}

impl Settings {
    /// The entry of a runtime.
    pub fn get(&self, runtime: &RuntimeRef) -> Option<&Result<RuntimeSpec, Report>> {
        self.runtimes.iter().find(|(r, _)| r == runtime).map(|(_, entry)| entry)
    }

    /// Every report: those of the entries and those beside them.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        let metrics = self.metrics.iter().filter_map(|entry| entry.as_ref().err());
        self.problems.iter().chain(metrics).chain(self.runtimes.iter().filter_map(|(_, entry)| entry.as_ref().err()))
    }
}

/// The keys at its top that are this program's.
const OURS: [&str; 2] = ["runtimes", "metrics"];

/// The backends of settings.yaml; `local` is never saved.
const SAVED: [&str; 5] = ["ssh", "docker", "swarm", "apple-container", "slurm"];

/// Reads the text of settings.yaml. A text without a document is empty settings. `context` says what `~` is.
///
/// # Errors
/// One report when the text is not YAML, has more than one document, or is no mapping.
pub fn read(text: &str, origin: &str, context: &Context) -> Result<Settings, Report> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let say = |fault: Fault| report(text, origin, fault);
    let root = whole(text, origin)?;
    let found = judge(&root, context);
    Ok(Settings {
        runtimes: found.runtimes.into_iter().map(|(r, read)| (r, read.map_err(|faults| first(faults, &say)))).collect(),
        problems: found.problems.into_iter().map(say).collect(),
        metrics: found.metrics.map(|read| read.map_err(|faults| first(faults, &say))),
    })
}

/// Everything that is wrong with the text of settings.yaml, in its order: each fault of each entry too.
pub fn check(text: &str, origin: &str, context: &Context) -> Vec<Report> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match whole(text, origin) {
        Ok(root) => {
            let mut faults = judge(&root, context).faults();
            faults.sort_by_key(|fault| fault.at);
            faults.into_iter().map(|fault| report(text, origin, fault)).collect()
        }
        Err(report) => vec![report],
    }
}

/// Whether a text says nothing at all, as an editor leaves the file between two steps of a save. It is never taken for a
/// deliberate emptying, which is `runtimes: {}`, a comment, or no file.
pub fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim().is_empty()
}

/// The mapping a text without byte-order mark is; one without a document is an empty mapping.
fn whole(text: &str, origin: &str) -> Result<Rc<Node>, Report> {
    let say = |fault: Fault| report(text, origin, fault);
    let mut documents = tree::parse(text).map_err(|broken| broken_report(text, origin, &broken))?;
    if let Some(second) = documents.get(1) {
        return Err(say(Fault::new(second.at, "settings are one document, and this is a second one")));
    }
    let Some(root) = documents.pop() else {
        return Ok(Rc::new(Node::of(At { line: 1, column: 1 }, Value::Map(Map::default()))));
    };
    let Some(map) = root.map() else {
        return Err(say(Fault::new(root.at, "settings are a mapping")));
    };
    if let Some((key, at, first)) = map.duplicates.iter().find(|(key, ..)| OURS.contains(&key.as_str())) {
        return Err(say(Fault::new(*at, format!("the key '{key}' is there twice, first on line {}", first.line))));
    }
    if let Some(runtimes) = root.get("runtimes").filter(|e| !e.value.is_null() && e.value.map().is_none()) {
        return Err(say(Fault::new(runtimes.value.at, "runtimes are a mapping of backends")));
    }
    Ok(root)
}

/// Top-level keys that only look like another program's: a slip in `runtimes`, and one with a space nobody sees.
fn mistaken(root: &Node) -> impl Iterator<Item = Fault> + '_ {
    let is_there = root.get("runtimes").is_some();
    root.map().into_iter().flat_map(|map| &map.entries).filter_map(move |entry| {
        let near = nearest(&entry.key, ["runtimes"]).filter(|near| *near != entry.key && !is_there);
        let is_odd = odd::has_unseen(&entry.key);
        (near.is_some() || is_odd).then(|| {
            let fault = Fault::new(entry.key_at, format!("unknown field '{}'", entry.key));
            fault.suggest(near.map(|near| format!("did you mean '{near}'?")))
        })
    })
}

/// What is found under `runtimes` and `metrics`.
#[derive(Debug, Default)]
struct Found {
    metrics: Option<Result<Metrics, Vec<Fault>>>,
    runtimes: Vec<(RuntimeRef, Result<RuntimeSpec, Vec<Fault>>)>,
    problems: Vec<Fault>,
}

impl Found {
    fn faults(self) -> Vec<Fault> {
        let of_entries = self.runtimes.into_iter().filter_map(|(_, entry)| entry.err()).flatten();
        let of_metrics = self.metrics.and_then(Result::err).into_iter().flatten();
        self.problems.into_iter().chain(of_metrics).chain(of_entries).collect()
    }
}

fn judge(root: &Node, context: &Context) -> Found {
    let mut found = Found::default();
    found.problems.extend(mistaken(root));
    found.metrics = root.get("metrics").and_then(|entry| metrics::read(&entry.value));
    let Some(backends) = root.get("runtimes").and_then(|e| e.value.map()) else { return found };
    found.problems.extend(twice(backends));
    for entry in &backends.entries {
        let backend = Backend::from_word(&entry.key).filter(|b| *b != Backend::Local);
        let Some(backend) = backend else {
            let fault = Fault::new(entry.key_at, format!("'{}' is not a runtime backend: {}", entry.key, SAVED.join(", ")));
            let near = nearest(&entry.key, SAVED).map(|n| format!("did you mean '{n}'?"));
            found.problems.push(fault.suggest(near));
            continue;
        };
        read_backend(backend, &entry.value, context, &mut found);
    }
    found
}

fn read_backend(backend: Backend, node: &Node, context: &Context, found: &mut Found) {
    if node.is_null() {
        return;
    }
    let Some(names) = node.map() else {
        found.problems.push(Fault::new(node.at, format!("'{backend}' is a mapping of names")));
        return;
    };
    for entry in &names.entries {
        let runtime = RuntimeRef::named(backend, entry.key.clone());
        if let Err(e) = RuntimeRef::check_name(&entry.key) {
            found.problems.push(Fault::new(entry.key_at, e.message));
            continue;
        }
        let again = names.duplicates.iter().find(|(key, ..)| *key == entry.key);
        let read = match again {
            Some((key, at, first)) => {
                Err(vec![Fault::new(*at, format!("the key '{key}' is there twice, first on line {}", first.line))])
            }
            None if matches!(backend, Backend::AppleContainer | Backend::Slurm) => {
                Err(vec![Fault::new(entry.key_at, format!("runtimes of {backend} are not supported yet"))])
            }
            None if entry.value.is_null() => {
                let message = format!("'{}' says nothing; for a runtime with every default write {{}}", entry.key);
                Err(vec![Fault::new(entry.key_at, message)])
            }
            None => {
                let mut faults = Vec::new();
                duplicates(&entry.value, &mut faults);
                match runtime_spec(&entry.value, Some(&runtime), context) {
                    Ok(spec) if faults.is_empty() => Ok(spec),
                    Ok(_) => Err(faults),
                    Err(more) => {
                        faults.extend(more);
                        Err(faults)
                    }
                }
            }
        };
        found.runtimes.push((runtime, read));
    }
}

/// The first of an entry's faults, with how many more there are.
fn first(mut faults: Vec<Fault>, say: &dyn Fn(Fault) -> Report) -> Report {
    faults.sort_by_key(|f| f.at);
    let more = faults.len().saturating_sub(1);
    let mut faults = faults.into_iter();
    let fault = faults.next().unwrap_or_else(|| Fault::new(Default::default(), "this entry cannot be read"));
    let mut report = say(fault);
    if more > 0 {
        report.message.push_str(&format!(" (and {more} more in this entry)"));
    }
    report
}

fn twice(map: &Map) -> impl Iterator<Item = Fault> + '_ {
    map.duplicates.iter().map(|(key, at, first)| {
        Fault::new(*at, format!("the key '{key}' is there twice, first on line {}; what is under it is left out", first.line))
    })
}
