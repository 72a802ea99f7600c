//! The terminal's edge: what verbs print, where it goes, and what the output crate of pure functions is told of the terminal.

use crate::cli::{Files, FoldHow, Form, Output};
use crate::client::Listing;
use crate::edge;
use crate::output::progress::Progress as Line;
use crate::output::rows::{self, Watched};
use crate::output::sink::{Reader, put};
use crate::output::style::Style;
use crate::output::transcript::{self, answer};
use crate::output::working::Working;
use crate::output::{describe as description, error as rendering, fold, jsonpath, record, table};
use hmz_api::clock::{Clock, SystemClock};
use hmz_api::journal::Record;
use hmz_api::rest::{Event, Planned, SetState, SettingsAnswer};
use hmz_api::{AnyResource, Error, ErrorKind};
use hmz_manifest::{Context, Declared};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The exit status when the reader has gone: as that of a program that SIGPIPE kills.
const GONE: u8 = 141;

/// Prints to stdout. A reader that has gone ends the program: it has what it wanted.
pub fn print(text: &str) {
    written(put(&mut std::io::stdout().lock(), text));
}

/// Whether a file is standard output (`-`).
///
/// # Errors
/// It is, and a person is there to read what is no text.
pub fn is_stdout(file: &Path) -> Result<bool, Error> {
    if file.as_os_str() != "-" {
        return Ok(false);
    }
    if std::io::stdout().is_terminal() {
        return Err(
            Error::usage("what is written is no text, and standard output is a terminal").hint("name a file, or pipe it on")
        );
    }
    Ok(true)
}

/// Copies a whole file to stdout. A reader that has gone ends the program.
///
/// # Errors
/// It cannot be read, or stdout cannot be written.
pub fn pour(file: &Path) -> Result<(), Error> {
    let cannot = |e: std::io::Error| edge::io("standard output", &e);
    let mut file = std::fs::File::open(file).map_err(cannot)?;
    let mut stdout = std::io::stdout().lock();
    match std::io::copy(&mut file, &mut stdout).and_then(|_| stdout.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(GONE.into()),
        done => done.map_err(cannot),
    }
}

/// Returns when nobody reads stdout any more, for whoever waits for something to print; never, where that cannot be seen.
pub async fn unread() -> std::process::ExitCode {
    let (tell, told) = tokio::sync::oneshot::channel();
    // not a task: the verb's end does not wait for it
    let watch = std::thread::Builder::new().name("reader".into()).spawn(move || {
        let stdout = std::io::stdout();
        // errors and hang-ups are told unasked
        let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
        let gone = loop {
            match poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                Err(_) => break false,
                Ok(_) => break polled[0].revents().contains(PollFlags::ERR),
            }
        };
        if gone {
            // the verb may have ended by itself
            let _ = tell.send(());
        }
    });
    if watch.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
    std::process::ExitCode::from(GONE)
}

fn print_err(text: &str) {
    written(put(&mut std::io::stderr().lock(), text));
}

fn written(done: std::io::Result<Reader>) {
    match done {
        Ok(Reader::There) => {}
        Ok(Reader::Gone) => std::process::exit(GONE.into()),
        Err(e) => {
            // stderr may be the stream that is full
            let _ = writeln!(std::io::stderr(), "hmz: error: {e}");
            std::process::exit(1);
        }
    }
}

/// Prints an error as every verb does.
pub fn error(verb: &str, error: &Error) {
    // a stderr that cannot be written leaves the exit status to tell
    let _ = put(&mut std::io::stderr().lock(), &rendering::render(verb, error));
}

/// Prints a line to stderr that is no answer.
pub fn aside(text: &str) {
    print_err(&format!("{text}\n"));
}

/// Prints an aside to stderr: `hmz VERB: TEXT`.
pub fn note(verb: &str, text: &str) {
    print_err(&format!("hmz {verb}: {text}\n"));
}

/// The manifests that `-f` names; none when it names none.
///
/// # Errors
/// A usage error with each fault.
pub fn manifests(files: &Files) -> Result<Vec<AnyResource>, Error> {
    if files.filename.is_empty() {
        return Ok(Vec::new());
    }
    hmz_manifest::read_paths(&files.filename, files.depth(), &mut std::io::stdin().lock(), &context()?)
}

