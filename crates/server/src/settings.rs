//! settings.yaml, watched, as the controllers take it.

use hmz_controllers::SettingsSnapshot;
use hmz_manifest::settings::{self, Loaded};
use std::path::Path;
use tokio::sync::watch;

/// Follows the file for as long as the receiver lives.
pub fn follow(path: &Path) -> watch::Receiver<SettingsSnapshot> {
    let (mut loaded, guard) = settings::watch(path);
    let (sender, receiver) = watch::channel(snapshot(&loaded.borrow_and_update()));
    tokio::spawn(async move {
        let _guard = guard;
        while loaded.changed().await.is_ok() {
            let next = snapshot(&loaded.borrow_and_update());
            if sender.send(next).is_err() {
                break;
            }
        }
    });
    receiver
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
