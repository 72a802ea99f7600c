//! One runtime's settings: an entry of settings.yaml or the spec of a Runtime, which are the same text.

use crate::check;
use crate::de::{self, Fault};
use crate::place::Context;
use crate::tree::{Entry, Map, Node, Value};
use hmz_api::RuntimeRef;
use hmz_api::kinds::RuntimeSpec;

/// Settings of a docker runtime that exist and are not driven by this version.
const LATER: [&str; 12] = [
    "tls_dir",
    "container",
    "exec_user",
    "exec_env",
    "exec_wrapper",
    "runtime",
    "run_args",
    "name_prefix",
    "gpus",
    "gpu_memory",
    "fallback",
    "default_request",
];

/// Keys older files carry that say nothing about the runtime.
const NOTHING: [&str; 3] = ["made", "backend", "name"];

/// Reads one runtime's settings. A setting left blank (nothing, an empty text, list or mapping, 0) says nothing, since
/// older files are written with every setting.
pub(crate) fn runtime_spec(node: &Node, runtime: Option<&RuntimeRef>, context: &Context) -> Result<RuntimeSpec, Vec<Fault>> {
    let empty = Map::default();
    let map = match node.map() {
        Some(map) => map,
        None if node.is_null() => &empty,
        None => return Err(vec![Fault::new(node.at, "expected a mapping of settings")]),
    };
    let mut faults = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    for entry in &map.entries {
        let key = entry.key.as_str();
        if NOTHING.contains(&key) {
            continue;
        }
        if LATER.contains(&key) {
            if !is_blank(&entry.value) {
                faults.push(Fault::new(entry.key_at, format!("'{key}' is not supported yet")));
            }
            continue;
        }
        // a blank setting is left out, but an unknown one stays to be refused
        if is_unsaid(&entry.value) && KNOWN.contains(&key) {
            continue;
        }
        entries.push(entry.clone());
    }
    let kept = Node::of(node.at, Value::Map(Map { entries, duplicates: Vec::new() }));
    match de::read::<RuntimeSpec>(&kept) {
        Ok(mut spec) => {
            check::runtime(node, runtime, &mut spec, context, &mut faults);
            if faults.is_empty() {
                return Ok(spec);
            }
        }
        Err(more) => faults.extend(more),
    }
    Err(faults)
}

const KNOWN: [&str; 8] = ["endpoint", "harness", "image", "cpus", "memory", "max_containers", "workdir", "lease"];

/// Nothing or an empty text.
fn is_unsaid(node: &Node) -> bool {
    node.is_null() || node.text() == Some("")
}

fn is_blank(node: &Node) -> bool {
    match &node.value {
        Value::Scalar { text, plain } => is_unsaid(node) || (*plain && text.parse::<f64>() == Ok(0.0)),
        Value::Seq(items) => items.is_empty(),
        Value::Map(map) => map.entries.is_empty() && map.duplicates.is_empty(),
    }
}
