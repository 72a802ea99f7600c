//! A resource of any kind, as it stands in a manifest or on the wire.

use super::{Environment, Flow, Run, Runtime};
use crate::condition::Conditions;
use crate::meta::Metadata;
use crate::resource::{Kind, Resource};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One of the kinds.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyResource {
    /// A run.
    Run(Box<Resource<Run>>),
    /// An environment.
    Environment(Box<Resource<Environment>>),
    /// A runtime.
    Runtime(Box<Resource<Runtime>>),
    /// A flow.
    Flow(Box<Resource<Flow>>),
}

macro_rules! each {
    ($self:expr, $r:ident => $body:expr) => {
        match $self {
            AnyResource::Run($r) => $body,
            AnyResource::Environment($r) => $body,
            AnyResource::Runtime($r) => $body,
            AnyResource::Flow($r) => $body,
        }
    };
}

impl AnyResource {
    /// The kind's word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run(_) => Run::KIND,
            Self::Environment(_) => Environment::KIND,
            Self::Runtime(_) => Runtime::KIND,
            Self::Flow(_) => Flow::KIND,
        }
    }

    /// What its controller says of it; `None` of a flow, which has none.
    pub fn conditions(&self) -> Option<&Conditions> {
        match self {
            Self::Run(run) => Some(&run.status.conditions),
            Self::Environment(environment) => Some(&environment.status.conditions),
            Self::Runtime(runtime) => Some(&runtime.status.conditions),
            Self::Flow(_) => None,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Metadata {
        each!(self, r => &r.metadata)
    }

    /// Its metadata, to change.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        each!(self, r => &mut r.metadata)
    }

    /// The kind a person means by `word`: its name, plural or a short form, in any case.
    pub fn kind_of_word(word: &str) -> Option<&'static str> {
        fn is<K: Kind>(word: &str) -> bool {
            word == K::KIND.to_ascii_lowercase() || word == K::PLURAL || K::SHORT.contains(&word)
        }
        let word = word.to_ascii_lowercase();
        [
            (is::<Run>(&word), Run::KIND),
            (is::<Environment>(&word), Environment::KIND),
            (is::<Runtime>(&word), Runtime::KIND),
            (is::<Flow>(&word), Flow::KIND),
        ]
        .into_iter()
        .find_map(|(yes, kind)| yes.then_some(kind))
    }
}

impl Serialize for AnyResource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        each!(self, r => r.serialize(serializer))
    }
}

impl AnyResource {
    /// Reads one of a kind that is known, which needs no tree in between; `None` for a kind there is not.
    pub fn read(kind: &str, text: &str) -> Option<Result<Self, serde_json::Error>> {
        match kind {
            "Run" => Some(serde_json::from_str(text).map(Self::Run)),
            "Environment" => Some(serde_json::from_str(text).map(Self::Environment)),
            "Runtime" => Some(serde_json::from_str(text).map(Self::Runtime)),
            "Flow" => Some(serde_json::from_str(text).map(Self::Flow)),
            _ => None,
        }
    }

    /// Reads a list of a kind that is known.
    ///
    /// # Errors
    /// When it is none.
    pub fn read_list(kind: &str, text: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        fn list<'a, T: Deserialize<'a>>(
            text: &'a [u8],
            of: fn(Box<T>) -> AnyResource,
        ) -> Result<Vec<AnyResource>, serde_json::Error> {
            Ok(serde_json::from_slice::<Vec<Box<T>>>(text)?.into_iter().map(of).collect())
        }
        match kind {
            "Run" => list(text, Self::Run),
            "Environment" => list(text, Self::Environment),
            "Runtime" => list(text, Self::Runtime),
            "Flow" => list(text, Self::Flow),
            _ => serde_json::from_slice(text),
        }
    }
}

impl<'de> Deserialize<'de> for AnyResource {
    /// Through a JSON tree: used on the wire and by the store. Manifests are read by `hmz-manifest`, which keeps positions.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let kind = value.get("kind").and_then(|k| k.as_str()).unwrap_or_default().to_owned();
        let wrong = |e: serde_json::Error| de::Error::custom(e);
        match kind.as_str() {
            "Run" => serde_json::from_value(value).map(|r| Self::Run(Box::new(r))).map_err(wrong),
            "Environment" => serde_json::from_value(value).map(|r| Self::Environment(Box::new(r))).map_err(wrong),
            "Runtime" => serde_json::from_value(value).map(|r| Self::Runtime(Box::new(r))).map_err(wrong),
            "Flow" => serde_json::from_value(value).map(|r| Self::Flow(Box::new(r))).map_err(wrong),
            other => Err(de::Error::custom(format!("'{other}' is not a kind: Run, Environment, Runtime or Flow"))),
        }
    }
}
