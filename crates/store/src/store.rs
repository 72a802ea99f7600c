//! What resources mean: uids, generations, statuses apart from specs, finalizers, deletion.

use crate::backend::{Backend, Change, Expect, Kept, Note, Write, Written};
use crate::error::StoreError;
use crate::graft::{self, Grafted};
use crate::history::Watch;
use crate::ids::{Ids, RandomIds};
use crate::memory::Memory;
use crate::sqlite::Sqlite;
use hmz_api::clock::SharedClock;
use hmz_api::{AnyResource, Kind, Resource};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// How often a name is made anew when the one made is taken.
const NAME_ATTEMPTS: usize = 16;

/// How many resources are held at a time by whoever needs all of them in turn.
const PAGE: usize = 256;

/// A handle on the resources; clones are the same store.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    clock: SharedClock,
    ids: Arc<dyn Ids>,
}

/// What was there at one revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    /// The resources, by kind and name.
    pub items: Vec<T>,
    /// The revision they were read at; watch from here to miss nothing.
    pub revision: u64,
}

impl Store {
    /// Opens (or makes) the SQLite store at `path`; its directory exists. Blocks while the file is checked.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub fn open(path: &Path, clock: SharedClock) -> Result<Self, StoreError> {
        Ok(Self::with(Arc::new(Sqlite::open(path)?), clock, Arc::new(RandomIds)))
    }

    /// A store in memory.
    pub fn in_memory(clock: SharedClock) -> Self {
        Self::with(Arc::new(Memory::new()), clock, Arc::new(RandomIds))
    }

    /// A store on any backend.
    pub fn with(backend: Arc<dyn Backend>, clock: SharedClock, ids: Arc<dyn Ids>) -> Self {
        Self { backend, clock, ids }
    }

    /// Another store, in memory, with everything that is in this one now. Their changes do not touch each other, and their
    /// revisions are not the same.
    ///
    /// # Errors
    /// When this one cannot be read.
    pub async fn copy(&self) -> Result<Self, StoreError> {
        let backend = Memory::new();
        for mut resource in self.backend.list(None).await?.0 {
            Arc::make_mut(&mut resource).metadata_mut().resource_version = 0;
            backend.write(Write { expect: Expect::Absent, durable: false, change: Change::Applied(resource) }).await?;
        }
        Ok(Self::with(Arc::new(backend), self.clock.clone(), self.ids.clone()))
    }

    /// The resource of kind `K` called `name`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn get<K: Kind>(&self, name: &str) -> Result<Option<Resource<K>>, StoreError> {
        Ok(self.backend.get(K::KIND, name).await?.as_deref().and_then(graft::typed_ref).cloned())
    }

    /// What `take` makes of the resource of kind `K` called `name`: where a part of it is enough, nothing else is copied.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn part<K: Kind, T>(
        &self,
        name: &str,
        take: impl FnOnce(&Resource<K>) -> T + Send,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.backend.get(K::KIND, name).await?.as_deref().and_then(graft::typed_ref).map(take))
    }

    /// Every resource of kind `K`, by name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list<K: Kind>(&self) -> Result<Vec<Resource<K>>, StoreError> {
        let (items, _) = self.backend.list(Some(K::KIND)).await?;
        Ok(items.into_iter().map(Arc::unwrap_or_clone).filter_map(graft::typed).collect())
    }

    /// Every resource of kind `K` in turn, by name, a few held at a time. What is written meanwhile may be among them or not.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn each<K: Kind>(&self, mut take: impl FnMut(&Resource<K>) + Send) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.backend.page(K::KIND, after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.metadata().name.clone());
            page.iter().filter_map(|one| graft::typed_ref(one)).for_each(&mut take);
        }
    }

    /// Up to `limit` resources of a kind, by name, after that name.
    ///
    /// # Errors
    /// When the store cannot be read; [`StoreError::Invalid`] for a kind there is not.
    pub async fn page_any(&self, kind: &str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.backend.page(kind_of(kind)?, after, limit).await
    }

    /// The same as one JSON list.
    ///
    /// # Errors
    /// As there.
    pub async fn page_json(&self, kind: &str, after: Option<&str>, limit: usize) -> Result<String, StoreError> {
        self.backend.page_json(kind_of(kind)?, after, limit).await
    }

    /// The names of a kind, in order.
    ///
    /// # Errors
    /// As there.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>, StoreError> {
        self.backend.names(kind_of(kind)?).await
    }

    /// The resource of kind `K` with that uid.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn by_uid<K: Kind>(&self, uid: Uuid) -> Result<Option<Resource<K>>, StoreError> {
        Ok(self.backend.by_uid(K::KIND, uid).await?.as_deref().and_then(graft::typed_ref).cloned())
    }

    /// The members of a set: what is labelled with its name, by kind and name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn members(&self, set: &str) -> Result<Vec<AnyResource>, StoreError> {
        Ok(owned(self.backend.members(set).await?))
    }

    /// How many members each set has.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sets(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        self.backend.sets().await
    }

    /// The notes whose name begins so: texts that are kept beside the resources, and are in a backup with them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        self.backend.notes(prefix).await
    }

    /// Keeps these notes, all of them or none; where a text is absent, there is none any more. Those that are `durable`
    /// survive a loss of power too. Nobody is told, and the revision stays.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn put_notes(&self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError> {
        self.backend.put_notes(notes, durable).await
    }

    /// Writes everything there is at one revision to `to`, an empty file or none, while this one is in use.
    ///
    /// # Errors
    /// When it cannot be written; a store that is in memory is in no file.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.backend.backup(to).await
    }

    /// Stores a new resource. Sets uid, generation 1, resourceVersion and creationTimestamp, and makes a name from
    /// `generateName` when it has none. A status it carries is stored with it.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`]; [`StoreError::Invalid`] without a name.
    pub async fn create<K: Kind>(&self, resource: Resource<K>) -> Result<Resource<K>, StoreError> {
        typed(self.create_any(any(resource)?).await?)
    }

    /// Changes spec, labels, annotations, finalizers and owner references of a resource that was read; the status stays
    /// as stored. `generation` counts up only when the spec changed. A change that changes nothing is not written. Taking
    /// the last finalizer off one that is being deleted removes it; it is returned as it last was.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when its `resourceVersion` is not the stored one, [`StoreError::NotFound`].
    pub async fn update<K: Kind>(&self, resource: Resource<K>) -> Result<Resource<K>, StoreError> {
        typed(self.update_any(any(resource)?).await?)
    }

    /// Changes the status only, by the same rules.
    ///
    /// # Errors
    /// As [`Store::update`].
    pub async fn update_status<K: Kind>(&self, resource: Resource<K>) -> Result<Resource<K>, StoreError> {
        typed(self.update_status_any(any(resource)?).await?)
    }

    /// [`Store::update_status`], for whoever needs nothing of what came of it.
    ///
    /// # Errors
    /// As there.
    pub async fn put_status<K: Kind>(&self, resource: Resource<K>) -> Result<(), StoreError> {
        self.graft_status(any(resource)?).await.map(drop)
    }

    /// Asks for deletion: with finalizers left it gets a deletionTimestamp (once), without it is removed. Returns it as it
    /// is now, or last was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when it kept changing meanwhile.
    pub async fn delete<K: Kind>(&self, name: &str) -> Result<Resource<K>, StoreError> {
        typed(self.delete_any(K::KIND, name).await?)
    }

    /// [`Store::get`] by the kind's word.
    ///
    /// # Errors
    /// As there; [`StoreError::Invalid`] for a kind there is not.
    pub async fn get_any(&self, kind: &str, name: &str) -> Result<Option<AnyResource>, StoreError> {
        Ok(self.backend.get(kind_of(kind)?, name).await?.map(Arc::unwrap_or_clone))
    }

    /// [`Store::list`] by the kind's word, or of every kind, with the revision.
    ///
    /// # Errors
    /// As there; [`StoreError::Invalid`] for a kind there is not.
    pub async fn list_any(&self, kind: Option<&str>) -> Result<Listed<AnyResource>, StoreError> {
        let (items, revision) = self.backend.list(kind.map(kind_of).transpose()?).await?;
        Ok(Listed { items: owned(items), revision })
    }

    /// [`Store::create`] of any kind.
    ///
    /// # Errors
    /// As there.
    pub async fn create_any(&self, mut resource: AnyResource) -> Result<AnyResource, StoreError> {
        let now = self.clock.now();
        let metadata = resource.metadata_mut();
        // a caller that must know the uid before anybody sees the resource brings its own
        metadata.uid = Some(metadata.uid.unwrap_or_else(|| self.ids.uid()));
        metadata.generation = 1;
        metadata.creation_timestamp = Some(now);
        metadata.deletion_timestamp = None;
        let prefix = metadata.generate_name.clone().filter(|p| !p.is_empty());
        match (metadata.name.is_empty(), prefix) {
            (false, _) => self.insert(resource).await,
            (true, None) => Err(StoreError::Invalid(format!("a {} needs a name", resource.kind().to_lowercase()))),
            (true, Some(prefix)) => {
                let mut attempt = 0;
                loop {
                    attempt += 1;
                    let suffix = self.ids.uid().simple().to_string();
                    resource.metadata_mut().name = format!("{prefix}{}", &suffix[..5]);
                    match self.insert(resource.clone()).await {
                        Err(StoreError::AlreadyExists { .. }) if attempt < NAME_ATTEMPTS => {}
                        other => return other,
                    }
                }
            }
        }
    }

    async fn insert(&self, mut resource: AnyResource) -> Result<AnyResource, StoreError> {
        check_name(&resource)?;
        resource.metadata_mut().resource_version = 0;
        let write = Write { expect: Expect::Absent, durable: true, change: Change::Applied(Arc::new(resource)) };
        Ok(Arc::unwrap_or_clone(self.backend.write(write).await?.resource))
    }

    /// [`Store::update`] of any kind.
    ///
    /// # Errors
    /// As there.
    pub async fn update_any(&self, resource: AnyResource) -> Result<AnyResource, StoreError> {
        let current = self.current(&resource).await?;
        let (mut out, spec_changed) = graft::with_spec(&current, &resource).ok_or_else(|| kinds_differ(&resource))?;
        let (now, new) = (out.metadata_mut(), resource.metadata());
        if now.is_deleting() && new.finalizers.iter().any(|f| !now.finalizers.contains(f)) {
            return Err(StoreError::Invalid(format!(
                "{} '{}' is being deleted and takes no new finalizer",
                resource.kind().to_lowercase(),
                new.name
            )));
        }
        now.labels.clone_from(&new.labels);
        now.annotations.clone_from(&new.annotations);
        now.finalizers.clone_from(&new.finalizers);
        now.owner_references.clone_from(&new.owner_references);
        if spec_changed {
            now.generation += 1;
        }
        let gone = now.is_deleting() && now.finalizers.is_empty();
        Ok(Arc::unwrap_or_clone(self.replace(&current, out, gone, true).await?))
    }

    /// [`Store::update_status`] of any kind.
    ///
    /// # Errors
    /// As there.
    pub async fn update_status_any(&self, resource: AnyResource) -> Result<AnyResource, StoreError> {
        Ok(Arc::unwrap_or_clone(self.graft_status(resource).await?))
    }

    async fn graft_status(&self, resource: AnyResource) -> Result<Kept, StoreError> {
        let current = self.current(&resource).await?;
        match graft::with_status(&current, resource) {
            Grafted::Same => Ok(current),
            Grafted::Changed(out) => Ok(self.written(&current, out, false, false).await?.resource),
            Grafted::Differ(given) => Err(kinds_differ(&given)),
        }
    }

    /// [`Store::delete`] by the kind's word.
    ///
    /// # Errors
    /// As there; [`StoreError::Invalid`] for a kind there is not.
    pub async fn delete_any(&self, kind: &str, name: &str) -> Result<AnyResource, StoreError> {
        let kind = kind_of(kind)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let missing = || StoreError::NotFound { kind: kind.into(), name: name.into() };
            let current = self.backend.get(kind, name).await?.ok_or_else(missing)?;
            let mut out = (*current).clone();
            let now = self.clock.now();
            out.metadata_mut().deletion_timestamp.get_or_insert(now);
            let gone = out.metadata().finalizers.is_empty();
            match self.replace(&current, out, gone, true).await {
                // deletion does not depend on what else changed meanwhile
                Err(StoreError::Conflict { .. }) if attempt < NAME_ATTEMPTS => {}
                other => return other.map(Arc::unwrap_or_clone),
            }
        }
    }

    /// The stored resource, when `resource` was read from exactly it.
    async fn current(&self, resource: &AnyResource) -> Result<Kept, StoreError> {
        let (kind, given) = (resource.kind(), resource.metadata());
        let missing = || StoreError::NotFound { kind: kind.into(), name: given.name.clone() };
        let current = self.backend.get(kind, &given.name).await?.ok_or_else(missing)?;
        let stored = current.metadata();
        if stored.resource_version != given.resource_version || given.uid.is_some_and(|uid| stored.uid != Some(uid)) {
            return Err(StoreError::Conflict { kind: kind.into(), name: given.name.clone() });
        }
        Ok(current)
    }

    async fn replace(&self, current: &Kept, out: AnyResource, gone: bool, durable: bool) -> Result<Kept, StoreError> {
        if !gone && out == **current {
            return Ok(current.clone());
        }
        Ok(self.written(current, out, gone, durable).await?.resource)
    }

    async fn written(&self, current: &Kept, out: AnyResource, gone: bool, durable: bool) -> Result<Written, StoreError> {
        let out = Arc::new(out);
        let change = if gone { Change::Deleted(out) } else { Change::Applied(out) };
        let expect = Expect::Revision(current.metadata().resource_version);
        self.backend.write(Write { expect, durable, change }).await
    }

    /// The revision of the last change; 0 when there was none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn revision(&self) -> Result<u64, StoreError> {
        self.backend.revision().await
    }

    /// The changes of a kind (or of all) after revision `since`, or from now on. A watcher that asks for changes that are
    /// no longer remembered, or falls behind them, gets [`StoreError::Expired`] and the stream ends: list and watch again.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a kind there is not.
    pub fn watch(&self, kind: Option<&str>, since: Option<u64>) -> Result<Watch, StoreError> {
        Ok(self.backend.watch(kind.map(kind_of).transpose()?, since))
    }

    /// [`Store::watch`] of one resource: what changes of others costs this watcher nothing.
    ///
    /// # Errors
    /// As there.
    pub fn watch_one(&self, kind: &str, name: &str, since: Option<u64>) -> Result<Watch, StoreError> {
        Ok(self.backend.watch_one(kind_of(kind)?, name, since))
    }

    /// What is there, and the changes after it: nothing is missed between the two.
    ///
    /// # Errors
    /// As [`Store::list_any`].
    pub async fn list_and_watch(&self, kind: Option<&str>) -> Result<(Listed<AnyResource>, Watch), StoreError> {
        let listed = self.list_any(kind).await?;
        let watch = self.watch(kind, Some(listed.revision))?;
        Ok((listed, watch))
    }

    /// [`Store::list_and_watch`] of kind `K`. Its events carry an [`AnyResource`] of that kind.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_and_watch_of<K: Kind>(&self) -> Result<(Listed<Resource<K>>, Watch), StoreError> {
        let (listed, watch) = self.list_and_watch(Some(K::KIND)).await?;
        let items = listed.items.into_iter().filter_map(graft::typed).collect();
        Ok((Listed { items, revision: listed.revision }, watch))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

