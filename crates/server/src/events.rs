//! Events: what happened to each resource, as its conditions tell it. Counted, aged out and bounded, and kept in a file of the
//! state directory, so that they outlive the daemon. Nothing is written while nothing happens.
//!
//! They are for people: nothing is decided by them, and the last ones may be lost with the power.

use futures::{FutureExt, StreamExt};
use hmz_api::clock::SharedClock;
use hmz_api::kinds::condition::{DEATHS, SUFFICIENT};
use hmz_api::rest::{Event, EventType, SET_KIND};
use hmz_api::{AnyResource, Condition, ConditionStatus, Error};
use hmz_store::{Change, Store, WatchEvent};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;
use uuid::Uuid;

/// The kinds there are.
const KINDS: [&str; 4] = ["Run", "Environment", "Runtime", "Flow"];
/// How many resources are held at a time while all are looked at.
const PAGE: usize = 256;
/// How many are kept.
const KEPT: usize = 2000;
/// How long one is kept after it happened last.
const AGE: SignedDuration = SignedDuration::from_hours(24);
/// How many lines the file may have for each that is kept, before it is written anew.
const SLACK: usize = 2;
/// How long a message is kept at most, in characters.
const LONGEST: usize = 1000;

/// Reasons that say that something is not as it should be, beside those of a box's end.
const WARNINGS: [&str; 13] = [
    "Refused",
    "RuntimeMissing",
    "Insufficient",
    "Waiting",
    "Unreachable",
    "Failed",
    "Lost",
    "PassedOver",
    "NotRemoved",
    "FellBack",
    "NotAnswering",
    "Invalid",
    "Lacking",
];

/// The events of a home. Clones are the same.
#[derive(Clone)]
pub(crate) struct Events {
    kept: Arc<Mutex<Kept>>,
    told: broadcast::Sender<Event>,
    clock: SharedClock,
}

struct Kept {
    events: VecDeque<Event>,
    path: PathBuf,
    lines: usize,
}

impl Events {
    /// Those of the file, if there is one. What cannot be read of it is left out.
    pub fn open(path: &Path, clock: SharedClock) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut kept = Kept { events: VecDeque::new(), path: path.to_owned(), lines: text.lines().count() };
        for event in text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()) {
            kept.take(event);
        }
        kept.age(clock.now());
        Self { kept: Arc::new(Mutex::new(kept)), told: broadcast::Sender::new(256), clock }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those there are, oldest first, and what comes after them.
    pub fn follow(&self) -> (Vec<Event>, broadcast::Receiver<Event>) {
        let mut kept = self.kept();
        kept.age(self.clock.now());
        (kept.events.iter().cloned().collect(), self.told.subscribe())
    }

    fn note(&self, kind: &str, name: &str, uid: Uuid, happened: Happened) {
        let now = self.clock.now();
        let Happened { kind_of, reason, message } = happened;
        let message = message.chars().take(LONGEST).collect();
        let event =
            Event { kind: kind.into(), name: name.into(), uid, kind_of, reason, message, count: 1, first: now, last: now };
        let mut kept = self.kept();
        kept.age(now);
        let event = kept.take(event);
        kept.write(&event);
        drop(kept);
        // nobody may be listening
        let _ = self.told.send(event);
    }

    /// Something that happened to a set, which is no resource and has no uid: its name stands for one.
    pub fn of_set(&self, name: &str, reason: &str, message: &str, is_wrong: bool) {
        let digest = Sha256::digest(format!("set/{name}"));
        let uid = uuid::Builder::from_slice(&digest[..16]).map(uuid::Builder::into_uuid).unwrap_or_default();
        let kind_of = if is_wrong { EventType::Warning } else { EventType::Normal };
        self.note(SET_KIND, name, uid, Happened { kind_of, reason: reason.into(), message: message.into() });
    }

    /// Follows the store for as long as it is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn record(&self, store: Store) -> Result<(), Error> {
        let mut known: BTreeMap<(&'static str, String), Known> = BTreeMap::new();
        let mut first = true;
        loop {
            // from before the first page on: what is written meanwhile is seen, perhaps twice, which is the same
            let mut changes = store.watch(None, Some(store.revision().await?))?;
            let mut before = std::mem::take(&mut known);
            for kind in KINDS {
                let mut after: Option<String> = None;
                loop {
                    let page = store.page_any(kind, after.as_deref(), PAGE).await?;
                    let Some(last) = page.last() else { break };
                    after = Some(last.metadata().name.clone());
                    for one in page {
                        let key = key(&one);
                        let was = before.remove(&key);
                        // what was there before the daemon was is no news
                        if !first {
                            self.compare(was.as_ref(), &one);
                        }
                        known.insert(key, Known::of(&one));
                    }
                    // a watch that is not read lags behind; its error is met again below
                    while let Some(Some(Ok(event))) = changes.next().now_or_never() {
                        self.follow_one(&mut known, event);
                    }
                }
            }
            for ((kind, name), gone) in before {
                self.gone(kind, &name, gone.uid);
            }
            first = false;
            // a watch that lagged behind ends, and all is looked at again
            while let Some(Ok(event)) = changes.next().await {
                self.follow_one(&mut known, event);
            }
        }
    }

    fn follow_one(&self, known: &mut BTreeMap<(&'static str, String), Known>, event: WatchEvent) {
        match event.change {
            Change::Applied(one) => {
                let was = known.insert(key(&one), Known::of(&one));
                self.compare(was.as_ref(), &one);
            }
            Change::Deleted(one) => {
                known.remove(&key(&one));
                self.gone(one.kind(), &one.metadata().name, one.metadata().uid);
            }
        }
    }

    fn compare(&self, was: Option<&Known>, is: &AnyResource) {
        let metadata = is.metadata();
        let Some(uid) = metadata.uid else { return };
        let was = was.filter(|was| was.uid == Some(uid));
        for happened in happened(was, is) {
            self.note(is.kind(), &metadata.name, uid, happened);
        }
    }

    fn gone(&self, kind: &str, name: &str, uid: Option<Uuid>) {
        if let Some(uid) = uid {
            self.note(kind, name, uid, Happened::normal("Deleted", ""));
        }
    }
}

