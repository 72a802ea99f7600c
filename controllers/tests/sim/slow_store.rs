//! A store whose every call takes a moment before and after, so that a crash can fall between.

use crate::dice::Dice;
use async_trait::async_trait;
use hmz_api::AnyResource;
use hmz_store::{Backend, Sqlite, StoreError, Watch, Write};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct SlowStore {
    pub inner: Sqlite,
    pub dice: Dice,
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
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<AnyResource>, StoreError> {
        self.inner.get(kind, name).await
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<AnyResource>, u64), StoreError> {
        self.inner.list(kind).await
    }

    async fn write(&self, write: Write) -> Result<u64, StoreError> {
        self.moment().await;
        let written = self.inner.write(write).await;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.moment().await;
        written
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.inner.revision().await
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        self.inner.watch(kind, since)
    }
}
