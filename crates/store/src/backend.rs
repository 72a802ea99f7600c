//! What keeps resources: compare-and-write by revision, list and watch. Everything a resource *means* (generations,
//! finalizers, deletion) is decided above it, in [`crate::Store`], so that another store (etcd) needs only this.

use crate::error::StoreError;
use crate::history::Watch;
use async_trait::async_trait;
use futures::StreamExt;
use hmz_api::AnyResource;
use hmz_api::kinds::label;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing of that name.
    Absent,
    /// The resource at exactly this revision.
    Revision(u64),
}

/// One write: it happens whole, and only when what it expects is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What has to be there.
    pub expect: Expect,
    /// Whether it has to survive a loss of power too, and not only the end of this process.
    pub durable: bool,
    /// What becomes of it.
    pub change: Change,
}

/// A resource as it is kept. It is shared with whoever reads it and changed by nobody: a change is another one.
pub type Kept = Arc<AnyResource>;

/// What became of a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// It is as given now; its `resourceVersion` is the event's revision.
    Applied(Kept),
    /// It is gone; as it last was.
    Deleted(Kept),
}

impl Change {
    /// The resource, whichever happened to it.
    pub fn resource(&self) -> &AnyResource {
        match self {
            Self::Applied(r) | Self::Deleted(r) => r,
        }
    }
}

/// What a write made.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The revision of the change.
    pub revision: u64,
    /// The resource as it is now, or last was.
    pub resource: Kept,
}

/// One change, as a watcher sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// The revision of the change.
    pub revision: u64,
    /// The kind of the resource.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub change: Change,
}

/// A text that is kept beside the resources: its name, and what it says; nothing when there is to be none. It has no revision,
/// and nobody is told when it changes.
pub type Note = (String, Option<String>);

/// The set a resource is in.
pub(crate) fn set_of(resource: &AnyResource) -> Option<&str> {
    resource.metadata().labels.get(label::SET).map(String::as_str)
}

/// What keeps resources. Every call may be dropped at any await: a write then happened whole or not at all.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The resource of that kind and name.
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<Kept>, StoreError>;

    /// Every resource of a kind (or of all), by kind and name, and the revision they were read at.
    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<Kept>, u64), StoreError>;

    /// Up to `limit` resources of a kind, by name, after that name: whoever needs them one after another holds few at a time.
    async fn page(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError>;

    /// The same as one JSON list, for whoever passes it on and looks at none of them.
    async fn page_json(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<String, StoreError> {
        let page = self.page(kind, after, limit).await?;
        serde_json::to_string(&page.iter().map(|one| &**one).collect::<Vec<_>>())
            .map_err(|e| StoreError::Failed { doing: "list", why: e.to_string() })
    }

    /// The names of a kind, in order.
    async fn names(&self, kind: &'static str) -> Result<Vec<String>, StoreError>;

    /// The resource of a kind with that uid, whatever its name is.
    async fn by_uid(&self, kind: &'static str, uid: Uuid) -> Result<Option<Kept>, StoreError>;

    /// The members of a set (what is labelled with its name), by kind and name.
    async fn members(&self, set: &str) -> Result<Vec<Kept>, StoreError> {
        let (mut items, _) = self.list(None).await?;
        items.retain(|one| set_of(one) == Some(set));
        Ok(items)
    }

    /// How many members each set has.
    async fn sets(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        let mut sets = BTreeMap::new();
        for set in self.list(None).await?.0.iter().filter_map(|one| set_of(one)) {
            *sets.entry(set.to_owned()).or_default() += 1;
        }
        Ok(sets)
    }

    /// The notes whose name begins so, by name.
    async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError>;

    /// Keeps these notes, all of them or none. Those that are `durable` survive a loss of power too.
    async fn put_notes(&self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError>;

    /// Writes, and returns what that made.
    async fn write(&self, write: Write) -> Result<Written, StoreError>;

    /// The revision of the last change; 0 when there was none.
    async fn revision(&self) -> Result<u64, StoreError>;

    /// The changes after `since` (or from now on) of a kind (or of all).
    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch;

    /// The changes after `since` (or from now on) of one resource.
    fn watch_one(&self, kind: &'static str, name: &str, since: Option<u64>) -> Watch {
        let name = name.to_owned();
        let of = move |event: &Result<WatchEvent, StoreError>| event.as_ref().map_or(true, |event| event.name == name);
        Watch::new(self.watch(Some(kind), since).filter(move |event| std::future::ready(of(event))))
    }

    /// Writes everything there is at one revision to `to`, an empty file or none, while it is read and written here. The
    /// file is a whole one only when this returns.
    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let _ = to;
        Err(StoreError::Failed { doing: "be backed up", why: "it is kept in no file".into() })
    }
}
