//! The tables, their version and how an older one is brought up to date.

use crate::error::StoreError;
use rusqlite::{Connection, ErrorCode};
use std::path::Path;

/// `PRAGMA application_id`: "hmz1". A file with another one is not a store of ours.
const APPLICATION: i64 = 0x686d_7a31;

/// One step per version, from the empty file on. A step that was released is never edited; a new one is added.
const STEPS: [&str; 3] = [
    // 1: resources, each one JSON document
    "
    CREATE TABLE resources (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE revision (last INTEGER NOT NULL);
    INSERT INTO revision VALUES (0);
",
    // 2: found by uid too; a body that cannot be read is told of where all of them are read
    "
    ALTER TABLE resources ADD COLUMN uid TEXT;
    UPDATE resources SET uid = CASE WHEN json_valid(body) THEN json_extract(body, '$.metadata.uid') END;
    CREATE INDEX resources_by_uid ON resources (uid);
",
    // 3: found by the set they are in too; texts that are kept beside them, so that a backup has both as of one moment
    "
    ALTER TABLE resources ADD COLUMN member_of TEXT;
    UPDATE resources SET member_of = CASE WHEN json_valid(body) THEN json_extract(body, '$.metadata.labels.\"hmz/set\"') END;
    CREATE INDEX resources_by_set ON resources (member_of) WHERE member_of IS NOT NULL;
    CREATE TABLE notes (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
",
];

/// The newest version known here.
pub(crate) const KNOWN: i64 = STEPS.len() as i64;

/// The schema a file has; 0 for one that has nothing in it.
pub(crate) fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let failed = |e: rusqlite::Error| unreadable(path, &e);
    let version: i64 = connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(failed)?;
    let application: i64 = connection.query_row("PRAGMA application_id", [], |r| r.get(0)).map_err(failed)?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |r| r.get(0)).map_err(failed)?;
    if application != APPLICATION && (version != 0 || tables != 0) {
        return Err(StoreError::Unreadable { path: path.into(), why: "it is a database of something else".into() });
    }
    if version > KNOWN {
        return Err(StoreError::Newer { path: path.into(), found: version, known: KNOWN });
    }
    Ok(version)
}

/// Brings the file up to date, in one transaction.
pub(crate) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| unreadable(path, &e);
    let version = version(connection, path)?;
    if version == KNOWN {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(failed)?;
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or_default()) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction
        .execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {KNOWN};"))
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// An error of opening, in words.
pub(crate) fn unreadable(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path: path.into() },
        // nothing is wrong with the file
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory,
        ) => StoreError::Failed { doing: "be opened", why: format!("{}: {error}", path.display()) },
        _ => StoreError::Unreadable { path: path.into(), why: error.to_string() },
    }
}
