//! One field of settings.yaml changed, and every other byte left as it is: comments, order, quotes, line endings.
//!
//! The change is a splice of the text at the places the parser tells. What comes out is read again and has to say what the
//! text said before with that one field changed; an edit that would change anything else (what an anchor is shared by, say)
//! is refused. The value is held to the rules of reading, in the same words, before anything is written.

mod layout;
mod path;
mod splice;
mod verify;
mod words;

pub use path::FieldPath;

use super::{judge, whole};
use crate::de::{Fault, Plain, meaning};
use crate::document::report;
use crate::place::Context;
use crate::report::{At, Report};
use crate::suggest::nearest;
use crate::tree::{self, Node, Value};
use hmz_api::Error;
use std::rc::Rc;

/// The keys at the top of settings.yaml that this program or another one that reads it knows.
const TOP: [&str; 11] = [
    "runtimes",
    "metrics",
    "workspaces",
    "enable_sentry",
    "details",
    "btw",
    "every_epic",
    "backup",
    "fallbacks",
    "clis",
    "spelling",
];

/// What became of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// The new text.
    Changed(String),
    /// It says so already.
    Unchanged,
}

/// What the text says at `path`; `None` when it says nothing there. Aliases and merges are followed.
///
/// # Errors
/// When the text cannot be read.
pub fn get(text: &str, origin: &str, path: &FieldPath) -> Result<Option<serde_json::Value>, Error> {
    let (_, body) = without_mark(text);
    let root = whole(body, origin)?;
    let keys: Vec<&str> = path.keys().iter().map(String::as_str).collect();
    Ok(root.at_path(&keys).map(json))
}

/// What the whole text says.
///
/// # Errors
/// When the text cannot be read.
pub fn all(text: &str, origin: &str) -> Result<serde_json::Value, Error> {
    let (_, body) = without_mark(text);
    let root = whole(body, origin)?;
    Ok(json(&root))
}

/// Gives the field at `path` a value, which is written as in YAML: a number, a text, `[a, b]`, `{a: 1}`. Mappings that are
/// missing on the way are made.
///
/// # Errors
/// When the text cannot be read (it is never overwritten), when the value is not one for that field, and when the change
/// cannot be made without changing something else.
pub fn set(text: &str, origin: &str, path: &FieldPath, value: &str, context: &Context) -> Result<Edited, Error> {
    let (mark, body) = without_mark(text);
    let old = whole(body, origin).map_err(untouched)?;
    let value = parsed(path, value)?;
    slip(path, &old)?;
    once(path, &old)?;
    let keys: Vec<&str> = path.keys().iter().map(String::as_str).collect();
    if old.at_path(&keys).is_some_and(|there| verify::is_same(there, &value)) {
        return Ok(Edited::Unchanged);
    }
    let written = written(body, origin)?;
    let ways = splice::set(body, written.as_ref(), path.keys(), &value).map_err(|closed| shut(path, closed))?;
    let new = first_good(body, &old, path, Some(&value), &ways)?;
    allowed(&old, &new, path, context)?;
    Ok(Edited::Changed(format!("{mark}{new}")))
}

/// Takes the field at `path` out. A mapping that loses its last field stays, as `{}`.
///
/// # Errors
/// As [`set`]; `NotFound` when there is no such field.
pub fn unset(text: &str, origin: &str, path: &FieldPath, context: &Context) -> Result<Edited, Error> {
    let (mark, body) = without_mark(text);
    let old = whole(body, origin).map_err(untouched)?;
    once(path, &old)?;
    let keys: Vec<&str> = path.keys().iter().map(String::as_str).collect();
    let absent = || Error::not_found(format!("there is no {path} in {origin}"));
    if old.at_path(&keys).is_none() {
        return Err(absent());
    }
    let written = written(body, origin)?.ok_or_else(absent)?;
    let ways = splice::unset(body, &written, path.keys()).map_err(|closed| shut(path, closed))?;
    let new = first_good(body, &old, path, None, &ways)?;
    allowed(&old, &new, path, context)?;
    Ok(Edited::Changed(format!("{mark}{new}")))
}

fn without_mark(text: &str) -> (&str, &str) {
    text.strip_prefix('\u{feff}').map_or(("", text), |body| ("\u{feff}", body))
}

fn untouched(report: Report) -> Error {
    Error::usage(format!("{report}")).hint("the file is left as it is: mend it with hmz settings edit")
}

fn written(body: &str, origin: &str) -> Result<Option<layout::Spot>, Error> {
    layout::layout(body).map_err(|broken| untouched(crate::document::broken_report(body, origin, &broken)))
}

/// The value that was typed.
fn parsed(path: &FieldPath, value: &str) -> Result<Rc<Node>, Error> {
    let mut documents = tree::parse(value).map_err(|broken| {
        Error::usage(format!("the value of {path} is not YAML: column {}: {}", broken.at.column, broken.message))
    })?;
    match (documents.pop(), documents.pop()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Error::usage(format!("the value of {path} is nothing"))
            .hint(format!("hmz settings unset {path}"))
            .hint("a text that reads like nothing is written in quotes, such as '\"~\"'")),
        _ => Err(Error::usage(format!("the value of {path} is more than one document"))),
    }
}

/// A new key at the top that is nearly a known one is a slip of the hand; any other may be somebody else's.
fn slip(path: &FieldPath, old: &Node) -> Result<(), Error> {
    let Some(top) = path.keys().first() else { return Ok(()) };
    if TOP.contains(&top.as_str()) || old.get(top).is_some() {
        return Ok(());
    }
    match nearest(top, TOP) {
        Some(near) => Err(Error::usage(format!("unknown field '{top}', did you mean '{near}'?"))),
        None => Ok(()),
    }
}

