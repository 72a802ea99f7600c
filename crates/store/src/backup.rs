//! A store as one file of its own: written while the store is in use, and looked at before it is put in another's place.

use crate::error::StoreError;
use crate::schema;
use crate::sqlite::{Core, failed};
use hmz_api::kinds::RuntimeSource;
use hmz_api::kinds::condition::COMPLETE;
use hmz_api::{AnyResource, ConditionStatus};
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;
use uuid::Uuid;

/// What is in a store, as far as whoever puts another one in its place has to know.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The revision of the last change.
    pub revision: u64,
    /// Every resource, by kind and name.
    pub resources: Vec<Kept>,
}

/// One resource of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub uid: Option<Uuid>,
    /// Whether it is a run that has not ended.
    pub is_at_work: bool,
    /// Whether somebody declared it here: a runtime of settings.yaml comes from there.
    pub is_declared: bool,
}

/// Writes everything to `to`, one file without a log beside it, and has it on the disk.
pub(crate) fn write(connection: &Connection, to: &Path) -> Result<(), StoreError> {
    let doing = "be backed up";
    let path = to.to_str().ok_or_else(|| failed(doing, &format!("{} is no text", to.display())))?;
    connection.execute("VACUUM INTO ?1", params![path]).map_err(|e| failed(doing, &e))?;
    fs_err::File::open(to).and_then(|file| file.sync_all()).map_err(|e| failed(doing, &e))
}

/// What is in the file of a store that nobody has open. It is not changed; a log beside it is not read.
///
/// # Errors
/// [`StoreError::Unreadable`] for what is no store or damaged, [`StoreError::Newer`].
pub fn contents(path: &Path) -> Result<Contents, StoreError> {
    let unreadable = |e: rusqlite::Error| schema::unreadable(path, &e);
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(unreadable)?;
    let refuse = |why: &str| StoreError::Unreadable { path: path.into(), why: why.into() };
    if schema::version(&connection, path)? == 0 {
        return Err(refuse("there is nothing in it"));
    }
    // more than what is asked at each start: what it replaces may be better
    let check: String = connection.query_row("PRAGMA integrity_check(1)", [], |r| r.get(0)).map_err(unreadable)?;
    if check != "ok" {
        return Err(refuse(&check));
    }
    let mut found = Contents::default();
    let last: i64 = connection.query_row("SELECT last FROM revision", [], |r| r.get(0)).map_err(unreadable)?;
    found.revision = u64::try_from(last).unwrap_or_default();
    let core = Core::reading(connection, path);
    core.each(None, |one| found.resources.push(kept(&one)))?;
    Ok(found)
}

/// Makes a copy of a store what may be opened in another's place: brought up to date, with revisions after `after`, and in
/// one file. `named` is what it is called in errors.
///
/// # Errors
/// As [`contents`].
pub fn adopt(copy: &Path, named: &Path, after: u64) -> Result<(), StoreError> {
    let unreadable = |e: rusqlite::Error| schema::unreadable(named, &e);
    let connection = Connection::open(copy).map_err(unreadable)?;
    let core = Core::new(connection, named, 1)?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    core.connection.execute("UPDATE revision SET last = max(last, ?1)", params![after]).map_err(unreadable)?;
    core.connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).map_err(unreadable)?;
    core.connection.close().map_err(|(_, e)| unreadable(e))?;
    fs_err::File::open(copy).and_then(|file| file.sync_all()).map_err(|e| failed("be restored", &e))
}

/// What is in the store at `path`, which nobody has open, with what is in its log, which is folded into it: the file is whole
/// by itself then.
///
/// # Errors
/// As [`contents`]; [`StoreError::InUse`].
pub fn fold(path: &Path) -> Result<Contents, StoreError> {
    let unreadable = |e: rusqlite::Error| schema::unreadable(path, &e);
    let connection = Connection::open(path).map_err(unreadable)?;
    let core = Core::new(connection, path, 1)?;
    core.connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).map_err(unreadable)?;
    core.connection.close().map_err(|(_, e)| unreadable(e))?;
    contents(path)
}

fn kept(one: &AnyResource) -> Kept {
    let is_at_work = match one {
        AnyResource::Run(run) => run.status.conditions.get(COMPLETE).is_none_or(|c| c.status != ConditionStatus::True),
        _ => false,
    };
    let is_declared = match one {
        AnyResource::Runtime(runtime) => runtime.status.source == RuntimeSource::Manifest,
        _ => true,
    };
    Kept { kind: one.kind(), name: one.metadata().name.clone(), uid: one.metadata().uid, is_at_work, is_declared }
}
