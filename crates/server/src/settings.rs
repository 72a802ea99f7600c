//! settings.yaml, watched, as the controllers take it.

use futures::StreamExt;
use hmz_api::kinds::RuntimeSource;
use hmz_api::kinds::condition::{SAVED, SETTINGS_VALID};
use hmz_api::{Error, Kind, Resource, Runtime};
use hmz_controllers::SettingsSnapshot;
use hmz_manifest::settings::file::read_text;
use hmz_manifest::settings::{self, Loaded, Settings};
use hmz_manifest::{Context, Report};
use hmz_store::{Store, StoreError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// How long what is applied waits for settings that were saved just before. The watch sees them within a poll of the file.
const SETTLE: Duration = Duration::from_secs(5);

/// The file itself, for whoever must not act on what it said before.
#[derive(Debug, Clone)]
pub(crate) struct SettingsFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its relative paths mean.
    pub context: Context,
}

impl SettingsFile {
    /// Waits until the store has each runtime as the file declares it now. A file that cannot be read, and an entry that is
    /// wrong, have no say; after [`SETTLE`] what is there has to do.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn settled(&self, store: &Store) -> Result<(), StoreError> {
        let path = self.path.clone();
        let Ok(Ok(Some(text))) = tokio::task::spawn_blocking(move || read_text(&path)).await else { return Ok(()) };
        let Ok(declared) = settings::read(&text, &self.path.display().to_string(), &self.context) else { return Ok(()) };
        // the watch comes first, so that no change falls between the look and the wait
        let mut changes = store.watch(Some(Runtime::KIND), None)?;
        let caught_up = async {
            while !has(&store.list::<Runtime>().await?, &declared) {
                if changes.next().await.is_none_or(|change| change.is_err()) {
                    break;
                }
            }
            Ok(())
        };
        tokio::time::timeout(SETTLE, caught_up).await.unwrap_or(Ok(()))
    }
}

/// Whether each readable entry is there as declared; one that a manifest owns is not the file's to change.
fn has(stored: &[Resource<Runtime>], declared: &Settings) -> bool {
    declared.runtimes.iter().all(|(runtime, entry)| {
        let Ok(spec) = entry else { return true };
        let name = runtime.resource_name();
        // one that was wrong or taken out before is usable when that is not said of it any more
        let said = |r: &Resource<Runtime>| [SETTINGS_VALID, SAVED].iter().any(|c| r.status.conditions.is_false(c));
        let found = stored.iter().find(|r| r.name() == name);
        // one that is being deleted may be so for long, and is made anew then
        let elsewhere = |r: &Resource<Runtime>| r.status.source == RuntimeSource::Manifest || r.metadata.is_deleting();
        found.is_some_and(|r| elsewhere(r) || (r.spec == *spec && !said(r)))
    })
}

/// What the file says, as it changes.
pub(crate) struct Followed {
    /// For the controllers.
    pub snapshot: watch::Receiver<SettingsSnapshot>,
    /// Where metrics are to be told.
    pub metrics: watch::Receiver<Option<SocketAddr>>,
}

/// Follows the file for as long as `snapshot` lives.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn follow(file: SettingsFile) -> Result<Followed, Error> {
    let (mut loaded, guard) =
        settings::watch(&file.path, file.context.clone()).map_err(|e| Error::failed(format!("{}: {e}", file.path.display())))?;
    let (sender, receiver) = watch::channel(snapshot(&file.path, &loaded.borrow_and_update()));
    let (metrics, told) = watch::channel(metrics_at(&loaded.borrow(), None));
    tokio::spawn(async move {
        let _guard = guard;
        loop {
            tokio::select! {
                changed = loaded.changed() => if changed.is_err() { break },
                () = sender.closed() => break,
            }
            let next = snapshot(&file.path, &loaded.borrow_and_update());
            let before = *metrics.borrow();
            let at = metrics_at(&loaded.borrow(), before);
            if at != before {
                metrics.send_replace(at);
            }
            if sender.send(next).is_err() {
                break;
            }
        }
    });
    Ok(Followed { snapshot: receiver, metrics: told })
}

/// Where metrics are to be told. What cannot be read changes nothing, nor does what is gone only for the moment of a save.
fn metrics_at(loaded: &Loaded, before: Option<SocketAddr>) -> Option<SocketAddr> {
    match &loaded.settings.metrics {
        Some(Ok(metrics)) => Some(metrics.address),
        None if loaded.settled => None,
        Some(Err(_)) | None => before,
    }
}

fn snapshot(path: &Path, loaded: &Loaded) -> SettingsSnapshot {
    SettingsSnapshot {
        path: path.display().to_string(),
        runtimes: loaded
            .settings
            .runtimes
            .iter()
            // told in logs, conditions and events, where no line of the file is to be: a secret may be in it
            .map(|(runtime, entry)| (runtime.clone(), entry.clone().map_err(|report| report.headline())))
            .collect(),
        problem: loaded.problem.as_ref().map(Report::headline),
        faults: loaded.settings.problems.iter().map(Report::headline).collect(),
        settled: loaded.settled,
    }
}