/// No key of the path may be in its mapping twice: which one is meant?
fn once(path: &FieldPath, old: &Node) -> Result<(), Error> {
    let mut node = Some(old);
    for key in path.keys() {
        let Some(map) = node.and_then(Node::map) else { return Ok(()) };
        if let Some((_, at, first)) = map.duplicates.iter().find(|(double, ..)| double == key) {
            let message = format!("the key '{key}' of {path} is there twice, on lines {} and {}", first.line, at.line);
            return Err(Error::usage(message).hint("hmz settings edit"));
        }
        node = node.and_then(|n| n.get(key)).map(|e| &*e.value);
    }
    Ok(())
}

fn shut(path: &FieldPath, closed: splice::Closed) -> Error {
    let above = path.keys()[..closed.depth].join(".");
    let above = if above.is_empty() { "the whole file".to_owned() } else { above };
    Error::usage(format!("{path} cannot be changed here: {above} is {}", closed.what)).hint("hmz settings edit")
}

/// The first way whose outcome says the same as before but for the one field.
fn first_good(body: &str, old: &Node, path: &FieldPath, value: Option<&Node>, ways: &[splice::Splice]) -> Result<String, Error> {
    let good = |new: &String| {
        let Ok(documents) = tree::parse(new) else { return false };
        let [root] = documents.as_slice() else { return false };
        verify::is_only_change(Some(old), Some(root), path.keys(), value)
    };
    ways.iter().map(|way| splice::apply(body, way)).find(good).ok_or_else(|| {
        let deepest = (1..path.keys().len()).rev().find_map(|n| {
            let above: Vec<&str> = path.keys()[..n].iter().map(String::as_str).collect();
            old.at_path(&above).filter(|node| node.map().is_none() && !node.is_null()).map(|_| above.join("."))
        });
        match deepest {
            Some(above) => Error::usage(format!("{path} cannot be set: {above} is a value and has no fields")),
            None => Error::refused(format!("{path} cannot be changed without changing something else in the file"))
                .hint("where an anchor is shared, or the field is written in an odd way, change it by hand: hmz settings edit"),
        }
    })
}

/// Whether the new text has no fault that the old one had not. In an entry that was wrong already only the field itself is
/// held to be right, since reading stops at the first fault of some kinds.
fn allowed(old: &Node, new: &str, path: &FieldPath, context: &Context) -> Result<(), Error> {
    let root = whole(new, &path.to_string()).map_err(|report| Error::usage(format!("{path}: {}", said(&report))))?;
    let (before, after) = (judge(old, context), judge(&root, context));
    let own = places(&root, path);
    let is_old = |fault: &Fault| before.problems.iter().any(|f| f.message == fault.message);
    let mut fresh: Vec<Fault> = after.problems.into_iter().filter(|fault| !is_old(fault)).collect();
    for (runtime, entry) in after.runtimes {
        let was_wrong = before.runtimes.iter().any(|(r, entry)| *r == runtime && entry.is_err());
        let faults = entry.err().into_iter().flatten();
        fresh.extend(faults.filter(|fault| !was_wrong || fault.at.is_some_and(|at| own.contains(&at))));
    }
    let was_wrong = matches!(before.metrics, Some(Err(_)));
    let faults = after.metrics.and_then(Result::err).into_iter().flatten();
    fresh.extend(faults.filter(|fault| !was_wrong || fault.at.is_some_and(|at| own.contains(&at))));
    if fresh.is_empty() {
        return Ok(());
    }
    let texts: Vec<String> = fresh.into_iter().map(|fault| format!("{path}: {}", said(&report(new, "", fault)))).collect();
    Err(Error::usage(texts.join("\n")))
}

/// Where the field at `path` is: its key, its value and everything in that.
fn places(root: &Node, path: &FieldPath) -> Vec<At> {
    fn below(node: &Node, into: &mut Vec<At>) {
        into.push(node.at);
        match &node.value {
            Value::Scalar { .. } => {}
            Value::Seq(items) => items.iter().for_each(|item| below(item, into)),
            Value::Map(map) => map.entries.iter().for_each(|e| {
                into.push(e.key_at);
                below(&e.value, into);
            }),
        }
    }
    let mut found = Vec::new();
    let keys: Vec<&str> = path.keys().iter().map(String::as_str).collect();
    let Some((last, above)) = keys.split_last() else { return found };
    if let Some(entry) = root.at_path(above).and_then(|node| node.get(last)) {
        found.push(entry.key_at);
        below(&entry.value, &mut found);
    }
    found
}

/// What a report says without a place, which is one of a text nobody has.
fn said(report: &Report) -> String {
    match &report.suggestion {
        Some(suggestion) => format!("{}, {suggestion}", report.message),
        None => report.message.clone(),
    }
}

/// A node as JSON. A text stays the text it is; a number that JSON does not have is a text.
fn json(node: &Node) -> serde_json::Value {
    use serde_json::Value as Json;
    match &node.value {
        Value::Scalar { text, plain: false } => Json::String(text.clone()),
        Value::Scalar { text, plain: true } => match meaning(text) {
            Plain::Null => Json::Null,
            Plain::Bool(b) => Json::Bool(b),
            Plain::Unsigned(n) => n.into(),
            Plain::Signed(n) => n.into(),
            Plain::Float(n) => serde_json::Number::from_f64(n).map_or_else(|| Json::String(text.clone()), Json::Number),
            Plain::Text(text) => Json::String(text.to_owned()),
        },
        Value::Seq(items) => Json::Array(items.iter().map(|item| json(item)).collect()),
        Value::Map(map) => Json::Object(map.entries.iter().map(|e| (e.key.clone(), json(&e.value))).collect()),
    }
}
