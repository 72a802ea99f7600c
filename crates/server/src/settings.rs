//! settings.yaml, watched, as the controllers take it.

use hmz_api::Error;
use hmz_controllers::SettingsSnapshot;
use hmz_manifest::Context;
use hmz_manifest::settings::{self, Loaded};
use std::path::Path;
use tokio::sync::watch;

/// Follows the file for as long as the receiver lives.
///
/// # Errors
/// When no thread can be started.
pub fn follow(path: &Path, context: Context) -> Result<watch::Receiver<SettingsSnapshot>, Error> {
    let (mut loaded, guard) = settings::watch(path, context).map_err(|e| Error::failed(format!("{}: {e}", path.display())))?;
    let (sender, receiver) = watch::channel(snapshot(&loaded.borrow_and_update()));
    tokio::spawn(async move {
        let _guard = guard;
        loop {
            tokio::select! {
                changed = loaded.changed() => if changed.is_err() { break },
                () = sender.closed() => break,
            }
            let next = snapshot(&loaded.borrow_and_update());
            if sender.send(next).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

fn snapshot(loaded: &Loaded) -> SettingsSnapshot {
    SettingsSnapshot {
        runtimes: loaded
            .settings
            .runtimes
            .iter()
            .map(|(runtime, entry)| (runtime.clone(), entry.clone().map_err(|report| report.to_string())))
            .collect(),
        problem: loaded.problem.as_ref().map(ToString::to_string),
    }
}