fn owned(kept: Vec<Kept>) -> Vec<AnyResource> {
    kept.into_iter().map(Arc::unwrap_or_clone).collect()
}

fn any<K: Kind>(resource: Resource<K>) -> Result<AnyResource, StoreError> {
    graft::any(resource).ok_or_else(|| StoreError::Invalid(format!("'{}' is not a kind that is stored", K::KIND)))
}

fn typed<K: Kind>(resource: AnyResource) -> Result<Resource<K>, StoreError> {
    let kind = resource.kind();
    graft::typed(resource).ok_or_else(|| StoreError::Failed { doing: "read", why: format!("{kind} where {} belongs", K::KIND) })
}

fn kinds_differ(resource: &AnyResource) -> StoreError {
    let name = resource.metadata().name.clone();
    StoreError::Failed { doing: "read", why: format!("'{name}' is stored as another kind than {}", resource.kind()) }
}

fn kind_of(word: &str) -> Result<&'static str, StoreError> {
    AnyResource::kind_of_word(word)
        .ok_or_else(|| StoreError::Invalid(format!("'{word}' is not a kind: Run, Environment, Runtime or Flow")))
}

/// Names are checked where manifests are read; here only what would make one unusable as a key.
fn check_name(resource: &AnyResource) -> Result<(), StoreError> {
    let name = &resource.metadata().name;
    if name.is_empty() || name.len() > 253 || name.chars().any(|c| c.is_control() || c == '/') {
        return Err(StoreError::Invalid(format!("'{}' is not a name", name.escape_debug())));
    }
    Ok(())
}
