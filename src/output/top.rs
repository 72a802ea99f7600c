//! `hmz top`: what boxes use beside what they hold. A rate is made of two looks at one box, never of less.

use super::table::Table;
use hmz_api::kinds::Share;
use hmz_api::rest::{EnvironmentUsage, GpuUsage, Usage};
use hmz_api::{Cpus, Memory, Resource, Runtime};
use serde::Serialize;

/// What nobody knows looks like.
const NOTHING: &str = "-";

/// What one box uses, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The environment.
    pub name: String,
    /// The runtime.
    pub runtime: String,
    /// The container.
    pub container: Option<String>,
    /// Of a swarm: its node.
    pub node: Option<String>,
    /// CPUs in use between the two looks.
    pub cpus: Option<f64>,
    /// CPUs it is limited to.
    pub cpu_limit: Option<f64>,
    /// Bytes of memory in use at the second look.
    pub memory: Option<u64>,
    /// Bytes of memory it is limited to.
    pub memory_limit: Option<u64>,
    /// Bytes a second it received between the two looks.
    pub received_per_second: Option<f64>,
    /// Bytes a second it sent between the two looks.
    pub sent_per_second: Option<f64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// What its GPUs do, at the second look.
    pub gpus: Option<GpuUsage>,
    /// The share it holds.
    pub share: Option<Share>,
    /// Why not all is known; empty where it is.
    pub why: String,
}

/// What is used of one runtime by the boxes of this home.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeRow {
    /// The runtime.
    pub name: String,
    /// How many boxes were looked at.
    pub boxes: usize,
    /// CPUs in use; absent when that of one box is not known.
    pub cpus: Option<f64>,
    /// CPUs held, by whomever.
    pub held_cpus: Option<f64>,
    /// CPUs it hands out.
    pub total_cpus: Option<f64>,
    /// Bytes of memory in use.
    pub memory: Option<u64>,
    /// Bytes of memory held.
    pub held_memory: Option<u64>,
    /// Bytes of memory it hands out.
    pub total_memory: Option<u64>,
    /// Bytes a second received.
    pub received_per_second: Option<f64>,
    /// Bytes a second sent.
    pub sent_per_second: Option<f64>,
    /// GPUs held.
    pub held_gpus: usize,
    /// Why not all is known; empty where it is.
    pub why: String,
}

/// A growth a second; none of a counter that began anew, or of no time.
fn rate(before: Option<u64>, after: Option<u64>, seconds: f64) -> Option<f64> {
    let grown = after?.checked_sub(before?)?;
    (seconds > 0.0).then(|| grown as f64 / seconds)
}

fn seconds(before: &Usage, after: &Usage) -> f64 {
    after.at.duration_since(before.at).as_secs_f64()
}

/// The rows of what two looks saw, in the order of the second.
pub fn rows(before: &[EnvironmentUsage], after: &[EnvironmentUsage]) -> Vec<Row> {
    after.iter().map(|now| row(before.iter().find(|then| then.environment == now.environment), now)).collect()
}

fn row(before: Option<&EnvironmentUsage>, now: &EnvironmentUsage) -> Row {
    let same = before.filter(|then| then.container == now.container).and_then(|then| then.usage.as_ref());
    let usage = now.usage.as_ref();
    let pair = usage.and_then(|usage| Some((same?, usage)));
    let of = |counter: &dyn Fn(&Usage) -> Option<u64>| {
        pair.and_then(|(then, now)| rate(counter(then), counter(now), seconds(then, now)))
    };
    let cpus = of(&|usage| usage.cpu_nanos).map(|nanos| nanos / 1e9);
    let (received, sent) = (of(&|usage| usage.received), of(&|usage| usage.sent));
    let why = match usage {
        _ if !now.why.is_empty() => now.why.clone(),
        Some(_) if pair.is_none() => "its box is new: a rate takes two looks".to_owned(),
        Some(usage) => {
            let untold = [
                (cpus.is_none(), "CPU time"),
                (usage.memory.is_none(), "memory"),
                (received.is_none() || sent.is_none(), "network"),
            ];
            let untold: Vec<&str> = untold.iter().filter_map(|(untold, what)| untold.then_some(*what)).collect();
            if untold.is_empty() { String::new() } else { format!("its daemon does not tell its {}", untold.join(", ")) }
        }
        None => String::new(),
    };
    Row {
        name: now.environment.clone(),
        runtime: now.runtime.to_string(),
        container: now.container_name.clone(),
        node: now.node.clone(),
        cpus,
        cpu_limit: usage.and_then(|usage| usage.cpu_limit).map(number),
        memory: usage.and_then(|usage| usage.memory).map(Memory::bytes),
        memory_limit: usage.and_then(|usage| usage.memory_limit).map(Memory::bytes),
        received_per_second: received,
        sent_per_second: sent,
        processes: usage.and_then(|usage| usage.processes),
        gpus: usage.and_then(|usage| usage.gpus),
        share: now.share.clone(),
        why,
    }
}

