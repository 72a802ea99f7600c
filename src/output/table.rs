//! Tables as kubectl prints them: NAME first, no borders, three spaces between columns.

use super::age::age;
use super::clean::{cut, line, one_line};
use super::phase;
use hmz_api::kinds::condition;
use hmz_api::rest::{SettingsAnswer, SettingsLine};
use hmz_api::{AnyResource, Cpus, Environment, Flow, Memory, Resource, Run, Runtime};
use jiff::Timestamp;
use std::borrow::Cow;

/// Columns and rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The names of the columns.
    pub headers: Vec<&'static str>,
    /// A cell a column.
    pub rows: Vec<Vec<String>>,
}

/// What nothing looks like.
const NONE: &str = "<none>";
/// What nobody knows looks like.
const UNKNOWN: &str = "<unknown>";

impl Table {
    /// The table as text, each line with a newline. Lines are cut at `width` characters when there is one: a terminal's.
    pub fn render(&self, width: Option<usize>) -> String {
        self.render_after(&mut Vec::new(), width)
    }

    /// The rows of a table that is printed bit by bit: below the first ones the headers are left out. `widths` are those of
    /// the columns so far, none at the beginning; they grow and never shrink.
    pub fn render_after(&self, widths: &mut Vec<usize>, width: Option<usize>) -> String {
        let headers = self.headers.iter().map(|header| Cow::Borrowed(*header)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| line(cell)).collect());
        let lines: Vec<Vec<Cow<'_, str>>> =
            if widths.is_empty() { std::iter::once(headers).chain(rows).collect() } else { rows.collect() };
        align(&lines, widths, width)
    }
}

