//! Which key is due when. No clock and no task of its own: time is given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use tokio::time::Instant;

/// Keys with the time each is due and why. Equal times are served in the order they were asked for.
#[derive(Debug)]
pub struct Queue<K> {
    due: BTreeMap<(Instant, u64), K>,
    keys: HashMap<K, Entry>,
    busy: BTreeSet<K>,
    next: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    at: (Instant, u64),
    reason: &'static str,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), keys: HashMap::new(), busy: BTreeSet::new(), next: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Asks for a look at `key` at `at`. When one is asked for already, the earlier of the two happens. The reason is for
    /// logs only.
    pub fn ask(&mut self, key: K, at: Instant, reason: &'static str) {
        if let Some(entry) = self.keys.get(&key) {
            if entry.at.0 <= at {
                return;
            }
            self.due.remove(&entry.at);
        }
        let at = (at, self.next);
        self.next += 1;
        self.due.insert(at, key.clone());
        self.keys.insert(key, Entry { at, reason });
    }

    /// Takes the first key that is due and that nobody works on; it counts as worked on until [`Queue::done`].
    pub fn take(&mut self, now: Instant) -> Option<(K, &'static str)> {
        let (at, key) = self
            .due
            .iter()
            .take_while(|((at, _), _)| *at <= now)
            .find(|(_, key)| !self.busy.contains(*key))
            .map(|(at, key)| (*at, key.clone()))?;
        self.due.remove(&at);
        let reason = self.keys.remove(&key).map_or("", |e| e.reason);
        self.busy.insert(key.clone());
        Some((key, reason))
    }

    /// The work on `key` ended.
    pub fn done(&mut self, key: &K) {
        self.busy.remove(key);
    }

    /// When the next key that nobody works on is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.due.iter().find(|(_, key)| !self.busy.contains(*key)).map(|((at, _), _)| *at)
    }

    /// How many keys are asked for, those included that are worked on and asked for again.
    pub fn waiting(&self) -> usize {
        self.keys.len()
    }

    /// How many keys are asked for or worked on.
    pub fn len(&self) -> usize {
        self.keys.len() + self.busy.iter().filter(|k| !self.keys.contains_key(*k)).count()
    }

    /// Whether nothing is asked for and nothing worked on.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.busy.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(base: Instant, ms: u64) -> Instant {
        base + Duration::from_millis(ms)
    }

    #[test]
    fn the_earlier_time_wins_and_a_key_is_there_once() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.ask("a", at(base, 50), "late");
        queue.ask("a", at(base, 10), "early");
        queue.ask("a", at(base, 30), "middle");
        assert_eq!((queue.len(), queue.next_at()), (1, Some(at(base, 10))));
        assert_eq!(queue.take(at(base, 9)), None);
        assert_eq!(queue.take(at(base, 10)), Some(("a", "early")));
        assert_eq!(queue.take(at(base, 99)), None);
    }

    #[test]
    fn a_key_that_is_worked_on_waits_and_holds_up_nobody() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.ask("a", base, "");
        queue.ask("b", at(base, 1), "");
        assert_eq!(queue.take(base).map(|t| t.0), Some("a"));
        queue.ask("a", base, "again");
        queue.ask("a", base, "and again");
        assert_eq!(queue.next_at(), Some(at(base, 1)));
        assert_eq!(queue.take(at(base, 1)).map(|t| t.0), Some("b"));
        assert_eq!((queue.take(at(base, 9)), queue.next_at()), (None, None));
        queue.done(&"a");
        assert_eq!(queue.take(at(base, 9)), Some(("a", "again")));
    }

    proptest! {
        /// Against a model: the set of (key, earliest time asked since it was last taken).
        #[test]
        fn it_is_as_a_list_of_earliest_times(ops in prop::collection::vec((0..3_u8, 0..4_u8, 0..20_u64), 0..60)) {
            let base = Instant::now();
            let mut queue = Queue::default();
            let mut asked: BTreeMap<u8, u64> = BTreeMap::new();
            let mut busy: BTreeSet<u8> = BTreeSet::new();
            for (op, key, ms) in ops {
                match op {
                    0 => {
                        queue.ask(key, at(base, ms), "");
                        asked.entry(key).and_modify(|t| *t = (*t).min(ms)).or_insert(ms);
                    }
                    1 => {
                        let best = asked.iter().filter(|(k, t)| **t <= ms && !busy.contains(*k)).map(|(_, t)| *t).min();
                        let taken = queue.take(at(base, ms)).map(|t| t.0);
                        prop_assert_eq!(taken.and_then(|k| asked.remove(&k)), best);
                        busy.extend(taken);
                    }
                    _ => {
                        queue.done(&key);
                        busy.remove(&key);
                    }
                }
                let next = asked.iter().filter(|(k, _)| !busy.contains(*k)).map(|(_, t)| at(base, *t)).min();
                prop_assert_eq!(queue.next_at(), next);
            }
        }
    }
}
