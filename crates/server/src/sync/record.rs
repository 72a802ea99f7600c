//! What is known of each set that is or was kept in step, in files of the state directory: what people are shown, and what the
//! last good revision declares. Each is replaced whole, so that a kill meets the old one or the new one.

use super::files::Declaration;
use hmz_api::rest::SetState;
use hmz_api::{Error, name};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The records of a home.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    /// Those below a state directory.
    pub fn below(state: &Path) -> Self {
        Self { folder: state.join("sync") }
    }

    /// Every set there is a record of, by name. One that cannot be read is none.
    pub fn all(&self) -> Vec<SetState> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<SetState> = entries
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json")?.strip_suffix(".state").map(str::to_owned))
            .filter_map(|name| self.state(&name))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// What people are shown of a set.
    pub fn state(&self, set: &str) -> Option<SetState> {
        self.read(set, "state")
    }

    /// What its last good revision declares.
    pub(super) fn good(&self, set: &str) -> Option<Declaration> {
        self.read(set, "good")
    }

    /// Keeps what people are shown.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put_state(&self, state: &SetState) -> Result<(), Error> {
        self.write(&state.name, "state", state)
    }

    /// Keeps what a revision declares.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn put_good(&self, set: &str, good: &Declaration) -> Result<(), Error> {
        self.write(set, "good", good)
    }

    fn file(&self, set: &str, what: &str) -> Option<PathBuf> {
        name::check(set).ok()?;
        Some(self.folder.join(format!("{set}.{what}.json")))
    }

    fn read<T: DeserializeOwned>(&self, set: &str, what: &str) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.file(set, what)?).ok()?).ok()
    }

    fn write(&self, set: &str, what: &str, value: &impl Serialize) -> Result<(), Error> {
        let Some(file) = self.file(set, what) else { return Err(Error::failed(format!("'{set}' is not a name"))) };
        let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", file.display()));
        crate::paths::private_dir(&self.folder, false)?;
        let text = serde_json::to_vec(value).map_err(|e| failed(e.into()))?;
        let mut fresh = tempfile::NamedTempFile::new_in(&self.folder).map_err(failed)?;
        fresh.write_all(&text).map_err(failed)?;
        fresh.persist(&file).map_err(|e| failed(e.error))?;
        Ok(())
    }
}
