//! A backend in front of another one, for simulations and tests: everything is asked of that one, and something may happen
//! before and after what is written.

use crate::backend::{Backend, Kept, Note, Write, Written};
use crate::error::StoreError;
use crate::history::Watch;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::Path;
use uuid::Uuid;

/// What happens around the writes of another backend. Whoever is this is a [`Backend`].
#[async_trait]
pub trait Layer: Send + Sync + 'static {
    /// The other one.
    fn inner(&self) -> &dyn Backend;

    /// Before a resource is written. An error is the answer, and nothing is written then.
    async fn before(&self, write: &Write) -> Result<(), StoreError> {
        let _ = write;
        Ok(())
    }

    /// After it was, or was not.
    async fn after(&self) {}

    /// Before notes are written.
    async fn before_notes(&self) {}
}

#[async_trait]
impl<L: Layer> Backend for L {
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<Kept>, StoreError> {
        self.inner().get(kind, name).await
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<Kept>, u64), StoreError> {
        self.inner().list(kind).await
    }

    async fn page(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.inner().page(kind, after, limit).await
    }

    async fn page_json(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<String, StoreError> {
        self.inner().page_json(kind, after, limit).await
    }

    async fn names(&self, kind: &'static str) -> Result<Vec<String>, StoreError> {
        self.inner().names(kind).await
    }

    async fn by_uid(&self, kind: &'static str, uid: Uuid) -> Result<Option<Kept>, StoreError> {
        self.inner().by_uid(kind, uid).await
    }

    async fn members(&self, set: &str) -> Result<Vec<Kept>, StoreError> {
        self.inner().members(set).await
    }

    async fn sets(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        self.inner().sets().await
    }

    async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        self.inner().notes(prefix).await
    }

    async fn put_notes(&self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError> {
        self.before_notes().await;
        self.inner().put_notes(notes, durable).await
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.before(&write).await?;
        let written = self.inner().write(write).await;
        self.after().await;
        written
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.inner().revision().await
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        self.inner().watch(kind, since)
    }

    fn watch_one(&self, kind: &'static str, name: &str, since: Option<u64>) -> Watch {
        self.inner().watch_one(kind, name, since)
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.inner().backup(to).await
    }
}
