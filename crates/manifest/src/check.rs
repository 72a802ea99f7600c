//! What a type cannot say: names, roles, paths, references. Each check knows the node it is about.

use crate::de::{Fault, Inside};
use crate::place::Context;
use crate::suggest::suggestion;
use crate::template::{self, Known};
use crate::tree::{Node, Value};
use hmz_api::grammar::{AgentSpec, EnvSpec};
use hmz_api::kinds::{Endpoint, EnvironmentRequest, EnvironmentSpec, FlowSpec, Harness, RunSpec, RuntimeSpec, Step};
use hmz_api::{Backend, Cpus, Memory, Metadata, RuntimeRef, name};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Where the node at `path` is, or the nearest one above it.
fn at(node: &Node, path: &[&str]) -> crate::report::At {
    (0..=path.len()).rev().find_map(|n| node.at_path(&path[..n])).map_or(node.at, |n| n.at)
}

/// Where the last key of `path` is, or the nearest node above it.
fn key_at(node: &Node, path: &[&str]) -> crate::report::At {
    let found = path.split_last().and_then(|(last, above)| node.at_path(above)?.get(last));
    found.map_or_else(|| at(node, path), |e| e.key_at)
}

/// `metadata` of a kind that is not a runtime.
pub(crate) fn metadata(root: &Node, metadata: &Metadata, faults: &mut Vec<Fault>) {
    if metadata.name.is_empty() && metadata.generate_name.is_none() {
        let place = at(root, &["metadata"]);
        faults.push(Fault::new(place, "metadata needs a name (or a generateName)"));
    }
    if !metadata.name.is_empty()
        && let Err(e) = name::check(&metadata.name)
    {
        let near = metadata.name.to_lowercase().replace(['_', ' ', '/', ':', '@'], "-");
        let better = name::check(&near).is_ok().then(|| format!("did you mean '{near}'?"));
        faults.push(Fault::new(at(root, &["metadata", "name"]), e.message).suggest(better));
    }
    if let Some(prefix) = &metadata.generate_name {
        // what is added is at least one letter, so the prefix with one has to be a name
        if prefix.len() > 55 || name::check(&format!("{prefix}x")).is_err() {
            let message = format!("'{prefix}' cannot begin a name: at most 55 lower-case letters, digits, dashes and dots");
            faults.push(Fault::new(at(root, &["metadata", "generateName"]), message));
        }
    }
}

/// `metadata` of a runtime: its name is `docker:gpubox` however it was written.
pub(crate) fn runtime_metadata(root: &Node, metadata: &mut Metadata, faults: &mut Vec<Fault>) -> Option<RuntimeRef> {
    if metadata.name.is_empty() {
        let message = "metadata needs a name, such as docker:gpubox";
        faults.push(Fault::new(at(root, &["metadata"]), message));
        return None;
    }
    match RuntimeRef::from_str(&metadata.name) {
        Ok(runtime) => {
            metadata.name = runtime.resource_name();
            Some(runtime)
        }
        Err(e) => {
            let near = format!("docker:{}", metadata.name);
            let better = (!metadata.name.contains([':', '@', '/']) && RuntimeRef::check_name(&metadata.name).is_ok())
                .then(|| format!("did you mean '{near}'?"));
            faults.push(Fault::new(at(root, &["metadata", "name"]), e.message).suggest(better));
            None
        }
    }
}

fn image(root: &Node, path: &[&str], image: Option<&str>, faults: &mut Vec<Fault>) {
    if let Some(image) = image.filter(|i| i.is_empty() || i.contains(char::is_whitespace) || i.starts_with('-')) {
        faults.push(Fault::new(at(root, path), format!("invalid image '{image}'")));
    }
}

/// What a role or an environment asks for. A share of nothing is a mistake: what is left out asks for nothing.
fn share(root: &Node, path: &[&str], cpus: Option<Cpus>, memory: Option<Memory>, faults: &mut Vec<Fault>) {
    let none = [("cpus", cpus == Some(Cpus::default())), ("memory", memory == Some(Memory::default()))];
    for (field, _) in none.into_iter().filter(|(_, is_none)| *is_none) {
        let place = at(root, &[path, &[field]].concat());
        let message = format!("'{field}: 0' asks for nothing: write how much it needs, or leave {field} out");
        faults.push(Fault::new(place, message));
    }
}

fn resolve(root: &Node, path: &[&str], text: &mut String, context: &Context, faults: &mut Vec<Fault>) {
    match context.absolute(text) {
        Ok(absolute) => *text = absolute,
        Err(message) => faults.push(Fault::new(at(root, path), message)),
    }
}

