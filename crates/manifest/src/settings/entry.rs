//! One runtime's settings: an entry of settings.yaml or the spec of a Runtime, which are the same text.

use super::fields;
use crate::de::{self, Fault};
use crate::place::Context;
use crate::report::At;
use crate::suggest::suggestion;
use crate::tree::{Entry, Map, Node, Value};
use hmz_api::kinds::RuntimeSpec;
use hmz_api::{Backend, RuntimeRef};

/// Keys older files carry that say nothing about the runtime.
pub(crate) const NOTHING: [&str; 3] = ["made", "backend", "name"];

/// Fields in which a secret may be: of what is wrong with them, what somebody wrote there is not told.
const PRIVATE: [&str; 4] = ["exec_env", "exec_wrapper", "run_args", "options"];

/// What a field is made of, as far as leaving it blank goes.
enum Shape {
    Text,
    Number,
    List,
    Map,
}

fn shape(field: &str) -> Shape {
    match field {
        "cpus" | "memory" | "gpu_memory" | "max_containers" | "max_tasks" | "port" => Shape::Number,
        "exec_env" | "exec_wrapper" | "run_args" | "gpus" | "fallback" | "constraints" => Shape::List,
        "default_request" | "nodes" | "options" => Shape::Map,
        _ => Shape::Text,
    }
}

/// Reads one runtime's settings. A setting left blank (nothing, an empty text, list or mapping, 0) says nothing, since
/// older files are written with every setting.
pub(crate) fn runtime_spec(node: &Node, runtime: Option<&RuntimeRef>, context: &Context) -> Result<RuntimeSpec, Vec<Fault>> {
    let empty = Map::default();
    let map = match node.map() {
        Some(map) => map,
        None if node.is_null() => &empty,
        None => return Err(vec![Fault::new(node.at, "expected a mapping of settings")]),
    };
    let backend = runtime.map_or(Backend::Docker, |r| r.backend);
    let known = RuntimeSpec::fields(backend);
    let mut faults = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    for entry in &map.entries {
        let key = entry.key.as_str();
        if NOTHING.contains(&key) {
            continue;
        }
        if !known.contains(&key) {
            let message = match known {
                [] => format!("'{key}' is no setting: {backend} has none"),
                _ => format!("unknown field '{key}'"),
            };
            faults.push(Fault::new(entry.key_at, message).suggest(suggestion(key, known)));
            continue;
        }
        if is_blank(key, &entry.value) || !fields::readable(runtime, key, &entry.value, &mut faults) {
            continue;
        }
        entries.push(entry.clone());
    }
    let kept = Node::of(node.at, Value::Map(Map { entries, duplicates: Vec::new() }));
    match de::read::<RuntimeSpec>(&kept) {
        Ok(mut spec) => {
            fields::check(node, runtime, &mut spec, context, &mut faults);
            if faults.is_empty() {
                return Ok(spec);
            }
        }
        Err(more) => faults.extend(more.into_iter().map(|fault| without_value(fault, &kept))),
    }
    Err(faults)
}

/// A fault of what a field is made of, which names what was found there, without it where that may be a secret.
fn without_value(mut fault: Fault, node: &Node) -> Fault {
    let place = fault.at;
    let private = |entry: &Entry| PRIVATE.contains(&entry.key.as_str()) && is_in(&entry.value, place);
    let is_private = node.map().is_some_and(|map| map.entries.iter().any(private));
    if let Some(at) = fault.message.find(", found ").filter(|_| is_private) {
        fault.message.truncate(at);
    }
    fault
}

/// Whether that is the place of something in a value.
fn is_in(node: &Node, place: Option<At>) -> bool {
    Some(node.at) == place
        || match &node.value {
            Value::Seq(items) => items.iter().any(|item| is_in(item, place)),
            Value::Map(map) => map.entries.iter().any(|entry| is_in(&entry.value, place)),
            _ => false,
        }
}

fn is_blank(field: &str, node: &Node) -> bool {
    if node.is_null() || node.text() == Some("") {
        return true;
    }
    match (&node.value, shape(field)) {
        (Value::Scalar { text, plain: true }, Shape::Number) => text.parse::<f64>() == Ok(0.0),
        (Value::Seq(items), Shape::List) => items.is_empty(),
        (Value::Map(map), Shape::Map) => map.entries.is_empty() && map.duplicates.is_empty(),
        _ => false,
    }
}