/// Lines of cells, each column as wide as it has to be. `widths` are those of the columns so far; they grow and never shrink.
pub fn align(lines: &[Vec<impl AsRef<str>>], widths: &mut Vec<usize>, width: Option<usize>) -> String {
    const BETWEEN: &str = "   ";
    widths.resize(lines.iter().map(Vec::len).max().unwrap_or(0).max(widths.len()), 0);
    for line in lines {
        for (cell, width) in line.iter().zip(widths.iter_mut()) {
            *width = cell.as_ref().chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for line in lines {
        let begin = out.len();
        for (at, (cell, width)) in line.iter().zip(&*widths).enumerate() {
            let cell = cell.as_ref();
            out.push_str(if at == 0 { "" } else { BETWEEN });
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        let end = out.trim_end().len().max(begin);
        out.truncate(end);
        if let Some(width) = width {
            let line = cut(&out[begin..], width.max(1));
            out.replace_range(begin.., &line);
        }
        out.push('\n');
    }
    out
}

fn or(value: Option<impl ToString>, nothing: &str) -> String {
    value.map(|v| v.to_string()).filter(|v| !v.is_empty()).unwrap_or_else(|| nothing.to_owned())
}

/// Environments. Wide adds the container, the workdir and the box's pid 1.
pub fn environments<'a>(items: impl IntoIterator<Item = &'a Resource<Environment>>, wide: bool, now: Timestamp) -> Table {
    let mut headers = vec!["NAME", "RUNTIME", "IMAGE", "CPUS", "MEMORY", "READY", "AGE"];
    if wide {
        headers.extend(["CONTAINER", "WORKDIR", "PID"]);
    }
    let row = |e: &Resource<Environment>| {
        let share = e.status.share.as_ref();
        let mut cells = vec![
            e.name().to_owned(),
            e.status.used.as_ref().unwrap_or(&e.spec.runtime).to_string(),
            or(e.status.image.as_ref().or(e.spec.image.as_ref()), NONE),
            or(share.map_or(e.spec.cpus, |s| s.cpus), NONE),
            or(share.map_or(e.spec.memory, |s| s.memory), NONE),
            phase::ready(e),
            age(e.metadata.creation_timestamp, now),
        ];
        if wide {
            cells.push(or(e.status.container_name.as_ref(), NONE));
            cells.push(or(e.status.workdir.as_ref().or(e.spec.workdir.as_ref()), NONE));
            cells.push(or(e.status.pid, NONE));
        }
        cells
    };
    Table { headers, rows: items.into_iter().map(row).collect() }
}

/// What became of settings.yaml.
pub fn settings(answer: &SettingsAnswer) -> Table {
    let headers = vec!["NAME", "CONDITION", "REASON", "MESSAGE"];
    let row = |line: &SettingsLine| {
        vec![line.name.clone(), format!("{}={:?}", line.kind, line.status), line.reason.clone(), line.message.clone()]
    };
    Table { headers, rows: answer.conditions.iter().map(row).collect() }
}

/// Runs. Wide adds the agents, the environments and the directory of the journal.
pub fn runs<'a>(items: impl IntoIterator<Item = &'a Resource<Run>>, wide: bool, now: Timestamp) -> Table {
    let mut headers = vec!["NAME", "FLOW", "STATUS", "AGE"];
    if wide {
        headers.extend(["AGENTS", "ENVIRONMENTS", "EPIC"]);
    }
    let row = |r: &Resource<Run>| {
        let mut cells = vec![r.name().to_owned(), r.spec.flow.clone(), phase::run(r), age(r.metadata.creation_timestamp, now)];
        if wide {
            let agents: Vec<String> = r.spec.agents.iter().map(|(role, spec)| format!("{role}={spec}")).collect();
            let used = |role: &str| r.status.environments.get(role).and_then(|s| s.used.as_ref());
            let environments: Vec<String> = r
                .spec
                .environments
                .iter()
                .map(|(role, request)| {
                    let place = request.place();
                    format!("{role}={}", used(role).unwrap_or(&place.runtime).at())
                })
                .collect();
            cells.push(or(Some(agents.join(",")), NONE));
            cells.push(or(Some(environments.join(",")), NONE));
            cells.push(or(r.status.epic.as_ref(), NONE));
        }
        cells
    };
    Table { headers, rows: items.into_iter().map(row).collect() }
}

/// How much of the allowance is left: `2/4`. A runtime that declares no allowance hands out what the daemon has.
fn free<T: Copy>(
    allowance: Option<T>,
    has: Option<T>,
    held: Option<T>,
    less: impl Fn(T, T) -> T,
    show: impl Fn(T) -> String,
) -> String {
    match (allowance.or(has), held) {
        (Some(total), Some(held)) => format!("{}/{}", show(less(total, held)), show(total)),
        (Some(total), None) => format!("?/{}", show(total)),
        (None, _) => UNKNOWN.into(),
    }
}

/// An amount of memory in one short word: exact when it is whole in M or more, else whole G (or M, K under one) rounded
/// down, as `2015G`.
pub fn memory(amount: Memory) -> String {
    let bytes = amount.bytes();
    let whole = |shift: u32| bytes >> shift > 0;
    if bytes.is_multiple_of(1 << 20) && whole(20) {
        return amount.to_string();
    }
    match [("G", 30), ("M", 20), ("K", 10)].into_iter().find(|(_, shift)| whole(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// CPUs free of all, `2/4`.
pub fn free_cpus(r: &Resource<Runtime>) -> String {
    let less = |total: Cpus, held: Cpus| Cpus::from_millis(total.millis().saturating_sub(held.millis()));
    let (held, total) = (r.status.held_cpus.map(Cpus::millis), r.spec.cpus.or(r.status.cpus).map(Cpus::millis));
    let over = over(held, total, |beyond| Cpus::from_millis(beyond).to_string());
    free(r.spec.cpus, r.status.cpus, r.status.held_cpus, less, |c| c.to_string()) + &over
}

/// Memory free of all, `4G/8G`.
pub fn free_memory(r: &Resource<Runtime>) -> String {
    let less = |total: Memory, held: Memory| Memory::from_bytes(total.bytes().saturating_sub(held.bytes()));
    let (held, total) = (r.status.held_memory.map(Memory::bytes), r.spec.memory.or(r.status.memory).map(Memory::bytes));
    let over = over(held, total, |beyond| memory(Memory::from_bytes(beyond)));
    free(r.spec.memory, r.status.memory, r.status.held_memory, less, memory) + &over
}

/// The GPUs it hands out: those that were saved, else those its daemon lists.
pub fn gpus(r: &Resource<Runtime>) -> &[String] {
    if r.spec.gpus.is_empty() { &r.status.gpus } else { &r.spec.gpus }
}

/// GPUs free of all, `1/2`; `<none>` where there are none.
pub fn free_gpus(r: &Resource<Runtime>) -> String {
    let all = gpus(r);
    match (all.len(), r.status.held_gpus.len()) {
        (0, 0) => NONE.into(),
        (_, _) => format!("{}/{}", which_gpus_free(r).len(), all.len()),
    }
}

/// The GPUs it hands out that nobody has and that answer, as far as that is known.
pub fn which_gpus_free(r: &Resource<Runtime>) -> Vec<&str> {
    let s = &r.status;
    gpus(r).iter().filter(|id| !s.held_gpus.contains(id) && !s.silent_gpus.contains(id)).map(String::as_str).collect()
}

/// How much more is handed out than there is: ` (2 over)`, or nothing.
fn over(held: Option<u64>, total: Option<u64>, show: impl Fn(u64) -> String) -> String {
    let beyond = held.zip(total).map_or(0, |(held, total)| held.saturating_sub(total));
    if beyond > 0 { format!(" ({} over)", show(beyond)) } else { String::new() }
}

/// Containers that run, of those it may: `1/2`, or `1` without a limit.
pub fn containers(r: &Resource<Runtime>) -> String {
    let running = or(r.status.containers, "?");
    match r.spec.max_containers {
        Some(most) => format!("{running}/{most}"),
        None if r.status.containers.is_none() => UNKNOWN.into(),
        None => running,
    }
}

/// What is handed out: `2.5 CPUs, 4G, 1 GPU`.
pub fn handed_out(r: &Resource<Runtime>) -> String {
    let s = &r.status;
    if s.held_cpus.is_none() {
        return UNKNOWN.into();
    }
    let cpus =
        s.held_cpus.filter(|c| *c != Cpus::default()).map(|c| format!("{c} CPU{}", if c == Cpus::whole(1) { "" } else { "s" }));
    let memory = s.held_memory.filter(|m| *m != Memory::default()).map(memory);
    let gpus = match s.held_gpus.len() {
        0 => None,
        1 => Some("1 GPU".to_owned()),
        n => Some(format!("{n} GPUs")),
    };
    or(Some([cpus, memory, gpus].into_iter().flatten().collect::<Vec<_>>().join(", ")), NONE)
}

/// Runtimes. Wide adds what is handed out, where each was declared and the daemon's version.
pub fn runtimes<'a>(items: impl IntoIterator<Item = &'a Resource<Runtime>>, wide: bool, now: Timestamp) -> Table {
    let mut headers =
        vec!["NAME", "ENDPOINT", "HARNESS", "CPUS", "MEMORY", "GPUS", "CONTAINERS", "REACHABLE", "SUFFICIENT", "AGE"];
    if wide {
        headers.extend(["HANDED-OUT", "SOURCE", "VERSION"]);
    }
    let row = |r: &Resource<Runtime>| {
        let mut cells = vec![
            r.name().to_owned(),
            r.spec.endpoint.to_string(),
            r.spec.harness.to_string(),
            free_cpus(r),
            free_memory(r),
            free_gpus(r),
            containers(r),
            phase::status(&r.status.conditions, condition::REACHABLE).to_owned(),
            phase::status(&r.status.conditions, condition::SUFFICIENT).to_owned(),
            age(r.metadata.creation_timestamp, now),
        ];
        if wide {
            cells.push(handed_out(r));
            cells.push(source(r).to_owned());
            cells.push(or(r.status.version.as_ref(), NONE));
        }
        cells
    };
    Table { headers, rows: items.into_iter().map(row).collect() }
}

/// The word for where a runtime was declared.
pub fn source(r: &Resource<Runtime>) -> &'static str {
    match r.status.source {
        hmz_api::kinds::RuntimeSource::Manifest => "manifest",
        hmz_api::kinds::RuntimeSource::Settings => "settings",
        hmz_api::kinds::RuntimeSource::Unsaved => "unsaved",
    }
}

/// Flows.
pub fn flows<'a>(items: impl IntoIterator<Item = &'a Resource<Flow>>) -> Table {
    let names = |keys: Vec<&String>| or(Some(keys.into_iter().map(String::as_str).collect::<Vec<_>>().join(",")), NONE);
    let row = |f: &Resource<Flow>| {
        vec![
            f.name().to_owned(),
            names(f.spec.agents.keys().collect()),
            names(f.spec.environments.keys().collect()),
            f.status.source.clone().unwrap_or_else(|| "manifest".into()),
            or(f.spec.description.as_ref(), NONE),
        ]
    };
    Table { headers: vec!["NAME", "AGENTS", "ENVIRONMENTS", "SOURCE", "DESCRIPTION"], rows: items.into_iter().map(row).collect() }
}

/// One resource as a table of one row.
pub fn of(item: &AnyResource, wide: bool, now: Timestamp) -> Table {
    match item {
        AnyResource::Environment(r) => environments([&**r], wide, now),
        AnyResource::Run(r) => runs([&**r], wide, now),
        AnyResource::Runtime(r) => runtimes([&**r], wide, now),
        AnyResource::Flow(r) => flows([&**r]),
    }
}

/// The word a person types for a kind: `env`, `run`, `runtime`, `flow`.
pub fn kind_word(kind: &str) -> String {
    match kind {
        "Environment" => "env".into(),
        other => other.to_lowercase(),
    }
}

/// `-o name`: `env/box`, a line each.
pub fn names<'a>(items: impl IntoIterator<Item = &'a AnyResource>) -> String {
    items.into_iter().map(|r| format!("{}/{}\n", kind_word(r.kind()), one_line(&r.metadata().name))).collect()
}