impl Kept {
    /// Takes one in; one that happens again is counted, and is the newest.
    fn take(&mut self, event: Event) -> Event {
        let mut event = event;
        if let Some(at) = self.events.iter().position(|known| known.is_again(&event))
            && let Some(known) = self.events.remove(at)
        {
            // a line of the file says how often in all
            let again = if event.first == event.last && event.count == 1 { known.count + 1 } else { event.count };
            event = Event { count: again, first: known.first, ..event };
        }
        self.events.push_back(event.clone());
        if self.events.len() > KEPT {
            self.events.pop_front();
        }
        event
    }

    fn age(&mut self, now: Timestamp) {
        while self.events.front().is_some_and(|oldest| now.duration_since(oldest.last) > AGE) {
            self.events.pop_front();
        }
    }

    fn write(&mut self, event: &Event) {
        let written = if self.lines > SLACK * KEPT.max(self.events.len()) { self.anew() } else { self.append(event) };
        if let Err(e) = written {
            // they are for people, and still in memory
            tracing::warn!("events are not kept: {e}");
        }
    }

    fn append(&mut self, event: &Event) -> std::io::Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(&self.path)?;
        self.lines += 1;
        file.write_all(format!("{}\n", serde_json::to_string(event)?).as_bytes())
    }

    fn anew(&mut self) -> std::io::Result<()> {
        let mut text = String::new();
        for event in &self.events {
            text.push_str(&serde_json::to_string(event)?);
            text.push('\n');
        }
        let fresh = self.path.with_extension("new");
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, &self.path)?;
        self.lines = self.events.len();
        Ok(())
    }
}

/// One thing that happened.
struct Happened {
    kind_of: EventType,
    reason: String,
    message: String,
}

impl Happened {
    fn normal(reason: &str, message: &str) -> Self {
        Self { kind_of: EventType::Normal, reason: reason.into(), message: message.into() }
    }
}

/// What is kept of a resource to tell by what the next one is: little, however much is said of it.
#[derive(Debug, Clone)]
struct Known {
    uid: Option<Uuid>,
    generation: u64,
    deleting: bool,
    /// A digest of each condition.
    conditions: Box<[u64]>,
}

impl Known {
    fn of(one: &AnyResource) -> Self {
        let metadata = one.metadata();
        Self {
            uid: metadata.uid,
            generation: metadata.generation,
            deleting: metadata.is_deleting(),
            conditions: one.conditions().into_iter().flat_map(|all| &all.0).map(digest).collect(),
        }
    }
}

/// What a condition came to, without its words.
fn digest(condition: &Condition) -> u64 {
    let mut digest = DefaultHasher::new();
    (&condition.kind, &condition.reason, std::mem::discriminant(&condition.status)).hash(&mut digest);
    digest.finish()
}

fn key(one: &AnyResource) -> (&'static str, String) {
    (one.kind(), one.metadata().name.clone())
}

