//! What an apply would do, before it does it: `POST /v1/plan`.

use super::Applied;
use crate::error::Error;
use crate::kinds::{AnyResource, Share};
use crate::reference::RuntimeRef;
use serde::{Deserialize, Serialize};

/// What would become of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The kind.
    pub kind: String,
    /// The name; ends in `?` where one would be made from `generateName`.
    pub name: String,
    /// What would become of it, or why not.
    pub outcome: Result<Applied, Error>,
    /// As it is stored; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<AnyResource>,
    /// As it would be stored; absent when it would go, or be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AnyResource>,
    /// What would be started and ended for it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// What it would set off for others, which are as they were declared before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Affected>,
}

/// What would happen for a resource that is not applied itself, since another one is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Affected {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// What would be started and ended for it, in order, and what it would come to.
    pub effects: Vec<Effect>,
}

impl Planned {
    /// Whether anything would be another than it is.
    pub fn differs(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|applied| applied.is_change())
    }
}

/// One thing that would happen outside the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "would", rename_all = "snake_case")]
pub enum Effect {
    /// A container is started.
    Start {
        /// The environment role, or the environment's name when it stands alone.
        role: String,
        /// The image.
        image: String,
        /// The share it is given.
        share: Share,
        /// Where.
        runtime: RuntimeRef,
        /// Whether its image is not there yet: whether it is to be had is known when it is pulled.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pulls: bool,
        /// Why not on the runtime that was named, when it is on another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<String>,
    },
    /// A container is removed.
    Remove {
        /// Its name.
        container: String,
        /// Where.
        runtime: RuntimeRef,
    },
    /// A run's flow begins.
    Begin {
        /// The flow.
        flow: String,
    },
    /// A run's flow is ended.
    End,
    /// It waits.
    Wait {
        /// For what.
        why: String,
    },
    /// It cannot be as declared any more, though nobody declared it anew.
    Refuse {
        /// Why.
        why: String,
    },
    /// It cannot be told before.
    Unsure {
        /// What, and why not.
        why: String,
    },
}

/// What begins the image of an environment in a container that runs already: nothing is started for it.
const RUNS_ALREADY: &str = "container:";

impl Effect {
    /// The same with `to` where it named `from`: who is not made yet has no name that could be told.
    #[must_use]
    pub fn naming(self, from: &str, to: &str) -> Self {
        let put = |text: String| text.replace(from, to);
        match self {
            Self::Start { role, image, share, runtime, pulls, told } => {
                Self::Start { role: put(role), image, share, runtime, pulls, told: told.map(put) }
            }
            Self::Wait { why } => Self::Wait { why: put(why) },
            Self::Refuse { why } => Self::Refuse { why: put(why) },
            Self::Unsure { why } => Self::Unsure { why: put(why) },
            other => other,
        }
    }

    /// As a person reads it: `would start container 'box' of node:22, 2 CPUs, on docker:gpubox`.
    pub fn words(&self) -> String {
        match self {
            Self::Start { role, image, share, runtime, pulls, told } => {
                let told = told.as_ref().map(|told| format!(" ({told})")).unwrap_or_default();
                if let Some(container) = image.strip_prefix(RUNS_ALREADY) {
                    return format!("would have '{role}' work in container {container} on {runtime}{told}");
                }
                let share = share_in_words(share);
                let share = if share.is_empty() { share } else { format!(", {share},") };
                let pulls = if *pulls { " (to be pulled)" } else { "" };
                format!("would start container '{role}' of {image}{pulls}{share} on {runtime}{told}")
            }
            Self::Remove { container, runtime } => format!("would remove container {container} from {runtime}"),
            Self::Begin { flow } => format!("would run flow '{flow}'"),
            Self::End => "would end what its flow is doing".into(),
            Self::Wait { why } => format!("would wait: {why}"),
            Self::Refuse { why } => format!("would be refused: {why}"),
            Self::Unsure { why } => why.clone(),
        }
    }
}

/// `2 CPUs, 4G of memory, 1 GPU`; empty when nothing is asked for.
fn share_in_words(share: &Share) -> String {
    let one = crate::Cpus::whole(1);
    let cpus = share.cpus.map(|c| format!("{c} CPU{}", if c == one { "" } else { "s" }));
    let memory = share.memory.map(|m| format!("{m} of memory"));
    let gpus = match share.gpus.len() {
        0 => None,
        1 => Some("1 GPU".to_owned()),
        n => Some(format!("{n} GPUs")),
    };
    [cpus, memory, gpus].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_happen_is_said_as_a_person_says_it() {
        let share = |cpus: Option<&str>| Share { cpus: cpus.map(|c| c.parse().unwrap()), ..Share::default() };
        let start = |share, told: Option<&str>| Effect::Start {
            role: "box".into(),
            image: "node:22".into(),
            share,
            runtime: "docker:gpubox".parse().unwrap(),
            pulls: false,
            told: told.map(str::to_owned),
        };
        let of = |text: &str, pulled: bool| match start(share(None), None) {
            Effect::Start { role, share, runtime, told, .. } => {
                Effect::Start { role, image: text.into(), share, runtime, pulls: pulled, told }
            }
            other => other,
        };
        let all = Share { memory: "4G".parse().ok(), gpus: vec!["0".into()], ..share(Some("1")) };
        for (effect, words) in [
            (start(share(Some("2")), None), "would start container 'box' of node:22, 2 CPUs, on docker:gpubox"),
            (start(all, None), "would start container 'box' of node:22, 1 CPU, 4G of memory, 1 GPU, on docker:gpubox"),
            (start(share(None), Some("why")), "would start container 'box' of node:22 on docker:gpubox (why)"),
            (of("node:22", true), "would start container 'box' of node:22 (to be pulled) on docker:gpubox"),
            (of("container:db", false), "would have 'box' work in container db on docker:gpubox"),
            (Effect::Refuse { why: "no such runtime".into() }, "would be refused: no such runtime"),
        ] {
            assert_eq!(effect.words(), words);
            let there = serde_json::to_string(&effect).unwrap();
            assert_eq!(serde_json::from_str::<Effect>(&there).unwrap(), effect);
        }
    }
}
