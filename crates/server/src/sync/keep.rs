//! The loop that keeps a set in step: it looks at the source, and at the store, and brings the one to what the other says.

use super::files::{Declaration, Place, Snapshot};
use super::git::Repository;
use super::pass::{self, How, Outcome};
use super::record::{Known, Records};
use super::{Source, SyncConfig};
use crate::callers::Callers;
use crate::events::Events;
use crate::paths::Paths;
use futures::StreamExt;
use hmz_api::clock::SharedClock;
use hmz_api::kinds::condition::{FETCHED, SYNCED};
use hmz_api::kinds::{annotation, label};
use hmz_api::rest::SetState;
use hmz_api::{ConditionStatus, Error};
use hmz_manifest::settings::WatchGuard;
use hmz_manifest::{Depth, watch_folders, without_snippets};
use hmz_store::{Change, Store};
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a directory has to say the same before it is believed: whoever changes it does so file by file.
const SETTLE: Duration = Duration::from_secs(1);
/// How long after a change of the store the members are looked at, so that several changes are put back at once.
const GATHER: Duration = Duration::from_millis(200);
/// How soon what did not go is tried again, at first.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the first fetch is waited for before what was declared last is looked after.
const FIRST: Duration = Duration::from_secs(5);

/// The commit a repository is at, on its way.
type Fetch = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;
/// How many of what was changed is named.
const NAMED: usize = 5;

/// What keeps one set.
pub(crate) struct Keeper {
    config: SyncConfig,
    store: Store,
    events: Events,
    callers: Arc<Callers>,
    clock: SharedClock,
    records: Records,
    repository: Option<Arc<Repository>>,
    state: SetState,
    /// What was applied last, and is kept so whatever comes.
    good: Option<Declaration>,
    /// What was being applied when this or the daemon before ended: some of it is there, so it is gone on with, not back.
    begun: Option<Declaration>,
    /// What was found last, read.
    found: Option<(Snapshot, Result<Declaration, Error>)>,
    /// What a directory says since when, as long as that is not believed.
    unsettled: Option<(Result<Snapshot, String>, Instant)>,
    failures: u32,
    /// Whether what was found has been tried since this began.
    is_judged: bool,
}

impl Keeper {
    /// The one of `config`.
    ///
    /// # Errors
    /// The set is another source's, or somebody's who did not mean this one.
    pub async fn new(
        config: SyncConfig,
        paths: &Paths,
        store: &Store,
        events: &Events,
        callers: &Arc<Callers>,
        clock: SharedClock,
    ) -> Result<Self, Error> {
        let records = Records::of(store.clone());
        let Known { state, good, begun } = records.known(&config.set).await?;
        let known = state.filter(|known| known.source.is_some());
        let source = config.source.to_string();
        let set = &config.set;
        if let Some(before) = known.as_ref().and_then(|known| known.source.as_ref()).filter(|before| **before != source)
            && !config.adopt
        {
            return Err(Error::refused(format!(
                "the set '{set}' was kept in step with {before}, and what {source} does not have of it would be deleted"
            ))
            .hint("for a set of its own: --sync-set NAME")
            .hint("to go on with that one from here: --sync-adopt"));
        }
        let members = store.sets().await?.remove(set).unwrap_or_default();
        if known.is_none() && !config.is_named && members > 0 {
            return Err(Error::refused(format!(
                "there is a set '{set}' already, with {members} resources; what {source} does not have of it would be deleted"
            ))
            .hint(format!("if that one is meant: --sync-set {set}"))
            .hint("for a set of its own: --sync-set NAME"));
        }
        let repository = match &config.source {
            Source::Folder(_) => None,
            Source::Repository(address) => {
                let folder = paths.home.join("sync").join(set);
                Some(Arc::new(Repository::new(address, source.clone(), config.reference.as_deref(), &config.folders, folder)))
            }
        };
        let state = SetState {
            name: set.clone(),
            source: Some(source),
            paths: config.folders.paths.iter().map(|path| path.display().to_string()).collect(),
            recursive: config.folders.depth == Depth::Whole,
            reference: config.reference.clone(),
            ..known.unwrap_or_default()
        };
        let mut keeper = Self {
            store: store.clone(),
            events: events.clone(),
            callers: Arc::clone(callers),
            clock,
            records,
            repository,
            state,
            good,
            begun,
            found: None,
            unsettled: None,
            failures: 0,
            is_judged: false,
            config,
        };
        if let Some(repository) = &keeper.repository {
            keeper.config.caller.cwd = repository.tree().display().to_string();
        } else if let Source::Folder(folder) = &keeper.config.source {
            keeper.config.caller.cwd = folder.display().to_string();
        }
        keeper.records.put_state(&keeper.state).await?;
        Ok(keeper)
    }