/// What made the one out of the other.
fn happened(was: Option<&Known>, is: &AnyResource) -> Vec<Happened> {
    let mut all = Vec::new();
    let new = is.metadata();
    match was {
        None => all.push(Happened::normal("Declared", "")),
        Some(old) if old.generation != new.generation => {
            all.push(Happened::normal("Changed", &format!("generation {}", new.generation)));
        }
        Some(_) => {}
    }
    if new.is_deleting() && !was.is_some_and(|was| was.deleting) {
        all.push(Happened::normal("Deleting", ""));
    }
    for condition in is.conditions().into_iter().flat_map(|all| &all.0) {
        let same = was.is_some_and(|was| was.conditions.contains(&digest(condition)));
        // what only sums others up, or has not begun, is no event of its own
        if same || condition.reason == "Pending" || (condition.kind == "Ready" && condition.status != ConditionStatus::True) {
            continue;
        }
        let reason = condition.reason.as_str();
        // that there is too little is said in many words
        let lacks = condition.kind == SUFFICIENT && condition.status == ConditionStatus::False;
        let is_wrong = lacks || WARNINGS.contains(&reason) || DEATHS.contains(&reason);
        let kind_of = if is_wrong { EventType::Warning } else { EventType::Normal };
        let message = match condition.message.split("\n\n").next().unwrap_or_default() {
            "" => format!("{} is {:?}", condition.kind, condition.status),
            said => format!("{} is {:?}: {said}", condition.kind, condition.status),
        };
        all.push(Happened { kind_of, reason: condition.reason.clone(), message });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::clock::Clock;
    use serde_json::json;

    /// A clock that is set by hand.
    struct Hand(Mutex<i64>);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(*self.0.lock().unwrap()).unwrap()
        }
    }

    fn env(generation: u64, conditions: &[(&str, &str, &str, &str)]) -> AnyResource {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let whole = json!({"apiVersion": "hmz/v1", "kind": "Environment", "spec": {"runtime": "docker:here"},
            "metadata": {"name": "box", "uid": Uuid::from_u128(1), "generation": generation}, "status": {"conditions": conditions}});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn what_happens_again_is_counted_ages_out_and_outlives_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let clock = Arc::new(Hand(Mutex::new(1_800_000_000)));
        let events = Events::open(&path, clock.clone());
        let up = env(1, &[("Scheduled", "True", "Held", ""), ("Ready", "True", "Ready", "")]);
        let down = env(1, &[("Scheduled", "False", "Released", ""), ("Created", "False", "OutOfMemory", "no memory")]);
        events.compare(None, &up);
        for _ in 0..3 {
            *clock.0.lock().unwrap() += 60;
            events.compare(Some(&Known::of(&up)), &down);
            events.compare(Some(&Known::of(&down)), &up);
        }
        let told = |events: &Events| -> Vec<String> {
            events.follow().0.iter().map(|e| format!("{:?} {} {} ×{}", e.kind_of, e.reason, e.message, e.count)).collect()
        };
        let all = [
            "Normal Declared  ×1",
            "Normal Released Scheduled is False ×3",
            "Warning OutOfMemory Created is False: no memory ×3",
            "Normal Held Scheduled is True ×4",
            "Normal Ready Ready is True ×4",
        ];
        assert_eq!(told(&events), all);
        // the next daemon has them, and the number of times
        std::fs::File::options().append(true).open(&path).unwrap().write_all(b"{\"torn").unwrap();
        let next = Events::open(&path, clock.clone());
        assert_eq!(told(&next), all);
        *clock.0.lock().unwrap() += 25 * 3600;
        assert_eq!(told(&next), Vec::<String>::new());
    }

    #[test]
    fn too_little_is_a_warning_and_enough_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(&dir.path().join("events.jsonl"), Arc::new(Hand(Mutex::new(1_800_000_000))));
        let lacks = env(1, &[("Sufficient", "False", "TooLittle", "it has 2 CPUs")]);
        let has = env(1, &[("Sufficient", "True", "Enough", "")]);
        events.compare(Some(&Known::of(&env(1, &[]))), &lacks);
        events.compare(Some(&Known::of(&lacks)), &has);
        let told: Vec<_> = events.follow().0.iter().map(|e| (e.kind_of, e.reason.clone())).collect();
        assert_eq!(told, [(EventType::Warning, "TooLittle".to_owned()), (EventType::Normal, "Enough".to_owned())]);
    }

    #[test]
    fn the_file_does_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let events = Events::open(&path, Arc::new(Hand(Mutex::new(1_800_000_000))));
        for generation in 1..=(3 * KEPT as u64 + 500) {
            events.compare(Some(&Known::of(&env(generation, &[]))), &env(generation + 1, &[]));
        }
        assert_eq!(events.follow().0.len(), KEPT);
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= SLACK * KEPT + 1, "{lines}");
    }
}
