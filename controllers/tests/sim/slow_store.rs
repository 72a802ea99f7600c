//! A store whose every write takes a moment before and after, so that a crash can fall between, and to which somebody else
//! wrote first now and then.

use crate::dice::Dice;
use crate::fate::Fate;
use async_trait::async_trait;
use hmz_api::Kind;
use hmz_api::kinds::Environment;
use hmz_store::{Backend, Expect, Layer, StoreError, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct SlowStore {
    pub inner: Box<dyn Backend>,
    pub dice: Dice,
    pub fate: Fate,
    /// Whether others write at the moment.
    pub lies: Arc<AtomicBool>,
    /// Whether somebody writes to an environment each time before it is written, and not when that is tried again.
    pub contended: Arc<AtomicBool>,
    pub tries: AtomicU64,
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
impl Layer for SlowStore {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    async fn before(&self, write: &Write) -> Result<(), StoreError> {
        self.moment().await;
        self.fate.step().await;
        if !matches!(write.expect, Expect::Revision(_)) {
            return Ok(());
        }
        let one = write.change.resource();
        let is_contended = self.contended.load(Ordering::Relaxed)
            && one.kind() == Environment::KIND
            && self.tries.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_contended || self.lies.load(Ordering::Relaxed) && self.dice.one_in(40) {
            return Err(StoreError::Conflict { kind: one.kind().into(), name: one.metadata().name.clone() });
        }
        Ok(())
    }

    async fn after(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.fate.step().await;
        self.moment().await;
    }
}
