//! `hmz debug bundle`: what a report of a fault is accompanied by.

use crate::bundle::{self, Archive, Scrub};
use crate::cli::DebugAction;
use crate::client::Client;
use crate::{edge, show};
use hmz_api::clock::{Clock as _, SystemClock};
use hmz_api::{Error, ErrorKind};
use hmz_server::Paths;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How much of the end of a log is told, in bytes, and of how many runs, the last ones.
const LOG: u64 = 512 << 10;
const RUN_LOG: u64 = 64 << 10;
const RUNS: usize = 20;

/// Variables whose values are everywhere and say nothing.
const PLAIN: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "OLDPWD",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "HOSTNAME",
    "SHLVL",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "COLORTERM",
    "DISPLAY",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "SSH_AUTH_SOCK",
];

/// Runs it.
///
/// # Errors
/// When the file cannot be written.
pub async fn run(client: Client, action: DebugAction) -> Result<ExitCode, Error> {
    let DebugAction::Bundle { output, overwrite } = action;
    let now = SystemClock.now();
    let folder = format!("hmz-debug-{}", now.strftime("%Y%m%d-%H%M%S"));
    let path = output.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
    let to_stdout = show::is_stdout(&path)?;
    if !to_stdout && !overwrite && std::fs::symlink_metadata(&path).is_ok() {
        return Err(is_there(&path));
    }
    let paths = edge::paths()?;
    let parts = collect(&client, &paths).await?;
    let written = |e: std::io::Error| edge::io(&path.display().to_string(), &e);
    // it appears whole, and nobody else reads it
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::Builder::new();
    part.prefix(".hmz-debug");
    let part = if to_stdout { part.tempfile() } else { part.tempfile_in(dir) }.map_err(written)?;
    let mut archive = Archive::new(part, &folder, u64::try_from(now.as_second()).unwrap_or(0), parts.scrub);
    for (name, text) in &parts.texts {
        archive.add(name, text).map_err(written)?;
    }
    let mut part = archive.finish().map_err(written)?;
    part.flush().map_err(written)?;
    let size = part.as_file().metadata().map_err(written)?.len();
    if to_stdout {
        show::pour(part.path())?;
    } else if overwrite {
        part.persist(&path).map_err(|e| written(e.error))?;
    } else {
        part.persist_noclobber(&path).map_err(|e| match e.error.kind() {
            std::io::ErrorKind::AlreadyExists => is_there(&path),
            _ => written(e.error),
        })?;
    }
    if !to_stdout {
        show::print(&format!("{}: {size} bytes\n", path.display()));
    }
    show::aside(
        "it holds no task, no answer, no secret and no variable's value; look it through before you pass it on all the same",
    );
    Ok(ExitCode::SUCCESS)
}

fn is_there(path: &Path) -> Error {
    Error::refused(format!("{} is there already", path.display())).hint("give another name, or --overwrite to have it replaced")
}

/// The texts, by name, and what must be in none of them.
struct Parts {
    texts: BTreeMap<String, String>,
    scrub: Scrub,
}

async fn collect(client: &Client, paths: &Paths) -> Result<Parts, Error> {
    let mut parts = Parts { texts: BTreeMap::new(), scrub: Scrub::default() };
    let env = edge::environment();
    for (name, value) in &env {
        let plain = PLAIN.contains(&name.as_str()) || ["LC_", "HMZ_", "XDG_"].iter().any(|prefix| name.starts_with(prefix));
        if !plain && value.len() >= 8 {
            parts.scrub.note(value);
        }
    }
    parts.settings(paths);
    // a daemon that cannot be had is a fault to be reported itself
    let version = parts.told("daemon", client.version().await);
    for kind in ["Runtime", "Flow", "Environment", "Run"] {
        if let Some(found) = parts.told(kind, client.list(kind).await) {
            parts.resources(kind, &found)?;
        }
    }
    if let Some(events) = parts.told("events", client.events(None).await) {
        let mut text = String::new();
        for one in events {
            let mut one = serde_json::to_value(one).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            bundle::event(&mut one);
            text.push_str(&format!("{one}\n"));
        }
        parts.texts.insert("events.jsonl".into(), text);
    }
    if let Some(metrics) = parts.told("metrics", client.metrics().await) {
        parts.texts.insert("metrics.txt".into(), metrics);
    }
    let facts = bundle::facts(paths, version.as_deref(), &env);
    parts.texts.insert("facts.json".into(), show::json_line(&facts)?);
    parts.files(paths);
    Ok(parts)
}

