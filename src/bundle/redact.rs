//! What of resources, events and settings may be told. Fields are kept that are known to hold no text of anybody's: of the others
//! their names and lengths stay.

use super::scrub::{OUT, Scrub};
use serde_json::{Map, Value};

/// Annotations that are ours and say nothing.
const ANNOTATIONS: [&str; 5] = ["hmz/cwd", "hmz/traceparent", "hmz/attached", "hmz/cancel", "hmz/abandon"];

/// Fields of a runtime whose values are told.
const FIELDS: [&str; 26] = [
    "endpoint",
    "tls_dir",
    "harness",
    "container",
    "exec_user",
    "image",
    "runtime",
    "name_prefix",
    "cpus",
    "memory",
    "gpus",
    "gpu_memory",
    "max_containers",
    "default_request",
    "lease",
    "workdir",
    "fallback",
    "gpu_resource",
    "constraints",
    "max_tasks",
    "nodes",
    "host",
    "alias",
    "user",
    "port",
    "proxy_jump",
];

/// Fields of a step of a flow whose values are told.
const OF_STEP: [&str; 5] = ["agent", "environment", "id", "allow_failure", "image"];

/// A resource, in place. What is taken out is noted, so that it is in no other text either.
pub fn resource(value: &mut Value, scrub: &mut Scrub) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(hmz_api::kinds::annotation::LAST_APPLIED);
        let others = annotations.iter_mut().filter(|(name, _)| !ANNOTATIONS.contains(&name.as_str()));
        others.for_each(|(_, text)| out(text, scrub));
    }
    // what the program itself brings is nobody's
    let is_ours = kind == "Flow" && value.pointer("/status/source").and_then(Value::as_str) == Some("builtin");
    let spec = value.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !is_ours);
    match (kind.as_str(), spec) {
        ("Run", Some(spec)) => {
            spec.get_mut("task").into_iter().for_each(|task| out(task, scrub));
            for (name, param) in spec.get_mut("params").and_then(Value::as_object_mut).into_iter().flatten() {
                if name != "budget" {
                    out(param, scrub);
                }
            }
        }
        ("Runtime", Some(spec)) => runtime(spec, scrub),
        ("Flow", Some(spec)) => {
            for (name, part) in spec.iter_mut() {
                match name.as_str() {
                    "agents" | "environments" => described(part, scrub),
                    "steps" => step(part, scrub),
                    "params" => params(part, scrub),
                    _ => out(part, scrub),
                }
            }
        }
        _ => {}
    }
    if let Some(status) = value.get_mut("status") {
        of_status(status, &kind, scrub);
    }
}

/// An event, in place.
pub fn event(value: &mut Value) {
    let is = |name: &str, word: &str| value.get(name).and_then(Value::as_str) == Some(word);
    if is("kind", "Run") && is("reason", "Failed") {
        let message = value.get("message").and_then(Value::as_str).map(first);
        value["message"] = message.into();
    }
}

/// settings.yaml, whole, as it is read: runtimes by their fields, anything else by its name only.
pub fn settings(value: &Value, scrub: &mut Scrub) -> Value {
    let mut told = value.clone();
    let Some(map) = told.as_object_mut() else {
        out(&mut told, scrub);
        return told;
    };
    for (name, part) in map {
        if name != "runtimes" {
            out(part, scrub);
            continue;
        }
        for entry in part.as_object_mut().into_iter().flatten().filter_map(|(_, backend)| backend.as_object_mut()).flatten() {
            match entry.1 {
                Value::Object(fields) => runtime(fields, scrub),
                other => out(other, scrub),
            }
        }
    }
    told
}

/// A settings.yaml that cannot be parsed: what is no key and no comment may be a value.
pub fn unread(text: &str, scrub: &mut Scrub) {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "[]{},\"'".contains(c)));
    words.filter(|word| !word.ends_with(':')).for_each(|word| scrub.note(word));
}

