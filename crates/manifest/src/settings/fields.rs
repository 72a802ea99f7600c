//! What a type cannot say of a runtime's fields: which words they take, and which of them contradict each other.

use crate::check::{at, is_no_image, key_at};
use crate::de::Fault;
use crate::place::Context;
use crate::tree::{Node, Value};
use hmz_api::RuntimeRef;
use hmz_api::grammar::run_args;
use hmz_api::kinds::{Endpoint, Harness, RuntimeSpec, SshAddress, is_ssh_word};
use std::collections::BTreeSet;

/// Longest name prefix: a swarm service's name, with a dash and 8 hex digits after it, is at most 63 characters.
const PREFIX_MAX: usize = 54;

/// The name refusals say.
fn name(runtime: Option<&RuntimeRef>) -> String {
    runtime.map_or_else(|| "docker".to_owned(), |r| r.name.clone().unwrap_or_else(|| r.backend.to_string()))
}

/// Whether a field's value can be read at all where the refusal is said in other words than its type's: amounts below
/// zero, and the list of runtimes to fall back to.
pub(super) fn readable(runtime: Option<&RuntimeRef>, key: &str, node: &Node, faults: &mut Vec<Fault>) -> bool {
    let n = name(runtime);
    let before = faults.len();
    let amount = match key {
        "cpus" => "CPUs",
        "memory" => "memory",
        "gpu_memory" => "GPU memory",
        "max_containers" => "containers",
        "max_tasks" => "tasks",
        _ => "",
    };
    match &node.value {
        Value::Scalar { text, plain: true } if !amount.is_empty() && text.parse::<f64>().is_ok_and(|v| v < 0.0) => {
            faults.push(Fault::new(node.at, format!("{n}: {amount} cannot be negative: {text}")));
        }
        Value::Scalar { text, .. } if key == "port" && text.parse::<u16>().is_err() => {
            faults.push(Fault::new(node.at, format!("{n}: invalid port {text}")));
        }
        Value::Seq(items) if key == "fallback" => {
            for item in items {
                let text = item.text().unwrap_or_default();
                let fine = text.contains(':') && text.parse::<RuntimeRef>().is_ok_and(|r| r.backend != hmz_api::Backend::Local);
                if !fine {
                    let message = format!(
                        "{n}: fallback '{text}' must be <backend>:<name>, the backend one of ssh, docker, swarm, apple-container, slurm"
                    );
                    faults.push(Fault::new(item.at, message));
                }
            }
        }
        _ => {}
    }
    faults.len() == before
}

/// The faults of one entry, each said with the name of the runtime and at its field.
struct Check<'a> {
    node: &'a Node,
    name: String,
    faults: &'a mut Vec<Fault>,
}

impl Check<'_> {
    fn say(&mut self, path: &[&str], text: impl std::fmt::Display) {
        let message = format!("{}: {text}", self.name);
        self.plain(path, message);
    }

    fn plain(&mut self, path: &[&str], message: String) {
        self.faults.push(Fault::new(at(self.node, path), message));
    }

    /// At an item of a list.
    fn item(&mut self, field: &str, index: usize, text: impl std::fmt::Display) {
        let list = self.node.at_path(&[field]).map(|n| &n.value);
        let place = match list {
            Some(Value::Seq(items)) => items.get(index).map(|n| n.at),
            _ => None,
        };
        let message = format!("{}: {text}", self.name);
        self.faults.push(Fault::new(place.unwrap_or_else(|| at(self.node, &[field])), message));
    }

    fn path(&mut self, field: &str, what: &str, value: &mut Option<String>, context: &Context) {
        let Some(text) = value else { return };
        if text.contains(['\n', '\0', '"']) {
            return self.plain(&[field], format!("{what} '{text}' cannot contain newlines or quotes"));
        }
        match context.absolute(text) {
            Ok(absolute) => *text = absolute,
            Err(message) => self.plain(&[field], message),
        }
    }
}

