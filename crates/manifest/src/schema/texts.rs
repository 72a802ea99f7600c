//! What the reader asks of a text, a list or a mapping beside what its type says: as patterns, for the schemas. What no pattern
//! can say (which role is declared, which image there is) is left to the reader; nothing is refused here that it takes.

use serde_json::{Map, Value, json};

/// An identifier: a role, a parameter, the id of a step.
const IDENTIFIER: &str = "[A-Za-z_][A-Za-z0-9_]*";
/// The name of a resource, or nothing.
const NAME: &str = "(?:[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?)?";
/// What a generated name may begin with.
const PREFIX: &str = "(?:[a-z0-9][a-z0-9.-]{0,54})?";
/// The name of a saved runtime.
pub(super) const SAVED: &str = "[A-Za-z0-9][A-Za-z0-9._-]*";
/// A host, an alias or a login of ssh.
const SSH_WORD: &str = "[A-Za-z0-9_][A-Za-z0-9._%+-]*";
const PORT: &str = "0*(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
const BACKENDS: &str = "local|ssh|docker|swarm|apple-container|slurm";
/// The backends that may be named without a saved runtime of theirs, but for a directory.
const UNSAVED: &str = "local|docker|swarm|apple-container|slurm";
/// The backends that are saved.
const SAVED_BACKENDS: &str = "ssh|docker|swarm|apple-container|slurm";
const IMAGE: &str = r"[^\s-]\S*";
/// A text that is not blank.
const SAYS: &str = r"[\s\S]*\S[\s\S]*";
/// One line.
const LINE: &str = r"[^\n\u0000]*";
/// A path that is handed to a program in quotes.
const QUOTABLE: &str = r#"[^\n\u0000"]+"#;
const NAME_WORDS: &str = "at most 63 lower-case letters, digits, dashes and dots, beginning and ending with a letter or digit";
const PREFIX_WORDS: &str = "at most 55 lower-case letters, digits, dashes and dots";
const IMAGE_WORDS: &str = "an image, such as python:3.12-slim";
const NUMBER: &str = r"[0-9]+(?:\.[0-9]+)?";
const USER: &str = "[0-9]+(?::[0-9]+)?";
const WRAPPER: &str = r"[^\n\u0000]+";
const PREFIX_OF_BOXES: &str = "[A-Za-z0-9](?:[A-Za-z0-9_-]{0,52}[A-Za-z0-9])?";
const GPU: &str = "[A-Za-z0-9][A-Za-z0-9_.:-]*";
const CONTAINER: &str = "[A-Za-z0-9][A-Za-z0-9_.-]*";

/// What a plain scalar may be besides, where a text of that pattern is asked for: it is taken as it is written.
const BESIDES: [(&str, &[&str]); 14] = [
    (NAME, &SCALARS),
    (PREFIX, &SCALARS),
    (SAVED, &SCALARS),
    (SSH_WORD, &SCALARS),
    (IMAGE, &SCALARS),
    (SAYS, &SCALARS),
    (LINE, &SCALARS),
    (QUOTABLE, &SCALARS),
    (WRAPPER, &SCALARS),
    (GPU, &SCALARS),
    (PREFIX_OF_BOXES, &["integer", "boolean"]),
    (IDENTIFIER, &["boolean"]),
    (USER, &["integer"]),
    (CONTAINER, &SCALARS),
];

const SCALARS: [&str; 2] = ["number", "boolean"];

/// The types a plain scalar may be of besides, for a text of that schema.
pub(super) fn besides(text: &Map<String, Value>) -> &'static [&'static str] {
    let Some(pattern) = text.get("pattern").and_then(Value::as_str) else { return &SCALARS };
    BESIDES.iter().find(|(form, _)| whole(form) == pattern).map_or(&[], |(_, types)| types)
}

/// The pattern of a text that is nothing but that.
pub(super) fn whole(form: &str) -> String {
    format!("^(?:{form})$")
}

fn is(form: &str) -> Value {
    json!({"pattern": whole(form)})
}

/// The same with what an editor says of a text that is none, in words.
fn is_a(form: &str, words: &str) -> Value {
    json!({"pattern": whole(form), WORDS: format!("expected {words}")})
}

/// The keyword that editors know for it; validators pass it over.
const WORDS: &str = "patternErrorMessage";

fn each(form: &str) -> Value {
    json!({"items": is(form)})
}

fn named(form: &str) -> Value {
    json!({"propertyNames": is(form)})
}

/// A share that is asked for is of something.
fn some() -> Value {
    json!({"exclusiveMinimum": 0, "pattern": "[1-9]", WORDS: "expected more than nothing, or no such field"})
}

/// A key without a character that nobody sees.
pub(super) fn seen() -> Value {
    is(&format!("[^{}]*", crate::odd::unseen().collect::<String>()))
}

