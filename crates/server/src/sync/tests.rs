//! An end at any moment of a pass, and a backup of that moment: whoever goes on with either has the set in step, and loses and
//! doubles nothing.

use super::record::Records;
use super::{Folders, Keeper, Source, SyncConfig};
use crate::callers::Callers;
use crate::events::Events;
use crate::paths::Paths;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use hmz_api::clock::{SharedClock, SystemClock};
use hmz_api::kinds::Environment;
use hmz_api::kinds::condition::{FETCHED, SYNCED};
use hmz_api::launch::CallerContext;
use hmz_api::rest::SetState;
use hmz_store::{Backend, Change, Layer, RandomIds, Sqlite, Store, StoreError, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// A store whose writes come to an end after so many: whoever writes then waits for ever, as one that was killed there.
struct Mortal {
    inner: Arc<Sqlite>,
    left: AtomicI64,
}

impl Mortal {
    async fn step(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            std::future::pending::<()>().await;
        }
    }

    fn has_ended(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }
}

#[async_trait]
impl Layer for Mortal {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    async fn before(&self, _: &Write) -> Result<(), StoreError> {
        self.step().await;
        Ok(())
    }

    async fn before_notes(&self) {
        self.step().await;
    }
}

/// A store, and whoever keeps the set `fleet` in it in step with a folder.
struct Home {
    source: Source,
    interval: Duration,
    paths: Paths,
    file: PathBuf,
    sqlite: Arc<Sqlite>,
    mortal: Arc<Mortal>,
    keeping: JoinSet<()>,
}

impl Home {
    /// Goes on with the store in `file`.
    fn with(file: &Path, folder: &Path) -> Self {
        let sqlite = loop {
            match Sqlite::open(file) {
                Err(StoreError::InUse { .. }) => {} // the thread of the one before ends a moment after it
                other => break Arc::new(other.unwrap()),
            }
        };
        let root = file.parent().unwrap().to_owned();
        let paths = Paths { home: root.clone(), state: root.clone(), runtime: root.clone(), boxes: root };
        let mortal = Arc::new(Mortal { inner: Arc::clone(&sqlite), left: AtomicI64::new(i64::MAX) });
        let source = Source::Folder(folder.to_owned());
        let interval = Duration::from_secs(60);
        Self { source, interval, paths, file: file.to_owned(), sqlite, mortal, keeping: JoinSet::new() }
    }

    fn store(&self) -> Store {
        Store::with(Arc::clone(&self.sqlite) as Arc<dyn Backend>, Arc::new(SystemClock), Arc::new(RandomIds))
    }

    async fn keep(&mut self) {
        let clock: SharedClock = Arc::new(SystemClock);
        let store = Store::with(Arc::clone(&self.mortal) as Arc<dyn Backend>, Arc::clone(&clock), Arc::new(RandomIds));
        let events = Events::open(&self.file.with_extension("events"), Arc::clone(&clock));
        let config = SyncConfig {
            source: self.source.clone(),
            set: "fleet".into(),
            is_named: true,
            folders: Folders::default(),
            reference: None,
            interval: self.interval,
            allow_empty: false,
            adopt: false,
            caller: CallerContext::default(),
            home: None,
        };
        let keeper = Keeper::new(config, &self.paths, &store, &events, &Arc::new(Callers::default()), clock).await.unwrap();
        self.keeping.spawn(async { keeper.run().await.unwrap() });
    }

    async fn state(&self) -> SetState {
        Records::of(self.store()).all().await.unwrap().pop().unwrap_or_default()
    }

