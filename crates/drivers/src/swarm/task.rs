//! Tasks as a swarm lists them, and what one of a service that has one makes of its box.

use super::nodes::{Amounts, Node};
use crate::types::{BoxState, Exit};
use jiff::Timestamp;
use serde_json::Value;

/// What the scheduler says of a task it has no node for.
const NO_NODE: &str = "no suitable node";

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// Its service's.
    pub service: String,
    /// The node it was put on; empty before.
    pub node: String,
    /// `new`, `pending`, `assigned`, `accepted`, `preparing`, `ready`, `starting`, `running`, `complete`, `shutdown`, `failed`,
    /// `rejected`, `remove` or `orphaned`.
    pub state: String,
    /// What the swarm wants of it, in the same words.
    pub desired: String,
    /// What was said of it last: why it is not where it is wanted, else what becomes of it.
    pub said: String,
    /// The container on its node.
    pub container: Option<String>,
    /// That one's first process, as the node sees it.
    pub pid: i32,
    /// Its exit status.
    pub code: Option<i64>,
    /// When its state was told.
    pub at: Option<Timestamp>,
    /// What it reserves.
    pub reserves: Amounts,
    /// The ids of generic resources it was given, of those that have ids.
    pub given: Vec<String>,
}

impl Task {
    /// Reads an entry of `/tasks`; `None` when it has no id.
    pub fn of(entry: &Value) -> Option<Self> {
        let text = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |path: &str| entry.pointer(path).and_then(Value::as_i64);
        let state = text("/Status/State");
        let said = [text("/Status/Err"), text("/Status/Message")].into_iter().find(|t| !t.is_empty()).unwrap_or_default();
        let given = entry.get("GenericResources").and_then(Value::as_array).into_iter().flatten();
        let given = given.filter_map(|g| g.pointer("/NamedResourceSpec/Value").and_then(Value::as_str).map(str::to_owned));
        Some(Self {
            id: entry.get("ID")?.as_str()?.to_owned(),
            service: text("/ServiceID"),
            node: text("/NodeID"),
            // a status that was told before the exit was is 0
            code: number("/Status/ContainerStatus/ExitCode").filter(|_| is_over(&state)),
            pid: number("/Status/ContainerStatus/PID").and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0),
            container: Some(text("/Status/ContainerStatus/ContainerID")).filter(|id| !id.is_empty()),
            desired: text("/DesiredState"),
            at: entry.pointer("/Status/Timestamp").and_then(Value::as_str).and_then(|t| t.parse().ok()),
            reserves: entry.pointer("/Spec/Resources/Reservations").map(Amounts::of).unwrap_or_default(),
            given: given.collect(),
            state,
            said,
        })
    }

    /// Whether nothing of it runs any more, or is ever to run.
    pub fn is_over(&self) -> bool {
        is_over(&self.state)
    }

    /// Whether the swarm gives it up: it is told to end, or its node is gone and it will be.
    pub fn is_given_up(&self) -> bool {
        is_over(&self.desired)
    }

    /// Whether it waits for a node, and the scheduler's words.
    pub fn waits(&self) -> Option<&str> {
        (self.state == "pending" && self.said.contains(NO_NODE)).then_some(self.said.as_str())
    }

    /// Whether it takes its share of its node.
    pub fn takes(&self) -> bool {
        !self.node.is_empty() && !self.is_over()
    }

    /// How its box is.
    pub fn box_state(&self) -> BoxState {
        let exit = |code| BoxState::Exited(Exit { code, oom: false, at: self.at });
        match self.state.as_str() {
            _ if self.is_over() => exit(self.code),
            // what runs on a node that nobody hears of is not to be waited for: the swarm ends it when it does
            _ if self.is_given_up() => exit(None),
            "running" => BoxState::Running(self.pid),
            _ => BoxState::Created,
        }
    }
}

fn is_over(state: &str) -> bool {
    matches!(state, "complete" | "shutdown" | "failed" | "rejected" | "remove" | "orphaned")
}

/// Why the box of a service does not run any more, in one sentence; `None` when its task ended by itself.
pub fn end_of(tasks: &[&Task], nodes: &[Node]) -> Option<String> {
    // a service of ours has one task in its whole life, since none is ever restarted
    let [task] = tasks else {
        return (tasks.len() > 1).then(|| "somebody had the swarm start its task anew, elsewhere or in another container".into());
    };
    let node = nodes.iter().find(|n| n.id == task.node);
    let name = node.map_or("its node", |n| n.hostname.as_str());
    match task.state.as_str() {
        "orphaned" => Some(format!("the swarm has not heard of {name} for too long")),
        "rejected" | "failed" if !task.said.is_empty() => Some(format!("its task is {}: {}", task.state, task.said)),
        _ if node.is_none() && !task.node.is_empty() => Some("its node has left the swarm".into()),
        _ if !task.is_over() && task.is_given_up() && node.is_some_and(|n| n.state != "ready") => {
            Some(format!("the swarm does not hear of {name} any more, where it ran"))
        }
        "shutdown" => Some(format!("the swarm ended its task on {name}, as it does when a node is drained")),
        _ if !task.is_over() && task.is_given_up() => {
            Some(format!("the swarm ends its task on {name}, as it does when a node is drained"))
        }
        _ => None,
    }
}
