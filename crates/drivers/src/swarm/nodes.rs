//! The nodes of a swarm: what each has, which of them answer a runtime's constraints, and whether any could ever hold a task. Pure.
//!
//! Where a task lands is the swarm's own scheduler's to say. What is told apart here is a task that only waits for room from one that
//! waits for nothing: no node could hold it though every box of hmz's had ended.

use crate::types::Facts;
use hmz_api::kinds::Share;
use hmz_api::{Cpus, Memory};
use serde_json::Value;
use std::collections::BTreeMap;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// The name of its machine.
    pub hostname: String,
    /// The address the swarm knows it by; empty or `0.0.0.0` when it does not.
    pub address: String,
    /// `worker` or `manager`.
    role: String,
    /// `ready`, `down`, `unknown` or `disconnected`.
    pub state: String,
    /// `active`, `pause` or `drain`.
    availability: String,
    os: String,
    architecture: String,
    labels: BTreeMap<String, String>,
    engine_labels: BTreeMap<String, String>,
    /// What it has.
    pub has: Amounts,
}

/// Amounts of what a node has, or a task reserves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amounts {
    /// CPUs, in billionths.
    pub nano_cpus: u64,
    /// Memory, in bytes.
    pub memory: u64,
    /// Generic resources by their kind.
    pub generic: BTreeMap<String, u64>,
}

impl Amounts {
    /// Reads a `Resources` of nodes or of reservations.
    pub fn of(value: &Value) -> Self {
        let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mut generic: BTreeMap<String, u64> = BTreeMap::new();
        for one in value.get("GenericResources").and_then(Value::as_array).into_iter().flatten() {
            let (spec, amount) = match (one.get("DiscreteResourceSpec"), one.get("NamedResourceSpec")) {
                (Some(spec), _) => (spec, spec.get("Value").and_then(Value::as_u64).unwrap_or(0)),
                (None, Some(spec)) => (spec, 1),
                (None, None) => continue,
            };
            let Some(kind) = spec.get("Kind").and_then(Value::as_str) else { continue };
            let there = generic.entry(kind.to_owned()).or_default();
            *there = there.saturating_add(amount);
        }
        Self { nano_cpus: number("NanoCPUs"), memory: number("MemoryBytes"), generic }
    }

    /// What the task of a box with that share reserves.
    pub fn reserved(share: &Share) -> Self {
        let nano_cpus = share.cpus.map_or(0, |cpus| cpus.millis().saturating_mul(1_000_000));
        let kind = share.gpus.first().map(|kind| (kind.clone(), share.gpus.len() as u64));
        Self { nano_cpus, memory: share.memory.map_or(0, Memory::bytes), generic: kind.into_iter().collect() }
    }

    /// Adds others.
    pub fn add(&mut self, more: &Self) {
        self.nano_cpus = self.nano_cpus.saturating_add(more.nano_cpus);
        self.memory = self.memory.saturating_add(more.memory);
        for (kind, amount) in &more.generic {
            let there = self.generic.entry(kind.clone()).or_default();
            *there = there.saturating_add(*amount);
        }
    }

    /// What is left beside others.
    pub fn less(&self, taken: &Self) -> Self {
        let generic = |(kind, amount): (&String, &u64)| {
            (kind.clone(), amount.saturating_sub(taken.generic.get(kind).copied().unwrap_or(0)))
        };
        Self {
            nano_cpus: self.nano_cpus.saturating_sub(taken.nano_cpus),
            memory: self.memory.saturating_sub(taken.memory),
            generic: self.generic.iter().map(generic).collect(),
        }
    }

    /// Whether there is as much of everything.
    pub fn holds(&self, need: &Self) -> bool {
        self.nano_cpus >= need.nano_cpus
            && self.memory >= need.memory
            && need.generic.iter().all(|(kind, amount)| self.generic.get(kind).copied().unwrap_or(0) >= *amount)
    }

    /// CPUs, to a thousandth.
    pub fn cpus(&self) -> Cpus {
        Cpus::from_millis(self.nano_cpus / 1_000_000)
    }
}

