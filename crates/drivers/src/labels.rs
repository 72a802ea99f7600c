//! What the labels of a container, or of a service, say: what it is for, whose it is, and the share it holds.
//!
//! Labels are only believed together with the name: anybody can copy them, and `docker commit` does, into an image and so into
//! containers that were never ours.

use crate::types::{BoxKey, Purpose};
use hmz_api::kinds::Share;
use hmz_api::{Cpus, Memory, labels};
use serde_json::Value;
use uuid::Uuid;

/// What they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// What it is for; [`Purpose::Foreign`] when its name is not the one they derive.
    pub purpose: Purpose,
    /// Which box, when it is ours.
    pub key: Option<BoxKey>,
    /// The run's uid.
    pub run: Option<Uuid>,
    /// The runtime's name.
    pub provider: String,
    /// The host that asked for it.
    pub host: String,
    /// The environment role.
    pub role: String,
    /// The share.
    pub share: Share,
}

impl Labels {
    /// Reads a map of labels. What it is for is said by `purpose`, from the word for it, the runtime's name, the prefix of names and
    /// the key, so far as they are there; what its GPUs are, by `gpus` from their text.
    pub(crate) fn read(
        map: &Value,
        purpose: impl FnOnce(&str, &str, Option<&str>, Option<&BoxKey>) -> Purpose,
        gpus: impl FnOnce(&str) -> Vec<String>,
    ) -> Self {
        let owned = |label: &str| text(map, label).unwrap_or_default().to_owned();
        let key = || {
            Some(BoxKey {
                instance: text(map, labels::INSTANCE)?.to_owned(),
                uid: text(map, labels::ENV_UID)?.parse().ok()?,
                incarnation: text(map, labels::INCARNATION)?.parse().ok()?,
                role: text(map, labels::ROLE)?.to_owned(),
            })
        };
        let (key, provider) = (key(), owned(labels::PROVIDER));
        let word = text(map, labels::PURPOSE).unwrap_or_default();
        let purpose = purpose(word, &provider, text(map, labels::PREFIX), key.as_ref());
        Self {
            key: key.filter(|_| matches!(purpose, Purpose::Box | Purpose::Hold)),
            purpose,
            run: text(map, labels::RUN).and_then(|t| t.parse().ok()),
            provider,
            host: owned(labels::HOST),
            role: owned(labels::ROLE),
            share: Share {
                cpus: text(map, labels::CPUS).and_then(|t| t.parse::<Cpus>().ok()),
                memory: text(map, labels::MEMORY).and_then(|t| t.parse().ok()).map(Memory::from_bytes),
                gpus: text(map, labels::GPUS).map(gpus).unwrap_or_default(),
            },
        }
    }
}

/// What one of them says, unless that is nothing.
pub(crate) fn text<'a>(map: &'a Value, label: &str) -> Option<&'a str> {
    map.get(label).and_then(Value::as_str).filter(|t| !t.is_empty())
}

/// Whether any of them is one that only hmz writes: the other implementation writes the rest.
pub(crate) fn are_ours(map: &Value) -> bool {
    text(map, labels::PURPOSE).is_some() || text(map, labels::INSTANCE).is_some()
}
