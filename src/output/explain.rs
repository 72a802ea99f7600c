//! A field of a kind, in words, from its JSON Schema.

use hmz_api::{Error, ErrorKind};
use hmz_manifest::nearest;
use serde_json::Value;

/// How deep fields are listed: a schema may name itself.
const DEEPEST: usize = 12;

/// The schema in a file of that name, such as `run.json`.
///
/// # Errors
/// It is none.
pub fn schema(file: &str) -> Result<Value, Error> {
    let found = hmz_manifest::schema::all().into_iter().find(|(name, _)| name == file);
    let text = found.map(|(_, text)| text).unwrap_or_default();
    serde_json::from_str(&text).map_err(|e| Error::new(ErrorKind::Internal, format!("{file}: {e}")))
}

/// The schema of a kind.
///
/// # Errors
/// As [`schema`].
pub fn schema_of(kind: &str) -> Result<Value, Error> {
    schema(&format!("{}.json", kind.to_ascii_lowercase()))
}

/// Whether there is such a field in a kind, or can be.
///
/// # Errors
/// A usage error that names the field that is not there.
pub fn check(kind: &str, schema: &Value, path: &[&str]) -> Result<(), Error> {
    walk(kind, schema, path).map(|_| ())
}

/// Where a path leads, and the words of its last field.
fn walk<'a>(kind: &str, schema: &'a Value, path: &[&str]) -> Result<(&'a Value, String), Error> {
    let (mut here, mut words) = (schema, String::new());
    for (nth, name) in path.iter().enumerate() {
        if is_anything(here) {
            break;
        }
        here = match further(schema, here, name) {
            Some((field, is_named)) => {
                if is_named {
                    words = description(schema, field);
                }
                field
            }
            None => {
                let of = [&[kind][..], &path[..nth]].concat().join(".");
                let (known, _) = fields(schema, here);
                let near = nearest(name, known.iter().map(|(field, _)| field.as_str()));
                let near_words = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
                let error = Error::usage(format!("{of} has no field '{name}'{near_words}"));
                let all: Vec<&str> = known.iter().map(|(field, _)| field.as_str()).collect();
                return Err(if near.is_some() || all.is_empty() {
                    error
                } else {
                    error.hint(format!("it has {}", all.join(", ")))
                });
            }
        };
    }
    Ok((here, words))
}

/// The field of a name, and whether that is its own: of a mapping whose keys are anybody's, a field of its values, or one of
/// the values.
fn further<'a>(schema: &'a Value, here: &'a Value, name: &str) -> Option<(&'a Value, bool)> {
    let (known, any) = fields(schema, here);
    let named = |known: Vec<Field<'a>>| known.into_iter().find(|(field, _)| field == name).map(|(_, field)| (field, true));
    named(known).or_else(|| any.and_then(|any| named(fields(schema, any).0))).or_else(|| any.map(|any| (any, false)))
}

/// Whether a node says nothing of what is there.
fn is_anything(node: &Value) -> bool {
    const SAYS: [&str; 7] = ["type", "properties", "$ref", "anyOf", "oneOf", "const", "enum"];
    node == &Value::Bool(true) || node.as_object().is_some_and(|node| !SAYS.iter().any(|word| node.contains_key(*word)))
}

/// What `path` of a kind is: its type, its words and its fields.
///
/// # Errors
/// A usage error that names the field that is not there, with the one that was probably meant.
pub fn explain(kind: &str, schema: &Value, path: &str, recursive: bool) -> Result<String, Error> {
    let names: Vec<&str> = path.split('.').filter(|name| !name.is_empty()).collect();
    let (here, words) = walk(kind, schema, &names)?;
    let walked = names.join(".");
    let mut out = format!("KIND:     {kind}\n");
    if !walked.is_empty() {
        out.push_str(&format!("FIELD:    {walked} <{}>\n", type_of(schema, here)));
    }
    let words = if words.is_empty() { description(schema, here) } else { words };
    if !words.is_empty() {
        out.push_str(&format!("\n{}\n", indented(&words, 4)));
    }
    let choices = choices(schema, here);
    if !choices.is_empty() {
        out.push_str("\nONE OF:\n");
        for (value, words) in choices {
            out.push_str(&format!("  {value}\n"));
            out.push_str(&if words.is_empty() { String::new() } else { format!("{}\n", indented(&words, 6)) });
        }
    }
    let mut listed = String::new();
    list(schema, here, 2, recursive, &mut listed);
    if !listed.is_empty() {
        out.push_str(&format!("\nFIELDS:\n{listed}"));
    }
    Ok(out)
}

/// A field and its schema.
type Field<'a> = (String, &'a Value);

fn list(schema: &Value, node: &Value, indent: usize, recursive: bool, out: &mut String) {
    if indent > 2 * DEEPEST {
        return;
    }
    let (known, any) = fields(schema, node);
    let required: Vec<&str> = resolved(schema, node)
        .iter()
        .filter_map(|node| node.get("required")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let space = " ".repeat(indent);
    for (name, field) in known {
        let needed = if required.contains(&name.as_str()) { " required" } else { "" };
        out.push_str(&format!("{space}{name} <{}>{needed}\n", type_of(schema, field)));
        if recursive {
            list(schema, field, indent + 2, true, out);
        } else {
            let words = description(schema, field);
            out.push_str(&if words.is_empty() { String::new() } else { format!("{}\n", indented(&words, indent + 4)) });
        }
    }
    if let Some(any) = any {
        out.push_str(&format!("{space}<any name> <{}>\n", type_of(schema, any)));
        // the name says nothing yet
        if recursive || !fields(schema, any).0.is_empty() {
            list(schema, any, indent + 2, recursive, out);
        }
    }
}

/// The fields of a node, and what any other key of it is.
fn fields<'a>(schema: &'a Value, node: &'a Value) -> (Vec<Field<'a>>, Option<&'a Value>) {
    let (mut known, mut any): (Vec<Field<'a>>, Option<&'a Value>) = (Vec::new(), None);
    for node in resolved(schema, node) {
        if let Some(items) = node.get("items") {
            let (more, other) = fields(schema, items);
            known.extend(more);
            any = any.or(other);
        }
        for (name, field) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if !known.iter().any(|(there, _)| there == name) {
                known.push((name.clone(), field));
            }
        }
        any = any.or(node.get("additionalProperties").filter(|any| any.is_object() || **any == Value::Bool(true)));
    }
    (known, any)
}

