//! What an editor says of a text that names one of the schemas in `schemas/`.
#![allow(dead_code, reason = "each test asks some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

use jsonschema::Validator;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

static SCHEMAS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let files = std::fs::read_dir(root().join("schemas")).unwrap().map(|entry| entry.unwrap().path());
    let schema = |path: PathBuf| {
        let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, jsonschema::draft202012::new(&value).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    };
    files.map(schema).collect()
});

/// The documents of a text as an editor reads YAML, by the core schema and with the first of two keys that are the same; `None`
/// when it is none.
pub fn documents(text: &str) -> Option<Vec<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::FirstWins,
        strict_booleans: true,
        underscored_numbers_as_strings: true,
    };
    let found: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).ok()?;
    Some(found.into_iter().filter(|document| !document.is_null()).collect())
}

/// What is wrong with a value by a schema, a line for each; nothing when it is valid.
pub fn wrong(schema: &str, value: &Value) -> Vec<String> {
    let schema = SCHEMAS.get(schema).unwrap_or_else(|| panic!("there is no schemas/{schema}"));
    schema.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Whether a word is valid by a definition of a schema.
pub fn is_word_of(schema: &str, definition: &str, word: &str) -> bool {
    let whole: Value = serde_json::from_slice(&std::fs::read(root().join("schemas").join(schema)).unwrap()).unwrap();
    let one = serde_json::json!({"$ref": format!("#/$defs/{definition}"), "$defs": whole["$defs"]});
    jsonschema::draft202012::new(&one).unwrap().is_valid(&word.into())
}

/// Whether a text is valid by a schema: each document of it.
pub fn is_valid(schema: &str, text: &str) -> bool {
    documents(text).is_some_and(|all| all.iter().all(|document| wrong(schema, document).is_empty()))
}

/// Holds a text to a schema.
#[track_caller]
pub fn assert_valid(schema: &str, text: &str) {
    let documents = documents(text).unwrap_or_else(|| panic!("this is not YAML:\n{text}"));
    for document in documents {
        assert_eq!(wrong(schema, &document), Vec::<String>::new(), "by schemas/{schema}, of\n{text}");
    }
}

/// Holds a manifest that was read to the schema of any kind, and each resource to that of its own.
#[track_caller]
pub fn assert_manifest(text: &str) {
    assert_valid("manifest.json", text);
    for document in documents(text).unwrap_or_default() {
        let members = document["items"].as_array().cloned().unwrap_or_else(|| vec![document.clone()]);
        for member in members {
            let kind = member["kind"].as_str().unwrap_or_default().to_lowercase();
            assert_eq!(wrong(&format!("{kind}.json"), &member), Vec::<String>::new(), "{member}");
        }
    }
}
