//! What a listing shows of each kind: its columns, and the cells of a resource. Printed, never branched on.
//!
//! The only place that says so: tables here and the rows the daemon sends ([`crate::rest::table`]) are made of these cells.

pub mod age;
pub mod align;
pub mod phase;
pub mod runtime;

use crate::kinds::condition;
use crate::{AnyResource, Environment, Flow, Kind, Resource, Run, Runtime};
use jiff::Timestamp;
use std::borrow::Cow;
use std::fmt::Display;

/// What nothing looks like.
pub const NONE: &str = "<none>";
/// What nobody knows looks like.
pub const UNKNOWN: &str = "<unknown>";

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell<'a> {
    /// A text, as it is said by whoever said it: it may have anything in it.
    Text(Cow<'a, str>),
    /// How long ago that was.
    Age(Option<Timestamp>),
}

impl<'a> Cell<'a> {
    /// What it says at that time.
    pub fn text(self, now: Timestamp) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Age(then) => Cow::Owned(age::age(then, now)),
        }
    }
}

/// The columns of a kind: all of them, and how many there are where not all are wanted.
type Columns = (&'static [&'static str], usize);

const RUN: Columns = (&["NAME", "FLOW", "STATUS", "AGE", "AGENTS", "ENVIRONMENTS", "EPIC"], 4);
const ENVIRONMENT: Columns = (&["NAME", "RUNTIME", "IMAGE", "CPUS", "MEMORY", "READY", "AGE", "CONTAINER", "WORKDIR", "PID"], 7);
const RUNTIME: Columns = (
    &[
        "NAME",
        "ENDPOINT",
        "HARNESS",
        "CPUS",
        "MEMORY",
        "GPUS",
        "CONTAINERS",
        "REACHABLE",
        "SUFFICIENT",
        "AGE",
        "HANDED-OUT",
        "SOURCE",
        "VERSION",
    ],
    10,
);
const FLOW: Columns = (&["NAME", "AGENTS", "ENVIRONMENTS", "SOURCE", "DESCRIPTION"], 5);

/// The names of a kind's columns; none of a kind there is not.
pub fn headers(kind: &str, wide: bool) -> &'static [&'static str] {
    let (all, narrow) = match kind {
        Run::KIND => RUN,
        Environment::KIND => ENVIRONMENT,
        Runtime::KIND => RUNTIME,
        Flow::KIND => FLOW,
        _ => (&[] as &[_], 0),
    };
    if wide { all } else { &all[..narrow] }
}

/// A cell a column.
pub fn cells(item: &AnyResource, wide: bool) -> Vec<Cell<'_>> {
    match item {
        AnyResource::Run(r) => run(r, wide),
        AnyResource::Environment(r) => environment(r, wide),
        AnyResource::Runtime(r) => self::runtime(r, wide),
        AnyResource::Flow(r) => flow(r),
    }
}

fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
    Cell::Text(text.into())
}

/// The text, or that there is none.
fn said<'a>(value: Option<impl Into<Cow<'a, str>>>) -> Cell<'a> {
    text(value.map(Into::into).filter(|said| !said.is_empty()).unwrap_or(Cow::Borrowed(NONE)))
}

fn shown<'a>(value: Option<impl Display>) -> Cell<'a> {
    said(value.map(|value| value.to_string()))
}

/// Wide adds the container, the workdir and the box's pid 1.
fn environment(e: &Resource<Environment>, wide: bool) -> Vec<Cell<'_>> {
    let (spec, status) = (&e.spec, &e.status);
    let share = status.share.as_ref();
    let mut cells = vec![
        text(e.name()),
        text(status.used.as_ref().unwrap_or(&spec.runtime).to_string()),
        said(status.image.as_ref().or(spec.image.as_ref())),
        shown(share.map_or(spec.cpus, |s| s.cpus)),
        shown(share.map_or(spec.memory, |s| s.memory)),
        text(phase::ready(e)),
        Cell::Age(e.metadata.creation_timestamp),
    ];
    if wide {
        cells.push(said(status.container_name.as_ref()));
        cells.push(said(status.workdir.as_ref().or(spec.workdir.as_ref())));
        cells.push(shown(status.pid));
    }
    cells
}

/// Wide adds the agents, the environments and the directory of the journal.
fn run(r: &Resource<Run>, wide: bool) -> Vec<Cell<'_>> {
    let mut cells = vec![text(r.name()), text(&r.spec.flow), text(phase::run(r)), Cell::Age(r.metadata.creation_timestamp)];
    if wide {
        let agents: Vec<String> = r.spec.agents.iter().map(|(role, spec)| format!("{role}={spec}")).collect();
        let used = |role: &str| r.status.environments.get(role).and_then(|s| s.used.as_ref());
        let place = |(role, request): (&String, &crate::kinds::EnvironmentRequest)| {
            format!("{role}={}", used(role).unwrap_or(&request.place().runtime).at())
        };
        let environments: Vec<String> = r.spec.environments.iter().map(place).collect();
        cells.push(said(Some(agents.join(","))));
        cells.push(said(Some(environments.join(","))));
        cells.push(said(r.status.epic.as_ref()));
    }
    cells
}

/// Wide adds what is handed out, where each was declared and the daemon's version.
fn runtime(r: &Resource<Runtime>, wide: bool) -> Vec<Cell<'_>> {
    let holds = |kind: &str| text(phase::status(&r.status.conditions, kind));
    let mut cells = vec![
        text(r.name()),
        text(r.spec.endpoint.to_string()),
        text(r.spec.harness.to_string()),
        text(runtime::free_cpus(r)),
        text(runtime::free_memory(r)),
        text(runtime::free_gpus(r)),
        text(runtime::containers(r)),
        holds(condition::REACHABLE),
        holds(condition::SUFFICIENT),
        Cell::Age(r.metadata.creation_timestamp),
    ];
    if wide {
        cells.push(text(runtime::handed_out(r)));
        cells.push(text(runtime::source(r)));
        cells.push(said(r.status.version.as_ref()));
    }
    cells
}

fn flow(f: &Resource<Flow>) -> Vec<Cell<'_>> {
    let names = |keys: Vec<&str>| said(Some(keys.join(",")));
    vec![
        text(f.name()),
        names(f.spec.agents.keys().map(String::as_str).collect()),
        names(f.spec.environments.keys().map(String::as_str).collect()),
        text(f.status.source.as_deref().unwrap_or("manifest")),
        said(f.spec.description.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_cell_a_column() {
        for (kind, spec) in [
            ("Run", serde_json::json!({"flow": "f"})),
            ("Environment", serde_json::json!({"runtime": "docker:here"})),
            ("Runtime", serde_json::json!({})),
            ("Flow", serde_json::json!({"steps": []})),
        ] {
            let whole = serde_json::json!({"apiVersion": "hmz/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
            let item: AnyResource = serde_json::from_value(whole).unwrap();
            for wide in [false, true] {
                assert_eq!(cells(&item, wide).len(), headers(kind, wide).len(), "{kind}");
                let narrow = &cells(&item, true)[..headers(kind, false).len()];
                assert_eq!(cells(&item, false), narrow, "{kind}: wide only adds");
            }
        }
    }
}
