//! Run: a flow at work on a task, with agents and environments given to its roles.

use crate::condition::Conditions;
use crate::grammar::{AgentSpec, EnvSpec};
use crate::quantity::{Cpus, Memory, Span};
use crate::reference::RuntimeRef;
use crate::resource::Kind;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The Run kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run;

impl Kind for Run {
    const KIND: &'static str = "Run";
    const PLURAL: &'static str = "runs";
    const SHORT: &'static [&'static str] = &[];
    type Spec = RunSpec;
    type Status = RunStatus;
}

/// What happens when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// It is refused; the default of `hmz exec`.
    Refuse,
    /// It waits, for `wait_for` at most; the default of `hmz apply`.
    #[default]
    Wait,
}

/// Limits of a run. What is spent ends the run, which is no failure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Wall clock from the start of the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
}

/// Parameters of a run: the flow's own, and the budget.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunParams {
    /// Its limits.
    #[serde(skip_serializing_if = "is_default")]
    pub budget: Budget,
    /// The flow's own.
    #[serde(flatten)]
    pub own: serde_json::Map<String, serde_json::Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where an environment role is put, written out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkPlace {
    /// The runtime.
    pub runtime: RuntimeRef,
    /// The directory; absent: the runtime's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// The image, over the flow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPUs, over the flow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory, over the flow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// GPUs, over the flow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory of each GPU, over the flow's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Memory>,
}

/// Where an environment role is put: `docker@here/home/me/p`, or a [`WorkPlace`].
#[derive(Debug, Clone, PartialEq)]
pub enum EnvironmentRequest {
    /// One text.
    Text(EnvSpec),
    /// Written out.
    Place(WorkPlace),
}

impl EnvironmentRequest {
    /// As it was given, in one text: `docker@here/home/me/p`.
    pub fn as_given(&self) -> String {
        match self {
            Self::Text(spec) => spec.to_string(),
            Self::Place(place) => {
                let (at, dir) = (place.runtime.at(), place.workdir.as_deref().unwrap_or_default());
                let slash = if dir.is_empty() || dir.starts_with('/') { "" } else { "/" };
                format!("{at}{slash}{dir}")
            }
        }
    }

    /// The written-out form of either.
    pub fn place(&self) -> WorkPlace {
        match self {
            Self::Place(place) => place.clone(),
            Self::Text(spec) => WorkPlace {
                runtime: spec.runtime.clone(),
                workdir: spec.workdir.clone(),
                image: None,
                cpus: None,
                memory: None,
                gpus: None,
                gpu_memory: None,
            },
        }
    }
}

impl Serialize for EnvironmentRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(spec) => serializer.collect_str(spec),
            Self::Place(place) => place.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for EnvironmentRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = EnvironmentRequest;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a place, such as docker@here/home/me/project, or a mapping with runtime and workdir")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(EnvironmentRequest::Text).map_err(E::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                WorkPlace::deserialize(de::value::MapAccessDeserializer::new(map)).map(EnvironmentRequest::Place)
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl JsonSchema for EnvironmentRequest {
    fn schema_name() -> Cow<'static, str> {
        "EnvironmentRequest".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let place = generator.subschema_for::<WorkPlace>();
        json_schema!({"anyOf": [{"type": "string", "description": "<backend>[@<name>][/<workdir>]"}, place]})
    }
}

/// What a run is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The flow's name.
    pub flow: String,
    /// What is asked of it.
    #[serde(default)]
    pub task: String,
    /// Role → `claude[@account]/model[:effort]`.
    #[serde(default)]
    pub agents: BTreeMap<String, AgentSpec>,
    /// Role → where it is put.
    #[serde(default)]
    pub environments: BTreeMap<String, EnvironmentRequest>,
    /// The flow's parameters and the budget.
    #[serde(default, skip_serializing_if = "is_default")]
    pub params: RunParams,
    /// What happens when there is no room; absent: `wait` by `apply`, `refuse` by `exec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How long it waits for room; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<Span>,
    /// How long after its end the resource is removed; absent: never. The journal stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finish: Option<Span>,
}

/// One role of a run, as it went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleStatus {
    /// The Environment resource's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The runtime really used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<RuntimeRef>,
    /// Where that is not the one that was named: why, as it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<String>,
    /// The second box, in which the CLIs of the agents that work in it run, where its runtime says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harness: Option<SecondBox>,
}

/// The second box of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondBox {
    /// The Environment resource's name.
    pub environment: String,
    /// The runtime it is on.
    pub runtime: RuntimeRef,
}

/// What a run is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunStatus {
    /// `Accepted`, `EnvironmentsReady`, `Running`, `Complete`.
    pub conditions: Conditions,
    /// Each environment role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environments: BTreeMap<String, RoleStatus>,
    /// The directory of its journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epic: Option<String>,
    /// The runner's pid and start time (`PID:STARTTIME`, as /proc says), so that it is found again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// When the runner started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub finished_at: Option<Timestamp>,
}

impl RunStatus {
    /// Whether the run has ended.
    pub fn is_complete(&self) -> bool {
        self.conditions.is_true(super::condition::COMPLETE)
    }
}
