//! The embedded backend: one SQLite file in WAL mode, one thread that owns the connection.
//!
//! How much is synced: a commit in WAL mode is in the page cache when it returns, so that the end of this process, by
//! `kill -9` too, loses nothing. A loss of power may take the last commits with it (never half of one) unless they were
//! synced. What people declare is synced (`synchronous = FULL`); a status is not (`NORMAL`), since it is observed again:
//! the boxes it tells of are found by the labels on the daemon. The file is held exclusively, so that the revisions and
//! the history of changes in memory are the only ones there are.

use crate::backend::{Backend, Change, Expect, Kept, Note, WatchEvent, Write, Written, set_of};
use crate::backup;
use crate::error::StoreError;
use crate::history::{History, REMEMBERED, Wanted, Watch};
use crate::schema;
use async_trait::async_trait;
use hmz_api::AnyResource;
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;
use uuid::Uuid;

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
pub(crate) struct Core {
    pub(crate) connection: Connection,
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
        Self::open_remembering(path, REMEMBERED)
    }

    pub(crate) fn open_remembering(path: &Path, changes: usize) -> Result<Self, StoreError> {
        let connection = Connection::open(path).map_err(|e| schema::unreadable(path, &e))?;
        let core = Core::new(connection, path, changes)?;
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
    pub(crate) fn new(mut connection: Connection, path: &Path, remembered: usize) -> Result<Self, StoreError> {
        let failed = |e: rusqlite::Error| schema::unreadable(path, &e);
        connection.busy_timeout(Duration::from_secs(2)).map_err(failed)?;
        // exclusive before the first access, so that WAL needs no shared memory and nobody else writes
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        // what is not ours to write is not even given another journal
        schema::version(&connection, path)?;
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
        core.each(None, |_| ())?; // a body that cannot be read is found now and not in the middle of something
        Ok(core)
    }

    /// One that is only read, of a file whose schema is known.
    pub(crate) fn reading(connection: Connection, path: &Path) -> Self {
        Self { connection, path: path.into(), history: History::after(0, 1), full: true }
    }

    fn parse(&self, kind: &str, name: &str, revision: i64, body: &str) -> Result<AnyResource, StoreError> {
        let unreadable = |why: String| StoreError::Unreadable { path: self.path.clone(), why };
        let read = AnyResource::read(kind, body).ok_or_else(|| unreadable(format!("'{kind}' is not a kind")))?;
        let mut resource = read.map_err(|e| unreadable(format!("{kind} '{name}': {e}")))?;
        resource.metadata_mut().resource_version = u64::try_from(revision).unwrap_or_default();
        Ok(resource)
    }

    fn get(&self, kind: &str, name: &str) -> Result<Option<Kept>, StoreError> {
        let mut query = self.connection.prepare_cached("SELECT revision, body FROM resources WHERE kind = ?1 AND name = ?2");
        let row = query
            .as_mut()
            .map_err(|e| failed("read", e))?
            .query_row(params![kind, name], |r| Ok((r.get::<_, i64>(0)?, r.get::<_, String>(1)?)))
            .optional()
            .map_err(|e| failed("read", &e))?;
        row.map(|(revision, body)| self.parse(kind, name, revision, &body).map(Arc::new)).transpose()
    }

    fn list(&self, kind: Option<&str>) -> Result<(Vec<Kept>, u64), StoreError> {
        let mut out = Vec::new();
        self.each(kind, |one| out.push(Arc::new(one)))?;
        Ok((out, self.revision()?))
    }

    /// Reads one after another, by kind and name.
    pub(crate) fn each(&self, kind: Option<&str>, take: impl FnMut(AnyResource)) -> Result<(), StoreError> {
        let all = "SELECT kind, name, revision, body FROM resources ORDER BY kind, name";
        let of_kind = "SELECT kind, name, revision, body FROM resources WHERE kind = ?1 ORDER BY kind, name";
        match kind {
            None => self.query(all, params![], take),
            Some(kind) => self.query(of_kind, params![kind], take),
        }
    }

    fn page(&self, kind: &str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let sql = "SELECT kind, name, revision, body FROM resources WHERE kind = ?1 AND name > ?2 ORDER BY kind, name LIMIT ?3";
        let mut out = Vec::new();
        // no name is empty
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query(sql, params![kind, after.unwrap_or_default(), limit], |one| out.push(Arc::new(one)))?;
        Ok(out)
    }

    fn page_json(&self, kind: &str, after: Option<&str>, limit: usize) -> Result<String, StoreError> {
        let sql = "SELECT body FROM resources WHERE kind = ?1 AND name > ?2 ORDER BY kind, name LIMIT ?3";
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("list", &e))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = query.query(params![kind, after.unwrap_or_default(), limit]).map_err(|e| failed("list", &e))?;
        let mut out = String::from("[");
        while let Some(row) = rows.next().map_err(|e| failed("list", &e))? {
            let body = row.get_ref(0).map_err(|e| failed("list", &e))?;
            if out.len() > 1 {
                out.push(',');
            }
            // what is stored says its own revision
            out.push_str(body.as_str().map_err(|e| failed("list", &e))?);
        }
        out.push(']');
        Ok(out)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, StoreError> {
        // the index has the names as well, and the bodies are not in between
        let sql = "SELECT name FROM resources INDEXED BY resources_by_uid WHERE kind = ?1";
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("list", &e))?;
        let names = query.query_map(params![kind], |row| row.get(0)).map_err(|e| failed("list", &e))?;
        let mut names: Vec<String> = names.collect::<Result<_, _>>().map_err(|e| failed("list", &e))?;
        names.sort_unstable();
        Ok(names)
    }

    fn by_uid(&self, kind: &str, uid: Uuid) -> Result<Option<Kept>, StoreError> {
        let sql = "SELECT kind, name, revision, body FROM resources WHERE uid = ?1 AND kind = ?2";
        let mut found = None;
        self.query(sql, params![uid.to_string(), kind], |one| found = Some(Arc::new(one)))?;
        Ok(found)
    }

    fn members(&self, set: &str) -> Result<Vec<Kept>, StoreError> {
        let sql = "SELECT kind, name, revision, body FROM resources WHERE member_of = ?1 ORDER BY kind, name";
        let mut out = Vec::new();
        self.query(sql, params![set], |one| out.push(Arc::new(one)))?;
        Ok(out)
    }

    fn sets(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        let sql = "SELECT member_of, count(*) FROM resources WHERE member_of IS NOT NULL GROUP BY member_of";
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("list", &e))?;
        let of = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, usize::try_from(row.get::<_, i64>(1)?).unwrap_or_default()));
        let sets = query.query_map([], of).map_err(|e| failed("list", &e))?;
        sets.collect::<Result<_, _>>().map_err(|e| failed("list", &e))
    }

    fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let sql = "SELECT name, body FROM notes WHERE substr(name, 1, length(?1)) = ?1";
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("read", &e))?;
        let notes = query.query_map(params![prefix], |row| Ok((row.get(0)?, row.get(1)?))).map_err(|e| failed("read", &e))?;
        notes.collect::<Result<_, _>>().map_err(|e| failed("read", &e))
    }

    fn put_notes(&mut self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError> {
        self.sync(durable)?;
        let transaction = self.connection.transaction().map_err(|e| failed("write", &e))?;
        for (name, body) in notes {
            let done = match body {
                Some(body) => {
                    transaction.execute("INSERT OR REPLACE INTO notes (name, body) VALUES (?1, ?2)", params![name, body])
                }
                None => transaction.execute("DELETE FROM notes WHERE name = ?1", params![name]),
            };
            done.map_err(|e| failed("write", &e))?;
        }
        transaction.commit().map_err(|e| failed("write", &e))
    }

    fn query(&self, sql: &str, of: &[&dyn ToSql], mut take: impl FnMut(AnyResource)) -> Result<(), StoreError> {
        let mut query = self.connection.prepare_cached(sql).map_err(|e| failed("list", &e))?;
        let mut rows = query.query(of).map_err(|e| failed("list", &e))?;
        while let Some(row) = rows.next().map_err(|e| failed("list", &e))? {
            let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
            let (kind, name) = (text(0).map_err(|e| failed("list", &e))?, text(1).map_err(|e| failed("list", &e))?);
            let revision: i64 = row.get(2).map_err(|e| failed("list", &e))?;
            let body = text(3).map_err(|e| failed("list", &e))?;
            take(self.parse(kind, name, revision, body)?);
        }
        Ok(())
    }

    fn revision(&self) -> Result<u64, StoreError> {
        let mut query = self.connection.prepare_cached("SELECT last FROM revision").map_err(|e| failed("read", &e))?;
        let last: i64 = query.query_row([], |r| r.get(0)).map_err(|e| failed("read", &e))?;
        Ok(u64::try_from(last).unwrap_or_default())
    }

    /// Has what is written next synced, or not.
    fn sync(&mut self, durable: bool) -> Result<(), StoreError> {
        if self.full != durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level).map_err(|e| failed("write", &e))?;
            self.full = durable;
        }
        Ok(())
    }

    fn write(&mut self, write: Write) -> Result<Written, StoreError> {
        self.sync(write.durable)?;
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
        let written = match &mut change {
            Change::Applied(resource) => {
                Arc::make_mut(resource).metadata_mut().resource_version = new;
                let body = serde_json::to_string(&**resource).map_err(|e| failed("write", &e))?;
                let uid = resource.metadata().uid.map(|uid| uid.to_string());
                let sql = match write.expect {
                    Expect::Absent => {
                        "INSERT INTO resources (kind, name, revision, body, uid, member_of) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
                    }
                    Expect::Revision(_) => {
                        "UPDATE resources SET revision = ?3, body = ?4, uid = ?5, member_of = ?6 WHERE kind = ?1 AND name = ?2"
                    }
                };
                transaction
                    .prepare_cached(sql)
                    .and_then(|mut q| q.execute(params![kind, name, revision, body, uid, set_of(resource)]))
                    .map_err(|e| failed("write", &e))?;
                resource.clone()
            }
            Change::Deleted(resource) => {
                transaction
                    .prepare_cached("DELETE FROM resources WHERE kind = ?1 AND name = ?2")
                    .and_then(|mut q| q.execute(params![kind, name]))
                    .map_err(|e| failed("write", &e))?;
                resource.clone()
            }
        };
        transaction.commit().map_err(|e| failed("write", &e))?;
        self.history.push(WatchEvent { revision: new, kind, name, change });
        Ok(Written { revision: new, resource: written })
    }
}