/// The spec of a runtime. Zero and empty say nothing, as in settings.yaml.
pub(crate) fn runtime(
    spec_node: &Node,
    runtime: Option<&RuntimeRef>,
    spec: &mut RuntimeSpec,
    context: &Context,
    faults: &mut Vec<Fault>,
) {
    spec.cpus = spec.cpus.filter(|c| c.millis() > 0);
    spec.memory = spec.memory.filter(|m| m.bytes() > 0);
    spec.max_containers = spec.max_containers.filter(|n| *n > 0);
    spec.image = spec.image.take().filter(|i| !i.is_empty());
    spec.workdir = spec.workdir.take().filter(|w| !w.is_empty());
    image(spec_node, &["image"], spec.image.as_deref(), faults);
    if let Some(workdir) = &mut spec.workdir {
        if workdir.starts_with('/') || workdir == "~" || workdir.starts_with("~/") {
            resolve(spec_node, &["workdir"], workdir, context, faults);
        } else {
            let message = format!("the workdir '{workdir}' must be absolute or under ~/");
            faults.push(Fault::new(at(spec_node, &["workdir"]), message));
        }
    }
    if let (Harness::On(other), Some(own)) = (&spec.harness, runtime)
        && other == own
    {
        faults.push(Fault::new(at(spec_node, &["harness"]), "its harness names itself; env is its own machine"));
    }
    if let (Endpoint::Other(_), Some(own)) = (&spec.endpoint, runtime)
        && own.backend == Backend::Local
    {
        faults.push(Fault::new(at(spec_node, &["endpoint"]), "local has no endpoint"));
    }
}

/// The spec of an environment.
pub(crate) fn environment(root: &Node, spec: &mut EnvironmentSpec, context: &Context, faults: &mut Vec<Fault>) {
    image(root, &["spec", "image"], spec.image.as_deref(), faults);
    share(root, &["spec"], spec.cpus, spec.memory, faults);
    if let Some(workdir) = &mut spec.workdir {
        resolve(root, &["spec", "workdir"], workdir, context, faults);
    }
}

fn role(root: &Node, path: &[&str], role: &str, faults: &mut Vec<Fault>) {
    if !name::is_identifier(role) {
        let near = role.replace(['-', '.', ' '], "_");
        let better = name::is_identifier(&near).then(|| format!("did you mean '{near}'?"));
        faults.push(Fault::new(key_at(root, path), format!("the role '{role}' is not an identifier")).suggest(better));
    }
}

/// The spec of a flow: every role a step names is declared, and no two steps share an id.
pub(crate) fn flow(root: &Node, spec: &FlowSpec, faults: &mut Vec<Fault>) {
    for name in spec.agents.keys() {
        role(root, &["spec", "agents", name], name, faults);
    }
    for (name, environment) in &spec.environments {
        role(root, &["spec", "environments", name], name, faults);
        image(root, &["spec", "environments", name, "image"], environment.image.as_deref(), faults);
        share(root, &["spec", "environments", name], environment.cpus, environment.memory, faults);
    }
    if spec.steps.is_empty() {
        faults.push(Fault::new(key_at(root, &["spec", "steps"]), "a flow needs at least one step"));
    }
    let agents: Vec<&str> = spec.agents.keys().map(String::as_str).collect();
    let environments: Vec<&str> = spec.environments.keys().map(String::as_str).collect();
    let nodes = match root.at_path(&["spec", "steps"]).map(|n| &n.value) {
        Some(Value::Seq(items)) => items.as_slice(),
        _ => &[],
    };
    let params: Vec<&str> = spec.params.keys().map(String::as_str).collect();
    for name in &params {
        let place = key_at(root, &["spec", "params", name]);
        if !name::is_identifier(name) {
            faults.push(Fault::new(place, format!("the parameter '{name}' is not an identifier")));
        } else if *name == "budget" {
            faults.push(Fault::new(place, "a parameter cannot be called budget: that is the run's own"));
        }
    }
    let mut ids = BTreeSet::new();
    for (step, node) in spec.steps.iter().zip(nodes) {
        let before: Vec<&str> = ids.iter().copied().collect();
        let known = Known { params: &params, steps: &before };
        let (word, id) = match step {
            Step::Turn { agent, environment, id, .. } => {
                texts(node.at_path(&["turn", "prompt"]), known, faults);
                dangling(node, &["turn", "agent"], "agent", agent, &agents, faults);
                dangling(node, &["turn", "environment"], "environment", environment, &environments, faults);
                ("turn", id)
            }
            Step::Exec { environment, id, command, .. } => {
                texts(node.at_path(&["exec", "command"]), known, faults);
                dangling(node, &["exec", "environment"], "environment", environment, &environments, faults);
                if command.is_empty() {
                    faults.push(Fault::new(at(node, &["exec", "command"]), "the command is empty"));
                }
                ("exec", id)
            }
        };
        let Some(id) = id else { continue };
        if !name::is_identifier(id) {
            faults.push(Fault::new(at(node, &[word, "id"]), format!("the id '{id}' is not an identifier")));
        } else if !ids.insert(id.as_str()) {
            faults.push(Fault::new(at(node, &[word, "id"]), format!("the id '{id}' is there twice")));
        }
    }
}