/// What paths in manifests from standard input, and `-f` itself, begin at.
///
/// # Errors
/// When there is no current directory.
pub fn context() -> Result<Context, Error> {
    let base = std::env::current_dir().map_err(|e| edge::io("the current directory", &e))?;
    let home = edge::environment().remove("HOME").map(PathBuf::from);
    Ok(Context { base, home })
}

/// The same with what is written of each; none, when `may_be_empty` and there is nothing in them.
///
/// # Errors
/// A usage error with each fault.
pub fn declared(files: &Files, may_be_empty: bool) -> Result<Vec<Declared>, Error> {
    let context = context()?;
    hmz_manifest::read_paths_declared(&files.filename, files.depth(), &mut std::io::stdin().lock(), &context, may_be_empty)
}

/// What would be another than it is, and what would be started and ended.
pub fn changes(planned: &[Planned]) -> String {
    crate::output::changes::render(planned)
}

/// The plural a person reads.
pub fn plural(kind: &str) -> String {
    format!("{}s", kind.to_ascii_lowercase())
}

fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Several resources.
///
/// # Errors
/// When one cannot be written as JSON.
pub fn listing(items: &[AnyResource], form: Option<&Form>) -> Result<String, Error> {
    let list = || serde_json::json!({"apiVersion": hmz_api::API_VERSION, "kind": "List", "items": items});
    Ok(match form {
        Some(Form::JsonPath(template)) => template.render(&list()),
        Some(Form::Columns(columns)) => columns_of(items, columns)?,
        Some(Form::Usual(Output::Json)) => format!("{}\n", json(&list())?),
        // no document at all is no list
        Some(Form::Usual(Output::Yaml)) if items.is_empty() => hmz_manifest::value_to_yaml(&list())?,
        Some(Form::Usual(Output::Yaml)) => items.iter().map(hmz_manifest::to_yaml).collect::<Result<Vec<_>, _>>()?.join("---\n"),
        Some(Form::Usual(Output::Name)) => table::names(items),
        Some(Form::Usual(Output::Wide)) => table::render(items, true, SystemClock.now(), width()),
        None => table::render(items, false, SystemClock.now(), width()),
    })
}

/// Every resource of a kind as a table.
pub fn table_of(listing: &Listing, wide: bool) -> String {
    match listing {
        Listing::Cells(cells) => table::render_listing(cells, width()),
        Listing::Resources(items) => table::render(items, wide, SystemClock.now(), width()),
    }
}

/// Names of a kind.
pub fn names(kind: &str, names: &[String]) -> String {
    table::names_of(kind, names)
}

/// One resource by name.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn single(item: &AnyResource, form: Option<&Form>) -> Result<String, Error> {
    match form {
        Some(Form::Usual(Output::Json)) => Ok(format!("{}\n", json(item)?)),
        Some(Form::JsonPath(template)) => Ok(template.render(&value(item)?)),
        form => listing(std::slice::from_ref(item), form),
    }
}

/// A table of columns somebody has chosen.
fn columns_of(items: &[AnyResource], columns: &[(String, jsonpath::Path)]) -> Result<String, Error> {
    let mut lines = vec![columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()];
    for item in items {
        let document = value(item)?;
        let cell = |path: &jsonpath::Path| {
            let found: Vec<String> = path.find(&document).into_iter().map(jsonpath::text).collect();
            if found.is_empty() { "<none>".to_owned() } else { crate::output::clean::one_line(&found.join(",")) }
        };
        lines.push(columns.iter().map(|(_, path)| cell(path)).collect());
    }
    Ok(table::align(&lines, &mut Vec::new(), width()))
}

fn value(item: &AnyResource) -> Result<serde_json::Value, Error> {
    serde_json::to_value(item).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
}

/// settings.yaml, a line for it and one for each runtime.
///
/// # Errors
/// When it cannot be written as JSON or YAML.
pub fn settings(answer: &SettingsAnswer, how: Option<Output>) -> Result<String, Error> {
    Ok(match how {
        Some(Output::Json) => format!("{}\n", json(&whole_settings(answer))?),
        Some(Output::Yaml) => hmz_manifest::value_to_yaml(&whole_settings(answer))?,
        Some(Output::Name) => "settings/settings.yaml\n".to_owned(),
        Some(Output::Wide) | None => table::settings(answer).render(width()),
    })
}

