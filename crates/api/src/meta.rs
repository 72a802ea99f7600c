//! `metadata`: what every resource says about itself.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Who owns a resource: it goes when its owner goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnerReference {
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    #[schemars(with = "String")]
    pub uid: Uuid,
}

/// The metadata of a resource. A manifest gives `name` (or `generateName`), labels and annotations; the store sets the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The name, unique within its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A prefix from which a name is made when `name` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<String>,
    /// For people and selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// For programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Made by the store; names of what is started derive from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub uid: Option<Uuid>,
    /// Counts changes of `spec`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// The store's revision of the last change; what optimistic concurrency compares.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resource_version: u64,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub creation_timestamp: Option<Timestamp>,
    /// Set when deletion was asked for; it is gone when no finalizer is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub deletion_timestamp: Option<Timestamp>,
    /// What has to be cleaned up before it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Its owners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Metadata {
    /// Metadata that says only a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}
