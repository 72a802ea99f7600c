//! The JSON Schemas in `schemas/`, generated from the types and from what the reader asks of them besides.
//!
//! [`all`] is what each field is meant to be, for whoever explains it. [`files`] is the same with every spelling the reader takes,
//! for an editor that holds a file to it: what the reader takes is valid by them, and what is not valid by them the reader refuses.

mod backends;
mod spellings;
mod texts;

use crate::settings::metrics::MetricsFields;
use hmz_api::kinds::{EnvironmentSpec, EnvironmentStatus, FlowSpec, FlowStatus, RunSpec, RunStatus, RuntimeSpec, RuntimeStatus};
use hmz_api::resource::API_VERSION;
use hmz_api::{Backend, Metadata};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const KINDS: [&str; 4] = ["Environment", "Flow", "Run", "Runtime"];

/// Every schema as file name and text with a last newline: one a kind, `manifest.json` for any of them, and
/// `settings.json` for settings.yaml. Each field is as it is meant to be written.
pub fn all() -> Vec<(String, String)> {
    made().into_iter().map(|(name, schema)| (name, text(&schema))).collect()
}

/// The same as the files in `schemas/` have them, with every spelling that the reader takes.
pub fn files() -> Vec<(String, String)> {
    let with_spellings = |(name, mut schema): (String, Value)| {
        spellings::add(&mut schema);
        (name, text(&schema))
    };
    made().into_iter().map(with_spellings).collect()
}

fn made() -> Vec<(String, Value)> {
    let one = |kind: &&str| {
        let mut generator = generator();
        let body = envelope(kind, &mut generator);
        (format!("{}.json", kind.to_lowercase()), finish(&format!("hmz {kind}"), body, generator, Map::new()))
    };
    let mut files: Vec<(String, Value)> = KINDS.iter().map(one).collect();
    files.push(("manifest.json".into(), manifest()));
    let mut generator = generator();
    let body = settings(&mut generator);
    files.push(("settings.json".into(), finish("hmz settings.yaml", body, generator, Map::new())));
    files
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

/// The metadata of a runtime, whose name is another one.
const RUNTIME_METADATA: &str = "RuntimeMetadata";

fn named(definition: &str) -> Value {
    json!({"$ref": format!("#/$defs/{definition}")})
}

fn envelope(kind: &str, generator: &mut SchemaGenerator) -> Value {
    let (spec, status) = match kind {
        "Run" => (of::<RunSpec>(generator), of::<RunStatus>(generator)),
        "Environment" => (of::<EnvironmentSpec>(generator), of::<EnvironmentStatus>(generator)),
        "Runtime" => (of::<RuntimeSpec>(generator), of::<RuntimeStatus>(generator)),
        _ => (of::<FlowSpec>(generator), of::<FlowStatus>(generator)),
    };
    let metadata = of::<Metadata>(generator);
    let is_runtime = kind == "Runtime";
    let mut body = json!({
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": false,
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": if is_runtime { named(RUNTIME_METADATA) } else { metadata },
            "spec": spec,
            "status": {"anyOf": [status, {"type": "null"}]},
        },
    });
    if is_runtime {
        // one that says nothing has every default
        body["required"] = json!(["apiVersion", "kind", "metadata"]);
        body["allOf"] = backends::by_name().into();
    }
    body
}

/// Any kind, or a list of them.
fn manifest() -> Value {
    let mut generator = generator();
    let mut kinds: Map<String, Value> = KINDS.iter().map(|kind| ((*kind).to_owned(), envelope(kind, &mut generator))).collect();
    let each: Vec<Value> = KINDS.iter().map(|kind| named(kind)).collect();
    let list = json!({
        "type": "object",
        "description": "Several resources.",
        "required": ["kind", "items"],
        "additionalProperties": false,
        "properties": {
            "apiVersion": {"description": "The same as of what is in it.", "default": API_VERSION},
            "kind": {"const": "List"},
            "metadata": {"description": "Means nothing."},
            "items": {"type": "array", "minItems": 0, "items": {"oneOf": each}},
        },
    });
    kinds.insert("List".into(), list);
    let any: Vec<Value> = KINDS.iter().copied().chain(["List"]).map(named).collect();
    finish("hmz manifest", json!({"oneOf": any}), generator, kinds)
}

fn settings(generator: &mut SchemaGenerator) -> Value {
    // it brings the definitions of its fields
    let _ = of::<RuntimeSpec>(generator);
    let metrics = json!({"anyOf": [of::<MetricsFields>(generator), {"type": "null"}]});
    let saved = Backend::ALL.into_iter().filter(|backend| *backend != Backend::Local);
    let runtimes: Map<String, Value> = saved.map(|backend| (backend.word().to_owned(), backends::entries(backend))).collect();
    json!({
        "type": "object",
        "propertyNames": texts::seen(),
        // other keys are other programs', but for a slip in ours
        "if": {"required": ["runtimes"]},
        "else": {"properties": {"runtime": false}},
        "properties": {
            "metrics": metrics,
            "runtimes": {
                "type": ["object", "null"],
                "additionalProperties": false,
                "properties": runtimes,
            },
        },
    })
}

/// Two kinds of metadata: a resource has a name or what one is made from, a runtime has the name of a runtime.
fn metadata(definitions: &mut Map<String, Value>) {
    let Some(metadata) = definitions.get_mut("Metadata") else { return };
    let mut of_runtime = metadata.clone();
    of_runtime["required"] = json!(["name"]);
    // nothing at all has no name
    metadata["minProperties"] = 1.into();
    metadata["if"] = json!({"required": ["generateName"], "properties": {"generateName": {"not": {"const": null}}}});
    metadata["else"] = json!({"required": ["name"], "properties": {"name": {"minLength": 1}}});
    definitions.insert(RUNTIME_METADATA.into(), of_runtime);
}

/// A whole schema, with the definitions that it needs.
fn finish(title: &str, body: Value, mut generator: SchemaGenerator, more: Map<String, Value>) -> Value {
    let mut definitions: Map<String, Value> = generator.take_definitions(true).into_iter().chain(more).collect();
    metadata(&mut definitions);
    texts::add(&mut definitions);
    backends::add(&mut definitions);
    let needed = needed(&body, &definitions);
    definitions.retain(|name, _| needed.contains(name));
    definitions.sort_keys();
    let mut schema = Map::new();
    schema.insert("$schema".into(), DIALECT.into());
    schema.insert("title".into(), title.into());
    if let Value::Object(body) = body {
        schema.extend(body);
    }
    schema.insert("$defs".into(), Value::Object(definitions));
    Value::Object(schema)
}

/// The definitions a schema names, and those that these name.
fn needed(body: &Value, definitions: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![body];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => open.extend(map.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
        let name = value.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"));
        if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
            open.extend(definitions.get(name));
        }
    }
    found
}

fn text(schema: &Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
    text.push('\n');
    text
}