    /// The set and its source.
    pub fn kept(&self) -> (String, String) {
        (self.config.set.clone(), self.config.source.to_string())
    }

    /// Keeps it in step for as long as this process is there.
    ///
    /// # Errors
    /// The store is gone, or nothing can be watched.
    pub async fn run(mut self) -> Result<(), Error> {
        let changed = Arc::new(Notify::new());
        let _guard = self.watch(&changed)?;
        let mut known: HashMap<(&'static str, String), String> = HashMap::new();
        let mut changes = self.store.watch(None, None)?;
        let mut look = Some(Instant::now());
        // what a repository has now is waited for a moment, so that what is declared at once is what it declares
        let first = if self.repository.is_some() { FIRST } else { Duration::ZERO };
        let mut again = Some(Instant::now() + first);
        // beside all else: for as long as a server says nothing, what was declared last is kept
        let mut fetching: Option<Fetch> = None;
        let mut fetched = None;
        loop {
            if is_due(look) && fetching.is_none() {
                look = None;
                fetching =
                    self.repository.clone().map(|repository| -> Fetch { Box::pin(async move { repository.fetch().await }) });
                if fetching.is_none() {
                    fetched = Some(None);
                }
            }
            if let Some(commit) = fetched.take() {
                let before = self.state.seen.clone();
                look = self.look(commit).await.map(|after| Instant::now() + after);
                if self.state.seen != before || !self.is_judged {
                    again = Some(Instant::now());
                }
            }
            if is_due(again) {
                self.is_judged |= self.found.is_some();
                again = if self.bring().await? {
                    self.failures += 1;
                    Some(Instant::now() + self.pause())
                } else {
                    self.failures = 0;
                    None
                };
            }
            let wake = [look, again].into_iter().flatten().min();
            loop {
                tokio::select! {
                    () = changed.notified() => { look = Some(Instant::now()); break }
                    commit = fetch(&mut fetching) => {
                        fetching = None;
                        fetched = Some(Some(commit));
                        break;
                    }
                    () = until(wake) => break,
                    change = changes.next() => match change {
                        Some(Ok(event)) => if self.concerns(&event.change, &mut known) {
                            again = Some(Instant::now() + GATHER);
                            break;
                        },
                        // what was missed is looked at now
                        Some(Err(_)) | None => {
                            tokio::time::sleep(GATHER).await;
                            changes = self.store.watch(None, None)?;
                            again = Some(Instant::now());
                            break;
                        }
                    }
                }
            }
        }
    }

    fn watch(&self, changed: &Arc<Notify>) -> Result<Option<WatchGuard>, Error> {
        let Source::Folder(root) = &self.config.source else { return Ok(None) };
        let folders: Vec<PathBuf> = match self.config.folders.paths.as_slice() {
            [] => vec![root.clone()],
            paths => paths.iter().map(|path| root.join(path)).collect(),
        };
        // what is below these is found by the look that comes every few seconds
        let changed = Arc::clone(changed);
        watch_folders(folders, move || changed.notify_one())
            .map(Some)
            .map_err(|e| Error::failed(format!("{}: {e}", root.display())))
    }

    fn pause(&self) -> Duration {
        (AGAIN * 2u32.saturating_pow(self.failures.min(10).saturating_sub(1))).min(self.config.interval.max(AGAIN))
    }

    /// Looks at the source, of which the commit it is at was fetched when it is a repository; how long until it is to be looked at
    /// again, if nobody tells.
    async fn look(&mut self, commit: Option<Result<String, Error>>) -> Option<Duration> {
        if let Some(commit) = commit {
            let found = self.look_at_repository(commit).await;
            let pause = if found.is_err() { self.config.interval.min(AGAIN * 5) } else { self.config.interval };
            self.take(found).await;
            return Some(pause);
        }
        let Source::Folder(root) = self.config.source.clone() else { return None };
        let folders = self.config.folders.clone();
        let read = move || Snapshot::read(&Place { root: &root, named: &root, folders: &folders, is_closed: false }, None);
        let found = tokio::task::spawn_blocking(read).await.unwrap_or_else(|e| Err(Error::failed(e.to_string())));
        let found = found.map_err(|e| e.message);
        let is_known = matches!((&found, &self.found), (Ok(found), Some((known, _))) if found == known);
        if is_known && self.state.conditions.is_true(FETCHED) {
            self.unsettled = None;
            return None;
        }
        match &self.unsettled {
            Some((before, since)) if *before == found => {
                let left = SETTLE.saturating_sub(since.elapsed());
                if !left.is_zero() {
                    return Some(left);
                }
                self.take(found.map_err(Error::failed).map(Some)).await;
                None
            }
            _ => {
                self.unsettled = Some((found, Instant::now()));
                Some(SETTLE)
            }
        }
    }

    /// What the repository has, unless that is known.
    async fn look_at_repository(&self, commit: Result<String, Error>) -> Result<Option<Snapshot>, Error> {
        let (Some(repository), commit) = (&self.repository, commit?) else { return Ok(None) };
        if self.found.as_ref().is_some_and(|(known, _)| known.revision == commit) {
            return Ok(None);
        }
        repository.snapshot(&commit).await.map(Some)
    }

    /// Takes note of what was found.
    async fn take(&mut self, found: Result<Option<Snapshot>, Error>) {
        match found {
            Ok(found) => {
                if let Some(found) = found.filter(|found| self.found.as_ref().is_none_or(|(known, _)| known != found)) {
                    let declared = found.declaration(self.config.home.as_deref());
                    self.state.seen = Some(found.revision.clone());
                    self.found = Some((found, declared));
                }
                self.tell(FETCHED, ConditionStatus::True, "Fetched", String::new()).await;
            }
            Err(e) => self.tell(FETCHED, ConditionStatus::False, "NotFetched", e.message).await,
        }
    }

    /// Brings the store to what was found, or to the last good revision; whether it is to be tried again soon.
    async fn bring(&mut self) -> Result<bool, Error> {
        let mut waits = false;
        let newest = self.newest();
        let is_known = newest.is_some();
        if let Some((of, revision, declared)) = newest {
            // the same commit declares something else where other folders of it are read
            let is_new = match (&self.good, &declared) {
                (Some(good), Ok(declared)) => good != declared,
                (Some(good), Err(_)) => good.revision != revision,
                (None, _) => true,
            };
            let (reason, message, soon) = match declared {
                Err(e) => ("Invalid", e.message, false),
                Ok(declared) => match self.apply(&declared, is_new).await {
                    Outcome::Applied(changes) => {
                        self.applied(declared, is_new, &changes).await?;
                        return Ok(false);
                    }
                    Outcome::Left { reason, message, waits } => (reason, message, waits),
                },
            };
            waits = soon;
            let kept = match (&self.good, is_new) {
                (Some(good), true) => format!("\n{} stays declared", self.named(&good.revision, good.subject.as_deref())),
                _ => String::new(),
            };
            self.tell(SYNCED, ConditionStatus::False, reason, format!("{of}: {message}{kept}")).await;
            if !is_new {
                return Ok(waits);
            }
        }
        // whatever the newest is, what was declared last is kept
        if let Some(good) = self.good.clone() {
            self.leave_off().await?;
            match pass::apply(&self.how(), &good, async || Ok(())).await {
                Outcome::Applied(changes) => self.put_back(&changes),
                Outcome::Left { reason, message, waits: soon } => {
                    waits |= soon;
                    if !is_known {
                        let of = self.named(&good.revision, good.subject.as_deref());
                        self.tell(SYNCED, ConditionStatus::False, reason, format!("{of}: {message}")).await;
                    }
                }
            }
        }
        Ok(waits)
    }

    /// What is to be declared, as it is named, its revision and what it declares: what was found last, or as long as nothing
    /// was, what was being applied.
    fn newest(&self) -> Option<(String, String, Result<Declaration, Error>)> {
        let (revision, subject, declared) = match (&self.found, &self.begun) {
            (Some((snapshot, declared)), _) => (&snapshot.revision, &snapshot.subject, declared.clone()),
            (None, Some(begun)) => (&begun.revision, &begun.subject, Ok(begun.clone())),
            (None, None) => return None,
        };
        Some((self.named(revision, subject.as_deref()), revision.clone(), declared))
    }

    /// Applies a revision. A new one is noted before anything of it is there: whoever goes on after an end in the middle
    /// would else take what is there of it away, and then make it again.
    async fn apply(&mut self, declared: &Declaration, is_new: bool) -> Outcome {
        let begins = is_new && self.begun.as_ref() != Some(declared);
        let mut has_begun = false;
        let ready = async || {
            self.turn(declared)?;
            if begins {
                self.records.put_begun(&self.config.set, Some(declared)).await?;
                has_begun = true;
            }
            Ok(())
        };
        let outcome = pass::apply(&self.how(), declared, ready).await;
        if has_begun {
            self.begun = Some(declared.clone());
        }
        outcome
    }

    /// What had begun is gone back from.
    async fn leave_off(&mut self) -> Result<(), Error> {
        if self.begun.is_some() {
            self.records.put_begun(&self.config.set, None).await?;
            self.begun = None;
        }
        Ok(())
    }

    fn how(&self) -> How<'_> {
        How {
            store: &self.store,
            callers: &self.callers,
            caller: &self.config.caller,
            set: &self.config.set,
            allow_empty: self.config.allow_empty,
        }
    }

