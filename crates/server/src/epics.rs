//! Epics: a directory a run, with its journal. They outlive the run's resource.

use crate::paths::{Paths, private_dir};
use hmz_api::{Error, Resource, Run};

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
