//! One resource in full, for a person.

use super::clean::clean;
use super::table;
use hmz_api::columns::age::{age, length};
use hmz_api::columns::{phase, runtime};
use hmz_api::{AnyResource, Conditions, Environment, Flow, Metadata, Resource, Run, Runtime};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Lines of a label and a value; the values stand under each other.
#[derive(Default)]
struct Lines(Vec<(usize, String, String)>);

impl Lines {
    fn add(&mut self, level: usize, label: &str, value: impl ToString) {
        self.0.push((level, label.to_owned(), value.to_string()));
    }

    fn some(&mut self, level: usize, label: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(level, label, value);
        }
    }

    fn render(&self) -> String {
        let width =
            self.0.iter().filter(|l| !l.2.is_empty()).map(|(n, label, _)| n * 2 + label.chars().count()).max().unwrap_or(0) + 3;
        let mut out = String::new();
        for (level, label, value) in &self.0 {
            let head = format!("{}{label}:", "  ".repeat(*level));
            let value = clean(value).replace('\n', &format!("\n{}", " ".repeat(width)));
            let line = if value.is_empty() { head } else { format!("{head:<width$}{value}") };
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Everything about one resource: metadata, what is declared, what was observed, and its conditions last.
pub fn describe(resource: &AnyResource, now: Timestamp) -> String {
    let mut lines = Lines::default();
    metadata(&mut lines, resource.kind(), resource.metadata(), now);
    let conditions = match resource {
        AnyResource::Environment(r) => environment(&mut lines, r, now),
        AnyResource::Run(r) => run(&mut lines, r, now),
        AnyResource::Runtime(r) => runtime(&mut lines, r),
        AnyResource::Flow(r) => flow(&mut lines, r),
    };
    let mut out = lines.render();
    if let Some(conditions) = conditions {
        out.push_str(&conditions_table(conditions, now));
    }
    out
}

fn metadata(lines: &mut Lines, kind: &str, m: &Metadata, now: Timestamp) {
    lines.add(0, "Name", &m.name);
    lines.add(0, "Kind", kind);
    pairs(lines, "Labels", &m.labels);
    let mut annotations = m.annotations.clone();
    // it says again what the spec says
    annotations.remove(hmz_api::kinds::annotation::LAST_APPLIED);
    pairs(lines, "Annotations", &annotations);
    lines.some(0, "UID", m.uid);
    if m.generation > 0 {
        lines.add(0, "Generation", m.generation);
    }
    if let Some(created) = m.creation_timestamp {
        lines.add(0, "Created", format!("{} ({} ago)", second(created), age(Some(created), now)));
    }
    if let Some(deleted) = m.deletion_timestamp {
        lines.add(0, "Deleting since", format!("{} ({} ago)", second(deleted), age(Some(deleted), now)));
        if !m.finalizers.is_empty() {
            lines.add(0, "Waiting for", m.finalizers.join(", "));
        }
    }
    for owner in &m.owner_references {
        lines.add(0, "Owner", format!("{}/{}", table::kind_word(&owner.kind), owner.name));
    }
}

fn second(t: Timestamp) -> String {
    t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn pairs(lines: &mut Lines, label: &str, map: &BTreeMap<String, String>) {
    if map.is_empty() {
        return;
    }
    let all: Vec<String> = map.iter().map(|(k, v)| format!("{k}={v}")).collect();
    lines.add(0, label, all.join("\n"));
}

fn conditions_table(conditions: &Conditions, now: Timestamp) -> String {
    if conditions.0.is_empty() {
        return "Conditions:      <none>\n".into();
    }
    let rows = conditions
        .0
        .iter()
        .map(|c| {
            let since = age(Some(c.last_transition_time), now);
            vec![format!("  {}", c.kind), phase::word(c.status).to_owned(), c.reason.clone(), since, c.message.clone()]
        })
        .collect();
    let table = table::Table { headers: vec!["  TYPE", "STATUS", "REASON", "AGE", "MESSAGE"], rows };
    format!("Conditions:\n{}", table.render(None))
}

fn environment<'a>(lines: &mut Lines, r: &'a Resource<Environment>, now: Timestamp) -> Option<&'a Conditions> {
    lines.add(0, "Spec", "");
    lines.add(1, "Runtime", &r.spec.runtime);
    lines.some(1, "Workdir", r.spec.workdir.as_ref());
    lines.some(1, "Image", r.spec.image.as_ref());
    lines.some(1, "CPUs", r.spec.cpus);
    lines.some(1, "Memory", r.spec.memory);
    lines.some(1, "GPUs", r.spec.gpus);
    lines.some(1, "Memory of each", r.spec.gpu_memory);
    lines.add(1, "Restart", if r.spec.restart == hmz_api::kinds::RestartPolicy::Always { "always" } else { "never" });
    let s = &r.status;
    lines.add(0, "Status", "");
    lines.add(1, "Ready", phase::ready(r));
    lines.some(1, "Used", s.used.as_ref());
    lines.some(1, "Harness of", s.serves.as_ref().map(|of| format!("env/{} on {}", of.environment, of.runtime)));
    for passed in &s.passed_over {
        lines.add(1, "Passed over", format!("{}: {}", passed.runtime, passed.message));
    }
    lines.some(1, "Endpoint", s.endpoint.as_ref());
    lines.some(1, "Image", s.image.as_ref());
    lines.some(1, "Container", s.container_name.as_ref());
    lines.some(1, "Node", s.node.as_ref());
    lines.some(1, "Container ID", s.container_id.as_ref());
    lines.some(1, "PID", s.pid);
    lines.some(1, "Workdir", s.workdir.as_ref());
    lines.some(1, "Scratch", s.scratch.as_ref());
    if let Some(share) = &s.share {
        let mut parts = Vec::new();
        parts.extend(share.cpus.map(|c| format!("{c} CPUs")));
        parts.extend(share.memory.map(|m| format!("{m} of memory")));
        if !share.gpus.is_empty() {
            parts.push(format!("GPUs {}", share.gpus.join(", ")));
        }
        lines.add(1, "Share", if parts.is_empty() { "nothing was asked for".into() } else { parts.join(", ") });
    }
    if let Some(lease) = s.lease_seconds {
        lines.add(1, "Lease", format!("{lease}s without an owner"));
    }
    if s.incarnation > 0 {
        lines.add(1, "Incarnation", s.incarnation);
    }
    if let Some(started) = s.started_at {
        lines.add(1, "Started", format!("{} ({} ago)", second(started), age(Some(started), now)));
    }
    Some(&s.conditions)
}

fn run<'a>(lines: &mut Lines, r: &'a Resource<Run>, now: Timestamp) -> Option<&'a Conditions> {
    lines.add(0, "Spec", "");
    lines.add(1, "Flow", &r.spec.flow);
    lines.add(1, "Task", r.spec.task.trim_end());
    for (role, agent) in &r.spec.agents {
        lines.add(1, &format!("Agent {role}"), agent);
    }
    for (role, request) in &r.spec.environments {
        let place = request.place();
        let workdir = place.workdir.unwrap_or_default();
        lines.add(1, &format!("Environment {role}"), format!("{}{workdir}", place.runtime.at()));
    }
    lines.some(1, "Budget", r.spec.params.budget.duration.map(|d| format!("duration {d}")));
    for (name, value) in &r.spec.params.own {
        lines.add(1, &format!("Param {name}"), value);
    }
    let s = &r.status;
    lines.add(0, "Status", "");
    lines.add(1, "Phase", phase::run(r));
    for (role, status) in &s.environments {
        let name = status.environment.as_deref().unwrap_or("<none>");
        let used = status.used.as_ref().map(|u| format!(" on {u}")).unwrap_or_default();
        let used = used + &status.fell_back.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        lines.add(1, &format!("Environment {role}"), format!("env/{name}{used}"));
        if let Some(second) = &status.harness {
            lines.add(1, &format!("Harness of {role}"), format!("env/{} on {}", second.environment, second.runtime));
        }
    }
    lines.some(1, "Epic", s.epic.as_ref());
    if let Some(started) = s.started_at {
        lines.add(1, "Started", format!("{} ({} ago)", second(started), age(Some(started), now)));
        if let Some(finished) = s.finished_at {
            let took = length(finished.as_second() - started.as_second());
            lines.add(1, "Finished", format!("{} (after {took})", second(finished)));
        }
    }
    Some(&s.conditions)
}