    /// The files that come with a revision are there before anything that uses them starts.
    fn turn(&self, declared: &Declaration) -> Result<(), Error> {
        self.repository.as_ref().map_or(Ok(()), |repository| repository.turn(&declared.revision))
    }

    /// A revision is declared whole.
    async fn applied(&mut self, declared: Declaration, is_new: bool, changes: &[(String, &'static str)]) -> Result<(), Error> {
        if !is_new {
            self.leave_off().await?;
            self.put_back(changes);
        } else {
            self.state.revision = Some(declared.revision.clone());
            self.state.subject = declared.subject.clone();
            self.state.synced_at = Some(self.clock.now());
            let message = format!("{}: {}", self.named(&declared.revision, declared.subject.as_deref()), summary(changes));
            tracing::info!(set = %self.config.set, "{message}");
            self.events.of_set(&self.config.set, "Applied", &message, false);
            self.records.put_good(&self.state, &declared).await?;
            self.good = Some(declared);
            self.begun = None;
        }
        self.tell(SYNCED, ConditionStatus::True, "Applied", String::new()).await;
        Ok(())
    }

    fn put_back(&self, changes: &[(String, &'static str)]) {
        if changes.is_empty() {
            return;
        }
        let message = format!("what was changed by hand: {}", summary(changes));
        tracing::info!(set = %self.config.set, "{message}");
        self.events.of_set(&self.config.set, "PutBack", &message, false);
    }

    fn named(&self, revision: &str, subject: Option<&str>) -> String {
        let short = revision.strip_prefix("sha256:").unwrap_or(revision);
        let short = &short[..short.len().min(12)];
        match (&self.repository, subject) {
            (None, _) => format!("files {short}"),
            (Some(_), Some(subject)) => format!("commit {short} ({subject})"),
            (Some(_), None) => format!("commit {short}"),
        }
    }

    /// Sets a condition, and writes and tells it when it is another.
    async fn tell(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: String) {
        let before = self.state.conditions.get(kind).map(|c| c.status);
        if !self.state.conditions.set(kind, status, reason, message.clone(), 0, self.clock.now()) {
            return;
        }
        if status != ConditionStatus::True {
            // lines of somebody's file are shown to who asks, and are in no log
            let message = without_snippets(&message);
            tracing::warn!(set = %self.config.set, "{kind} is {status:?} ({reason}): {message}");
            self.events.of_set(&self.config.set, reason, &message, true);
        } else if before.is_some_and(|before| before != status) && kind == FETCHED {
            self.events.of_set(&self.config.set, reason, "the source can be read again", false);
        }
        self.save().await;
    }

    async fn save(&self) {
        if let Err(e) = self.records.put_state(&self.state).await {
            // it is for people; the next change writes it
            tracing::warn!("{}", e.message);
        }
    }

    /// Whether a change of the store is one of a member, and not of its status alone.
    fn concerns(&self, change: &Change, known: &mut HashMap<(&'static str, String), String>) -> bool {
        let resource = change.resource();
        let metadata = resource.metadata();
        let key = (resource.kind(), metadata.name.clone());
        let is_member = metadata.labels.get(label::SET).is_some_and(|set| *set == self.config.set);
        let of =
            |declared: &Declaration| declared.resources.iter().any(|one| one.kind() == key.0 && one.metadata().name == key.1);
        let is_declared = self.good.as_ref().is_some_and(of)
            || self.found.as_ref().and_then(|(_, declared)| declared.as_ref().ok()).is_some_and(of);
        if !is_member && !is_declared {
            return false;
        }
        if matches!(change, Change::Deleted(_)) {
            known.remove(&key);
            return true;
        }
        let declared: Vec<_> = metadata.annotations.iter().filter(|(key, _)| *key != annotation::CANCEL).collect();
        let mark = format!("{:?}", (metadata.uid, metadata.generation, &metadata.labels, declared, metadata.deletion_timestamp));
        known.insert(key, mark.clone()).is_none_or(|before| before != mark)
    }
}

/// `env/a created, env/b pruned`.
fn summary(changes: &[(String, &'static str)]) -> String {
    if changes.is_empty() {
        return "nothing had to be changed".into();
    }
    let mut named: Vec<String> = changes.iter().take(NAMED).map(|(name, word)| format!("{name} {word}")).collect();
    if changes.len() > NAMED {
        let words: BTreeSet<&str> = changes.iter().skip(NAMED).map(|(_, word)| *word).collect();
        let words: Vec<&str> = words.into_iter().collect();
        named.push(format!("{} more {}", changes.len() - NAMED, words.join(" or ")));
    }
    named.join(", ")
}

/// What is being fetched, when it is there; never, while nothing is.
async fn fetch(fetching: &mut Option<Fetch>) -> Result<String, Error> {
    match fetching {
        Some(fetching) => fetching.await,
        None => std::future::pending().await,
    }
}

fn is_due(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at <= Instant::now())
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
