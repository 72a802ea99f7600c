//! A backup is whole while others write, and what is put in a store's place is looked at first.

use super::conformance::runtime;
use crate::backup::{adopt, contents, fold};
use crate::{Store, StoreError};
use hmz_api::clock::SystemClock;
use hmz_api::kinds::Runtime;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(path: &Path) -> Store {
    loop {
        match Store::open(path, Arc::new(SystemClock)) {
            Err(StoreError::InUse { .. }) => {} // the thread of the one before ends a moment after it
            other => return other.unwrap(),
        }
    }
}

async fn backed_up(dir: &Path) -> PathBuf {
    let store = open(&dir.join("s.db"));
    for name in ["docker:a", "docker:b"] {
        store.create(runtime(name)).await.unwrap();
    }
    let to = dir.join("backup.db");
    store.backup(&to).await.unwrap();
    to
}

#[tokio::test]
async fn a_backup_is_what_was_there_at_one_revision_and_can_be_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path);
    for n in 0..50 {
        store.create(runtime(&format!("docker:{n:02}"))).await.unwrap();
    }
    store.put_notes(vec![("a".into(), Some("b".into()))], true).await.unwrap();
    let to = dir.path().join("backup.db");
    // others write while it is written
    let writes = async {
        for n in 50..100 {
            store.create(runtime(&format!("docker:{n:02}"))).await.unwrap();
        }
    };
    let (done, ()) = tokio::join!(store.backup(&to), writes);
    done.unwrap();
    let found = contents(&to).unwrap();
    assert!((50..=100).contains(&found.revision), "{}", found.revision);
    let names: Vec<String> = found.resources.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, (0..found.revision).map(|n| format!("docker:{n:02}")).collect::<Vec<_>>());
    // nothing lies beside it
    assert!(!dir.path().join("backup.db-wal").exists());

    adopt(&to, &to, 5000).unwrap();
    let taken = open(&to);
    assert_eq!(taken.notes("").await.unwrap(), [("a".to_owned(), "b".to_owned())].into());
    assert_eq!(taken.list::<Runtime>().await.unwrap().len(), names.len());
    let next = taken.create(runtime("docker:new")).await.unwrap();
    assert_eq!(next.metadata.resource_version, 5001, "no revision comes twice");
}

#[tokio::test]
async fn what_is_no_whole_store_is_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let good = backed_up(dir.path()).await;
    let bytes = std::fs::read(&good).unwrap();
    let bad = dir.path().join("bad.db");
    let why = |made: &[u8]| {
        std::fs::write(&bad, made).unwrap();
        let error = contents(&bad).unwrap_err();
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error:?}");
        assert_eq!(std::fs::read(&bad).unwrap(), made, "it was changed");
        error.to_string()
    };
    assert!(why(b"").ends_with("there is nothing in it"));
    let _ = why(b"not a database at all");
    let _ = why(&bytes[..bytes.len() / 2]);
    // a page in the middle is another one's
    let mut torn = bytes.clone();
    let page = bytes.len() / 2 / 4096 * 4096;
    torn[page..page + 4096].fill(0xa5);
    let _ = why(&torn);
    let connection = rusqlite::Connection::open(dir.path().join("theirs.db")).unwrap();
    connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(connection);
    assert!(why(&std::fs::read(dir.path().join("theirs.db")).unwrap()).ends_with("it is a database of something else"));

    rusqlite::Connection::open(&good).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(contents(&good), Err(StoreError::Newer { found: 99, .. })));
    assert!(contents(&dir.path().join("missing.db")).is_err());
}

#[tokio::test]
async fn the_log_of_a_killed_process_is_folded_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let store = open(&path);
    store.create(runtime("docker:a")).await.unwrap();
    assert!(matches!(fold(&path), Err(StoreError::InUse { .. })));
    let killed = tempfile::tempdir().unwrap();
    for file in ["s.db", "s.db-wal"] {
        std::fs::copy(dir.path().join(file), killed.path().join(file)).unwrap();
    }
    let found = fold(&killed.path().join("s.db")).unwrap();
    assert_eq!((found.revision, found.resources.len()), (1, 1));
    assert!(!killed.path().join("s.db-wal").exists());
}
