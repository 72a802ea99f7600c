//! A store whose every write takes a moment before and after, so that a crash can fall between, and to which somebody else
//! wrote first now and then.

use crate::dice::Dice;
use crate::fate::Fate;
use async_trait::async_trait;
use hmz_store::{Backend, Expect, Kept, Note, StoreError, Watch, Write, Written};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uuid::Uuid;

pub struct SlowStore {
    pub inner: Box<dyn Backend>,
    pub dice: Dice,
    pub fate: Fate,
    /// Whether others write at the moment.
    pub lies: Arc<AtomicBool>,
    pub writes: AtomicU64,
}

impl SlowStore {
    async fn moment(&self) {
        if self.dice.one_in(4) {
            tokio::time::sleep(self.dice.millis(3)).await;
        }
    }
}

#[async_trait]
impl Backend for SlowStore {
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<Kept>, StoreError> {
        self.inner.get(kind, name).await
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<Kept>, u64), StoreError> {
        self.inner.list(kind).await
    }

    async fn page(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.inner.page(kind, after, limit).await
    }

    async fn names(&self, kind: &'static str) -> Result<Vec<String>, StoreError> {
        self.inner.names(kind).await
    }

    async fn by_uid(&self, kind: &'static str, uid: Uuid) -> Result<Option<Kept>, StoreError> {
        self.inner.by_uid(kind, uid).await
    }

    async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        self.inner.notes(prefix).await
    }

    async fn put_notes(&self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError> {
        self.inner.put_notes(notes, durable).await
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.moment().await;
        self.fate.step().await;
        if self.lies.load(Ordering::Relaxed) && matches!(write.expect, Expect::Revision(_)) && self.dice.one_in(40) {
            let one = write.change.resource();
            return Err(StoreError::Conflict { kind: one.kind().into(), name: one.metadata().name.clone() });
        }
        let written = self.inner.write(write).await;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.fate.step().await;
        self.moment().await;
        written
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.inner.revision().await
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        self.inner.watch(kind, since)
    }

    fn watch_one(&self, kind: &'static str, name: &str, since: Option<u64>) -> Watch {
        self.inner.watch_one(kind, name, since)
    }
}
