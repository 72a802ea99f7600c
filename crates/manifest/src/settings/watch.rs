//! Watching settings.yaml: told by the directories on the way to it, held by the content, and looked at every few seconds in
//! any case.

pub(crate) mod eyes;
mod reader;

use super::Settings;
use crate::place::Context;
use crate::report::Report;
use eyes::Eyes;
use reader::Reader;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::watch as channel;

/// How long after an event the file has to be quiet before it is read: an editor writes in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// How long a file that never stops changing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the file has to say the same before what it does not name is believed to be gone.
const SETTLE: Duration = Duration::from_secs(1);

/// What was last read of settings.yaml.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// The last good settings; empty while there have been none.
    pub settings: Settings,
    /// Why the file as it is now is not what `settings` says: it is broken, empty or cannot be read.
    pub problem: Option<Report>,
    /// Whether it has said so for a second. What it does not name is gone only then: an editor may be in the middle of a save,
    /// with the file deleted or half of it written.
    pub settled: bool,
}

/// Keeps the watch going; the watch ends when it is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    pub(crate) wake: Sender<Wake>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // the thread may have gone already; there is nobody left to tell
        let _ = self.wake.send(Wake::Stop);
    }
}

/// What the thread of a watch is told.
pub(crate) enum Wake {
    Look,
    Stop,
}

/// What the settings.yaml at `path` says at this moment; nobody can tell yet whether it is settled.
pub fn glance(path: &Path, context: Context) -> Loaded {
    let mut reader = Reader::new(path, context);
    reader.look(Instant::now());
    reader.loaded().clone()
}

/// Watches the settings.yaml at `path`. What is there now is read before this returns. A file or directory that is missing
/// is waited for, and is empty settings; a file that is broken, emptied or unreadable keeps the last good settings and sets
/// the problem. A change of content that changes nothing is not told.
///
/// Where the machine has no inotify instance or watch left, the file is looked at twice a second, which is said once in the log.
///
/// # Errors
/// Only that no thread can be started.
pub fn watch(path: &Path, context: Context) -> std::io::Result<(channel::Receiver<Loaded>, WatchGuard)> {
    let (wake, woken) = mpsc::channel();
    let path = std::path::absolute(path)?;
    let mut reader = Reader::new(&path, context);
    // before the first reading, so that no change falls between them
    let waker = wake.clone();
    // nobody listens any more when the watch has ended
    let mut eyes = Eyes::new(&path, move || waker.send(Wake::Look).unwrap_or_default());
    eyes.open();
    reader.look(Instant::now());
    let (told, receiver) = channel::channel(reader.loaded().clone());
    std::thread::Builder::new().name("settings-watch".into()).spawn(move || follow(&woken, &mut eyes, &mut reader, &told))?;
    Ok((receiver, WatchGuard { wake }))
}

fn follow(woken: &Receiver<Wake>, eyes: &mut Eyes, reader: &mut Reader, told: &channel::Sender<Loaded>) {
    loop {
        let pause = reader.due(Instant::now()).map_or(eyes.pause(), |due| due.min(eyes.pause()));
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
        eyes.open();
        if reader.look(Instant::now()) && told.send(reader.loaded().clone()).is_err() {
            return;
        }
    }
}