impl Parts {
    /// What was asked for; why it was not had is a text of its own.
    fn told<T>(&mut self, what: &str, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(told) => Some(told),
            Err(e) => {
                self.texts.entry("errors.txt".into()).or_default().push_str(&format!("{what}: {}\n", e.message));
                None
            }
        }
    }

    fn settings(&mut self, paths: &Paths) {
        let Ok(text) = std::fs::read_to_string(paths.settings()) else { return };
        let origin = paths.settings().display().to_string();
        let told = match hmz_manifest::settings::edit::all(&text, &origin) {
            Ok(whole) => {
                let told = bundle::settings(&whole, &mut self.scrub);
                hmz_manifest::value_to_yaml(&told).unwrap_or_else(|e| e.message)
            }
            // what was said of it may quote it
            Err(_) => {
                bundle::unread(&text, &mut self.scrub);
                format!("# it cannot be parsed: {} lines, {} bytes\n", text.lines().count(), text.len())
            }
        };
        self.texts.insert("settings.yaml".into(), told);
    }

    fn resources(&mut self, kind: &str, found: &[hmz_api::AnyResource]) -> Result<(), Error> {
        let mut documents = Vec::new();
        let mut conditions = String::new();
        for one in found {
            let mut value = serde_json::to_value(one).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
            bundle::resource(&mut value, &mut self.scrub);
            for condition in value.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| condition.get(name).and_then(Value::as_str).unwrap_or_default();
                let name = &one.metadata().name;
                let message = text("message").lines().next().unwrap_or_default();
                let since = text("lastTransitionTime");
                conditions.push_str(&format!(
                    "{kind}/{name} {}={} {} {since} {message}\n",
                    text("type"),
                    text("status"),
                    text("reason")
                ));
            }
            documents.push(hmz_manifest::value_to_yaml(&value)?);
        }
        self.texts.insert(format!("resources/{}s.yaml", kind.to_ascii_lowercase()), documents.join("---\n"));
        self.texts.entry("conditions.txt".into()).or_default().push_str(&conditions);
        Ok(())
    }

    /// The ends of logs, and the shapes of journals.
    fn files(&mut self, paths: &Paths) {
        self.log("logs/daemon.log", &paths.log(), LOG);
        let epics = std::fs::read_dir(paths.epics()).into_iter().flatten().flatten();
        let mut epics: Vec<_> = epics.filter_map(|epic| Some((epic.metadata().ok()?.modified().ok()?, epic.path()))).collect();
        epics.sort();
        for (_, epic) in epics.iter().rev().take(RUNS) {
            let Some(name) = epic.file_name().and_then(|name| name.to_str()) else { continue };
            for file in ["runner.log", hmz_flows::runner::SESSIONS_LOG] {
                self.log(&format!("runs/{name}/{file}"), &epic.join(file), RUN_LOG);
            }
            let journal = epic.join(hmz_flows::journal::FILE);
            if journal.exists() {
                self.texts.insert(format!("runs/{name}/journal.txt"), bundle::shape(&journal));
            }
        }
    }

    fn log(&mut self, name: &str, path: &Path, most: u64) {
        if let Some(text) = tail(path, most) {
            self.texts.insert(name.to_owned(), text);
        }
    }
}

/// The last whole lines of a file of our own.
fn tail(path: &Path, most: u64) -> Option<String> {
    // a log that is a link leads to somebody else's file
    let mut file = File::options().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let from = length.saturating_sub(most);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(if from == 0 { text } else { text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default() })
}