/// Sets.
///
/// # Errors
/// When they cannot be written as JSON or YAML.
pub fn sets(found: &[SetState], how: Option<Output>, single: bool) -> Result<String, Error> {
    let list = || match found {
        [set] if single => set.whole(),
        several => {
            let items = several.iter().map(Watched::whole).collect::<Result<Vec<_>, Error>>()?;
            Ok(serde_json::json!({"apiVersion": hmz_api::API_VERSION, "kind": "List", "items": items}))
        }
    };
    Ok(match how {
        Some(Output::Json) => format!("{}\n", json(&list()?)?),
        Some(Output::Yaml) => hmz_manifest::value_to_yaml(&list()?)?,
        Some(Output::Name) => found.iter().map(|set| format!("{}\n", set.shown())).collect(),
        how => crate::output::sets::table(found, how.is_some(), SystemClock.now()).render(width()),
    })
}

/// One set, whole, for people, with the last of what happened to it.
pub fn set_at_length(set: &SetState, events: &[Event]) -> String {
    crate::output::sets::describe(set, SystemClock.now()) + &last_events(events)
}

/// What a watch of settings.yaml prints.
pub struct SettingsRows(crate::output::settings::SettingsRows, Option<Output>, bool);

impl SettingsRows {
    /// In this form.
    pub fn new(how: Option<Output>) -> Self {
        Self(crate::output::settings::SettingsRows::default(), how, false)
    }

    /// As it is now. As a table, what is new in it; as JSON and YAML the whole of it, an object a line or a document each.
    ///
    /// # Errors
    /// When it cannot be written as JSON or YAML.
    pub fn next(&mut self, answer: &SettingsAnswer) -> Result<String, Error> {
        let begun = std::mem::replace(&mut self.2, true);
        Ok(match self.1 {
            Some(Output::Wide) | None => self.0.next(answer, width()),
            Some(Output::Yaml) => format!("{}{}", if begun { "---\n" } else { "" }, settings(answer, self.1)?),
            Some(Output::Json) => {
                let kind = if begun { "MODIFIED" } else { "ADDED" };
                format!("{}\n", serde_json::json!({"type": kind, "object": whole_settings(answer)}))
            }
            Some(Output::Name) if begun => String::new(),
            Some(Output::Name) => settings(answer, self.1)?,
        })
    }
}

/// The same with whole messages.
pub fn settings_at_length(answer: &SettingsAnswer) -> String {
    let mut out = format!("Path:   {}\n", answer.path);
    for line in &answer.conditions {
        out.push_str(&format!("{}   {}={:?}   {}\n", line.name, line.kind, line.status, line.reason));
        for text in line.message.lines() {
            out.push_str(&format!("    {}\n", crate::output::clean::clean(text)));
        }
    }
    out
}

fn whole_settings(answer: &SettingsAnswer) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": hmz_api::API_VERSION,
        "kind": "Settings",
        "metadata": {"name": "settings.yaml"},
        "status": answer,
    })
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
}

/// One resource, whole, for people, with the last of what happened to it.
pub fn describe(item: &AnyResource, events: &[Event]) -> String {
    description::describe(item, SystemClock.now()) + &last_events(events)
}

fn last_events(events: &[Event]) -> String {
    let mut out = String::new();
    let last = &events[events.len().saturating_sub(LAST_EVENTS)..];
    if !last.is_empty() {
        let table = crate::output::events::table(last, false, SystemClock.now(), None);
        out.push_str("Events:\n");
        table.lines().for_each(|line| out.push_str(&format!("  {line}\n")));
    }
    out
}

/// How many events a description has.
const LAST_EVENTS: usize = 10;

/// A table.
pub fn table(table: &table::Table) -> String {
    table.render(width())
}

/// What happened.
pub fn events(events: &[Event]) -> String {
    crate::output::events::table(events, true, SystemClock.now(), width())
}

/// What happens, as it comes.
#[derive(Default)]
pub struct EventRows(Vec<usize>);

impl EventRows {
    /// The next one.
    pub fn next(&mut self, event: &Event) -> String {
        crate::output::events::next(event, &mut self.0, SystemClock.now(), width())
    }
}

