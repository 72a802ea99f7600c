//! A store of each earlier schema, as that version wrote it, is brought up to date and loses nothing.

use crate::schema::KNOWN;
use crate::{Store, StoreError};
use hmz_api::clock::SystemClock;
use hmz_api::kinds::{Environment, Runtime};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// What version 1 made of an empty file.
const FIRST: &str = "
    CREATE TABLE resources (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE revision (last INTEGER NOT NULL);
    INSERT INTO revision VALUES (7);
    PRAGMA application_id = 1752005169;
    PRAGMA user_version = 1;
";

/// What version 2 made of that.
const SECOND: &str = "
    ALTER TABLE resources ADD COLUMN uid TEXT;
    UPDATE resources SET uid = json_extract(body, '$.metadata.uid');
    CREATE INDEX resources_by_uid ON resources (uid);
    PRAGMA user_version = 2;
";

const UID: Uuid = Uuid::from_u128(0x6f5e_9c1a_0b3d_4c2e_8a7f_1234_5678_9abc);

fn first(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    connection.execute_batch(FIRST).unwrap();
    let environment = r#"{"apiVersion":"hmz/v1","kind":"Environment","metadata":{"name":"box","uid":"6f5e9c1a-0b3d-4c2e-8a7f-123456789abc",
        "generation":2,"resourceVersion":5,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"team":"red","hmz/set":"fleet"},"finalizers":["hmz/box"]},
        "spec":{"runtime":"docker:here","workdir":"/w","image":"busybox:latest","cpus":0.5},
        "status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","observedGeneration":2,
        "lastTransitionTime":"2026-01-02T03:04:06Z"}],"incarnation":3}}"#;
    let runtime = r#"{"apiVersion":"hmz/v1","kind":"Runtime","metadata":{"name":"docker:here"},"spec":{"cpus":4},"status":{}}"#;
    for (kind, name, revision, body) in [("Environment", "box", 5, environment), ("Runtime", "docker:here", 7, runtime)] {
        connection.execute("INSERT INTO resources VALUES (?1, ?2, ?3, ?4)", (kind, name, revision, body)).unwrap();
    }
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, Arc::new(SystemClock))
}

#[test]
fn every_earlier_schema_has_a_test() {
    assert_eq!(KNOWN, 3, "a store of the schema before belongs here");
}

#[tokio::test]
async fn a_store_of_schema_1_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    first(&path);
    let store = open(&path).unwrap();
    assert_eq!((store.revision().await.unwrap(), store.list_any(None).await.unwrap().items.len()), (7, 2));
    let found = store.by_uid::<Environment>(UID).await.unwrap().unwrap();
    assert_eq!((found.metadata.resource_version, found.metadata.generation, found.status.incarnation), (5, 2, 3));
    assert!(found.status.conditions.is_true("Ready") && found.metadata.labels["team"] == "red");
    // what is written goes on where it was
    let mut runtime = store.get::<Runtime>("docker:here").await.unwrap().unwrap();
    runtime.status.version = Some("20.10".into());
    assert_eq!(store.update_status(runtime).await.unwrap().metadata.resource_version, 8);
    drop(store);
    let again = loop {
        match open(&path) {
            Err(StoreError::InUse { .. }) => {} // the thread of the one before ends a moment after it
            other => break other.unwrap(),
        }
    };
    assert_eq!(again.by_uid::<Environment>(UID).await.unwrap(), Some(found));
}

#[tokio::test]
async fn a_store_of_schema_2_knows_its_sets_and_keeps_notes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    first(&path);
    Connection::open(&path).unwrap().execute_batch(SECOND).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.sets().await.unwrap(), [("fleet".to_owned(), 1)].into());
    let [found] = store.members("fleet").await.unwrap().try_into().unwrap();
    assert_eq!((found.metadata().name.as_str(), found.metadata().uid), ("box", Some(UID)));
    assert!(store.notes("").await.unwrap().is_empty());
    store.put_notes(vec![("a".into(), Some("b".into()))], true).await.unwrap();
    assert_eq!(store.notes("a").await.unwrap()["a"], "b");
    assert_eq!(store.revision().await.unwrap(), 7);
}

#[test]
fn a_body_of_schema_1_that_cannot_be_read_is_named_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    first(&path);
    Connection::open(&path).unwrap().execute("UPDATE resources SET body = '{' WHERE name = 'box'", []).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("Environment 'box': "), "{error}");
}

#[test]
fn a_newer_one_is_a_refusal_and_says_what_to_do() {
    let error = StoreError::Newer { path: "/h/state/store.db".into(), found: 9, known: KNOWN };
    let error = hmz_api::Error::from(error);
    assert_eq!(error.exit_code(), 2);
    let said = format!("the store /h/state/store.db was written by a newer hmz: its schema is 9, and this one knows {KNOWN}");
    assert_eq!((error.message, error.hints.len()), (said, 1));
}
