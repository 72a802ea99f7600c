//! A manifest's text as resources.

use crate::broken;
use crate::check;
use crate::de::{self, Fault, Inside};
use crate::odd;
use crate::place::Context;
use crate::report::{At, Report, lines, snippet};
use crate::settings;
use crate::suggest::suggestion;
use crate::tree::{self, Broken, Node, Value};
use crate::written;
use hmz_api::kinds::{Budget, EnvironmentSpec, FlowSpec, RunSpec};
use hmz_api::resource::{API_VERSION, Resource};
use hmz_api::{AnyResource, Metadata};
use serde::de::DeserializeOwned;
use std::rc::Rc;

const KINDS: [&str; 4] = ["Run", "Environment", "Runtime", "Flow"];
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// A resource as a manifest declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The resource.
    pub resource: AnyResource,
    /// Its spec as it is written: which fields there are, and what a plain scalar means by itself.
    pub written: serde_json::Value,
    /// Where its name is.
    pub(crate) at: At,
}

/// Reads a manifest: any number of documents, each one resource or a `List` of them. Empty documents are left out. What
/// it returns holds absolute paths only, and a runtime's name as `backend:name`.
///
/// # Errors
/// Every fault found, in the order of the text: all unknown fields and failed checks, and the first fault of any
/// other kind in each document; only one when the text is not YAML.
pub fn read(text: &str, origin: &str, context: &Context) -> Result<Vec<AnyResource>, Vec<Report>> {
    Ok(read_declared(text, origin, context)?.into_iter().map(|declared| declared.resource).collect())
}

/// As [`read`], with what is written.
///
/// # Errors
/// As there.
pub fn read_declared(text: &str, origin: &str, context: &Context) -> Result<Vec<Declared>, Vec<Report>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = tree::parse(text).map_err(|broken| vec![broken_report(text, origin, &broken)])?;
    let mut resources = Vec::new();
    let mut faults = Vec::new();
    let mut nodes = Vec::new();
    let members: Vec<Rc<Node>> = documents.iter().flat_map(|d| members(d, &mut faults)).collect();
    for document in members {
        duplicates(&document, &mut faults);
        let before = faults.len();
        if let Some(resource) = resource(&document, context, &mut faults)
            && faults.len() == before
        {
            nodes.push(document);
            resources.push(resource);
        }
    }
    for (resource, node) in resources.iter().zip(&nodes) {
        let AnyResource::Run(run) = resource else { continue };
        let flow = resources.iter().find_map(|r| match r {
            AnyResource::Flow(flow) if flow.metadata.name == run.spec.flow => Some(flow),
            _ => None,
        });
        if let Some(flow) = flow {
            check::run_against_flow(node, &run.spec, &flow.spec, &mut faults);
        }
    }
    twice(&resources, &nodes, &mut faults);
    if faults.is_empty() {
        let declared = resources.into_iter().zip(&nodes).map(|(resource, node)| {
            let written = node.get("spec").map_or(serde_json::Value::Null, |e| written::to_json(&e.value));
            Declared { resource, written, at: name_at(node) }
        });
        return Ok(declared.collect());
    }
    faults.sort_by_key(|f| f.at);
    faults.dedup();
    let whose = |fault: &Fault| (documents.len() > 1).then(|| named(&documents, fault.at?)).flatten();
    let told = faults.into_iter().map(|mut fault| {
        if let Some(whose) = whose(&fault) {
            fault.message = format!("{} (in {whose})", fault.message);
        }
        report(text, origin, fault)
    });
    Err(told.collect())
}

/// The document of several that a place is in, by what it declares.
fn named(documents: &[Rc<Node>], at: At) -> Option<String> {
    let (index, document) = documents.iter().enumerate().take_while(|(_, document)| document.at <= at).last()?;
    let text = |path: &[&str]| document.at_path(path).and_then(Node::text);
    let declared = match (text(&["kind"]), text(&["metadata", "name"]).or_else(|| text(&["metadata", "generateName"]))) {
        (Some(kind), Some(name)) => format!(", {kind} '{name}'"),
        (Some(kind), None) => format!(", a {kind}"),
        _ => String::new(),
    };
    Some(format!("document {}{declared}", index + 1))
}