fn number(cpus: Cpus) -> f64 {
    cpus.millis() as f64 / 1000.0
}

/// What all of a runtime's boxes use, of each runtime.
pub fn runtimes(runtimes: &[Resource<Runtime>], rows: &[Row]) -> Vec<RuntimeRow> {
    let of = |runtime: &Resource<Runtime>| {
        let (spec, status) = (&runtime.spec, &runtime.status);
        let on: Vec<&Row> = rows.iter().filter(|row| row.runtime == runtime.name() && row.container.is_some()).collect();
        let unknown: Vec<String> =
            on.iter().filter(|row| !row.why.is_empty()).map(|row| format!("{}: {}", row.name, row.why)).collect();
        let sum = |of: &dyn Fn(&Row) -> Option<f64>| on.iter().try_fold(0.0, |sum, row| Some(sum + of(row)?));
        RuntimeRow {
            name: runtime.name().to_owned(),
            boxes: on.len(),
            cpus: sum(&|row| row.cpus),
            held_cpus: status.held_cpus.map(number),
            total_cpus: spec.cpus.or(status.cpus).map(number),
            memory: on.iter().map(|row| row.memory).sum(),
            held_memory: status.held_memory.map(Memory::bytes),
            total_memory: spec.memory.or(status.memory).map(Memory::bytes),
            received_per_second: sum(&|row| row.received_per_second),
            sent_per_second: sum(&|row| row.sent_per_second),
            held_gpus: status.held_gpus.len(),
            why: unknown.join("; "),
        }
    };
    runtimes.iter().map(of).collect()
}