/// Checks a spec that was read from `node`, and makes its paths absolute.
pub(super) fn check(
    node: &Node,
    runtime: Option<&RuntimeRef>,
    spec: &mut RuntimeSpec,
    context: &Context,
    faults: &mut Vec<Fault>,
) {
    let mut c = Check { node, name: name(runtime), faults };
    daemon(&mut c, spec, context);
    if spec.container.is_none() {
        use hmz_api::Backend::{Docker, Swarm};
        boxes(&mut c, spec, runtime.is_none_or(|r| matches!(r.backend, Docker | Swarm)));
    }
    execution(&mut c, spec);
    beside_container(&mut c, spec);
    shares(&mut c, spec);
    places(&mut c, runtime, spec, context);
    swarm(&mut c, spec);
    if let Some(runtime) = runtime.filter(|_| node.at_path(&["harness"]).is_none()) {
        spec.harness = RuntimeSpec::of(runtime.backend).harness;
    }
    if runtime.is_some_and(|r| r.backend == hmz_api::Backend::Ssh) {
        ssh(&mut c, spec, context);
    }
}

fn daemon(c: &mut Check<'_>, spec: &mut RuntimeSpec, context: &Context) {
    if spec.tls_dir.is_some() && !matches!(spec.endpoint, Endpoint::Tcp { .. }) {
        c.say(&["tls_dir"], "TLS certificates require a tcp:// endpoint");
    }
    let mut dir = spec.tls_dir.take();
    c.path("tls_dir", "the TLS directory", &mut dir, context);
    spec.tls_dir = dir;
}

fn is_word(text: &str, first: impl Fn(u8) -> bool, more: &[u8]) -> bool {
    text.bytes().next().is_some_and(first) && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
}

fn boxes(c: &mut Check<'_>, spec: &RuntimeSpec, docker: bool) {
    if let Some(image) = spec.image.as_deref().filter(|i| is_no_image(i)) {
        c.say(&["image"], format!("invalid image '{image}'"));
    }
    if let Some(runtime) = spec.runtime.as_deref().filter(|r| !is_ssh_word(r)) {
        c.say(&["runtime"], format!("invalid OCI runtime '{runtime}'"));
    }
    if let Some(index) = spec.run_args.iter().position(|a| a.contains(['\n', '\0'])) {
        c.item("run_args", index, "an argument cannot contain newlines");
    } else if docker && let Err(wrong) = run_args::parse(&spec.run_args) {
        c.item("run_args", wrong.index, wrong.message);
    }
    let Some(prefix) = spec.name_prefix.as_deref() else { return };
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    if !is_word(prefix, |b| b.is_ascii_alphanumeric(), b"_-") || !ends(prefix.bytes().next_back()) {
        c.say(
            &["name_prefix"],
            format!(
                "invalid name prefix '{prefix}': letters, digits, dashes and underscores, starting and ending with a letter or a digit"
            ),
        );
    } else if prefix.len() > PREFIX_MAX {
        c.say(
            &["name_prefix"],
            format!(
                "name prefix '{prefix}' is longer than {PREFIX_MAX} characters: with a dash and 8 hex digits after it, a swarm service's name would be longer than 63"
            ),
        );
    }
}

fn execution(c: &mut Check<'_>, spec: &RuntimeSpec) {
    if let Some(container) = spec.container.as_deref().filter(|t| !is_word(t, |b| b.is_ascii_alphanumeric(), b"_.-")) {
        c.say(&["container"], format!("invalid container '{container}'"));
    }
    if let Some(user) = spec.exec_user.as_deref() {
        let (uid, gid) = user.split_once(':').map_or((user, None), |(uid, gid)| (uid, Some(gid)));
        let number = |t: &str| t.bytes().all(|b| b.is_ascii_digit()) && t.parse::<u32>().is_ok_and(|n| n < u32::MAX);
        if !number(uid) || !gid.is_none_or(number) {
            c.say(&["exec_user"], format!("exec user '{user}' is not UID[:GID]"));
        }
    }
    for (index, variable) in spec.exec_env.iter().enumerate() {
        let fine = variable.split_once('=').is_some_and(|(name, _)| hmz_api::name::is_identifier(name));
        // a value may be a secret, and so may all of one that has no name: the place says which it is
        let shown = variable.split_once('=').map(|(name, _)| format!("exec variable '{name}=…'"));
        let shown = shown.unwrap_or_else(|| "an exec variable".to_owned());
        if !fine || variable.contains(['\n', '\0']) {
            c.item("exec_env", index, format!("{shown} is not NAME=VALUE"));
        } else if variable.starts_with("NVIDIA_VISIBLE_DEVICES=") {
            c.item("exec_env", index, format!("{shown} contradicts the GPUs a box is granted"));
        }
    }
    for (index, word) in spec.exec_wrapper.iter().enumerate() {
        if word.is_empty() || word.contains(['\n', '\0']) {
            c.item("exec_wrapper", index, "an exec wrapper word is empty or two lines");
        }
    }
}

