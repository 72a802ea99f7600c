//! Epics: a directory a run, with its journal. They outlive the run's resource.

use crate::paths::{Paths, private_dir};
use hmz_api::launch::{BOXES_FILE, Told};
use hmz_api::{Error, Resource, Run};
use std::path::Path;

/// The directory of a run's epic, made when it is not there: `epics/<name>-<8 hex of the uid>`.
///
/// # Errors
/// When it cannot be made, or the run has no uid.
pub fn open(paths: &Paths, run: &Resource<Run>) -> Result<String, Error> {
    let uid = run.metadata.uid.ok_or_else(|| Error::failed("a run without a uid"))?.simple().to_string();
    let dir = paths.epics().join(format!("{}-{}", run.name(), &uid[..8]));
    private_dir(&dir, true)?;
    dir.into_os_string().into_string().map_err(|_| Error::refused("HMZ_HOME is not UTF-8"))
}

/// Writes what became of a run's boxes into its epic, for a runner that waits for it. The file appears whole.
///
/// # Errors
/// When it cannot be written.
pub fn tell(epic: &Path, told: &Told) -> Result<(), Error> {
    let cannot = |e: std::io::Error| Error::failed(format!("{} cannot be told of its boxes: {e}", epic.display()));
    let mut part = tempfile::NamedTempFile::new_in(epic).map_err(cannot)?;
    serde_json::to_writer(&mut part, told).map_err(|e| cannot(e.into()))?;
    part.persist(epic.join(BOXES_FILE)).map_err(|e| cannot(e.error))?;
    Ok(())
}