impl Node {
    /// Reads an entry of `/nodes`; `None` when it has no id.
    pub fn of(entry: &Value) -> Option<Self> {
        let text = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let map = |path: &str| {
            let map = entry.pointer(path).and_then(Value::as_object);
            map.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
        };
        Some(Self {
            id: entry.get("ID")?.as_str()?.to_owned(),
            hostname: text("/Description/Hostname"),
            address: text("/Status/Addr"),
            role: text("/Spec/Role"),
            state: text("/Status/State"),
            availability: text("/Spec/Availability"),
            os: text("/Description/Platform/OS"),
            architecture: text("/Description/Platform/Architecture"),
            labels: map("/Spec/Labels"),
            engine_labels: map("/Description/Engine/Labels"),
            has: entry.pointer("/Description/Resources").map(Amounts::of).unwrap_or_default(),
        })
    }

    /// Whether the scheduler puts tasks on it.
    pub fn takes_tasks(&self) -> bool {
        self.state == "ready" && self.availability == "active"
    }

    /// Whether it takes tasks, or may in a moment: after a manager has started it has heard of no node yet, and each is `unknown`.
    pub fn may_take_tasks(&self) -> bool {
        matches!(self.state.as_str(), "ready" | "unknown" | "disconnected") && self.availability == "active"
    }

    /// Whether it answers a constraint, as the scheduler reads it: without regard to upper and lower case, and a label that is not
    /// there is empty. What the scheduler would not understand is answered by no node.
    pub fn answers(&self, constraint: &str) -> bool {
        let (attribute, value, wanted) = match (constraint.split_once("=="), constraint.split_once("!=")) {
            (Some((attribute, value)), _) => (attribute.trim(), value.trim(), true),
            (None, Some((attribute, value))) => (attribute.trim(), value.trim(), false),
            (None, None) => return false,
        };
        let lower = attribute.to_ascii_lowercase();
        let label = |prefix: &str, labels: &BTreeMap<String, String>| {
            lower
                .starts_with(prefix)
                .then(|| attribute.get(prefix.len()..).and_then(|n| labels.get(n)).cloned().unwrap_or_default())
        };
        let has = match lower.as_str() {
            "node.id" => self.id.clone(),
            "node.hostname" => self.hostname.clone(),
            "node.role" => self.role.clone(),
            "node.platform.os" => self.os.clone(),
            "node.platform.arch" => self.architecture.clone(),
            // an address or a network: the scheduler has the last word
            "node.ip" => return true,
            _ => match label("node.labels.", &self.labels).or_else(|| label("engine.labels.", &self.engine_labels)) {
                Some(value) => value,
                None => return false,
            },
        };
        has.eq_ignore_ascii_case(value) == wanted
    }
}

/// What a swarm has: the sum of the nodes that may take a task with those constraints. `daemon` is what its manager says of itself.
pub fn facts(daemon: Facts, nodes: &[Node], constraints: &[String]) -> Facts {
    let open: Vec<&Node> = nodes.iter().filter(|n| n.takes_tasks() && constraints.iter().all(|c| n.answers(c))).collect();
    let mut has = Amounts::default();
    open.iter().for_each(|n| has.add(&n.has));
    let mut names: Vec<String> = open.iter().map(|n| n.hostname.clone()).collect();
    names.sort();
    Facts {
        version: daemon.version,
        endpoint: daemon.endpoint,
        now: daemon.now,
        cpus: has.cpus(),
        memory: Memory::from_bytes(has.memory),
        generic: has.generic.into_keys().collect(),
        nodes: Some(names),
        ..Facts::default()
    }
}