/// The resources of a document: itself, or the items of a `List`.
fn members(document: &Rc<Node>, faults: &mut Vec<Fault>) -> Vec<Rc<Node>> {
    if document.get("kind").and_then(|e| e.value.text()) != Some("List") {
        return vec![document.clone()];
    }
    for entry in document.map().into_iter().flat_map(|m| &m.entries) {
        if !["apiVersion", "kind", "metadata", "items"].contains(&entry.key.as_str()) {
            faults.push(
                Fault::new(entry.key_at, format!("unknown field '{}'", entry.key)).suggest(suggestion(&entry.key, &["items"])),
            );
        }
    }
    match document.get("items").map(|e| &e.value.value) {
        Some(Value::Seq(items)) => items.clone(),
        _ => {
            faults.push(Fault::new(document.at, "a List needs a list of items"));
            Vec::new()
        }
    }
}

/// Every key that is in its mapping twice.
pub(crate) fn duplicates(node: &Node, faults: &mut Vec<Fault>) {
    match &node.value {
        Value::Scalar { .. } => {}
        Value::Seq(items) => items.iter().for_each(|n| duplicates(n, faults)),
        Value::Map(map) => {
            for (key, at, first) in &map.duplicates {
                faults.push(Fault::new(*at, format!("the key '{key}' is there twice, first on line {}", first.line)));
            }
            map.entries.iter().for_each(|e| duplicates(&e.value, faults));
        }
    }
}

fn resource(root: &Node, context: &Context, faults: &mut Vec<Fault>) -> Option<AnyResource> {
    let Some(map) = root.map() else {
        faults.push(Fault::new(root.at, "a resource is a mapping with apiVersion, kind, metadata and spec"));
        return None;
    };
    for entry in map.entries.iter().filter(|e| !FIELDS.contains(&e.key.as_str())) {
        faults.push(Fault::new(entry.key_at, format!("unknown field '{}'", entry.key)).suggest(suggestion(&entry.key, &FIELDS)));
    }
    match root.get("apiVersion").map(|e| (&e.value, e.value.text())) {
        Some((_, Some(API_VERSION))) => {}
        Some((node, text)) => {
            let message = format!("apiVersion '{}' is not known", text.unwrap_or_default());
            faults.push(Fault::new(node.at, message).suggest(Some(format!("expected '{API_VERSION}'"))));
        }
        None => faults.push(Fault::new(root.at, format!("the field 'apiVersion' is missing; it is {API_VERSION}"))),
    }
    let Some(kind) = root.get("kind") else {
        faults.push(Fault::new(root.at, format!("the field 'kind' is missing; one of {}", KINDS.join(", "))));
        return None;
    };
    match kind.value.text().unwrap_or_default() {
        "Run" => run(root, context, faults),
        "Environment" => {
            let (metadata, mut spec) = parts::<EnvironmentSpec>(root, faults)?;
            check::metadata(root, &metadata, faults);
            check::environment(root, &mut spec, context, faults);
            let status = status(root, faults)?;
            Some(AnyResource::Environment(Box::new(Resource { metadata, spec, status })))
        }
        "Runtime" => {
            let metadata = metadata(root, faults);
            let mut metadata = metadata?;
            let name = check::runtime_metadata(root, &mut metadata, faults);
            let empty = Node::empty(root.at);
            let node = root.get("spec").map_or(&empty, |e| &*e.value);
            let spec = settings::runtime_spec(node, name.as_ref(), context).map_err(|f| faults.extend(f)).ok()?;
            let status = status(root, faults)?;
            Some(AnyResource::Runtime(Box::new(Resource { metadata, spec, status })))
        }
        "Flow" => {
            let (metadata, spec) = parts::<FlowSpec>(root, faults)?;
            check::metadata(root, &metadata, faults);
            check::flow(root, &spec, faults);
            let status = status(root, faults)?;
            Some(AnyResource::Flow(Box::new(Resource { metadata, spec, status })))
        }
        other => {
            let fault = Fault::new(kind.value.at, format!("'{other}' is not a kind"));
            faults.push(fault.suggest(suggestion(other, &KINDS)));
            None
        }
    }
}

fn run(root: &Node, context: &Context, faults: &mut Vec<Fault>) -> Option<AnyResource> {
    // serde reads the budget out of a buffer that has no places, so it is read by itself first
    if let Some(budget) = root.at_path(&["spec", "params", "budget"])
        && let Err(found) = de::read::<Budget>(budget)
    {
        faults.extend(found);
        return None;
    }
    let (metadata, mut spec) = parts::<RunSpec>(root, faults)?;
    check::metadata(root, &metadata, faults);
    check::run(root, &mut spec, context, faults);
    let status = status(root, faults)?;
    Some(AnyResource::Run(Box::new(Resource { metadata, spec, status })))
}

