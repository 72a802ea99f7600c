//! How a runtime is named: `docker:gpubox`, `docker@gpubox` and `docker/gpubox` are the same one.

use crate::error::Error;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What kind of place a runtime is. A closed set, in the order listings show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// This machine.
    Local,
    /// A host reached over ssh.
    Ssh,
    /// A docker daemon.
    Docker,
    /// A docker swarm.
    Swarm,
    /// Apple's containers.
    AppleContainer,
    /// A Slurm cluster.
    Slurm,
}

impl Backend {
    /// Every backend, in order.
    pub const ALL: [Self; 6] = [Self::Local, Self::Ssh, Self::Docker, Self::Swarm, Self::AppleContainer, Self::Slurm];

    /// The word a person types.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ssh => "ssh",
            Self::Docker => "docker",
            Self::Swarm => "swarm",
            Self::AppleContainer => "apple-container",
            Self::Slurm => "slurm",
        }
    }

    /// What one of its runtimes is, in a sentence.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Local => "runtime",
            Self::Ssh => "ssh host",
            Self::Docker => "docker host",
            Self::Swarm => "docker swarm",
            Self::AppleContainer => "apple-container host",
            Self::Slurm => "Slurm cluster",
        }
    }

    /// Whether every machine is taken to have one, so that its default is listed though it does not answer.
    pub const fn is_expected(self) -> bool {
        matches!(self, Self::Docker)
    }

    /// The backend a word names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|b| b.word() == word)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A runtime by backend and, unless it is the unsaved default, name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeRef {
    /// What kind of place.
    pub backend: Backend,
    /// The saved name; `None` is the backend's default with nothing saved.
    pub name: Option<String>,
}

impl RuntimeRef {
    /// A saved runtime.
    pub fn named(backend: Backend, name: impl Into<String>) -> Self {
        Self { backend, name: Some(name.into()) }
    }

    /// The backend's default with nothing saved.
    pub const fn unsaved(backend: Backend) -> Self {
        Self { backend, name: None }
    }

    /// The `metadata.name` of its resource: `docker:gpubox`, or `docker` unsaved.
    pub fn resource_name(&self) -> String {
        match &self.name {
            Some(name) => [self.backend.word(), ":", name].concat(),
            None => self.backend.to_string(),
        }
    }

    /// As refusals say it: `docker@gpubox`, or `docker` unsaved.
    pub fn at(&self) -> String {
        match &self.name {
            Some(name) => format!("{}@{name}", self.backend),
            None => self.backend.to_string(),
        }
    }

    /// Whether that is its [`RuntimeRef::resource_name`].
    pub fn is_called(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.backend.word()) else { return false };
        match &self.name {
            Some(named) => rest.strip_prefix(':') == Some(named),
            None => rest.is_empty(),
        }
    }

    /// As an answer of its daemon names it: `docker/gpubox`, or `docker` unsaved.
    pub fn path(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.backend),
            None => self.backend.to_string(),
        }
    }

    /// The value of the `humanize.provider` label.
    pub fn provider(&self) -> &str {
        self.name.as_deref().unwrap_or("local")
    }

    /// Checks a runtime's name.
    ///
    /// # Errors
    /// A usage error that says the rule.
    pub fn check_name(name: &str) -> Result<(), Error> {
        let ok = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if ok {
            return Ok(());
        }
        Err(Error::usage(format!(
            "invalid runtime name '{name}': must start with a letter or digit and contain only letters, digits, dots, dashes, and underscores"
        )))
    }
}

impl fmt::Display for RuntimeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource_name())
    }
}

impl FromStr for RuntimeRef {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let at = text.find([':', '@', '/']);
        let (word, name) = match at {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        let backend = Backend::from_word(word).ok_or_else(|| {
            Error::usage(format!("'{word}' is not a backend; one of local, ssh, docker, swarm, apple-container, slurm"))
        })?;
        if let Some(name) = name {
            Self::check_name(name)?;
        }
        Ok(Self { backend, name: name.map(str::to_owned) })
    }
}

impl Serialize for RuntimeRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RuntimeRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for RuntimeRef {
    fn schema_name() -> Cow<'static, str> {
        "RuntimeRef".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "description": "a runtime, such as docker:gpubox, or docker for the default with nothing saved"})
    }
}