/// A node, and the nodes it stands for: what it refers to, and each way it may be.
fn resolved<'a>(schema: &'a Value, node: &'a Value) -> Vec<&'a Value> {
    let mut all = vec![node];
    if let Some(name) = node.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next())
        && let Some(meant) = schema.get("$defs").and_then(|defs| defs.get(name))
    {
        all.extend(resolved(schema, meant));
    }
    for way in ["anyOf", "oneOf", "allOf"].iter().filter_map(|way| node.get(way)?.as_array()).flatten() {
        all.extend(resolved(schema, way));
    }
    all
}

fn description(schema: &Value, node: &Value) -> String {
    let said = resolved(schema, node).into_iter().find_map(|node| node.get("description")?.as_str());
    said.unwrap_or_default().to_owned()
}

/// The values it may have, with their words.
fn choices(schema: &Value, node: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for node in resolved(schema, node) {
        let words = || node.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(value) = node.get("const") {
            found.push((super::jsonpath::text(value), words()));
        }
        for value in node.get("enum").and_then(Value::as_array).into_iter().flatten() {
            found.push((super::jsonpath::text(value), String::new()));
        }
    }
    found
}

/// Its type, as a person says it.
fn type_of(schema: &Value, node: &Value) -> String {
    let mut names: Vec<String> = Vec::new();
    for node in resolved(schema, node) {
        let types: Vec<&str> = match node.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ if node.get("properties").is_some() => vec!["object"],
            _ if node.get("const").is_some_and(Value::is_string) => vec!["string"],
            _ => Vec::new(),
        };
        for name in types {
            let name = match name {
                "null" => continue,
                "string" => "text".to_owned(),
                "integer" => "whole number".to_owned(),
                "boolean" => "true or false".to_owned(),
                "array" => {
                    format!("list of {}", node.get("items").map_or_else(|| "anything".into(), |items| type_of(schema, items)))
                }
                "object" if node.get("properties").is_none() => {
                    let any = node.get("additionalProperties").filter(|any| any.is_object());
                    format!("mapping of {}", any.map_or_else(|| "anything".into(), |any| type_of(schema, any)))
                }
                "object" => "mapping".to_owned(),
                other => other.to_owned(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() { "anything".into() } else { names.join(" or ") }
}

/// A text in lines of a readable length.
fn indented(text: &str, indent: usize) -> String {
    const WIDTH: usize = 100;
    let space = " ".repeat(indent);
    let mut lines = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= WIDTH - indent {
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.into_iter().map(|line| format!("{space}{line}")).collect::<Vec<_>>().join("\n")
}

/// The fields below a path, for whoever types it on: none when there is no such path.
pub fn below(schema: &Value, path: &str) -> Vec<String> {
    let mut here = schema;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        match further(schema, here, name) {
            Some((field, _)) => here = field,
            None => return Vec::new(),
        }
    }
    let (known, any) = fields(schema, here);
    let of_values = any.filter(|_| known.is_empty()).map(|any| fields(schema, any).0).unwrap_or_default();
    known.into_iter().chain(of_values).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(name: &str) -> Value {
        super::schema(name).unwrap()
    }

    #[test]
    fn a_field_is_explained_by_its_schema() {
        let run = schema("run.json");
        let told = |path: &str| explain("Run", &run, path, false).unwrap_or_else(|e| format!("{e}\n{}\n", e.hints.join("\n")));
        let paths = [
            "",
            "spec.environments",
            "spec.environments.box",
            "spec.admission",
            "spec.params.budget.duration",
            "spec.environments.image",
            "spec.environmets",
            "spec.nope",
            "spec.flow.x",
        ];
        let all: Vec<String> = paths.iter().map(|path| format!("# {path}\n{}", told(path))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn what_is_below_a_mapping_is_offered_with_and_without_a_name_of_it() {
        let run = schema("run.json");
        let offered = below(&run, "spec.environments");
        assert!(offered.contains(&"image".to_owned()), "{offered:?}");
        assert_eq!(below(&run, "spec.environments.box"), offered);
    }

    #[test]
    fn every_field_of_every_kind_can_be_explained() {
        for (kind, file) in [
            ("Run", "run.json"),
            ("Environment", "environment.json"),
            ("Runtime", "runtime.json"),
            ("Flow", "flow.json"),
            ("settings.yaml", "settings.json"),
        ] {
            let schema = schema(file);
            let mut open = vec![String::new()];
            while let Some(path) = open.pop() {
                explain(kind, &schema, &path, false).unwrap_or_else(|e| panic!("{kind} {path}: {e}"));
                if path.split('.').count() < 5 {
                    open.extend(
                        below(&schema, &path)
                            .into_iter()
                            .map(|name| if path.is_empty() { name } else { format!("{path}.{name}") }),
                    );
                }
            }
            assert!(explain(kind, &schema, "", true).unwrap().lines().count() > 10, "{kind}");
        }
    }
}