/// A runtime that works in a container that runs already starts none, so it has nothing to say about one.
fn beside_container(c: &mut Check<'_>, spec: &RuntimeSpec) {
    let Some(container) = &spec.container else { return };
    let said = [
        ("an image", spec.image.is_some(), "image"),
        ("an OCI runtime", spec.runtime.is_some(), "runtime"),
        ("run arguments", !spec.run_args.is_empty(), "run_args"),
        ("a name prefix", spec.name_prefix.is_some(), "name_prefix"),
        ("what it may hand out", spec.cpus.is_some(), "cpus"),
        ("what it may hand out", spec.memory.is_some(), "memory"),
        ("what it may hand out", !spec.gpus.is_empty(), "gpus"),
        ("what it may hand out", spec.gpu_memory.is_some(), "gpu_memory"),
        ("a container limit", spec.max_containers.is_some(), "max_containers"),
        ("a default request", spec.default_request.is_some(), "default_request"),
        ("a lease", spec.lease.is_some(), "lease"),
    ];
    let mut words: Vec<&str> = said.iter().filter(|(_, is, _)| *is).map(|(word, ..)| *word).collect();
    words.dedup();
    let Some(first) = said.iter().filter(|(_, is, _)| *is).map(|(.., field)| key_at(c.node, &[field])).min() else { return };
    let message = format!(
        "{}: a runtime working in the running container {container} starts none, so it cannot say {}",
        c.name,
        words.join(" or ")
    );
    c.faults.push(Fault::new(first, message));
}

fn shares(c: &mut Check<'_>, spec: &mut RuntimeSpec) {
    // zero and nothing are the same, as in settings.yaml
    spec.cpus = spec.cpus.filter(|n| n.millis() > 0);
    spec.memory = spec.memory.filter(|m| m.bytes() > 0);
    spec.gpu_memory = spec.gpu_memory.filter(|m| m.bytes() > 0);
    spec.max_containers = spec.max_containers.filter(|n| *n > 0);
    spec.max_tasks = spec.max_tasks.filter(|n| *n > 0);
    if let Some(request) = &mut spec.default_request {
        request.cpus = request.cpus.filter(|n| n.millis() > 0);
        request.memory = request.memory.filter(|m| m.bytes() > 0);
        request.gpus = request.gpus.filter(|n| *n > 0);
    }
    let mut seen = BTreeSet::new();
    for (index, gpu) in spec.gpus.iter().enumerate() {
        if !is_word(gpu, |b| b.is_ascii_alphanumeric(), b"_.:-") {
            c.item("gpus", index, format!("invalid GPU id '{gpu}'"));
        } else if !seen.insert(gpu) {
            c.item("gpus", index, "duplicate GPU specified");
        }
    }
}

fn places(c: &mut Check<'_>, runtime: Option<&RuntimeRef>, spec: &mut RuntimeSpec, context: &Context) {
    if let (Harness::On(other), Some(own)) = (&spec.harness, runtime)
        && other == own
    {
        c.say(&["harness"], "its harness names itself; env is its own machine");
    }
    let mut seen = BTreeSet::new();
    for (index, other) in spec.fallback.iter().enumerate() {
        if Some(other) == runtime {
            c.item("fallback", index, "a runtime cannot fall back to itself");
        } else if !seen.insert(other) {
            c.item("fallback", index, format!("fallback {other} is named twice"));
        }
    }
    let Some(workdir) = &mut spec.workdir else { return };
    let text = workdir.clone();
    let home = text == "~" || text.starts_with("~/");
    if text.contains(['\n', '\0', '"']) {
        c.plain(&["workdir"], format!("the workdir '{text}' cannot contain newlines or quotes"));
    } else if home && spec.container.is_some() {
        c.plain(&["workdir"], format!("the workdir '{text}' is a path in the container, so it must be absolute"));
    } else if home && matches!(spec.endpoint, Endpoint::Tcp { .. } | Endpoint::Ssh(_) | Endpoint::Saved(_)) {
        let of = if runtime.is_some_and(|r| r.backend == hmz_api::Backend::Swarm) { "swarm" } else { "host" };
        c.plain(&["workdir"], format!("{text} is on a remote docker {of}, so it must be an absolute path"));
    } else if home && runtime.is_some_and(|r| r.backend == hmz_api::Backend::Ssh) {
        // of the far home, which only the host itself knows
    } else if text.starts_with('/') || home {
        match context.absolute(&text) {
            Ok(absolute) => *workdir = absolute,
            Err(message) => c.plain(&["workdir"], message),
        }
    } else {
        c.plain(&["workdir"], format!("the workdir '{text}' must be absolute or under ~/"));
    }
}

