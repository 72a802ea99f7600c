//! What an apply would do, for a person: each field that would be another one, then what would be started and ended.

use super::clean::one_line;
use super::table::kind_word;
use hmz_api::AnyResource;
use hmz_api::kinds::annotation;
use hmz_api::rest::{Applied, Effect, Planned};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The longest value that is shown whole, in characters.
const LONGEST: usize = 400;
/// What stands in the place of a variable's value.
const HIDDEN: &str = "(hidden)";

/// The text of those that would be another; empty when none would.
pub fn render(planned: &[Planned]) -> String {
    let mut out = String::new();
    // what is refused may end what was there before
    let matters = |one: &&Planned| one.differs() || !one.effects.is_empty() || !one.others.is_empty();
    for one in planned.iter().filter(matters) {
        let word = match one.outcome {
            Err(_) => "refused",
            Ok(Applied::Created) => "created",
            Ok(Applied::Replaced) => "replaced",
            Ok(Applied::Pruned) => "deleted",
            _ => "configured",
        };
        out.push_str(&format!("{}/{} would be {word}\n", kind_word(&one.kind), one_line(&one.name)));
        let before = one.before.as_ref().map(fields).unwrap_or_default();
        let after = one.after.as_ref().map(fields).unwrap_or_default();
        // of one that goes, that it goes is all, and why one is refused is told as an error
        if one.differs() && one.outcome != Ok(Applied::Pruned) {
            for line in lines(&before, &after) {
                out.push_str(&format!("    {line}\n"));
            }
        }
        for effect in &one.effects {
            out.push_str(&format!("    {}\n", one_line(&effect.words())));
        }
        for other in &one.others {
            let who = format!("{}/{}", kind_word(&other.kind), one_line(&other.name));
            for effect in &other.effects {
                // what cannot be told is a sentence of its own
                let colon = if matches!(effect, Effect::Unsure { .. }) { ":" } else { "" };
                out.push_str(&format!("    {who}{colon} {}\n", one_line(&effect.words())));
            }
        }
    }
    out
}

/// A line for each field that differs, in the order they are declared in.
fn lines(before: &[Field], after: &[Field]) -> Vec<String> {
    let had: BTreeMap<&str, &Field> = before.iter().map(|field| (field.path.as_str(), field)).collect();
    let has: BTreeSet<&str> = after.iter().map(|field| field.path.as_str()).collect();
    let changed = after.iter().filter_map(|new| match had.get(new.path.as_str()) {
        Some(old) if old.value == new.value => None,
        Some(old) if old.shown == new.shown => Some(format!("~ {}: {} (what is hidden is another)", new.path, new.shown)),
        Some(old) => Some(format!("~ {}: {} -> {}", new.path, old.shown, new.shown)),
        None => Some(format!("+ {}: {}", new.path, new.shown)),
    });
    let gone = before.iter().filter(|field| !has.contains(field.path.as_str()));
    changed.chain(gone.map(|field| format!("- {}: {}", field.path, field.shown))).collect()
}

/// What is declared at a path.
struct Field {
    path: String,
    value: Value,
    /// As it is told: a plan is for whoever reads it, and a variable may be a secret.
    shown: String,
}

impl Field {
    fn new(path: String, value: Value) -> Self {
        let shown = match (path.rsplit('.').next(), &value) {
            (Some("exec_env"), Value::Array(words)) => text(&words.iter().map(hidden).collect()),
            (Some("run_args"), Value::Array(words)) => text(&without_variables(words)),
            _ => text(&value),
        };
        Self { path, value, shown }
    }
}

/// `NAME=VALUE` without the value; one that is all of it is a name that is passed on.
fn hidden(variable: &Value) -> Value {
    match variable.as_str().and_then(|text| text.split_once('=')) {
        Some((name, _)) => format!("{name}={HIDDEN}").into(),
        None => variable.clone(),
    }
}

/// The arguments without the values of variables: `--env=NAME=VALUE`, `-eNAME=VALUE`, or the one behind `--env` or `-e`.
fn without_variables(words: &[Value]) -> Value {
    let mut is_variable = false;
    let told = words.iter().map(|word| {
        let text = word.as_str().unwrap_or_default();
        if std::mem::replace(&mut is_variable, matches!(text, "--env" | "-e")) {
            is_variable = false;
            return hidden(word);
        }
        for flag in ["--env=", "-e=", "-e"] {
            if let Some(variable) = text.strip_prefix(flag).filter(|variable| !variable.is_empty()) {
                let told = hidden(&variable.into());
                return format!("{flag}{}", told.as_str().unwrap_or(HIDDEN)).into();
            }
        }
        word.clone()
    });
    told.collect()
}

/// What is declared, a path and a value each.
fn fields(resource: &AnyResource) -> Vec<Field> {
    let mut found = Vec::new();
    let metadata = resource.metadata();
    for (name, map) in [("labels", &metadata.labels), ("annotations", &metadata.annotations)] {
        for (key, value) in map {
            // it says again what the fields say
            if ![annotation::LAST_APPLIED, annotation::CWD, annotation::TRACE].contains(&key.as_str()) {
                found.push(Field::new(step(&format!("metadata.{name}"), key), value.as_str().into()));
            }
        }
    }
    let whole = serde_json::to_value(resource).unwrap_or_default();
    if let Some(spec) = whole.get("spec") {
        leaves("spec", spec, &mut found);
    }
    found
}