pub(crate) fn failed(doing: &'static str, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Failed { doing, why: why.to_string() }
}

#[async_trait]
impl Backend for Sqlite {
    async fn get(&self, kind: &'static str, name: &str) -> Result<Option<Kept>, StoreError> {
        let name = name.to_owned();
        self.run(move |core| core.get(kind, &name)).await
    }

    async fn list(&self, kind: Option<&'static str>) -> Result<(Vec<Kept>, u64), StoreError> {
        self.run(move |core| core.list(kind)).await
    }

    async fn page(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let after = after.map(str::to_owned);
        self.run(move |core| core.page(kind, after.as_deref(), limit)).await
    }

    async fn page_json(&self, kind: &'static str, after: Option<&str>, limit: usize) -> Result<String, StoreError> {
        let after = after.map(str::to_owned);
        self.run(move |core| core.page_json(kind, after.as_deref(), limit)).await
    }

    async fn names(&self, kind: &'static str) -> Result<Vec<String>, StoreError> {
        self.run(move |core| core.names(kind)).await
    }

    async fn by_uid(&self, kind: &'static str, uid: Uuid) -> Result<Option<Kept>, StoreError> {
        self.run(move |core| core.by_uid(kind, uid)).await
    }

    async fn members(&self, set: &str) -> Result<Vec<Kept>, StoreError> {
        let set = set.to_owned();
        self.run(move |core| core.members(&set)).await
    }

    async fn sets(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        self.run(|core| core.sets()).await
    }

    async fn notes(&self, prefix: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let prefix = prefix.to_owned();
        self.run(move |core| core.notes(&prefix)).await
    }

    async fn put_notes(&self, notes: Vec<Note>, durable: bool) -> Result<(), StoreError> {
        self.run(move |core| core.put_notes(notes, durable)).await
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.run(move |core| core.write(write)).await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.run(|core| core.revision()).await
    }

    fn watch(&self, kind: Option<&'static str>, since: Option<u64>) -> Watch {
        Watch::of(&self.history, Wanted { kind, name: None }, since)
    }

    fn watch_one(&self, kind: &'static str, name: &str, since: Option<u64>) -> Watch {
        Watch::of_one(&self.history, kind, name, since)
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        self.run(move |core| backup::write(&core.connection, &to)).await
    }
}