/// Those that use most first; what nobody knows last.
pub fn most<T>(items: &mut [T], of: impl Fn(&T) -> Option<f64>) {
    items.sort_by(|a, b| match (of(a), of(b)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
}

/// The table of environments.
pub fn table(rows: &[Row], wide: bool) -> Table {
    let mut headers = vec!["NAME", "RUNTIME", "CPU", "CPU%", "MEMORY", "MEM%", "NET IN", "NET OUT", "GPUS", "GPU%", "GPU MEM"];
    if wide {
        headers.extend(["PIDS", "SHARE", "CONTAINER", "NODE", "WHY"]);
    }
    let line = |row: &Row| {
        let gpus = row.share.as_ref().map(|share| share.gpus.len()).filter(|n| *n > 0);
        let mut cells = vec![
            row.name.clone(),
            row.runtime.clone(),
            of(row.cpus.map(cores), row.cpu_limit.map(short)),
            percent(row.cpus, row.cpu_limit),
            of(row.memory.map(bytes), row.memory_limit.map(bytes)),
            percent(row.memory.map(|n| n as f64), row.memory_limit.map(|n| n as f64)),
            or(row.received_per_second.map(per_second)),
            or(row.sent_per_second.map(per_second)),
            or(gpus),
            or(row.gpus.map(|gpus| format!("{}%", gpus.percent))),
            of(row.gpus.map(|gpus| bytes(gpus.memory.bytes())), row.gpus.map(|gpus| bytes(gpus.memory_limit.bytes()))),
        ];
        if wide {
            let share = row.share.as_ref();
            let held = |text: Option<String>| text.unwrap_or_else(|| "<none>".into());
            cells.push(or(row.processes));
            cells.push(format!(
                "{}/{}",
                held(share.and_then(|s| s.cpus).map(|c| c.to_string())),
                held(share.and_then(|s| s.memory).map(|m| m.to_string()))
            ));
            cells.push(or(row.container.clone()));
            cells.push(or(row.node.clone()));
            cells.push(row.why.clone());
        }
        cells
    };
    Table { headers, rows: rows.iter().map(line).collect() }
}

/// The table of runtimes: used, held, and what there is.
pub fn runtime_table(rows: &[RuntimeRow], wide: bool) -> Table {
    let mut headers = vec!["NAME", "BOXES", "CPU USED", "CPU HELD", "MEMORY USED", "MEMORY HELD", "NET IN", "NET OUT", "GPUS"];
    if wide {
        headers.push("WHY");
    }
    let line = |row: &RuntimeRow| {
        let mut cells = vec![
            row.name.clone(),
            row.boxes.to_string(),
            or(row.cpus.map(cores)),
            of(row.held_cpus.map(short), row.total_cpus.map(short)),
            or(row.memory.map(bytes)),
            of(row.held_memory.map(bytes), row.total_memory.map(bytes)),
            or(row.received_per_second.map(per_second)),
            or(row.sent_per_second.map(per_second)),
            or(Some(row.held_gpus).filter(|n| *n > 0)),
        ];
        if wide {
            cells.push(row.why.clone());
        }
        cells
    };
    Table { headers, rows: rows.iter().map(line).collect() }
}

fn or(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// `USED/LIMIT`, or what is used alone where there is no limit.
fn of(used: Option<String>, limit: Option<String>) -> String {
    match (used, limit) {
        (used, Some(limit)) => format!("{}/{limit}", or(used)),
        (used, None) => or(used),
    }
}

fn percent(used: Option<f64>, limit: Option<f64>) -> String {
    or(used.zip(limit.filter(|limit| *limit > 0.0)).map(|(used, limit)| format!("{:.0}%", used / limit * 100.0)))
}

fn cores(n: f64) -> String {
    format!("{n:.2}")
}

/// `2`, `0.75`.
fn short(n: f64) -> String {
    n.to_string()
}

fn per_second(n: f64) -> String {
    format!("{}/s", bytes(n.round() as u64))
}

/// `512B`, `1.5K`, `118M`, `8G`: units of 1024, as shares are said.
fn bytes(n: u64) -> String {
    let mut size = n as f64;
    let mut unit = "B";
    for next in ["K", "M", "G", "T"] {
        // what would round to 1024 is one of the next
        if size < 1023.5 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    let text = if unit == "B" || size >= 99.95 { format!("{size:.0}") } else { format!("{size:.1}") };
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn look(name: &str, container: &str, usage: serde_json::Value) -> EnvironmentUsage {
        let whole = json!({"environment": name, "runtime": "docker:here", "container": container, "containerName": container,
            "usage": usage, "share": {"cpus": 2, "memory": "1G"}});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_rate_is_of_two_looks_at_one_box() {
        let at = |second: u64, cpu: u64, net: u64| {
            json!({"at": format!("2026-01-01T00:00:{second:02}Z"), "cpuNanos": cpu, "cpuLimit": 2, "memory": 512 << 20,
                "memoryLimit": "1G", "received": net, "sent": 10, "processes": 4,
                "gpus": {"percent": 45, "memory": "3G", "memoryLimit": "32G"}})
        };
        let before = [look("same", "c1", at(0, 1_000_000_000, 100)), look("anew", "c2", at(0, 9_000_000_000, 100))];
        let mut gone = look("gone", "c4", json!(null));
        gone.why = "no answer in 10 s".into();
        let untold = look("untold", "c5", json!({"at": "2026-01-01T00:00:02Z"}));
        let after = [
            look("same", "c1", at(2, 2_500_000_000, 4196)),
            look("anew", "c3", at(2, 500_000_000, 100)),
            look("late", "c6", at(2, 500_000_000, 100)),
            gone,
            untold.clone(),
        ];
        let before: Vec<_> = before.into_iter().chain([untold]).collect();
        insta::assert_snapshot!(table(&rows(&before, &after), true).render(None), @r"
        NAME     RUNTIME       CPU      CPU%   MEMORY    MEM%   NET IN   NET OUT   GPUS   GPU%   GPU MEM   PIDS   SHARE   CONTAINER   NODE   WHY
        same     docker:here   0.75/2   38%    512M/1G   50%    2K/s     0B/s      -      45%    3G/32G    4      2/1G    c1          -
        anew     docker:here   -/2      -      512M/1G   50%    -        -         -      45%    3G/32G    4      2/1G    c3          -      its box is new: a rate takes two looks
        late     docker:here   -/2      -      512M/1G   50%    -        -         -      45%    3G/32G    4      2/1G    c6          -      its box is new: a rate takes two looks
        gone     docker:here   -        -      -         -      -        -         -      -      -         -      2/1G    c4          -      no answer in 10 s
        untold   docker:here   -        -      -         -      -        -         -      -      -         -      2/1G    c5          -      its daemon does not tell its CPU time, memory, network
        ");
    }

    #[test]
    fn sizes_are_short() {
        for (n, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.5K"),
            ((1 << 20) - 1, "1M"),
            (118 << 20, "118M"),
            (8 << 30, "8G"),
            (5 << 40, "5T"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn a_sum_with_something_unknown_is_unknown() {
        let runtime: Resource<Runtime> = serde_json::from_value(json!({"apiVersion": "hmz/v1", "kind": "Runtime",
            "metadata": {"name": "docker:here"}, "spec": {"cpus": 4}, "status": {"held_cpus": 2, "memory": "8G"}}))
        .unwrap();
        let usage = |second: u64| json!({"at": format!("2026-01-01T00:00:0{second}Z"), "cpuNanos": second * 500_000_000});
        let looks = |second| [look("a", "c1", usage(second)), look("b", "c2", usage(second))];
        let mut rows = rows(&looks(0), &looks(1));
        let one = |rows: &[Row]| super::runtimes(std::slice::from_ref(&runtime), rows).remove(0);
        let known = one(&rows);
        assert_eq!((known.boxes, known.cpus, known.held_cpus, known.total_cpus), (2, Some(1.0), Some(2.0), Some(4.0)));
        assert_eq!((known.memory, known.total_memory), (None, Some(8 << 30)));
        rows[1].cpus = None;
        assert_eq!(one(&rows).cpus, None);
        // nothing is there, and nothing is used
        assert_eq!((one(&[]).cpus.map(cores), one(&[]).memory), (Some("0.00".into()), Some(0)));
    }
}