fn metadata(root: &Node, faults: &mut Vec<Fault>) -> Option<Metadata> {
    match root.get("metadata") {
        Some(entry) => de::read(&entry.value).map_err(|f| faults.extend(f)).ok(),
        None => {
            faults.push(Fault::new(root.at, "the field 'metadata' is missing"));
            None
        }
    }
}

fn parts<S: DeserializeOwned>(root: &Node, faults: &mut Vec<Fault>) -> Option<(Metadata, S)> {
    let metadata = metadata(root, faults);
    let spec = match root.get("spec") {
        Some(entry) => de::read(&entry.value).map_err(|f| faults.extend(f)).ok(),
        None => {
            faults.push(Fault::new(root.at, "the field 'spec' is missing"));
            None
        }
    };
    Some((metadata?, spec?))
}

fn status<T: DeserializeOwned + Default>(root: &Node, faults: &mut Vec<Fault>) -> Option<T> {
    match root.get("status") {
        Some(entry) if !entry.value.is_null() => de::read(&entry.value).map_err(|f| faults.extend(f)).ok(),
        _ => Some(T::default()),
    }
}

/// Where a resource's name is.
fn name_at(root: &Node) -> At {
    root.at_path(&["metadata", "name"]).map_or(root.at, |name| name.at)
}

/// One text declares a resource once.
fn twice(resources: &[AnyResource], nodes: &[Rc<Node>], faults: &mut Vec<Fault>) {
    let mut seen = std::collections::BTreeMap::new();
    for (resource, node) in resources.iter().zip(nodes) {
        let name = &resource.metadata().name;
        if name.is_empty() {
            continue;
        }
        if let Some(first) = seen.insert((resource.kind(), name.clone()), name_at(node)) {
            let message = format!("{} '{name}' is declared twice, first on line {}", resource.kind(), first.line);
            faults.push(Fault::new(name_at(node), message));
        }
    }
}

/// A fault as a report. A character nobody can see is named when it is on the line.
pub(crate) fn report(text: &str, origin: &str, fault: Fault) -> Report {
    let at = on_a_line(text, fault.at.unwrap_or(At { line: 1, column: 1 }));
    let at = fault.inside.as_ref().map_or(at, |inside| within(text, at, inside));
    let mut message = fault.message;
    // what names it already says enough
    if let Some(found) = odd::beside(text, at).filter(|_| !message.contains("tab cannot indent") && !message.contains("U+")) {
        message = format!("{message} ({found})");
    }
    Report {
        origin: origin.to_owned(),
        line: at.line,
        column: at.column,
        message,
        snippet: snippet(text, at),
        suggestion: fault.suggestion,
    }
}

/// Where a place inside a scalar's text is, when the scalar is written as it reads; else where the scalar begins.
fn within(text: &str, at: At, inside: &Inside) -> At {
    let Some(line) = inside.text.split('\n').nth(inside.line - 1) else { return at };
    let wanted = line.trim();
    let indent = line.chars().count() - line.trim_start().chars().count();
    let Some(offset) = (inside.column - 1).checked_sub(indent).filter(|_| !wanted.is_empty()) else { return at };
    // the line of a block begins below the place of the scalar; no line of it is further down than the text is long
    let rows = inside.text.split('\n').count() + BLOCK_HEADER;
    lines(text)
        .enumerate()
        .skip(at.line - 1)
        .take(rows)
        .find_map(|(index, row)| {
            let from = if index + 1 == at.line { at.column - 1 } else { 0 };
            let byte = row.char_indices().nth(from).map_or(row.len(), |(byte, _)| byte);
            let found = byte + row[byte..].find(wanted)?;
            Some(At { line: index + 1, column: row[..found].chars().count() + offset + 1 })
        })
        .unwrap_or(at)
}

/// Lines there may be between the place of a scalar and its first line: its `|`, and an empty one.
const BLOCK_HEADER: usize = 2;

/// A place on a line there is: the parser takes what follows the last line's end for a line, and an empty key or value is
/// there.
fn on_a_line(text: &str, at: At) -> At {
    At { line: at.line.clamp(1, lines(text).count().max(1)), column: at.column }
}

pub(crate) fn broken_report(text: &str, origin: &str, broken: &Broken) -> Report {
    report(text, origin, broken::explained(text, broken))
}
