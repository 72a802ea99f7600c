//! Which key is due when. No clock and no task of its own: time is given.
//!
//! Keys may be in lanes, of each of which only so many are worked on at once: what one daemon keeps waiting holds up nobody else.
//! Everything costs the same however many keys there are, but for a logarithm.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use tokio::time::Instant;

/// When a key is due: the time, and which of those of that time it is.
type At = (Instant, u64);

/// The name of a lane.
pub type Lane = Arc<str>;

/// Keys with the time each is due and why. Equal times are served in the order they were asked for.
#[derive(Debug)]
pub struct Queue<K> {
    /// Those that may be taken. One that is worked on is not among them, nor one that waits for its lane.
    due: BTreeMap<At, K>,
    keys: HashMap<K, Entry>,
    /// What is worked on, and in which lane.
    busy: HashMap<K, Option<Lane>>,
    lanes: HashMap<Lane, InLane<K>>,
    next: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    at: At,
    reason: &'static str,
    /// The lane it waits for, or waited for last.
    lane: Option<Lane>,
}

#[derive(Debug)]
struct InLane<K> {
    busy: usize,
    waiting: BTreeMap<At, K>,
}

impl<K> Default for InLane<K> {
    fn default() -> Self {
        Self { busy: 0, waiting: BTreeMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Default for Queue<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), keys: HashMap::new(), busy: HashMap::new(), lanes: HashMap::new(), next: 0 }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Asks for a look at `key` at `at`. When one is asked for already, the earlier of the two happens. The reason is for
    /// logs only.
    pub fn ask(&mut self, key: K, at: Instant, reason: &'static str) {
        let mut left = None;
        if let Some(entry) = self.keys.get(&key) {
            if entry.at.0 <= at {
                return;
            }
            self.due.remove(&entry.at);
            if let Some(lane) = &entry.lane {
                self.lanes.get_mut(lane).and_then(|lane| lane.waiting.remove(&entry.at));
                left = Some(lane.clone());
            }
        }
        let at = (at, self.next);
        self.next += 1;
        // one that is worked on is due when that ended
        if !self.busy.contains_key(&key) {
            self.due.insert(at, key.clone());
        }
        self.keys.insert(key, Entry { at, reason, lane: None });
        if let Some(lane) = left {
            self.next_of(&lane);
        }
    }

    /// Takes the first key that is due, that nobody works on, and of whose lane fewer than `limit` are worked on; it counts as
    /// worked on until [`Queue::done`].
    pub fn take(&mut self, now: Instant, limit: usize, lane_of: impl Fn(&K) -> Option<Lane>) -> Option<(K, &'static str)> {
        while let Some(first) = self.due.first_entry()
            && first.key().0 <= now
        {
            let (at, key) = first.remove_entry();
            let lane = lane_of(&key);
            let before =
                self.keys.get_mut(&key).and_then(|entry| entry.lane.take()).filter(|before| Some(before) != lane.as_ref());
            if let Some(lane) = &lane {
                let of = self.lanes.entry(lane.clone()).or_default();
                if of.busy >= limit {
                    of.waiting.insert(at, key.clone());
                    if let Some(entry) = self.keys.get_mut(&key) {
                        entry.lane = Some(lane.clone());
                    }
                } else {
                    of.busy += 1;
                }
            }
            // it was let go for a place that it does not take
            if let Some(before) = before {
                self.next_of(&before);
            }
            if self.keys.get(&key).is_some_and(|entry| entry.lane.is_some()) {
                continue;
            }
            let reason = self.keys.remove(&key).map_or("", |e| e.reason);
            self.busy.insert(key.clone(), lane);
            return Some((key, reason));
        }
        None
    }

    /// The work on `key` ended.
    pub fn done(&mut self, key: &K) {
        let Some(lane) = self.busy.remove(key) else { return };
        if let Some(entry) = self.keys.get(key) {
            self.due.insert(entry.at, key.clone());
        }
        let Some(lane) = lane else { return };
        if let Some(of) = self.lanes.get_mut(&lane) {
            of.busy -= 1;
        }
        self.next_of(&lane);
    }

    /// Lets the first one go that waits for a lane in which a place is free; it goes on waiting when another was first.
    fn next_of(&mut self, lane: &Lane) {
        let Some(of) = self.lanes.get_mut(lane) else { return };
        if let Some((at, key)) = of.waiting.pop_first() {
            self.due.insert(at, key);
        } else if of.busy == 0 {
            self.lanes.remove(lane);
        }
    }