/// A value of anybody's: its length stays.
fn out(value: &mut Value, scrub: &mut Scrub) {
    match value {
        Value::String(text) => {
            scrub.note(text);
            *text = format!("{OUT} ({} characters)", text.chars().count());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| out(item, scrub)),
        Value::Object(map) => map.values_mut().for_each(|item| out(item, scrub)),
        Value::Number(number) => {
            scrub.note(&number.to_string());
            *value = OUT.into();
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn runtime(fields: &mut Map<String, Value>, scrub: &mut Scrub) {
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("exec_env", Value::Array(items)) => items.iter_mut().for_each(|item| assignment(item, scrub)),
            ("run_args", Value::Array(items)) => items.iter_mut().for_each(|item| argument(item, scrub)),
            // an address may hold a password, which every text is gone over for
            (name, _) if FIELDS.contains(&name) => {}
            (_, value) => out(value, scrub),
        }
    }
}

/// `NAME=VALUE`: the name stays.
fn assignment(value: &mut Value, scrub: &mut Scrub) {
    match value.as_str().and_then(|text| text.split_once('=')) {
        Some((name, secret)) => {
            scrub.note(secret);
            *value = format!("{name}={OUT}").into();
        }
        None => out(value, scrub),
    }
}

/// `--flag=value`, `--flag` or `value`: the flag stays, and of a variable its name.
fn argument(value: &mut Value, scrub: &mut Scrub) {
    let is_flag = value.as_str().is_some_and(|text| text.starts_with("--"));
    if !is_flag {
        out(value, scrub);
    } else if let Some(variable) = value.as_str().and_then(|text| text.strip_prefix("--env=")) {
        let mut variable = Value::from(variable);
        assignment(&mut variable, scrub);
        *value = format!("--env={}", variable.as_str().unwrap_or(OUT)).into();
    } else if value.as_str().is_some_and(|text| text.contains('=')) {
        assignment(value, scrub);
    }
}

/// Agents and environments of a flow: what describes them is somebody's text.
fn described(value: &mut Value, scrub: &mut Scrub) {
    for role in value.as_object_mut().into_iter().flatten().filter_map(|(_, role)| role.as_object_mut()) {
        let texts = role.iter_mut().filter(|(name, value)| !FIELDS.contains(&name.as_str()) && value.is_string());
        texts.for_each(|(_, text)| out(text, scrub));
    }
}

fn params(value: &mut Value, scrub: &mut Scrub) {
    for param in value.as_object_mut().into_iter().flatten().filter_map(|(_, param)| param.as_object_mut()) {
        param.iter_mut().filter(|(name, _)| *name != "type").for_each(|(_, value)| out(value, scrub));
    }
}

fn step(value: &mut Value, scrub: &mut Scrub) {
    match value {
        Value::Array(steps) => steps.iter_mut().for_each(|one| step(one, scrub)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Object(_) => step(field, scrub),
                    _ if OF_STEP.contains(&name.as_str()) => {}
                    _ => out(field, scrub),
                }
            }
        }
        _ => out(value, scrub),
    }
}

/// Variables in a status are as those of settings, and a run's failure is told in an agent's or a command's words.
fn of_status(value: &mut Value, kind: &str, scrub: &mut Scrub) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| of_status(item, kind, scrub)),
        Value::Object(map) => {
            let failed = kind == "Run" && map.get("reason").and_then(Value::as_str) == Some("Failed");
            for (name, item) in map {
                match (name.as_str(), &mut *item) {
                    ("env", Value::Array(items)) => items.iter_mut().for_each(|item| assignment(item, scrub)),
                    ("message", Value::String(text)) if failed => *text = first(text),
                    _ => of_status(item, kind, scrub),
                }
            }
        }
        _ => {}
    }
}