fn swarm(c: &mut Check<'_>, spec: &RuntimeSpec) {
    if let Some(resource) = spec.gpu_resource.as_deref().filter(|r| !is_word(r, |b| b.is_ascii_alphabetic(), b"._-")) {
        c.say(&["gpu_resource"], format!("invalid generic resource '{resource}'"));
    }
    for (index, constraint) in spec.constraints.iter().enumerate() {
        let parts = constraint.split_once("==").or_else(|| constraint.split_once("!="));
        let fine = parts.is_some_and(|(attribute, value)| {
            is_word(attribute.trim(), |b| b.is_ascii_alphabetic(), b"._/-") && !value.trim().is_empty()
        });
        if !fine || constraint.contains(['\n', '\0']) {
            let text = format!("invalid constraint '{constraint}': expected <attribute>==<value> or <attribute>!=<value>");
            c.item("constraints", index, text);
        }
    }
    for (host, way) in &spec.nodes {
        if !is_ssh_word(host) {
            c.faults.push(Fault::new(key_at(c.node, &["nodes", host]), format!("{}: invalid node host name '{host}'", c.name)));
        } else if RuntimeRef::check_name(way).is_err() && way.parse::<SshAddress>().is_err() {
            let text = format!("node {host}: '{way}' is neither a saved ssh host nor [user@]host[:port]");
            c.say(&["nodes", host], text);
        }
    }
}

/// Fields of ssh's configuration that have a field of ours.
pub(crate) const SSH_FIELDS: [(&str, &str); 5] =
    [("hostname", "host"), ("user", "user"), ("port", "port"), ("identityfile", "identity_file"), ("proxyjump", "proxy_jump")];

fn ssh(c: &mut Check<'_>, spec: &mut RuntimeSpec, context: &Context) {
    for (field, what, value) in
        [("host", "ssh host", &spec.host), ("alias", "ssh alias", &spec.alias), ("user", "ssh user", &spec.user)]
    {
        if let Some(text) = value.as_deref().filter(|t| !is_ssh_word(t)) {
            c.say(&[field], format!("invalid {what} '{text}'"));
        }
    }
    if spec.host.is_none() && spec.alias.is_none() {
        c.say(&[], "an ssh host requires a hostname or an alias");
    }
    let jump = |t: &str| is_word(t, |b| b.is_ascii_alphanumeric() || b == b'_', b"._%+@:,[]-");
    if let Some(text) = spec.proxy_jump.as_deref().filter(|t| !jump(t)) {
        c.say(&["proxy_jump"], format!("invalid jump host '{text}'"));
    }
    if let Some(text) = spec.identity_file.as_deref().filter(|t| t.contains(['\n', '\0', '"'])) {
        c.plain(&["identity_file"], format!("the identity file '{text}' cannot contain newlines or quotes"));
    }
    for (key, value) in &spec.options {
        let path: &[&str] = &["options", key];
        let lower = key.to_ascii_lowercase();
        if !is_word(key, |b| b.is_ascii_alphabetic(), b"") || key.as_str() == "F" {
            c.say(path, format!("invalid ssh option '{key}'"));
        } else if let Some((_, field)) = SSH_FIELDS.iter().find(|(option, _)| *option == lower) {
            c.say(path, format!("{key} must be set with {field}, not as an option"));
        } else if value.is_empty() {
            c.say(path, format!("option {key} cannot be empty"));
        } else if value.contains(['\n', '\0', '"']) {
            c.say(path, format!("option {key} cannot contain newlines or quotes"));
        }
    }
    let mut config = spec.config.take();
    c.path("config", "the ssh config", &mut config, context);
    spec.config = config;
}
