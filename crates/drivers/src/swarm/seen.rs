//! Services as a swarm lists them.

use super::names;
use super::task::Task;
use crate::docker::holder::Holder;
use crate::docker::labels::PROCESS;
use crate::labels::{Labels, are_ours, text};
use crate::types::{BoxKey, BoxState, Purpose, is_same_box};
use jiff::Timestamp;
use serde_json::Value;
use std::ops::Deref;
use std::time::Duration;

/// Label of a box: when the hold was changed last that it was made of, by the swarm's clock.
pub const HELD: &str = "hmz.held";

/// A service of ours, or of somebody who writes the same labels.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The version an update has to name.
    pub version: u64,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When it was changed last.
    pub updated: Option<Timestamp>,
    /// What its labels say. Of GPUs there are as many as the label says, each by its kind.
    pub labels: Labels,
    /// The process that made it, of the lock.
    pub holder: Option<Holder>,
    /// Of a box: when the hold was changed last that it was made of.
    held: Option<Timestamp>,
    /// Whether labels of ours are on it at all.
    labelled_by_us: bool,
    /// Its tasks.
    pub tasks: Vec<Task>,
}

impl Deref for Service {
    type Target = Labels;

    fn deref(&self) -> &Labels {
        &self.labels
    }
}

impl Service {
    /// Reads an entry of `/services`; `None` when it has no id or name.
    pub fn of(entry: &Value) -> Option<Self> {
        let spec = entry.get("Spec")?;
        let name = spec.get("Name")?.as_str()?;
        let map = spec.get("Labels").unwrap_or(&Value::Null);
        let at = |field: &str| entry.get(field).and_then(Value::as_str).and_then(|t| t.parse().ok());
        let purpose = |word: &str, provider: &str, prefix: Option<&str>, key: Option<&BoxKey>| {
            let prefix = names::prefix(provider, prefix);
            let derived = key.is_some_and(|k| name == names::of_box(&prefix, k));
            match word {
                "lock" if name == names::LOCK => Purpose::Lock,
                "box" if derived => Purpose::Box,
                "hold" if derived => Purpose::Hold,
                _ => Purpose::Foreign,
            }
        };
        Some(Self {
            id: entry.get("ID")?.as_str()?.to_owned(),
            name: name.to_owned(),
            version: entry.pointer("/Version/Index").and_then(Value::as_u64).unwrap_or(0),
            created: at("CreatedAt"),
            updated: at("UpdatedAt"),
            labels: Labels::read(map, purpose, gpus),
            holder: text(map, PROCESS).and_then(|t| t.parse().ok()),
            held: text(map, HELD).and_then(|t| t.parse().ok()),
            labelled_by_us: are_ours(map),
            tasks: Vec::new(),
        })
    }

    /// Whether it may have tasks: a hold and a lock are there to have none.
    pub fn may_have_tasks(&self) -> bool {
        matches!(self.purpose, Purpose::Box | Purpose::Foreign)
    }

    /// Whether it is the box or the hold of a key.
    pub fn is_of(&self, key: &BoxKey) -> bool {
        self.key.as_ref().is_some_and(|k| is_same_box(k, key))
    }

    /// How long ago it was changed, by the swarm's clock; zero when one of the two is not known.
    pub fn age(&self, now: Option<Timestamp>) -> Duration {
        match (now, self.updated.or(self.created)) {
            (Some(now), Some(then)) => now.duration_since(then).try_into().unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// How its box is.
    pub fn state(&self) -> BoxState {
        match self.tasks.as_slice() {
            [] => BoxState::Created,
            [task] => task.box_state(),
            // one that was started anew is another box
            _ => BoxState::Exited(crate::types::Exit { code: None, oom: false, at: None }),
        }
    }

    /// Whether its share counts: a box that runs or is about to, a hold that has not aged out, and what runs of the other
    /// implementation. A copy of our labels under another name holds nothing.
    pub fn counts(&self, now: Option<Timestamp>, hold_age: Duration) -> bool {
        let runs = || self.tasks.is_empty() || self.tasks.iter().any(|t| !t.is_over() && !t.is_given_up());
        match self.purpose {
            Purpose::Box => runs(),
            Purpose::Hold => self.age(now) < hold_age,
            Purpose::Lock | Purpose::Probe => false,
            Purpose::Foreign => !self.labelled_by_us && !self.provider.is_empty() && runs(),
        }
    }

    /// Whether it is a box whose hold had aged out when it became one.
    pub fn became_too_late(&self, hold_age: Duration) -> bool {
        let became = self.held.zip(self.updated.or(self.created));
        became.is_some_and(|(held, at)| Duration::try_from(at.duration_since(held)).unwrap_or_default() >= hold_age)
    }

    /// Whether this hold still counted when it became `after`. The swarm told both times, so nothing that passed on the way there
    /// matters: who looked before that saw it count.
    pub fn counted_until(&self, after: &Self, hold_age: Duration) -> bool {
        self.counts(after.updated.or(after.created), hold_age)
    }
}

/// `KIND=N` as the kind, N times.
fn gpus(text: &str) -> Vec<String> {
    let (kind, n) = text.split_once('=').unwrap_or((text, "1"));
    std::iter::repeat_n(kind.to_owned(), n.parse().unwrap_or(1).min(1024)).collect()
}

/// The label of so many GPUs of a kind.
pub fn gpu_label(gpus: &[String]) -> Option<String> {
    gpus.first().map(|kind| format!("{kind}={}", gpus.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::labels;
    use serde_json::json;
    use uuid::Uuid;

    fn service(purpose: &str, updated: &str) -> Service {
        let uid = Uuid::nil();
        let key = BoxKey { instance: "i".into(), uid, incarnation: 1, role: "box".into() };
        let provider = "swarm/p";
        let name = names::of_box(&names::prefix(provider, None), &key);
        let labels = json!({
            labels::INSTANCE: "i", labels::ENV_UID: uid.to_string(), labels::INCARNATION: "1", labels::ROLE: "box",
            labels::PROVIDER: provider, labels::PURPOSE: purpose,
        });
        let spec = json!({"Name": name, "Labels": labels});
        let service = json!({"ID": "s", "Spec": spec, "CreatedAt": "2026-01-01T00:00:00Z", "UpdatedAt": updated});
        Service::of(&service).unwrap()
    }

    #[test]
    fn a_hold_that_aged_out_before_it_was_changed_is_told_by_the_swarms_times() {
        let age = Duration::from_secs(60);
        let hold = service("hold", "2026-01-01T00:00:00.5Z");
        assert_eq!(hold.purpose, Purpose::Hold);
        // the same is told of a box by itself, for whoever finds it
        for (changed, late) in [("2026-01-01T00:01:00.4Z", false), ("2026-01-01T00:01:00.5Z", true)] {
            let mut found = service("box", changed);
            assert!(!found.became_too_late(age), "it does not say");
            found.held = hold.updated;
            assert_eq!(found.became_too_late(age), late, "{changed}");
        }
        for (purpose, changed, counted) in [
            ("box", "2026-01-01T00:00:01Z", true),
            ("box", "2026-01-01T00:01:00.499999999Z", true),
            ("box", "2026-01-01T00:01:00.5Z", false),
            ("hold", "2026-01-01T00:01:00.4Z", true),
            ("hold", "2026-01-01T00:02:00Z", false),
        ] {
            assert_eq!(hold.counted_until(&service(purpose, changed), age), counted, "{purpose} {changed}");
        }
    }
}