/// The role or the program that a failure begins with, and the length of the rest.
fn first(message: &str) -> String {
    let is_role = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let (who, rest) = message.split_once(": ").filter(|(who, _)| is_role(who)).map_or(("", message), |(who, rest)| (who, rest));
    let colon = if who.is_empty() { "" } else { ": " };
    format!("{who}{colon}{OUT} ({} characters)", rest.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_anybody_said_goes_and_what_is_declared_otherwise_stays() {
        let mut scrub = Scrub::default();
        let mut run = json!({"kind": "Run", "metadata": {"name": "r", "annotations": {"note": "ask Ann", "hmz/cwd": "/w",
            "hmz/last-applied": "{}"}}, "spec": {"flow": "boxed", "task": "fix it", "params": {"budget": {"duration": 60}, "key": "p4ssw0rd"}},
            "status": {"conditions": [{"type": "Complete", "reason": "Failed", "message": "coder: sh said p4ss"},
                {"type": "Accepted", "reason": "Accepted", "message": "kept"}]}});
        resource(&mut run, &mut scrub);
        let told = json!({"kind": "Run", "metadata": {"name": "r", "annotations": {"note": "<redacted> (7 characters)", "hmz/cwd": "/w"}},
            "spec": {"flow": "boxed", "task": "<redacted> (6 characters)", "params": {"budget": {"duration": 60},
                "key": "<redacted> (8 characters)"}},
            "status": {"conditions": [{"type": "Complete", "reason": "Failed", "message": "coder: <redacted> (12 characters)"},
                {"type": "Accepted", "reason": "Accepted", "message": "kept"}]}});
        assert_eq!(run, told);
        assert_eq!(scrub.text("p4ssw0rd"), OUT);

        let mut flow = json!({"kind": "Flow", "spec": {"agents": {"coder": {"description": "x"}}, "environments": {"box": {"image": "i"}},
            "params": {"depth": {"type": "integer", "default": 3}},
            "steps": [{"turn": {"agent": "coder", "environment": "box", "prompt": "do"}}, {"exec": {"environment": "box", "command": ["a"]}}]}});
        resource(&mut flow, &mut scrub);
        let told = json!({"kind": "Flow", "spec": {"agents": {"coder": {"description": "<redacted> (1 characters)"}},
            "environments": {"box": {"image": "i"}}, "params": {"depth": {"type": "integer", "default": "<redacted>"}},
            "steps": [{"turn": {"agent": "coder", "environment": "box", "prompt": "<redacted> (2 characters)"}},
                {"exec": {"environment": "box", "command": ["<redacted> (1 characters)"]}}]}});
        assert_eq!(flow, told);

        let mut builtin =
            json!({"kind": "Flow", "spec": {"description": "One coder in a container."}, "status": {"source": "builtin"}});
        let told = builtin.clone();
        resource(&mut builtin, &mut scrub);
        assert_eq!(builtin, told);

        let file = json!({"other": {"a": ["b"]}, "runtimes": {"docker": {"here": {"endpoint": "local", "cpus": 4,
            "exec_env": ["A=b c", "odd"], "run_args": ["--init", "--env=A=b", "--cpu-shares=9", "-e", "A=b"], "exec_wrapper": ["x"], "unknown": 1}}}});
        let told = json!({"other": {"a": ["<redacted> (1 characters)"]}, "runtimes": {"docker": {"here": {"endpoint": "local", "cpus": 4,
            "exec_env": ["A=<redacted>", "<redacted> (3 characters)"],
            "run_args": ["--init", "--env=A=<redacted>", "--cpu-shares=<redacted>", "<redacted> (2 characters)", "<redacted> (3 characters)"],
            "exec_wrapper": ["<redacted> (1 characters)"], "unknown": "<redacted>"}}}});
        assert_eq!(settings(&file, &mut scrub), told);

        unread("# a comment\nruntimes:\n  docker:\n    here: {endpoint: local, exec_env: [API=hunter2000]\n", &mut scrub);
        let text = "docker:here exec_env: 'hunter2000' in a comment";
        assert_eq!(scrub.text(text), "docker:here exec_env: '<redacted>' in a comment");

        let mut reached = json!({"kind": "Environment", "status": {"reach": {"exec": {"argv": ["hmz"], "env": ["A=b"]}}}});
        resource(&mut reached, &mut scrub);
        assert_eq!(reached["status"]["reach"]["exec"], json!({"argv": ["hmz"], "env": ["A=<redacted>"]}));

        let mut failed = json!({"kind": "Run", "reason": "Failed", "message": "Complete is True: coder: no"});
        event(&mut failed);
        assert_eq!(failed["message"], "<redacted> (27 characters)");
    }
}
