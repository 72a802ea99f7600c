//! The embedded backend: one SQLite file in WAL mode, one thread that owns the connection.
//!
//! How much is synced: a commit in WAL mode is in the page cache when it returns, so that the end of this process, by
//! `kill -9` too, loses nothing. A loss of power may take the last commits with it (never half of one) unless they were
//! synced. What people declare is synced (`synchronous = FULL`); a status is not (`NORMAL`), since it is observed again:
//! the boxes it tells of are found by the labels on the daemon. The file is held exclusively, so that the revisions and
//! the history of changes in memory are the only ones there are.

use crate::backend::{Backend, Change, Expect, WatchEvent, Write};
use crate::error::StoreError;
use crate::graft;
use crate::history::{History, REMEMBERED, Watch};
use crate::schema;
use async_trait::async_trait;
use hmz_api::AnyResource;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut Core) + Send>;

/// Who runs the queries.
enum Place {
    /// A thread of its own: a file is slow, and the caller's thread must not wait for it.
    Thread(mpsc::Sender<Job>),
    /// The caller's thread: `:memory:` does no I/O, and a simulation needs the order to be the same each time.
    Here(Box<Mutex<Core>>),
}

/// The SQLite backend.
pub struct Sqlite {
    place: Place,
    history: Arc<History>,
}

/// The connection, and what is known of its file.
struct Core {
    connection: Connection,
    path: PathBuf,
    history: Arc<History>,
    /// What `PRAGMA synchronous` is at.
    full: bool,
}

impl Sqlite {
    /// Opens (or makes) the store at `path`, in a directory that exists. Blocks for as long as the check of the file takes.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`], [`StoreError::Newer`] or [`StoreError::InUse`], each in a sentence for people.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path).map_err(|e| schema::unreadable(path, &e))?;
        let core = Core::new(connection, path, REMEMBERED)?;
        let history = core.history.clone();
        let (send, jobs) = mpsc::channel::<Job>();
        let worker = std::thread::Builder::new().name("hmz-store".into()).spawn(move || {
            let mut core = core;
            while let Ok(job) = jobs.recv() {
                job(&mut core);
            }
        });
        worker.map_err(|e| StoreError::Failed { doing: "start its thread", why: e.to_string() })?;
        Ok(Self { place: Place::Thread(send), history })
    }

    /// A store in memory that remembers `remembered` changes; for tests and simulations.
    ///
    /// # Errors
    /// When SQLite itself cannot be had.
    pub fn in_memory(remembered: usize) -> Result<Self, StoreError> {
        let path = Path::new(":memory:");
        let connection = Connection::open_in_memory().map_err(|e| schema::unreadable(path, &e))?;
        let core = Core::new(connection, path, remembered)?;
        let history = core.history.clone();
        Ok(Self { place: Place::Here(Box::new(Mutex::new(core))), history })
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Core) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.place {
            Place::Here(core) => job(&mut core.lock().unwrap_or_else(PoisonError::into_inner)),
            Place::Thread(jobs) => {
                let (answer, answered) = oneshot::channel();
                let job: Job = Box::new(move |core| {
                    // nobody waits for the answer when the caller was cancelled; the write stands all the same
                    let _ = answer.send(job(core));
                });
                jobs.send(job).map_err(|_| StoreError::Closed)?;
                answered.await.map_err(|_| StoreError::Closed)?
            }
        }
    }
}

impl Core {
    fn new(mut connection: Connection, path: &Path, remembered: usize) -> Result<Self, StoreError> {
        let failed = |e: rusqlite::Error| schema::unreadable(path, &e);
        connection.busy_timeout(Duration::from_secs(2)).map_err(failed)?;
        // exclusive before the first access, so that WAL needs no shared memory and nobody else writes
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        schema::prepare(&mut connection, path)?;
        let check: String = connection.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(failed)?;
        if check != "ok" {
            return Err(StoreError::Unreadable { path: path.into(), why: check });
        }
        let last: i64 = connection.query_row("SELECT last FROM revision", [], |r| r.get(0)).map_err(failed)?;
        let history = History::after(u64::try_from(last).unwrap_or_default(), remembered);
        let core = Self { connection, path: path.into(), history, full: true };
        core.list(None)?; // a body that cannot be read is found now and not in the middle of something
        Ok(core)
    }

    fn parse(&self, kind: &str, name: &str, revision: i64, body: &str) -> Result<AnyResource, StoreError> {
        let unreadable = |why: String| StoreError::Unreadable { path: self.path.clone(), why };
        let read = graft::read(kind, body).ok_or_else(|| unreadable(format!("'{kind}' is not a kind")))?;
        let mut resource = read.map_err(|e| unreadable(format!("{kind} '{name}': {e}")))?;
        resource.metadata_mut().resource_version = u64::try_from(revision).unwrap_or_default();
        Ok(resource)
    }

