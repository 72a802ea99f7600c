//! Trouble of a daemon's that does not pass.
//!
//! An answer of 5xx says that the daemon is in trouble, and that is worth another try. Some say so of what they were asked for as
//! well (podman of most of it), which stays as it is however often it is asked. Nothing in one answer tells the two apart, and a
//! list of words would be one engine's of one version. What does tell them apart is time: what is said of one box again, in the
//! same words, for some time, is taken for its own fault.

use crate::types::BoxKey;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Boxes that are remembered; more at once than that are all new again.
const REMEMBERED: usize = 1024;
/// How long after the last time the same words are a new trouble: what was said then has passed meanwhile. Longer than whoever tries
/// again waits, which is a minute and what the try takes.
const PASSED: Duration = Duration::from_secs(180);
/// The shortest run of hexadecimal digits that is taken for an id.
const ID: usize = 12;

/// What the starts of boxes failed with last.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<HashMap<(String, Uuid), Trouble>>);

#[derive(Debug)]
struct Trouble {
    words: String,
    since: Instant,
    last: Instant,
}

impl Troubles {
    /// Takes note of what a start failed with. Whether the one before failed with the same, and that since so long.
    pub fn stays(&self, key: &BoxKey, words: &str, long: Duration) -> bool {
        self.stays_at(key, words, long, Instant::now())
    }

    fn stays_at(&self, key: &BoxKey, words: &str, long: Duration, now: Instant) -> bool {
        let words = without_ids(words);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = (key.instance.clone(), key.uid);
        let same = |before: &&mut Trouble| before.words == words && now.saturating_duration_since(before.last) <= PASSED;
        if let Some(before) = all.get_mut(&of).filter(same) {
            before.last = now;
            return now.saturating_duration_since(before.since) >= long;
        }
        if all.len() >= REMEMBERED {
            all.clear();
        }
        all.insert(of, Trouble { words, since: now, last: now });
        false
    }

    /// It is over: the box was started.
    pub fn over(&self, key: &BoxKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(key.instance.clone(), key.uid));
    }
}

/// Words without the id of the container that they are of, which is another one each time.
fn without_ids(words: &str) -> String {
    let mut out = String::new();
    let mut run = String::new();
    for c in words.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        if run.len() < ID {
            out.push_str(&run);
        }
        run.clear();
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: u128) -> BoxKey {
        BoxKey { instance: "i".into(), uid: Uuid::from_u128(uid), incarnation: 1, role: "box".into() }
    }

    #[test]
    fn what_is_said_again_of_one_box_stays_and_what_is_new_may_pass() {
        let (all, now, later) = (Troubles::default(), Duration::ZERO, Duration::from_secs(600));
        let said = |n: u8| format!("container 90cb9cfa269f2d74{n}: no such network");
        assert!(!all.stays(&key(1), &said(1), now));
        assert!(!all.stays(&key(1), &said(2), later));
        assert!(all.stays(&BoxKey { incarnation: 2, ..key(1) }, &said(3), now));
        // of another box, or in other words, it is new
        assert!(!all.stays(&key(2), &said(1), now));
        assert!(!all.stays(&key(1), "no space left", now));
        assert!(!all.stays(&key(1), &said(4), now));
        all.over(&key(1));
        assert!(!all.stays(&key(1), &said(5), now));
    }

    #[test]
    fn what_was_said_long_ago_has_passed() {
        let (all, began) = (Troubles::default(), Instant::now());
        let stays =
            |after: u64| all.stays_at(&key(1), "no space left", Duration::from_secs(5), began + Duration::from_secs(after));
        assert!(!stays(0) && !stays(86_400) && !stays(86_403));
        assert!(stays(86_406) && stays(86_460));
        assert!(!stays(86_641));
    }
}