/// The texts of a step: one, or a list of words.
fn texts(node: Option<&Node>, known: Known<'_>, faults: &mut Vec<Fault>) {
    let Some(node) = node else { return };
    match &node.value {
        Value::Scalar { text, .. } => {
            if let Err(wrong) = template::check(text, known) {
                let mut fault = Fault::new(node.at, wrong.message).suggest(wrong.suggestion);
                fault.inside = Some(Inside { text: text.clone(), line: wrong.line, column: wrong.column });
                faults.push(fault);
            }
        }
        Value::Seq(words) => words.iter().for_each(|word| texts(Some(word), known, faults)),
        Value::Map(_) => {}
    }
}

fn dangling(node: &Node, path: &[&str], what: &str, role: &str, declared: &[&str], faults: &mut Vec<Fault>) {
    if declared.contains(&role) {
        return;
    }
    let message = match declared {
        [] => format!("the flow declares no {what} role, so '{role}' is none"),
        _ => format!("the flow has no {what} role '{role}'"),
    };
    faults.push(Fault::new(at(node, path), message).suggest(suggestion(role, declared)));
}

/// The spec of a run.
pub(crate) fn run(root: &Node, spec: &mut RunSpec, context: &Context, faults: &mut Vec<Fault>) {
    if spec.flow.trim().is_empty() {
        faults.push(Fault::new(at(root, &["spec", "flow"]), "the flow has no name"));
    }
    for (name, agent) in &mut spec.agents {
        role(root, &["spec", "agents", name], name, faults);
        script(root, name, agent, context, faults);
    }
    for (name, request) in &mut spec.environments {
        role(root, &["spec", "environments", name], name, faults);
        match request {
            EnvironmentRequest::Text(EnvSpec { workdir: Some(workdir), .. }) => {
                resolve(root, &["spec", "environments", name], workdir, context, faults);
            }
            EnvironmentRequest::Text(_) => {}
            EnvironmentRequest::Place(place) => {
                image(root, &["spec", "environments", name, "image"], place.image.as_deref(), faults);
                share(root, &["spec", "environments", name], place.cpus, place.memory, faults);
                if let Some(workdir) = &mut place.workdir {
                    resolve(root, &["spec", "environments", name, "workdir"], workdir, context, faults);
                }
            }
        }
    }
}

/// The list of steps of a `script` agent is a file, relative to the manifest.
fn script(root: &Node, role: &str, agent: &mut AgentSpec, context: &Context, faults: &mut Vec<Fault>) {
    if agent.cli == "script" {
        resolve(root, &["spec", "agents", role], &mut agent.model, context, faults);
    }
}

/// The roles a run gives are roles its flow has; for a flow that is in the same text.
pub(crate) fn run_against_flow(root: &Node, run: &RunSpec, flow: &FlowSpec, faults: &mut Vec<Fault>) {
    let unknown = |kind: &str, given: Vec<&String>, declared: Vec<&String>, faults: &mut Vec<Fault>| {
        let known: Vec<&str> = declared.iter().map(|s| s.as_str()).collect();
        for name in given.into_iter().filter(|n| !known.contains(&n.as_str())) {
            let field = if kind == "agent" { "agents" } else { "environments" };
            let message = match known.as_slice() {
                [] => format!("{} has no {kind} role '{name}'", run.flow),
                _ => {
                    let list: Vec<String> = known.iter().map(|k| format!("'{k}'")).collect();
                    format!("{} has no {kind} role '{name}'; available roles are {}", run.flow, list.join(", "))
                }
            };
            let near = crate::suggest::nearest(name, known.iter().copied()).map(|n| format!("did you mean '{n}'?"));
            faults.push(Fault::new(key_at(root, &["spec", field, name]), message).suggest(near));
        }
    };
    unknown("agent", run.agents.keys().collect(), flow.agents.keys().collect(), faults);
    unknown("environment", run.environments.keys().collect(), flow.environments.keys().collect(), faults);
    let known: Vec<&str> = flow.params.keys().map(String::as_str).collect();
    for name in run.params.own.keys().filter(|name| !known.contains(&name.as_str())) {
        let message = match known.as_slice() {
            [] => format!("{} has no parameter '{name}'; it has none", run.flow),
            _ => format!("{} has no parameter '{name}'; its parameters are '{}'", run.flow, known.join("', '")),
        };
        let near = crate::suggest::nearest(name, known.iter().copied()).map(|n| format!("did you mean '{n}'?"));
        faults.push(Fault::new(key_at(root, &["spec", "params", name]), message).suggest(near));
    }
}
