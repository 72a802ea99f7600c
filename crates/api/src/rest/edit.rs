//! Changing one resource in place: `POST /v1/KIND/NAME/edit`.

use crate::kinds::AnyResource;
use crate::launch::CallerContext;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is to be another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// Labels: a value, or `null` to take it away.
    #[serde(default)]
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations, in the same way.
    #[serde(default)]
    pub annotations: BTreeMap<String, Option<String>>,
    /// Whether those that have another value already are changed too.
    #[serde(default)]
    pub overwrite: bool,
    /// All of it, as somebody has edited it.
    #[serde(default)]
    pub whole: Option<AnyResource>,
    /// What that was edited from: what it declares has to be declared still. What is observed may change meanwhile.
    #[serde(default)]
    pub base: Option<AnyResource>,
    /// Who asks.
    #[serde(default)]
    pub caller: CallerContext,
}
