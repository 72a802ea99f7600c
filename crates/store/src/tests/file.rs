//! The file itself: it outlives the process, and one that is not ours is refused in words.

use super::conformance::runtime;
use crate::{Store, StoreError};
use futures::StreamExt;
use hmz_api::clock::SystemClock;
use hmz_api::kinds::Runtime;
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, Arc::new(SystemClock))
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart_and_revisions_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path).unwrap();
    let kept = store.create(runtime("docker:a")).await.unwrap();
    store.create(runtime("docker:b")).await.unwrap();
    store.delete::<Runtime>("docker:b").await.unwrap();
    drop(store);
    let store = reopen(&path);
    assert_eq!(store.list::<Runtime>().await.unwrap(), [kept]);
    assert_eq!(store.revision().await.unwrap(), 3);
    assert_eq!(store.create(runtime("docker:c")).await.unwrap().metadata.resource_version, 4);
    // what happened before the restart is not remembered
    let mut watch = store.watch(None, Some(2)).unwrap();
    assert_eq!(watch.next().await.unwrap(), Err(StoreError::Expired { since: 2 }));
}

/// The thread of the one before ends a moment after its last handle.
fn reopen(path: &Path) -> Store {
    loop {
        match open(path) {
            Err(StoreError::InUse { .. }) => {}
            other => return other.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_second_one_at_the_same_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path).unwrap();
    assert_eq!(open(&path).unwrap_err(), StoreError::InUse { path: path.clone() });
    store.create(runtime("docker:a")).await.unwrap();
}

/// Killed at once with the write-ahead log as it is: a copy of the files at that moment is what is found.
#[tokio::test]
async fn the_files_of_a_killed_process_hold_every_change_it_was_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path).unwrap();
    for n in 0..20 {
        let mut made = store.create(runtime(&format!("docker:{n}"))).await.unwrap();
        made.status.version = Some(n.to_string());
        store.update_status(made).await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    for file in ["s.db", "s.db-wal"] {
        std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
    }
    let found = open(&copy.path().join("s.db")).unwrap();
    assert_eq!(found.list::<Runtime>().await.unwrap(), store.list::<Runtime>().await.unwrap());
    assert_eq!(found.revision().await.unwrap(), 40);

    // a log cut off in the middle of a write: a prefix of the changes, whole ones
    let cut = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join("s.db"), cut.path().join("s.db")).unwrap();
    let log = std::fs::read(dir.path().join("s.db-wal")).unwrap();
    std::fs::write(cut.path().join("s.db-wal"), &log[..log.len() / 2 + 7]).unwrap();
    let found = open(&cut.path().join("s.db")).unwrap();
    let revision = found.revision().await.unwrap();
    assert!(revision > 0 && revision < 40, "{revision}");
    let newest = found.list::<Runtime>().await.unwrap().iter().map(|r| r.metadata.resource_version).max();
    assert_eq!(newest, Some(revision));
}

#[test]
fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    drop(open(&path).unwrap());
    drop(reopen(&path));
    let connection = loop {
        let connection = rusqlite::Connection::open(&path).unwrap();
        if connection.pragma_update(None, "user_version", crate::schema::KNOWN + 6).is_ok() {
            break connection;
        }
    };
    drop(connection);
    let error = open(&path).unwrap_err();
    assert_eq!(error, StoreError::Newer { path: path.clone(), found: crate::schema::KNOWN + 6, known: crate::schema::KNOWN });
    assert!(error.to_string().contains("was written by a newer hmz"), "{error}");
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    std::fs::write(&path, "this is not a database, and it is long enough to have a header".repeat(40)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, StoreError::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&format!("the store {} cannot be read: ", path.display())), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let other = dir.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(connection);
    let error = open(&other).unwrap_err();
    assert!(error.to_string().ends_with("it is a database of something else"), "{error}");

    let missing = open(Path::new("/nonexistent/dir/s.db")).unwrap_err();
    assert!(matches!(missing, StoreError::Unreadable { .. }), "{missing:?}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_named_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path).unwrap();
    store.create(runtime("docker:a")).await.unwrap();
    drop(store);
    drop(reopen(&path));
    while rusqlite::Connection::open(&path).unwrap().execute("UPDATE resources SET body = '{'", []).is_err() {}
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("Runtime 'docker:a': "), "{error}");
    assert!(hmz_api::Error::from(open(&path).unwrap_err()).hints[0].starts_with("mv "));
}
