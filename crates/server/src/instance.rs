//! The random id of an HMZ_HOME. It is in the labels of every box, and the sweep touches no other.

use crate::paths::Paths;
use hmz_api::Error;
use std::io::Write;

/// Reads the id, or makes it. Two processes that make it at once agree, since the file is linked into place only once.
///
/// # Errors
/// When the state directory cannot be written, or the file does not hold an id.
pub fn instance(paths: &Paths) -> Result<String, Error> {
    let file = paths.state.join("instance");
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", file.display()));
    if !file.exists() {
        let mut fresh = tempfile::NamedTempFile::new_in(&paths.state).map_err(failed)?;
        write!(fresh, "{}", uuid::Uuid::new_v4().simple()).map_err(failed)?;
        fresh.as_file().sync_all().map_err(failed)?;
        match fresh.persist_noclobber(&file) {
            Ok(_) => {}
            Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(e.error)),
        }
    }
    let id = std::fs::read_to_string(&file).map_err(failed)?;
    let id = id.trim();
    if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Error::failed(format!("{} does not hold an instance id", file.display()))
            .hint("restore it; without it, boxes of this HMZ_HOME are not recognised"));
    }
    Ok(id.to_owned())
}