/// What a watch prints.
pub struct Rows(rows::Rows);

impl Rows {
    /// In this form.
    pub fn new(how: Option<Output>) -> Self {
        Self(rows::Rows::new(match how {
            None => rows::Form::Table,
            Some(Output::Wide) => rows::Form::Wide,
            Some(Output::Yaml) => rows::Form::Yaml,
            Some(Output::Json) => rows::Form::Json,
            Some(Output::Name) => rows::Form::Name,
        }))
    }

    /// These, as far as they are new or have changed.
    ///
    /// # Errors
    /// When one cannot be written as JSON or YAML.
    pub fn there(&mut self, items: &[impl Watched]) -> Result<String, Error> {
        self.0.there(items, SystemClock.now(), width())
    }

    /// One that is gone.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn gone(&mut self, item: &impl Watched) -> Result<String, Error> {
        self.0.gone(item)
    }
}

/// A value as one JSON document.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json_line(value: &impl serde::Serialize) -> Result<String, Error> {
    Ok(format!("{}\n", json(value)?))
}

/// What stdout takes.
pub fn stdout_style() -> Style {
    style(std::io::stdout().is_terminal())
}

fn style(terminal: bool) -> Style {
    Style::decide(|name| std::env::var(name).ok(), terminal)
}

/// A run's transcript as it happens.
pub struct Transcript {
    lines: transcript::Transcript,
    fold: Option<fold::Fold>,
    json: bool,
    exec: bool,
    out: bool,
    err: bool,
}

impl Transcript {
    /// All of it to stdout: there it is the answer.
    pub fn of_logs(json: bool, fold: FoldHow) -> Self {
        let form = match fold {
            FoldHow::None => None,
            FoldHow::Github => Some(fold::Form::Github),
            FoldHow::Gitlab => Some(fold::Form::Gitlab),
            FoldHow::Auto if std::io::stdout().is_terminal() => None,
            FoldHow::Auto => fold::Form::of_pipeline(|name| std::env::var(name).ok()),
        };
        Self {
            lines: transcript::Transcript::new(style(std::io::stdout().is_terminal())),
            fold: form.map(fold::Fold::new),
            json,
            exec: false,
            out: true,
            err: true,
        }
    }

    /// The transcript to stderr, each turn's answer to stdout; with `json` events to stdout.
    pub fn of_exec(json: bool) -> Self {
        let (out, err) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        Self { lines: transcript::Transcript::new(style(err)), fold: None, json, exec: true, out, err }
    }

    /// Nothing comes any more.
    pub fn end(&mut self) {
        if let Some(fold) = &mut self.fold {
            print(&fold.close());
        }
    }

    /// Shows one record, past the progress line if there is one.
    pub fn show(&mut self, entry: &Record, progress: Option<&Progress>) {
        if self.json {
            if let Some(line) = record::json(entry) {
                print(&line);
            }
            return;
        }
        let text = self.lines.lines(entry);
        let text = self.fold.as_mut().map_or_else(|| text.clone(), |fold| fold.lines(entry, &text));
        let write = || {
            if self.exec {
                print_err(&text);
                if let Some(text) = answer(entry, self.out, self.err) {
                    print(&text);
                }
            } else {
                print(&text);
            }
        };
        match progress {
            Some(progress) => progress.line.aside(write),
            None => write(),
        }
    }
}

/// What goes on, on stderr.
pub struct Progress {
    line: Line,
    working: Working,
}

impl Default for Progress {
    fn default() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { line: Line::new(terminal && style(terminal).colour), working: Working::new(now()) }
    }
}

impl Progress {
    /// What something waits for.
    pub fn say(&mut self, stage: &str, detail: &str) {
        self.line.update(stage, detail);
    }

    /// Prints an aside past it: `hmz VERB: TEXT`.
    pub fn note_aside(&self, verb: &str, text: &str) {
        self.line.aside(|| note(verb, text));
    }

    /// Takes note of a record.
    pub fn note(&mut self, record: &Record) {
        self.working.note(record);
        self.tick();
    }

    /// Brings the seconds up to date.
    pub fn tick(&mut self) {
        self.line.spin(self.working.text(now()).as_deref());
    }
}

fn now() -> f64 {
    SystemClock.now().as_millisecond() as f64 / 1000.0
}