fn cpus() -> Value {
    let mut asked = is(r"\s*0*(?:[0-9]{1,13}m|[0-9]{1,10}(?:\.[0-9]+)?)\s*");
    asked["minimum"] = 0.into();
    asked["maximum"] = 1_000_000_000.into();
    asked
}

fn memory() -> Value {
    let mut asked = is(&format!(r"\s*(?:[0-9]+\s*[bB]?|{NUMBER}\s*[kKmMgGtTpP][iI]?[bB]?)\s*"));
    asked["minimum"] = 0.into();
    asked["maximum"] = u64::MAX.into();
    asked
}

fn span() -> Value {
    let clock = "[0-9]+:0*[0-5]?[0-9]:0*[0-5]?[0-9]";
    let units = format!(r"(?:{NUMBER}(?:[mM][sS]|[wWdDhHmMsS])\s*)+");
    let (date, time) = (format!("(?:{NUMBER}[wWdD])+"), format!("[tT](?:{NUMBER}[hHmMsS])+"));
    let mut asked = is(&format!(r"\s*(?:{NUMBER}|{clock}|{units}|[pP](?:{date}(?:{time})?|{time}))\s*"));
    asked["minimum"] = 0.into();
    asked["maximum"] = 1_000_000_000_000_u64.into();
    asked
}

fn endpoint() -> Value {
    let host = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._][A-Za-z0-9._-]*)";
    let ssh = ssh_address();
    is(&format!(r"local|unix:///[^\n\u0000?]+|tcp://{host}:{PORT}|ssh://{ssh}|(?:ssh|context):{SAVED}"))
}

fn ssh_address() -> String {
    format!("(?:{SSH_WORD}@)?{SSH_WORD}(?::{PORT})?")
}

fn agent() -> Value {
    let word = r"[^\s\u0000-\u001f\u007f-\u009f=,@/]+";
    // what is left of the model when the effort is taken off is not nothing
    let model = r"(?!\s*(?::[A-Za-z_ -]*)?\s*$)[^\u0000-\u001f\u007f-\u009f]+\s*";
    is(&format!(r"\s*{word}\s*(?:@\s*{word}\s*)?/{model}"))
}

fn place() -> Value {
    let at = format!(r"(?:{SAVED_BACKENDS})\s*@\s*{SAVED}\s*(?:/[\s\S]*)?");
    is(&format!(r"\s*(?:(?:{UNSAVED})\s*/[\s\S]*|{at})"))
}

fn metrics() -> Value {
    let address = r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+(?:%[0-9]+)?\])";
    let mut asked = is(&format!(r"\+?0*[0-9]{{1,5}}|{address}:0*[0-9]{{1,5}}"));
    asked["minimum"] = 0.into();
    asked["maximum"] = u16::MAX.into();
    asked
}

/// An option of ssh's configuration that has no field of its own.
fn option() -> Value {
    let any_case = |word: &str| -> String {
        word.chars().map(|c| format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase())).collect()
    };
    let ours: Vec<String> = crate::settings::SSH_FIELDS.iter().map(|(option, _)| any_case(option)).collect();
    json!({
        "propertyNames": is(&format!("(?!(?:F|{})$)[A-Za-z][A-Za-z0-9]*", ours.join("|"))),
        "additionalProperties": is(QUOTABLE),
    })
}

/// A field of a definition, as a JSON pointer, and what is asked of it.
type Asked = (&'static str, &'static str, Value);

fn of_types() -> Vec<Asked> {
    vec![
        ("Cpus", "", cpus()),
        ("Memory", "", memory()),
        ("Span", "", span()),
        ("Endpoint", "", endpoint()),
        ("Harness", "", is(&format!("(?:env|local|(?:{BACKENDS})[:@/]{SAVED})?"))),
        ("RuntimeRef", "", is(&format!("(?:{BACKENDS})(?:[:@/]{SAVED})?"))),
        ("AgentSpec", "", agent()),
        ("EnvironmentRequest", "/anyOf/0", place()),
        // an empty command is none, and a number is no command
        ("Command", "/anyOf/0", json!({"pattern": r"\S"})),
        ("Command", "/anyOf/1", json!({"minItems": 1})),
        ("MetricsFields", "/properties/listen", metrics()),
    ]
}

