//! The schemas in the repository are those of the types.
#![cfg(test)]

use std::path::Path;

#[test]
fn the_schemas_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let expected = hmz_manifest::schema::all();
    for (name, text) in &expected {
        let written = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(&written == text, "schemas/{name} is not what the types say; run: cargo run -p hmz-manifest --example schemas");
    }
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut known: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    known.sort_unstable();
    assert_eq!(names, known, "a schema nobody generates");
}