fn runtime<'a>(lines: &mut Lines, r: &'a Resource<Runtime>) -> Option<&'a Conditions> {
    lines.add(0, "Spec", "");
    lines.add(1, "Endpoint", &r.spec.endpoint);
    lines.add(1, "Harness", &r.spec.harness);
    lines.some(1, "Image", r.spec.image.as_ref());
    lines.some(1, "CPUs", r.spec.cpus);
    lines.some(1, "Memory", r.spec.memory);
    if !r.spec.gpus.is_empty() {
        lines.add(1, "GPUs", r.spec.gpus.join(", "));
    }
    lines.some(1, "Memory of each", r.spec.gpu_memory);
    lines.some(1, "Max containers", r.spec.max_containers);
    if !r.spec.fallback.is_empty() {
        lines.add(1, "Falls back to", r.spec.fallback.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    lines.some(1, "Workdir", r.spec.workdir.as_ref());
    lines.some(1, "Lease", r.spec.lease);
    let s = &r.status;
    lines.add(0, "Status", "");
    lines.add(1, "Source", runtime::source(r));
    lines.some(1, "Version", s.version.as_ref());
    lines.some(1, "Daemon CPUs", s.cpus);
    lines.some(1, "Daemon memory", s.memory.map(runtime::memory));
    if !s.gpus.is_empty() {
        lines.add(1, "Daemon GPUs", s.gpus.join(", "));
    }
    if !s.runtimes.is_empty() {
        lines.add(1, "OCI runtimes", s.runtimes.join(", "));
    }
    lines.add(1, "CPUs free", runtime::free_cpus(r));
    lines.add(1, "Memory free", runtime::free_memory(r));
    let gpus = runtime::gpus(r);
    if !gpus.is_empty() {
        let free = runtime::which_gpus_free(r);
        let which = if free.is_empty() { String::new() } else { format!(" ({})", free.join(", ")) };
        lines.add(1, "GPUs free", format!("{}{which}", runtime::free_gpus(r)));
        if !s.silent_gpus.is_empty() {
            lines.add(1, "GPUs silent", format!("{} (they did not answer when they were asked last)", s.silent_gpus.join(", ")));
        }
    }
    lines.add(1, "Containers", runtime::containers(r));
    lines.add(1, "Handed out", runtime::handed_out(r));
    for holder in &s.holders {
        let mut parts = Vec::new();
        parts.extend(holder.cpus.map(|c| format!("{c} CPUs")));
        parts.extend(holder.memory.map(|m| format!("{} of memory", runtime::memory(m))));
        if !holder.gpus.is_empty() {
            parts.push(format!("GPU {}", holder.gpus.join(", ")));
        }
        let share = if parts.is_empty() { "nothing".into() } else { parts.join(", ") };
        let run = holder.run.as_ref().map(|run| format!(", run {run}")).unwrap_or_default();
        lines.add(1, "Held", format!("{share} by {} ('{}' of {}{run})", holder.name, holder.role, holder.host));
    }
    Some(&s.conditions)
}

fn flow<'a>(lines: &mut Lines, r: &'a Resource<Flow>) -> Option<&'a Conditions> {
    lines.some(0, "Description", r.spec.description.as_ref());
    lines.add(0, "Source", r.status.source.as_deref().unwrap_or("manifest"));
    for (role, agent) in &r.spec.agents {
        lines.add(0, &format!("Agent {role}"), agent.description.as_deref().unwrap_or("<no description>"));
    }
    for (role, e) in &r.spec.environments {
        let mut parts: Vec<String> = e.description.iter().map(|d| d.trim_end_matches('.').to_owned()).collect();
        parts.extend(e.image.iter().cloned());
        parts.extend(e.cpus.map(|c| format!("{c} CPUs")));
        parts.extend(e.memory.map(|m| format!("{m} of memory")));
        parts.extend(e.gpus.map(|g| format!("{g} GPUs")));
        let asks = if parts.is_empty() { "<asks for nothing>".into() } else { parts.join(", ") };
        lines.add(0, &format!("Environment {role}"), asks);
    }
    for (name, param) in &r.spec.params {
        let mut parts: Vec<String> = param.description.iter().map(|d| d.trim_end_matches('.').to_owned()).collect();
        parts.push(param.default.as_ref().map_or_else(|| "has to be given".to_owned(), |value| format!("default {value}")));
        lines.add(0, &format!("Parameter {name}"), parts.join(", "));
    }
    lines.add(0, "Steps", "");
    for (number, step) in r.spec.steps.iter().enumerate() {
        let text = match step {
            hmz_api::kinds::Step::Turn { agent, environment, prompt, .. } => {
                format!("turn of {agent} in {environment}: {prompt}")
            }
            hmz_api::kinds::Step::Exec { environment, command, .. } => {
                let command = match command {
                    hmz_api::kinds::Command::Shell(text) => text.clone(),
                    hmz_api::kinds::Command::Words(words) => words.join(" "),
                };
                format!("exec in {environment}: {command}")
            }
        };
        lines.add(1, &format!("{}", number + 1), text);
    }
    None
}