    /// Waits until another revision than `before` is declared, or the store has come to its end; whether it was the first.
    async fn synced(&self, before: Option<&String>) -> bool {
        loop {
            let state = self.state().await;
            if state.conditions.is_true(SYNCED) && state.revision.is_some() && state.revision.as_ref() != before {
                return true;
            }
            if self.mortal.has_ended() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until what is known of the set is so.
    async fn until(&self, is_so: impl Fn(&SetState) -> bool) {
        while !is_so(&self.state().await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn members(&self) -> BTreeMap<String, Uuid> {
        let all = self.store().members("fleet").await.unwrap();
        all.iter().map(|one| (one.metadata().name.clone(), one.metadata().uid.unwrap())).collect()
    }
}

/// Makes the folder have these environments, in one step.
fn declare(folder: &Path, environments: &[(&str, f64)]) {
    let documents = environments.iter().map(|(name, cpus)| {
        format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: docker, workdir: /w, cpus: {cpus}}}\n"
        )
    });
    let new = folder.with_extension("new");
    std::fs::write(&new, documents.collect::<Vec<_>>().join("---\n")).unwrap();
    std::fs::rename(&new, folder.join("all.yaml")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_in_the_middle_and_a_backup_of_it_are_gone_on_with() {
    let mut ends = 0;
    for writes in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("fleet");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir(dir.path().join("restored")).unwrap();
        declare(&folder, &[("a", 1.0), ("b", 1.0)]);
        let mut home = Home::with(&dir.path().join("store.db"), &folder);
        home.keep().await;
        assert!(home.synced(None).await);
        let first = home.state().await.revision;
        let old = home.members().await;
        assert_eq!(old.keys().collect::<Vec<_>>(), ["a", "b"]);

        home.mortal.left.store(writes, Ordering::Relaxed);
        declare(&folder, &[("a", 2.0), ("c", 1.0), ("d", 1.0)]);
        let whole = home.synced(first.as_ref()).await;
        let restored = dir.path().join("restored/store.db");
        home.store().backup(&restored).await.unwrap();
        let before = home.members().await;
        home.keeping.shutdown().await;
        let file = home.file.clone();
        drop(home);

        // after the end itself, and after the backup was restored: at first the source is not to be had
        for file in [file, restored] {
            let away = folder.with_extension("away");
            std::fs::rename(&folder, &away).unwrap();
            let mut home = Home::with(&file, &folder);
            let mut changes = home.store().watch(None, None).unwrap();
            home.keep().await;
            home.until(|state| state.conditions.is_false(FETCHED)).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            std::fs::rename(&away, &folder).unwrap();
            // it is read again, and is known as what is declared
            let is_whole = |state: &SetState| {
                let conditions = &state.conditions;
                let is_so = conditions.is_true(FETCHED) && conditions.is_true(SYNCED);
                is_so && state.revision == state.seen && state.revision != first
            };
            home.until(is_whole).await;
            let after = home.members().await;
            assert_eq!(after.keys().collect::<Vec<_>>(), ["a", "c", "d"], "after {writes} writes");
            let mut seen: BTreeSet<String> = before.keys().cloned().collect();
            while let Some(Some(Ok(event))) = changes.next().now_or_never() {
                match event.change {
                    Change::Deleted(_) => assert_eq!(event.name, "b", "after {writes} writes it was taken away"),
                    Change::Applied(_) => drop(seen.insert(event.name)),
                }
            }
            for (name, uid) in before.iter().filter(|(name, _)| *name != "b") {
                assert_eq!(after[name], *uid, "after {writes} writes {name} is another one");
            }
            home.keeping.shutdown().await;
        }
        if whole {
            break;
        }
        ends += 1;
    }
    assert!(ends >= 6, "the pass has had {ends} moments at which it can end");
}

/// Has git do something in a repository.
fn git(of: &Path, words: &[&str]) {
    let done = Command::new("git").args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words).current_dir(of).output();
    let done = done.unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn what_was_declared_is_kept_while_a_fetch_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("fleet");
    std::fs::create_dir_all(&folder).unwrap();
    declare(&folder, &[("a", 1.0), ("b", 1.0)]);
    for words in [&["init", "--quiet", "."][..], &["add", "."], &["commit", "--quiet", "-m", "first"]] {
        git(&folder, words);
    }
    let mut home = Home::with(&dir.path().join("store.db"), &folder);
    home.source = Source::Repository(folder.display().to_string());
    home.interval = Duration::from_millis(100);
    home.keep().await;
    assert!(home.synced(None).await);
    // whoever opens it waits for somebody who writes to it
    let head = folder.join(".git/HEAD");
    std::fs::remove_file(&head).unwrap();
    assert!(Command::new("mkfifo").arg(&head).status().unwrap().success());
    for _ in 0..5 {
        let before = home.members().await["a"];
        home.store().delete::<Environment>("a").await.unwrap();
        let back = async {
            while home.members().await.get("a").is_none_or(|now| *now == before) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), back).await;
        assert!(waited.is_ok(), "it was not put back while a fetch hung");
    }
    home.keeping.shutdown().await;
    // one that is both ends lets a git that is left go on, which finds no repository
    let mut both = std::fs::File::options().read(true).write(true).open(&head).unwrap();
    std::io::Write::write_all(&mut both, b"nothing\n").unwrap();
}
