//! The JSON Schemas in `schemas/`, generated from the types.

use crate::settings::metrics::MetricsFields;
use hmz_api::Metadata;
use hmz_api::kinds::{EnvironmentSpec, EnvironmentStatus, FlowSpec, FlowStatus, RunSpec, RunStatus, RuntimeSpec, RuntimeStatus};
use hmz_api::resource::API_VERSION;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Every schema as file name and text with a last newline: one a kind, `manifest.json` for any of them, and
/// `settings.json` for settings.yaml.
pub fn all() -> Vec<(String, String)> {
    let kinds = ["Environment", "Flow", "Run", "Runtime"];
    let mut files: Vec<(String, String)> = kinds
        .iter()
        .map(|kind| {
            let mut generator = generator();
            let body = envelope(kind, &mut generator);
            (format!("{}.json", kind.to_lowercase()), finish(&format!("hmz {kind}"), body, generator))
        })
        .collect();
    let mut generator_ = generator();
    let any: Vec<Value> = kinds.iter().map(|kind| envelope(kind, &mut generator_)).collect();
    files.push(("manifest.json".into(), finish("hmz manifest", json!({"oneOf": any}), generator_)));
    let mut generator_ = generator();
    let body = settings(&mut generator_);
    files.push(("settings.json".into(), finish("hmz settings.yaml", body, generator_)));
    files
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn envelope(kind: &str, generator: &mut SchemaGenerator) -> Value {
    let (spec, status) = match kind {
        "Run" => (of::<RunSpec>(generator), of::<RunStatus>(generator)),
        "Environment" => (of::<EnvironmentSpec>(generator), of::<EnvironmentStatus>(generator)),
        "Runtime" => (of::<RuntimeSpec>(generator), of::<RuntimeStatus>(generator)),
        _ => (of::<FlowSpec>(generator), of::<FlowStatus>(generator)),
    };
    json!({
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": false,
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": of::<Metadata>(generator),
            "spec": spec,
            "status": status,
        },
    })
}

fn settings(generator: &mut SchemaGenerator) -> Value {
    let runtime = of::<RuntimeSpec>(generator);
    let metrics = json!({"anyOf": [of::<MetricsFields>(generator), {"type": "null"}]});
    let docker = json!({
        "type": ["object", "null"],
        "description": "docker daemons by name",
        "additionalProperties": runtime,
    });
    let later = json!({"type": ["object", "null"], "additionalProperties": {"type": "object"}});
    json!({
        "type": "object",
        "properties": {
            "metrics": metrics,
            "runtimes": {
                "type": ["object", "null"],
                "additionalProperties": false,
                "properties": {"docker": docker, "ssh": later, "swarm": later, "apple-container": later, "slurm": later},
            },
        },
    })
}

fn finish(title: &str, body: Value, mut generator: SchemaGenerator) -> String {
    let mut schema = serde_json::Map::new();
    schema.insert("$schema".into(), DIALECT.into());
    schema.insert("title".into(), title.into());
    if let Value::Object(body) = body {
        schema.extend(body);
    }
    let mut definitions: Vec<(String, Value)> = generator.take_definitions(true).into_iter().collect();
    definitions.sort_by(|a, b| a.0.cmp(&b.0));
    schema.insert("$defs".into(), Value::Object(definitions.into_iter().collect()));
    let mut text = serde_json::to_string_pretty(&Value::Object(schema)).unwrap_or_default();
    text.push('\n');
    text
}