    fn get(&self, kind: &str, name: &str) -> Result<Option<AnyResource>, StoreError> {
        let mut query = self.connection.prepare_cached("SELECT revision, body FROM resources WHERE kind = ?1 AND name = ?2");
        let row = query
            .as_mut()
            .map_err(|e| failed("read", e))?
            .query_row(params![kind, name], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?)))
            .optional()
            .map_err(|e| failed("read", &e))?;
        row.map(|(revision, body)| self.parse(kind, name, revision, &body)).transpose()
    }

    fn list(&self, kind: Option<&str>) -> Result<(Vec<AnyResource>, u64), StoreError> {
        let sql = "SELECT kind, name, revision, body FROM resources WHERE ?1 IS NULL OR kind = ?1 ORDER BY kind, name";
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("list", &e))?;
        let mut rows = query.query(params![kind]).map_err(|e| failed("list", &e))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|e| failed("list", &e))? {
            let read = || -> rusqlite::Result<(String, String, i64, String)> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            };
            let (kind, name, revision, body) = read().map_err(|e| failed("list", &e))?;
            out.push(self.parse(&kind, &name, revision, &body)?);
        }
        Ok((out, self.revision()?))
    }

    fn revision(&self) -> Result<u64, StoreError> {
        let mut query = self.connection.prepare_cached("SELECT last FROM revision").map_err(|e| failed("read", &e))?;
        let last: i64 = query.query_row([], |r| r.get(0)).map_err(|e| failed("read", &e))?;
        Ok(u64::try_from(last).unwrap_or_default())
    }

    fn write(&mut self, write: Write) -> Result<u64, StoreError> {
        if self.full != write.durable {
            let level = if write.durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level).map_err(|e| failed("write", &e))?;
            self.full = write.durable;
        }
        let resource = write.change.resource();
        let (kind, name) = (resource.kind(), resource.metadata().name.clone());
        let transaction = self.connection.transaction().map_err(|e| failed("write", &e))?;
        let sql = "SELECT revision FROM resources WHERE kind = ?1 AND name = ?2";
        let found: Option<i64> = transaction
            .prepare_cached(sql)
            .and_then(|mut q| q.query_row(params![kind, name], |r| r.get(0)).optional())
            .map_err(|e| failed("write", &e))?;
        match (write.expect, found) {
            (Expect::Absent, None) => {}
            (Expect::Absent, Some(_)) => return Err(StoreError::AlreadyExists { kind: kind.into(), name }),
            (Expect::Revision(_), None) => return Err(StoreError::NotFound { kind: kind.into(), name }),
            (Expect::Revision(want), Some(is)) if i64::try_from(want) == Ok(is) => {}
            (Expect::Revision(_), Some(_)) => return Err(StoreError::Conflict { kind: kind.into(), name }),
        }
        let revision: i64 = transaction
            .prepare_cached("UPDATE revision SET last = last + 1 RETURNING last")
            .and_then(|mut q| q.query_row([], |r| r.get(0)))
            .map_err(|e| failed("write", &e))?;
        let new = u64::try_from(revision).unwrap_or_default();
        let mut change = write.change;
        match &mut change {
            Change::Applied(resource) => {
                resource.metadata_mut().resource_version = new;
                let body = serde_json::to_string(resource).map_err(|e| failed("write", &e))?;
                let sql = "INSERT INTO resources (kind, name, revision, body) VALUES (?1, ?2, ?3, ?4)
                    ON CONFLICT (kind, name) DO UPDATE SET revision = excluded.revision, body = excluded.body";
                transaction
                    .prepare_cached(sql)
                    .and_then(|mut q| q.execute(params![kind, name, revision, body]))
                    .map_err(|e| failed("write", &e))?;
            }
            Change::Deleted(_) => {
                transaction
                    .prepare_cached("DELETE FROM resources WHERE kind = ?1 AND name = ?2")
                    .and_then(|mut q| q.execute(params![kind, name]))
                    .map_err(|e| failed("write", &e))?;
            }
        }
        transaction.commit().map_err(|e| failed("write", &e))?;
        self.history.push(WatchEvent { revision: new, kind, name, change });
        Ok(new)
    }
}

fn failed(doing: &'static str, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Failed { doing, why: why.to_string() }
}

#[async_trait]
impl Backend for Sqlite {
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<AnyResource>, StoreError> {
        let name = name.to_owned();
        self.run(move |core| core.get(kind, &name)).await
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<AnyResource>, u64), StoreError> {
        self.run(move |core| core.list(kind)).await
    }

    async fn write(&self, write: Write) -> Result<u64, StoreError> {
        self.run(move |core| core.write(write)).await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.run(|core| core.revision()).await
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        Watch::of(&self.history, kind, since)
    }
}
