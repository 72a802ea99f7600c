//! What the runtimes of each backend have: of the fields that there are, those its entries are read with.

use super::texts::{SAVED, whole};
use crate::settings::NOTHING;
use hmz_api::Backend;
use hmz_api::kinds::RuntimeSpec;
use serde_json::{Map, Value, json};

/// Every field of any backend.
pub(super) const ANY: &str = "RuntimeSpec";

/// The name of the definition of a backend's runtimes.
pub(super) fn definition(backend: Backend) -> Option<&'static str> {
    match backend {
        Backend::Docker => Some("DockerRuntime"),
        Backend::Swarm => Some("SwarmRuntime"),
        Backend::Ssh => Some("SshRuntime"),
        Backend::Local | Backend::AppleContainer | Backend::Slurm => None,
    }
}

/// Adds a definition for each backend that is saved, made of the fields of all.
pub(super) fn add(definitions: &mut Map<String, Value>) {
    let Some(all) = definitions.get(ANY).and_then(|any| any.get("properties")).cloned() else { return };
    for backend in Backend::ALL {
        let Some(name) = definition(backend) else { continue };
        let fields: Map<String, Value> = RuntimeSpec::fields(backend)
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), all.get(*field)?.clone())))
            .collect();
        let mut made = json!({
            "type": "object",
            "description": format!("A {} that is saved.", backend.noun()),
            "additionalProperties": false,
            "properties": fields,
        });
        together(backend, &mut made);
        definitions.insert(name.into(), made);
    }
}

/// The entries of a backend in settings.yaml, by name.
pub(super) fn entries(backend: Backend) -> Value {
    match definition(backend) {
        // an entry that says nothing is a slip
        Some(name) => json!({
            "type": ["object", "null"],
            "description": format!("Each {} by its name.", backend.noun()),
            "propertyNames": {"pattern": whole(SAVED)},
            "additionalProperties": {"$ref": format!("#/$defs/{name}"), "type": "object"},
        }),
        None => json!({
            "type": ["object", "null"],
            "description": "Not supported yet.",
            "maxProperties": 0,
        }),
    }
}

/// What the name of a Runtime says of its spec: the fields are those of its backend.
pub(super) fn by_name() -> Vec<Value> {
    let one = |backend: Backend| {
        let fields: Vec<&str> = RuntimeSpec::fields(backend).iter().copied().chain(NOTHING).collect();
        let mut spec = json!({"propertyNames": {"enum": fields}});
        together(backend, &mut spec);
        let mut then = json!({});
        if backend == Backend::Ssh {
            // one that says nothing goes nowhere
            spec["type"] = "object".into();
            then["required"] = json!(["spec"]);
        }
        then["properties"] = json!({"spec": spec});
        let name = json!({"pattern": format!("^{backend}(?:[:@/]|$)")});
        let metadata = json!({"required": ["name"], "properties": {"name": name}});
        json!({"if": {"required": ["metadata"], "properties": {"metadata": metadata}}, "then": then})
    };
    Backend::ALL.into_iter().map(one).collect()
}

/// What a runtime that works in a container of somebody else's has nothing to say of.
const OF_ITS_OWN_BOXES: [&str; 11] = [
    "image",
    "runtime",
    "run_args",
    "name_prefix",
    "cpus",
    "memory",
    "gpus",
    "gpu_memory",
    "max_containers",
    "default_request",
    "lease",
];

/// Adds what fields of a backend's runtimes ask of each other.
fn together(backend: Backend, runtime: &mut Value) {
    let says = |field: &str| json!({"required": [field], "properties": {field: {"not": {"enum": ["", null]}}}});
    let with_tls = || {
        let endpoint = json!({"type": "string", "pattern": "^tcp://"});
        json!({"if": says("tls_dir"), "then": {"required": ["endpoint"], "properties": {"endpoint": endpoint}}})
    };
    let in_container = || {
        let blank = json!({"enum": ["", null, 0, [], {}]});
        let fields: Map<String, Value> = OF_ITS_OWN_BOXES.iter().map(|field| ((*field).to_owned(), blank.clone())).collect();
        json!({"if": says("container"), "then": {"properties": fields}})
    };
    let all = match backend {
        Backend::Docker => vec![with_tls(), in_container()],
        Backend::Swarm => vec![with_tls()],
        // a hostname or an alias
        Backend::Ssh => vec![json!({"if": says("alias"), "else": says("host")})],
        Backend::Local | Backend::AppleContainer | Backend::Slurm => return,
    };
    runtime["allOf"] = all.into();
}
