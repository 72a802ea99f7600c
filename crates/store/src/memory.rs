//! Resources in memory, as they are: for simulations, rehearsals and tests. Nothing of it outlives the process.

use crate::backend::{Backend, Change, Expect, Kept, Note, WatchEvent, Write, Written, set_of};
use crate::error::StoreError;
use crate::history::{History, REMEMBERED, Wanted, Watch};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// The backend in memory.
pub struct Memory {
    kept: Mutex<Tables>,
    history: Arc<History>,
}

/// The resources of one kind: found by name at once, and gone through in the order of their names.
#[derive(Default)]
struct Named {
    of: HashMap<Arc<str>, Kept>,
    order: BTreeSet<Arc<str>>,
}

impl Named {
    fn insert(&mut self, name: &str, one: Kept) {
        if let Some(kept) = self.of.get_mut(name) {
            *kept = one;
            return;
        }
        let name: Arc<str> = name.into();
        self.order.insert(name.clone());
        self.of.insert(name, one);
    }

    fn remove(&mut self, name: &str) {
        self.of.remove(name);
        self.order.remove(name);
    }

    fn after<'a>(&'a self, name: Option<&str>) -> impl Iterator<Item = &'a Kept> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range::<str, _>((from, Bound::Unbounded)).filter_map(|name| self.of.get(name))
    }
}

#[derive(Default)]
struct Tables {
    kinds: BTreeMap<&'static str, Named>,
    /// Names by uid.
    uids: HashMap<(&'static str, Uuid), String>,
    notes: BTreeMap<String, String>,
    last: u64,
}

impl Memory {
    /// One with nothing in it, which remembers as many changes as one on disk.
    pub fn new() -> Self {
        Self::remembering(REMEMBERED)
    }

    /// One that remembers so many changes.
    pub fn remembering(changes: usize) -> Self {
        Self { kept: Mutex::default(), history: History::after(0, changes) }
    }

    fn kept(&self) -> MutexGuard<'_, Tables> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    fn get(&self, kind: &str, name: &str) -> Option<&Kept> {
        self.kinds.get(kind)?.of.get(name)
    }
}

#[async_trait]
impl Backend for Memory {
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<Kept>, StoreError> {
        Ok(self.kept().get(kind, name).cloned())
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<Kept>, u64), StoreError> {
        let kept = self.kept();
        let of = kept.kinds.iter().filter(|(k, _)| kind.is_none_or(|kind| kind == **k));
        Ok((of.flat_map(|(_, named)| named.after(None)).cloned().collect(), kept.last))
    }

    async fn page(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let kept = self.kept();
        let Some(named) = kept.kinds.get(kind) else { return Ok(Vec::new()) };
        Ok(named.after(after).take(limit).cloned().collect())
    }

    async fn names(&self, kind: &'static str) -> Result<Vec<String>, StoreError> {
        Ok(self.kept().kinds.get(kind).into_iter().flat_map(|named| &named.order).map(|name| (**name).to_owned()).collect())
    }

    async fn by_uid(&self, kind: &'static str, uid: Uuid) -> Result<Option<Kept>, StoreError> {
        let kept = self.kept();
        Ok(kept.uids.get(&(kind, uid)).and_then(|name| kept.get(kind, name)).cloned())
    }

    async fn members(&self, set: &str) -> Result<Vec<Kept>, StoreError> {
        let kept = self.kept();
        let all = kept.kinds.values().flat_map(|named| named.after(None));
        Ok(all.filter(|one| set_of(one) == Some(set)).cloned().collect())
    }

    async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let kept = self.kept();
        let from = kept.notes.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let of = from.take_while(|(name, _)| name.starts_with(prefix));
        Ok(of.map(|(name, body)| (name.clone(), body.clone())).collect())
    }

    async fn put_notes(&self, notes: Vec<Note>, _durable: bool) -> Result<(), StoreError> {
        let mut kept = self.kept();
        for (name, body) in notes {
            match body {
                Some(body) => drop(kept.notes.insert(name, body)),
                None => drop(kept.notes.remove(&name)),
            }
        }
        Ok(())
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        let mut kept = self.kept();
        let mut change = write.change;
        let (kind, name) = (change.resource().kind(), change.resource().metadata().name.clone());
        let found = kept.get(kind, &name).map(|one| (one.metadata().resource_version, one.metadata().uid));
        match (write.expect, found) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Err(StoreError::AlreadyExists { kind: kind.into(), name }),
            (Expect::Revision(_), None) => return Err(StoreError::NotFound { kind: kind.into(), name }),
            (Expect::Revision(want), Some((is, _))) if want == is => {}
            (Expect::Revision(_), Some(_)) => return Err(StoreError::Conflict { kind: kind.into(), name }),
        }
        kept.last += 1;
        let revision = kept.last;
        let before = found.and_then(|(_, uid)| uid);
        let now = match &change {
            Change::Applied(resource) => resource.metadata().uid,
            Change::Deleted(_) => None,
        };
        if before != now {
            before.map(|uid| kept.uids.remove(&(kind, uid)));
            now.map(|uid| kept.uids.insert((kind, uid), name.clone()));
        }
        let written = match &mut change {
            Change::Applied(resource) => {
                Arc::make_mut(resource).metadata_mut().resource_version = revision;
                kept.kinds.entry(kind).or_default().insert(&name, resource.clone());
                resource.clone()
            }
            Change::Deleted(resource) => {
                kept.kinds.entry(kind).or_default().remove(&name);
                resource.clone()
            }
        };
        // told of in the order of revisions: before anybody else writes
        self.history.push(WatchEvent { revision, kind, name, change });
        Ok(Written { revision, resource: written })
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.kept().last)
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        Watch::of(&self.history, Wanted { kind, name: None }, since)
    }

    fn watch_one(&self, kind: &'static str, name: &str, since: Option<u64>) -> Watch {
        Watch::of_one(&self.history, kind, name, since)
    }
}
