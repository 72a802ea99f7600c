//! What is known of each set that is or was kept in step: what people are shown, what the last good revision declares, and which
//! one has begun to be applied. They are notes of the store, so that a kill meets the old ones or the new ones, and a backup
//! has them as they were when the members were as they are in it.

use super::files::Declaration;
use hmz_api::rest::SetState;
use hmz_api::{Error, name};
use hmz_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;

/// What a name of theirs begins with.
const NOTES: &str = "sync/";

/// The records of a home.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    store: Store,
}

/// What is known of one set.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What people are shown.
    pub state: Option<SetState>,
    /// What its last good revision declares.
    pub good: Option<Declaration>,
    /// What the revision declares that was being applied: it had been judged, and some of it may be there.
    pub begun: Option<Declaration>,
}

impl Records {
    /// Those of a store.
    pub const fn of(store: Store) -> Self {
        Self { store }
    }

    /// Takes over those that an earlier version kept in files of the state directory. A set that is known keeps what is known.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn adopt_files(&self, state: &Path) -> Result<(), Error> {
        let folder = state.join("sync");
        let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
        let known = self.store.notes(NOTES).await?;
        let mut notes = Vec::new();
        for entry in entries.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some((set, what)) = file.strip_suffix(".json").and_then(|name| name.rsplit_once('.')) else { continue };
            let is_known = known.keys().any(|note| note.starts_with(&format!("{NOTES}{set}/")));
            if let Ok(text) = std::fs::read_to_string(entry.path())
                && name::check(set).is_ok()
                && !is_known
            {
                notes.push((note(set, what), Some(text)));
            }
        }
        self.store.put_notes(notes, true).await?;
        std::fs::remove_dir_all(&folder).map_err(|e| Error::failed(format!("{}: {e}", folder.display())))
    }

    /// What people are shown of every set there is a record of, by name. One that cannot be read is none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn all(&self) -> Result<Vec<SetState>, Error> {
        let notes = self.store.notes(NOTES).await?;
        Ok(notes.iter().filter(|(name, _)| name.ends_with("/state")).filter_map(|(_, text)| read(text)).collect())
    }

    /// Lets go what is known of each set that has no members and is not `kept` any more.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn forget_given_up(&self, kept: Option<&str>) -> Result<(), Error> {
        let members = self.store.sets().await?;
        let is_given_up = |name: &String| {
            let set = name.strip_prefix(NOTES).and_then(|name| name.split('/').next()).unwrap_or_default();
            Some(set) != kept && !members.contains_key(set)
        };
        let notes: Vec<_> = self.store.notes(NOTES).await?.into_keys().filter(is_given_up).map(|name| (name, None)).collect();
        if notes.is_empty() {
            return Ok(());
        }
        Ok(self.store.put_notes(notes, false).await?)
    }

    /// What is known of a set.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) async fn known(&self, set: &str) -> Result<Known, Error> {
        let notes = self.store.notes(&note(set, "")).await?;
        Ok(Known { state: of(&notes, set, "state"), good: of(&notes, set, "good"), begun: of(&notes, set, "begun") })
    }

    /// Keeps what people are shown.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) async fn put_state(&self, state: &SetState) -> Result<(), Error> {
        let notes = vec![(note(&state.name, "state"), Some(text(state)?))];
        Ok(self.store.put_notes(notes, false).await?)
    }

    /// Keeps what is going to be applied, or that nothing is any more.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) async fn put_begun(&self, set: &str, begun: Option<&Declaration>) -> Result<(), Error> {
        let notes = vec![(note(set, "begun"), begun.map(text).transpose()?)];
        Ok(self.store.put_notes(notes, true).await?)
    }

    /// Keeps that all of a revision is applied.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) async fn put_good(&self, state: &SetState, good: &Declaration) -> Result<(), Error> {
        let set = &state.name;
        let notes =
            vec![(note(set, "good"), Some(text(good)?)), (note(set, "state"), Some(text(state)?)), (note(set, "begun"), None)];
        Ok(self.store.put_notes(notes, true).await?)
    }
}

fn note(set: &str, what: &str) -> String {
    format!("{NOTES}{set}/{what}")
}

fn of<T: DeserializeOwned>(notes: &BTreeMap<String, String>, set: &str, what: &str) -> Option<T> {
    read(notes.get(&note(set, what))?)
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::failed(e.to_string()))
}
