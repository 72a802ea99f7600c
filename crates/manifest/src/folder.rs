//! Watching folders of manifests: told by the directories on the way to each and by what is in it, and looked at every few
//! seconds in any case. What a change comes to is for whoever is told to find out.

use crate::settings::watch::eyes::Eyes;
use crate::settings::watch::{Wake, WatchGuard};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How long after an event a folder has to be quiet before it is told: what copies files does so in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// How long a folder that never stops changing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Calls `tell` whenever something may have changed in one of these folders, and every few seconds without that.
///
/// # Errors
/// Only that no thread can be started.
pub fn watch_folders(folders: Vec<PathBuf>, tell: impl Fn() + Send + 'static) -> std::io::Result<WatchGuard> {
    let (stop, woken) = mpsc::channel();
    let mut eyes: Vec<Eyes> = folders
        .iter()
        .map(|folder| {
            let wake: Sender<Wake> = stop.clone();
            // nobody listens any more when the watch has ended
            Eyes::of_folder(folder, move || wake.send(Wake::Look).unwrap_or_default())
        })
        .collect();
    eyes.iter_mut().for_each(Eyes::open);
    std::thread::Builder::new().name("folder-watch".into()).spawn(move || {
        loop {
            let pause = eyes.iter().map(Eyes::pause).min().unwrap_or(PATIENCE);
            match woken.recv_timeout(pause) {
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Wake::Look) => {
                    let since = Instant::now();
                    while since.elapsed() < PATIENCE {
                        match woken.recv_timeout(QUIET) {
                            Ok(Wake::Look) => {}
                            Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                            Err(RecvTimeoutError::Timeout) => break,
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            eyes.iter_mut().for_each(Eyes::open);
            tell();
        }
    })?;
    Ok(WatchGuard { wake: stop })
}
