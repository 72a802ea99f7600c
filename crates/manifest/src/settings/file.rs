//! settings.yaml on disk: read whole, replaced whole.
//!
//! A change is written to a new file beside the old one, synced, and put in its place, so that a reader, a crash or a full
//! disk meets the old text or the new one and nothing between. Writers take turns by a lock on `.settings.yaml.lock`; for
//! one that knows no lock the file is looked at once more before it is replaced, and the change is made again on what it
//! says by then. A link stays a link: what it points to is replaced. Mode and owner stay.

use super::edit::Edited;
use crate::paths::bounded;
use crate::report::Report;
use hmz_api::{Error, ErrorKind};
use std::fs::{File, Metadata};
use std::io::{ErrorKind as Io, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// How often a change is made again on what somebody else wrote meanwhile.
const ATTEMPTS: u32 = 16;
/// As many links as the kernel follows.
const LINKS: u32 = 40;

/// The text of a settings file; `None` when there is no file.
///
/// # Errors
/// When it cannot be read: it is no file, too long, or not UTF-8.
pub fn read_text(path: &Path) -> Result<Option<String>, Report> {
    let origin = path.display().to_string();
    let failed = |e: std::io::Error| Report::without_place(origin.clone(), e.to_string());
    // a pipe or a device of that name would be waited for
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(Report::without_place(origin, "this is not a file")),
        Ok(_) => {}
        Err(e) if e.kind() == Io::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    }
    match File::open(path) {
        Ok(file) => bounded(file, &origin).map(Some),
        Err(e) if e.kind() == Io::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

/// Changes the settings file at `path`: `edit` is given its text (an empty one when there is no file) and may be asked again
/// when somebody else changed it meanwhile.
///
/// # Errors
/// What `edit` says, and that the file cannot be read, written or replaced; then it is as it was.
pub fn change(path: &Path, mut edit: impl FnMut(&str) -> Result<Edited, Error>) -> Result<Edited, Error> {
    let _lock = lock(path)?;
    for _ in 0..ATTEMPTS {
        let target = followed(path)?;
        let before = read_text(path)?;
        let edited = edit(before.as_deref().unwrap_or_default())?;
        let Edited::Changed(text) = &edited else { return Ok(edited) };
        if replace(&target, before.as_deref(), text)? {
            return Ok(edited);
        }
    }
    Err(Error::new(ErrorKind::Conflict, format!("{} changes too often to be changed", path.display())))
}

/// Where the links end. The last one may point to a file that is not there yet.
fn followed(path: &Path) -> Result<PathBuf, Error> {
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        match std::fs::read_link(&target) {
            Ok(next) => target = folder(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(Error::failed(format!("{}: too many links", path.display())))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn lock(path: &Path) -> Result<Option<File>, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = folder(path).join(format!(".{name}.lock"));
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", place.display()));
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&place).map_err(failed)?;
    match file.lock() {
        Ok(()) => Ok(Some(file)),
        // a file system without locks: the look before the replacement has to do
        Err(e) if matches!(e.kind(), Io::Unsupported) => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

/// Puts `text` in place of `before`; `false` when the file does not say that any more.
fn replace(target: &Path, before: Option<&str>, text: &str) -> Result<bool, Error> {
    let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", target.display())).hint("the file is as it was");
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut fresh =
        tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(".new").tempfile_in(folder(target)).map_err(failed)?;
    // a new file is its owner's alone, as a temporary one is
    if let Ok(found) = std::fs::metadata(target) {
        keep(&found, fresh.as_file()).map_err(failed)?;
    }
    fresh.write_all(text.as_bytes()).and_then(|()| fresh.as_file().sync_all()).map_err(failed)?;
    if read_text(target)?.as_deref() != before {
        return Ok(false);
    }
    let put = if before.is_some() { fresh.persist(target) } else { fresh.persist_noclobber(target) };
    match put {
        Ok(_) => {}
        Err(e) if e.error.kind() == Io::AlreadyExists => return Ok(false),
        Err(e) => return Err(failed(e.error)),
    }
    File::open(folder(target)).and_then(|dir| dir.sync_all()).map_err(|e| Error::failed(format!("{}: {e}", target.display())))?;
    Ok(true)
}

fn keep(found: &Metadata, fresh: &File) -> std::io::Result<()> {
    let own = fresh.metadata()?;
    if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
        let given = fchown(fresh, Some(found.uid()), Some(found.gid()));
        // the group alone is not worth a refusal
        given.or_else(|e| if own.uid() == found.uid() { Ok(()) } else { Err(e) })?;
    }
    fresh.set_permissions(std::fs::Permissions::from_mode(found.mode() & 0o7777))
}