/// The kinds there are among `items` as a table each, with its kind's word before each name when there are several kinds.
pub fn render(items: &[AnyResource], wide: bool, now: Timestamp, width: Option<usize>) -> String {
    let mut tables = Vec::new();
    let (mut envs, mut rs, mut rts, mut fs) = (vec![], vec![], vec![], vec![]);
    for item in items {
        match item {
            AnyResource::Environment(r) => envs.push(&**r),
            AnyResource::Run(r) => rs.push(&**r),
            AnyResource::Runtime(r) => rts.push(&**r),
            AnyResource::Flow(r) => fs.push(&**r),
        }
    }
    if !rs.is_empty() {
        tables.push(("run", runs(rs, wide, now)));
    }
    if !envs.is_empty() {
        tables.push(("env", environments(envs, wide, now)));
    }
    if !rts.is_empty() {
        tables.push(("runtime", runtimes(rts, wide, now)));
    }
    if !fs.is_empty() {
        tables.push(("flow", flows(fs)));
    }
    let several = tables.len() > 1;
    let texts: Vec<String> = tables
        .into_iter()
        .map(|(word, mut table)| {
            if several {
                table.rows.iter_mut().filter_map(|row| row.first_mut()).for_each(|name| *name = format!("{word}/{name}"));
            }
            table.render(width)
        })
        .collect();
    texts.join("\n")
}