    /// When the next key is due that nobody works on and that waits for no lane.
    pub fn next_at(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// How many keys are asked for, those included that are worked on and asked for again.
    pub fn waiting(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn take<K: Clone + Eq + Hash>(queue: &mut Queue<K>, now: Instant) -> Option<(K, &'static str)> {
        queue.take(now, 1, |_| None)
    }

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
        assert_eq!((queue.waiting(), queue.next_at()), (1, Some(at(base, 10))));
        assert_eq!(take(&mut queue, at(base, 9)), None);
        assert_eq!(take(&mut queue, at(base, 10)), Some(("a", "early")));
        assert_eq!(take(&mut queue, at(base, 99)), None);
    }

    #[test]
    fn a_key_that_is_worked_on_waits_and_holds_up_nobody() {
        let base = Instant::now();
        let mut queue = Queue::default();
        queue.ask("a", base, "");
        queue.ask("b", at(base, 1), "");
        assert_eq!(take(&mut queue, base).map(|t| t.0), Some("a"));
        queue.ask("a", base, "again");
        queue.ask("a", base, "and again");
        assert_eq!(queue.next_at(), Some(at(base, 1)));
        assert_eq!(take(&mut queue, at(base, 1)).map(|t| t.0), Some("b"));
        assert_eq!((take(&mut queue, at(base, 9)), queue.next_at()), (None, None));
        queue.done(&"a");
        assert_eq!(take(&mut queue, at(base, 9)), Some(("a", "again")));
    }

    #[test]
    fn a_lane_that_is_full_holds_up_no_other() {
        let base = Instant::now();
        let mut queue = Queue::default();
        let lane = |key: &&str| Some(Lane::from(&key[..1]));
        for key in ["a1", "a2", "a3", "b1", "a4"] {
            queue.ask(key, base, key);
        }
        let taken = |queue: &mut Queue<&'static str>| queue.take(base, 2, lane).map(|t| t.0);
        assert_eq!([taken(&mut queue), taken(&mut queue), taken(&mut queue)], [Some("a1"), Some("a2"), Some("b1")]);
        assert_eq!((taken(&mut queue), queue.next_at(), queue.waiting()), (None, None, 2));
        // asked for again while it waits, it waits on
        queue.ask("a4", base, "again");
        queue.done(&"b1");
        assert_eq!(taken(&mut queue), None);
        queue.done(&"a2");
        assert_eq!((taken(&mut queue), taken(&mut queue)), (Some("a3"), None));
        queue.done(&"a1");
        queue.done(&"a3");
        assert_eq!((taken(&mut queue), taken(&mut queue)), (Some("a4"), None));
        queue.done(&"a4");
        assert!(queue.lanes.is_empty() && queue.busy.is_empty() && queue.keys.is_empty() && queue.due.is_empty());
    }

    proptest! {
        /// Keys in lanes, which may change meanwhile: never more of a lane than its limit, in the order of their times, and
        /// none is forgotten.
        #[test]
        fn a_lane_holds_its_limit_and_lets_everybody_through(
            ops in prop::collection::vec((0..4_u8, 0..12_u8, 0..20_u64), 0..120),
            limit in 1..3_usize,
        ) {
            let base = Instant::now();
            let mut queue = Queue::default();
            let mut asked: BTreeMap<u8, u64> = BTreeMap::new();
            let mut busy: BTreeMap<u8, u8> = BTreeMap::new();
            let mut turned = BTreeSet::new();
            let lane_of = |key: u8, turned: &BTreeSet<u8>| (key + u8::from(turned.contains(&key))) % 3;
            let name = |lane: u8| Some(Lane::from(lane.to_string()));
            for (op, key, ms) in ops {
                match op {
                    0 => {
                        queue.ask(key, at(base, ms), "");
                        asked.entry(key).and_modify(|t| *t = (*t).min(ms)).or_insert(ms);
                    }
                    1 => {
                        let full = |lane: u8| busy.values().filter(|l| **l == lane).count() >= limit;
                        let free = |k: &u8| !busy.contains_key(k) && !full(lane_of(*k, &turned));
                        // of those that wait for a lane they are not in any more nobody knows until one of them is let go
                        let best = asked.iter().filter(|(k, t)| **t <= ms && free(k)).map(|(_, t)| *t).min();
                        let taken = queue.take(at(base, ms), limit, |k| name(lane_of(*k, &turned))).map(|t| t.0);
                        let time = taken.and_then(|k| asked.remove(&k));
                        if turned.is_empty() {
                            prop_assert_eq!(time, best);
                        }
                        if let Some(key) = taken {
                            prop_assert!(free(&key));
                            busy.insert(key, lane_of(key, &turned));
                        }
                    }
                    2 => drop(turned.insert(key)),
                    _ => {
                        queue.done(&key);
                        busy.remove(&key);
                    }
                }
            }
            // what is asked for comes to its turn when the others end
            for _ in 0..24 {
                for key in std::mem::take(&mut busy).into_keys() {
                    queue.done(&key);
                }
                while let Some((key, _)) = queue.take(at(base, 99), limit, |k| name(lane_of(*k, &turned))) {
                    prop_assert!(asked.remove(&key).is_some());
                    busy.insert(key, 0);
                }
            }
            prop_assert_eq!((asked.len(), queue.waiting(), queue.due.len()), (0, 0, 0));
        }

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
                        let taken = take(&mut queue, at(base, ms)).map(|t| t.0);
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