fn leaves(path: &str, value: &Value, found: &mut Vec<Field>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| leaves(&step(path, key), value, found));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object()) => {
            items.iter().enumerate().for_each(|(nth, item)| leaves(&format!("{path}[{nth}]"), item, found));
        }
        // what is declared as nothing is as one that is not
        Value::Object(_) => {}
        Value::Array(items) if items.is_empty() => {}
        Value::String(nothing) if nothing.is_empty() => {}
        value => found.push(Field::new(path.to_owned(), value.clone())),
    }
}

fn step(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
    if plain { format!("{path}.{key}") } else { format!("{path}.{}", Value::from(key)) }
}

/// A value on one line: a text as it is where nothing is lost by that.
fn text(value: &Value) -> String {
    let plain = value.as_str().filter(|text| text.trim() == *text && !text.is_empty() && !text.contains(char::is_control));
    let text = plain.map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Error;
    use hmz_api::kinds::Share;
    use hmz_api::rest::Affected;
    use serde_json::json;

    fn env(spec: Value, labels: Value) -> Option<AnyResource> {
        let whole = json!({"apiVersion": "hmz/v1", "kind": "Environment", "spec": spec,
            "metadata": {"name": "box", "labels": labels, "annotations": {"hmz/last-applied": "{}"}}});
        Some(serde_json::from_value(whole).unwrap())
    }

    fn planned(name: &str, outcome: Result<Applied, Error>, effects: Vec<Effect>) -> Planned {
        Planned { kind: "Environment".into(), name: name.into(), outcome, before: None, after: None, effects, others: Vec::new() }
    }

    #[test]
    fn what_differs_is_told_field_by_field_and_then_in_words() {
        let old = env(json!({"runtime": "docker:a", "cpus": 1, "memory": "1G", "restart": "always"}), json!({"team": "red"}));
        let new = env(
            json!({"runtime": "docker:a", "cpus": 2, "image": "node:22", "workdir": "/a b"}),
            json!({"team": "red", "a.b/c": " spaced\n"}),
        );
        let start = Effect::Start {
            role: "box".into(),
            image: "node:22".into(),
            share: Share { cpus: "2".parse().ok(), ..Share::default() },
            runtime: "docker:a".parse().unwrap(),
            pulls: false,
            told: None,
        };
        let remove = Effect::Remove { container: "humanize-a-box-1".into(), runtime: "docker:a".parse().unwrap() };
        let changed = Planned {
            before: old.clone(),
            after: new.clone(),
            ..planned("box", Ok(Applied::Configured), vec![remove.clone(), start.clone()])
        };
        let created = Planned {
            after: new,
            ..planned("new", Ok(Applied::Created), vec![start.clone(), Effect::Wait { why: "docker@a is full".into() }])
        };
        let unsure = Effect::Unsure { why: "who asks first has it".into() };
        let waiting = Affected { kind: "Environment".into(), name: "next".into(), effects: vec![start.clone(), unsure] };
        let ended = remove.clone();
        let pruned = Planned { before: old, others: vec![waiting], ..planned("old", Ok(Applied::Pruned), vec![remove]) };
        let all = [
            changed,
            created,
            pruned,
            planned("same", Ok(Applied::Unchanged), vec![]),
            planned("going", Ok(Applied::Going), vec![]),
            planned("no", Err(Error::refused("no")), vec![]),
            planned("moved", Err(Error::refused("no")), vec![ended]),
        ];
        insta::assert_snapshot!(render(&all));
        assert_eq!(render(&all[3..6]), "");
    }

    #[test]
    fn no_value_of_a_variable_is_told() {
        let runtime = |exec_env: Value, run_args: Value| {
            let whole = json!({"apiVersion": "hmz/v1", "kind": "Runtime", "metadata": {"name": "docker:here"},
                "spec": {"endpoint": "local", "exec_env": exec_env, "run_args": run_args}});
            Some(serde_json::from_value::<AnyResource>(whole).unwrap())
        };
        let args = |secret: &str| {
            json!(["--init", format!("--env=A={secret}"), "-e", format!("B={secret}"), format!("-eC={secret}"), "-e", "D"])
        };
        let old = runtime(json!(["TOKEN=s3cret-1"]), args("s3cret-2"));
        let new = runtime(json!(["TOKEN=s3cret-3"]), args("s3cret-4"));
        let changed =
            Planned { before: old.clone(), after: new.clone(), ..planned("docker:here", Ok(Applied::Configured), Vec::new()) };
        let created = Planned { after: new, ..planned("docker:here", Ok(Applied::Created), Vec::new()) };
        let gone = Planned {
            before: old,
            after: runtime(json!([]), json!(["--init"])),
            ..planned("docker:here", Ok(Applied::Configured), Vec::new())
        };
        let told = render(&[changed, created, gone]);
        assert!(!told.contains("s3cret"), "{told}");
        insta::assert_snapshot!(told);
    }
}
