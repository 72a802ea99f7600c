//! The envelope every resource has: `apiVersion`, `kind`, `metadata`, `spec`, `status`.

use crate::meta::Metadata;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Debug;

/// The `apiVersion` of every resource.
pub const API_VERSION: &str = "hmz/v1";

/// A kind of resource.
pub trait Kind: Debug + Clone + PartialEq + Send + Sync + 'static {
    /// The word in `kind:`.
    const KIND: &'static str;
    /// The plural a person types, such as `environments`.
    const PLURAL: &'static str;
    /// Short names a person may type, such as `env`, `envs`.
    const SHORT: &'static [&'static str];
    /// What is declared.
    type Spec: Debug + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What was observed.
    type Status: Debug + Clone + PartialEq + Default + Serialize + DeserializeOwned + Send + Sync + 'static;
}

/// A resource of kind `K`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource<K: Kind> {
    /// Who it is.
    pub metadata: Metadata,
    /// What is declared.
    pub spec: K::Spec,
    /// What was observed; controllers write it.
    pub status: K::Status,
}

impl<K: Kind> Resource<K> {
    /// A resource as a manifest declares it.
    pub fn new(name: impl Into<String>, spec: K::Spec) -> Self {
        Self { metadata: Metadata::named(name), spec, status: K::Status::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Out<'a, S, T> {
    api_version: &'a str,
    kind: &'a str,
    metadata: &'a Metadata,
    spec: &'a S,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "S: DeserializeOwned, T: DeserializeOwned"))]
struct In<S, T> {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: S,
    status: Option<T>,
}

impl<K: Kind> Serialize for Resource<K> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        Out {
            api_version: API_VERSION,
            kind: K::KIND,
            metadata: &self.metadata,
            spec: &self.spec,
            status: (self.status != K::Status::default()).then_some(&self.status),
        }
        .serialize(serializer)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Resource<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = In::<K::Spec, K::Status>::deserialize(deserializer)?;
        if read.api_version != API_VERSION {
            return Err(D::Error::custom(format!("apiVersion '{}' is not {API_VERSION}", read.api_version)));
        }
        if read.kind != K::KIND {
            return Err(D::Error::custom(format!("kind '{}' is not {}", read.kind, K::KIND)));
        }
        Ok(Self { metadata: read.metadata, spec: read.spec, status: read.status.unwrap_or_default() })
    }
}
