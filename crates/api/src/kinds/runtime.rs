//! Runtime: a place that hands out shares of CPUs, memory and GPUs to environments.

use crate::condition::Conditions;
use crate::quantity::{Cpus, Memory, Span};
use crate::reference::RuntimeRef;
use crate::resource::Kind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The Runtime kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime;

impl Kind for Runtime {
    const KIND: &'static str = "Runtime";
    const PLURAL: &'static str = "runtimes";
    const SHORT: &'static [&'static str] = &["rt"];
    type Spec = RuntimeSpec;
    type Status = RuntimeStatus;
}

/// How the daemon is reached. Only `local` and `unix://` are driven so far; the rest parse and are refused when used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Endpoint {
    /// What the docker CLI here reaches: DOCKER_HOST, the current context, the rootless socket, the usual one.
    #[default]
    Local,
    /// A socket: `unix:///PATH`.
    Unix(String),
    /// Anything else that was written, word for word.
    Other(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl FromStr for Endpoint {
    type Err = crate::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(path) = text.strip_prefix("unix://").filter(|p| p.starts_with('/')) {
            return Ok(Self::Unix(path.to_owned()));
        }
        let known = ["tcp://", "ssh://", "ssh:", "context:"].iter().any(|p| text.len() > p.len() && text.starts_with(p));
        if known {
            return Ok(Self::Other(text.to_owned()));
        }
        Err(crate::Error::usage(format!(
            "'{text}' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>"
        )))
    }
}

/// Where an agent's CLI runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Harness {
    /// In the box: the image needs the CLI.
    #[default]
    Env,
    /// Here, supervised.
    Local,
    /// In a second box on another runtime.
    On(RuntimeRef),
}

impl fmt::Display for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env => f.write_str("env"),
            Self::Local => f.write_str("local"),
            Self::On(runtime) => write!(f, "{runtime}"),
        }
    }
}

impl FromStr for Harness {
    type Err = crate::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "env" => Ok(Self::Env),
            "local" => Ok(Self::Local),
            other => match other.parse::<RuntimeRef>() {
                Ok(runtime) if runtime.name.is_some() => Ok(Self::On(runtime)),
                _ => Err(crate::Error::usage(format!(
                    "'{other}' is not where a harness runs: env, local or <ssh|docker|swarm|apple-container|slurm>:<runtime name>"
                ))),
            },
        }
    }
}

macro_rules! as_text {
    ($type:ty, $name:literal, $about:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $about})
            }
        }
    };
}

as_text!(Endpoint, "Endpoint", "local, or unix:///PATH");
as_text!(Harness, "Harness", "where an agent's CLI runs: env (in the box), local (here), or <backend>:<name>");

/// What a runtime is to hand out, and how it is reached. The field names are those of settings.yaml.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSpec {
    /// The daemon; `local` by default.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoint: Endpoint,
    /// Where an agent's CLI runs; `env` by default.
    #[serde(skip_serializing_if = "is_default")]
    pub harness: Harness,
    /// The image of environments that declare none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPUs it hands out in total; absent: all the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory it hands out in total; absent: all the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// How many containers it may run at once; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_containers: Option<u32>,
    /// The directory of an environment that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Seconds without an owner after which a run's box ends itself; 120 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where a runtime was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeSource {
    /// A manifest.
    #[default]
    Manifest,
    /// settings.yaml, which owns what it names.
    Settings,
    /// Nobody: the backend's default.
    Unsaved,
}

/// Who holds a share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Holder {
    /// The container's name.
    pub name: String,
    /// The host that asked for it.
    pub host: String,
    /// The environment role.
    pub role: String,
    /// CPUs held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// What a runtime is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeStatus {
    /// `Reachable`, `Sufficient`.
    pub conditions: Conditions,
    /// Where it was declared.
    pub source: RuntimeSource,
    /// The daemon's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// CPUs the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Memory the daemon has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// CPUs handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_cpus: Option<Cpus>,
    /// Memory handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_memory: Option<Memory>,
    /// Containers of this name that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
    /// Who holds what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}
