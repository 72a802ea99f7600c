//! All that the reader takes for a field beside what it is meant to be: a plain number for a text, nothing for a mapping or a list
//! that is empty, and in the entry of a runtime a setting that is left blank.

use super::backends;
use super::texts::besides;
use crate::settings::NOTHING;
use hmz_api::Backend;
use serde_json::{Map, Value, json};

const BLANK: &str = "Blank";

/// Adds every spelling to a schema with its definitions.
pub(super) fn add(schema: &mut Value) {
    every(schema);
    let saved = Backend::ALL.into_iter().filter_map(backends::definition);
    let mut has_blank = false;
    for name in std::iter::once(backends::ANY).chain(saved) {
        let Some(runtime) = schema.pointer_mut(&format!("/$defs/{name}")).and_then(Value::as_object_mut) else { continue };
        blanks(runtime);
        has_blank = true;
    }
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut).filter(|_| has_blank) {
        let blank = json!({"type": ["string", "null"], "maxLength": 0, "description": "Nothing is said."});
        definitions.insert(BLANK.into(), blank);
        definitions.sort_keys();
    }
}

/// A setting that is left blank says nothing, and so do the keys that only older files have.
fn blanks(runtime: &mut Map<String, Value>) {
    for (_, field) in runtime.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        let mut meant = field.take();
        let description = meant.as_object_mut().and_then(|meant| meant.remove("description"));
        *field = json!({"anyOf": [meant, {"$ref": format!("#/$defs/{BLANK}")}]});
        if let Some(description) = description {
            field["description"] = description;
        }
    }
    runtime.insert("patternProperties".into(), json!({format!("^(?:{})$", NOTHING.join("|")): {}}));
}

/// Goes through a schema and all below it.
fn every(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    scalar(map);
    nothing(map);
    for (keyword, below) in map.iter_mut() {
        match keyword.as_str() {
            "properties" | "$defs" => {
                below.as_object_mut().into_iter().flatten().for_each(|(_, schema)| every(schema));
            }
            "anyOf" | "oneOf" | "allOf" => below.as_array_mut().into_iter().flatten().for_each(every),
            "items" | "additionalProperties" => every(below),
            _ => {}
        }
    }
}

/// A text takes a plain scalar as it is written.
fn scalar(map: &mut Map<String, Value>) {
    if map.contains_key("const") || map.contains_key("enum") || !has_type(map, "string") {
        return;
    }
    add_types(map, besides(map));
}

/// A mapping and a list may be left empty, unless something has to be in them.
fn nothing(map: &mut Map<String, Value>) {
    let needs = |keyword: &str| map.contains_key(keyword);
    let is_free = match () {
        () if needs("$ref") || needs("minItems") || needs("minProperties") || needs("required") => false,
        () => has_type(map, "object") || has_type(map, "array"),
    };
    if is_free {
        add_types(map, &["null"]);
    }
}

fn has_type(map: &Map<String, Value>, name: &str) -> bool {
    match map.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    }
}

fn add_types(map: &mut Map<String, Value>, more: &[&str]) {
    let mut types = match map.get("type") {
        Some(Value::Array(several)) => several.clone(),
        Some(one) => vec![one.clone()],
        None => return,
    };
    for name in more {
        // a number is one that is whole too
        let is_there = types.iter().any(|there| there == name || (*name == "integer" && there == "number"));
        if !is_there {
            types.push((*name).into());
        }
    }
    if types.len() > 1 {
        map.insert("type".into(), types.into());
    }
}
