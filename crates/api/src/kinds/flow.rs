//! Flow: what a run does, as steps.

use crate::quantity::{Cpus, Memory};
use crate::resource::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;

/// The Flow kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow;

impl Kind for Flow {
    const KIND: &'static str = "Flow";
    const PLURAL: &'static str = "flows";
    const SHORT: &'static [&'static str] = &[];
    type Spec = FlowSpec;
    type Status = FlowStatus;
}

/// An agent role of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowAgent {
    /// What the role is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An environment role of a flow: what it asks for. Never `run_args`, `container` or a wrapper: those are a Runtime's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowEnvironment {
    /// What the role is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPUs it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// GPUs it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// A parameter of a flow. One without a default has to be given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowParam {
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it is when it is not given; `null` is a default too.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "said")]
    pub default: Option<serde_json::Value>,
}

/// A value that is there, though it be `null`.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

/// One step. Exactly one of the keys; texts are minijinja templates over `task`, `params`, `steps` and `last`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// An agent's turn.
    Turn {
        /// The agent role.
        agent: String,
        /// The environment role its work lands in.
        environment: String,
        /// What it is asked.
        prompt: String,
        /// A name under which later steps find the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A command of the flow's own, in an environment.
    Exec {
        /// The environment role.
        environment: String,
        /// The command: a list of words, or one text for `/bin/sh -c`.
        command: Command,
        /// A name under which later steps find the result (`stdout`, `stderr`, `status`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Whether a status other than 0 is no failure of the run.
        #[serde(default, skip_serializing_if = "is_false")]
        allow_failure: bool,
    },
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// A command of an `exec` step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Command {
    /// For `/bin/sh -c`.
    Shell(String),
    /// Words, run as they are.
    Words(Vec<String>),
}

impl Command {
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Shell(text) => text.trim().is_empty(),
            Self::Words(words) => words.first().is_none_or(String::is_empty),
        }
    }
}

impl<'de> Deserialize<'de> for Command {
    /// Not derived: a buffered reading would turn the word `1.0` into a number, and lose the place of a fault.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = Command;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a command: one text for /bin/sh -c, or a list of words")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Command, E> {
                Ok(Command::Shell(text.to_owned()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Command, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = items.next_element()? {
                    words.push(word);
                }
                Ok(Command::Words(words))
            }
        }
        deserializer.deserialize_any(V)
    }
}

/// What a flow is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// One line for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The agent roles.
    #[serde(default)]
    pub agents: BTreeMap<String, FlowAgent>,
    /// The environment roles.
    #[serde(default)]
    pub environments: BTreeMap<String, FlowEnvironment>,
    /// The parameters, which the steps name as `params.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, FlowParam>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// What was observed of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowStatus {
    /// Where it comes from: `builtin`, a path, or `manifest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