/// Why no node could ever hold a task that needs so much, in words that begin `no node of the swarm has` or `none of its nodes`;
/// `None` when one could. `staying` is what is reserved on each node, by its id, by tasks that are none of hmz's and so do not end.
pub fn impossible(nodes: &[Node], staying: &BTreeMap<String, Amounts>, constraints: &[String], need: &Amounts) -> Option<String> {
    let open: Vec<&Node> = nodes.iter().filter(|n| n.may_take_tasks()).collect();
    if open.is_empty() {
        return Some("none of its nodes may take a task".into());
    }
    let answering: Vec<&Node> = open.iter().copied().filter(|n| constraints.iter().all(|c| n.answers(c))).collect();
    if answering.is_empty() {
        return Some(format!("no node of the swarm has {}", constraints.join(" and ")));
    }
    let none = Amounts::default();
    let taken = |node: &Node| staying.get(&node.id).unwrap_or(&none).clone();
    let free: Vec<Amounts> = answering.iter().map(|n| n.has.less(&taken(n))).collect();
    if free.iter().any(|f| f.holds(need)) {
        return None;
    }
    let mut wanted = Vec::new();
    if need.nano_cpus > 0 {
        wanted.push(format!("{} CPUs", need.cpus()));
    }
    if need.memory > 0 {
        wanted.push(Memory::from_bytes(need.memory).in_words());
    }
    wanted.extend(need.generic.iter().map(|(kind, amount)| format!("{amount} {kind}")));
    let most = |of: &dyn Fn(&Amounts) -> u64| free.iter().map(of).max().unwrap_or(0);
    let cpus = Cpus::from_millis(most(&|f| f.nano_cpus) / 1_000_000);
    let mut has = vec![format!("{cpus} CPUs"), Memory::from_bytes(most(&|f| f.memory)).in_words()];
    has.extend(need.generic.keys().map(|kind| format!("{} {kind}", most(&|f| f.generic.get(kind).copied().unwrap_or(0)))));
    let n = answering.len();
    let which = match (n, constraints.is_empty()) {
        (1, true) => "its 1 node that may take a task has".to_owned(),
        (_, true) => format!("the most any of its {n} nodes that may take a task has is"),
        (1, false) => "its 1 node that may take the task has".to_owned(),
        (_, false) => format!("the most any of its {n} nodes that may take the task has is"),
    };
    let beside = if answering.iter().any(|n| taken(n) != none) { " beside what other services reserve" } else { "" };
    Some(format!("no node of the swarm has {}: {which} {}{beside}", listed(&wanted), listed(&has)))
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[String]) -> String {
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, cpus: u64, gib: u64, gpus: u64) -> Node {
        Node::of(&json!({
            "ID": format!("id-{name}"),
            "Spec": {"Role": "worker", "Availability": "active", "Labels": {"zone": name, "Shared": "true"}},
            "Description": {
                "Hostname": name,
                "Platform": {"Architecture": "x86_64", "OS": "linux"},
                "Resources": {
                    "NanoCPUs": cpus * 1_000_000_000, "MemoryBytes": gib << 30,
                    "GenericResources": [{"DiscreteResourceSpec": {"Kind": "NVIDIA-GPU", "Value": gpus}}],
                },
                "Engine": {"Labels": {"disk": "ssd"}},
            },
            "Status": {"State": "ready", "Addr": "10.0.0.1"},
        }))
        .unwrap()
    }

    fn need(cpus: u64, gib: u64, gpus: u64) -> Amounts {
        let generic = (gpus > 0).then(|| ("NVIDIA-GPU".to_owned(), gpus));
        Amounts { nano_cpus: cpus * 1_000_000_000, memory: gib << 30, generic: generic.into_iter().collect() }
    }

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn constraints_are_read_as_the_scheduler_reads_them() {
        let node = node("w1", 1, 1, 0);
        for (constraint, answers) in [
            ("node.hostname==w1", true),
            ("node.hostname == W1", true),
            ("node.hostname!=w1", false),
            ("NODE.ROLE==worker", true),
            ("node.role!=manager", true),
            ("node.id==id-w1", true),
            ("node.labels.zone==w1", true),
            ("node.labels.zone!=w2", true),
            ("node.labels.Shared==true", true),
            // names of labels are told apart by their case
            ("node.labels.shared==true", false),
            ("node.labels.none==x", false),
            ("node.labels.none!=x", true),
            ("engine.labels.disk==ssd", true),
            ("node.platform.os==linux", true),
            ("node.platform.arch!=x86_64", false),
            ("node.ip==10.0.0.0/8", true),
            ("node.color==red", false),
            ("zone=w1", false),
        ] {
            assert_eq!(node.answers(constraint), answers, "{constraint}");
        }
    }

    #[test]
    fn what_no_node_could_ever_hold_is_said() {
        let nodes = [node("mgr", 4, 8, 0), node("w1", 2, 16, 2)];
        let none = BTreeMap::new();
        let why = |constraints: &[&str], need: Amounts| impossible(&nodes, &none, &texts(constraints), &need);
        assert_eq!(why(&[], need(4, 8, 0)), None);
        assert_eq!(why(&[], need(1, 1, 2)), None);
        assert_eq!(
            why(&[], need(8, 0, 0)).as_deref(),
            Some("no node of the swarm has 8 CPUs: the most any of its 2 nodes that may take a task has is 4 CPUs and 16 GiB")
        );
        // each has enough of one and too little of the other
        assert_eq!(
            why(&[], need(4, 16, 0)).as_deref(),
            Some(
                "no node of the swarm has 4 CPUs and 16 GiB: the most any of its 2 nodes that may take a task has is 4 CPUs and 16 GiB"
            )
        );
        assert_eq!(
            why(&["node.hostname==w1"], need(1, 0, 3)).as_deref(),
            Some(
                "no node of the swarm has 1 CPUs and 3 NVIDIA-GPU: its 1 node that may take the task has 2 CPUs, 16 GiB and 2 NVIDIA-GPU"
            )
        );
        assert_eq!(why(&["node.labels.zone==x"], need(1, 0, 0)).as_deref(), Some("no node of the swarm has node.labels.zone==x"));
        let mut drained = nodes.clone();
        drained[0].availability = "drain".into();
        drained[1].state = "down".into();
        assert_eq!(impossible(&drained, &none, &[], &need(1, 0, 0)).as_deref(), Some("none of its nodes may take a task"));
    }

    #[test]
    fn a_node_that_was_not_heard_of_yet_may_hold_a_task() {
        let none = BTreeMap::new();
        for (state, open) in [("ready", true), ("unknown", true), ("disconnected", true), ("down", false)] {
            let there = Node { state: state.into(), ..node("mgr", 4, 8, 0) };
            assert_eq!(impossible(std::slice::from_ref(&there), &none, &[], &need(4, 8, 0)).is_none(), open, "{state}");
            // which has not more than it said it has
            assert!(impossible(std::slice::from_ref(&there), &none, &[], &need(5, 0, 0)).is_some(), "{state}");
            let paused = Node { availability: "pause".into(), ..there };
            assert!(impossible(&[paused], &none, &[], &need(1, 0, 0)).is_some(), "{state}");
        }
    }

    #[test]
    fn what_others_reserve_stays_and_so_is_not_there() {
        let nodes = [node("mgr", 4, 8, 0), node("w1", 4, 8, 2)];
        let staying = BTreeMap::from([("id-mgr".to_owned(), need(3, 0, 0)), ("id-w1".to_owned(), need(2, 0, 1))]);
        assert_eq!(impossible(&nodes, &staying, &[], &need(2, 0, 1)), None);
        assert_eq!(
            impossible(&nodes, &staying, &[], &need(3, 0, 0)).as_deref(),
            Some(
                "no node of the swarm has 3 CPUs: the most any of its 2 nodes that may take a task has is 2 CPUs and 8 GiB beside what \
                 other services reserve"
            )
        );
    }

    #[test]
    fn named_resources_count_one_each() {
        let named =
            json!([{"NamedResourceSpec": {"Kind": "GPU", "Value": "a"}}, {"NamedResourceSpec": {"Kind": "GPU", "Value": "b"}}]);
        assert_eq!(Amounts::of(&json!({"GenericResources": named})).generic, BTreeMap::from([("GPU".to_owned(), 2)]));
    }
}