fn of_resources() -> Vec<Asked> {
    vec![
        ("Metadata", "/properties/name", is_a(NAME, NAME_WORDS)),
        ("Metadata", "/properties/generateName", is_a(PREFIX, PREFIX_WORDS)),
        (
            "RuntimeMetadata",
            "/properties/name",
            is_a(&format!("(?:{BACKENDS})(?:[:@/]{SAVED})?"), "a runtime, such as docker:gpubox"),
        ),
        ("EnvironmentSpec", "/properties/image", is_a(IMAGE, IMAGE_WORDS)),
        ("EnvironmentSpec", "/properties/cpus", some()),
        ("EnvironmentSpec", "/properties/memory", some()),
        ("WorkPlace", "/properties/image", is_a(IMAGE, IMAGE_WORDS)),
        ("WorkPlace", "/properties/cpus", some()),
        ("WorkPlace", "/properties/memory", some()),
        ("FlowEnvironment", "/properties/image", is_a(IMAGE, IMAGE_WORDS)),
        ("FlowEnvironment", "/properties/cpus", some()),
        ("FlowEnvironment", "/properties/memory", some()),
        ("FlowSpec", "/properties/agents", named(IDENTIFIER)),
        ("FlowSpec", "/properties/environments", named(IDENTIFIER)),
        ("FlowSpec", "/properties/params", named(&format!("(?!budget$){IDENTIFIER}"))),
        ("FlowSpec", "/properties/steps", json!({"minItems": 1})),
        ("Step", "/oneOf/0/properties/turn/properties/id", is(IDENTIFIER)),
        ("Step", "/oneOf/1/properties/exec/properties/id", is(IDENTIFIER)),
        ("RunSpec", "/properties/flow", is(SAYS)),
        ("RunSpec", "/properties/agents", named(IDENTIFIER)),
        ("RunSpec", "/properties/environments", named(IDENTIFIER)),
    ]
}

fn of_runtimes() -> Vec<Asked> {
    let variable = format!(r"(?!NVIDIA_VISIBLE_DEVICES=){IDENTIFIER}=[^\n\u0000]*");
    let constraint = r"\s*[A-Za-z][A-Za-z0-9._/-]*\s*(?:==|!=)(?=.*\S)[^\n\u0000]*";
    let mut nodes = named(SSH_WORD);
    nodes["additionalProperties"] = json!({"anyOf": [is(SAVED), is(&ssh_address())]});
    let fields = vec![
        ("/properties/tls_dir", is(QUOTABLE)),
        ("/properties/container", is(CONTAINER)),
        ("/properties/exec_user", is_a(USER, "UID[:GID]")),
        ("/properties/exec_env", json!({"items": is_a(&variable, "NAME=VALUE, and not the GPUs, which are granted")})),
        ("/properties/exec_wrapper", each(WRAPPER)),
        ("/properties/image", is_a(IMAGE, IMAGE_WORDS)),
        ("/properties/runtime", is(SSH_WORD)),
        ("/properties/run_args", each(LINE)),
        ("/properties/name_prefix", is_a(PREFIX_OF_BOXES, "at most 54 letters, digits, dashes and underscores")),
        ("/properties/gpus", json!({"items": is(GPU), "uniqueItems": true})),
        ("/properties/workdir", is_a(r#"~|~?/[^\n\u0000"]*"#, "an absolute path, or one under ~/")),
        (
            "/properties/fallback",
            json!({"items": is_a(&format!("(?:{SAVED_BACKENDS}):{SAVED}"), "<backend>:<name>"), "uniqueItems": true}),
        ),
        ("/properties/gpu_resource", is("[A-Za-z][A-Za-z0-9._-]*")),
        ("/properties/constraints", json!({"items": is_a(constraint, "ATTRIBUTE==VALUE or ATTRIBUTE!=VALUE")})),
        ("/properties/nodes", nodes),
        ("/properties/host", is(SSH_WORD)),
        ("/properties/alias", is(SSH_WORD)),
        ("/properties/user", is(SSH_WORD)),
        ("/properties/identity_file", is(QUOTABLE)),
        ("/properties/proxy_jump", is(r"[A-Za-z0-9_][A-Za-z0-9._%+@:,\[\]-]*")),
        ("/properties/options", option()),
        ("/properties/config", is(QUOTABLE)),
    ];
    fields.into_iter().map(|(field, asked)| ("RuntimeSpec", field, asked)).collect()
}

/// Adds what is asked to the definitions.
pub(super) fn add(definitions: &mut Map<String, Value>) {
    for (of, field, asked) in of_types().into_iter().chain(of_resources()).chain(of_runtimes()) {
        if let Some(found) = definitions.get_mut(of).and_then(|of| of.pointer_mut(field)) {
            merge(found, asked);
            // a type says in its description what it is
            if let Some(description) = found.get("description").filter(|_| field.is_empty()) {
                found[WORDS] = format!("expected {}", description.as_str().unwrap_or_default()).into();
            }
        }
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_something_is_asked_of_is_there() {
        let files = crate::schema::all();
        let definitions: Vec<Value> =
            files.iter().map(|(_, text)| serde_json::from_str::<Value>(text).unwrap()["$defs"].clone()).collect();
        for (of, field, asked) in of_types().into_iter().chain(of_resources()).chain(of_runtimes()) {
            let found: Vec<&Value> = definitions.iter().filter_map(|d| d.get(of)?.pointer(field)).collect();
            assert!(!found.is_empty(), "{of}{field}");
            for key in asked.as_object().unwrap().keys() {
                assert!(found.iter().all(|found| found.get(key).is_some()), "{of}{field} {key}");
            }
        }
    }
}
