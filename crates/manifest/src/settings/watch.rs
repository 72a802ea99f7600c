//! Watching settings.yaml: told by the directory, held by the content, and looked at every few seconds in any case.

use super::{Settings, read};
use crate::paths::bounded;
use crate::place::Context;
use crate::report::Report;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::watch as channel;

/// How long after an event the file has to be quiet before it is read: an editor writes in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// How often the file is looked at when no event tells: a network home has none.
const POLL: Duration = Duration::from_secs(2);
/// How long a file that never stops changing is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was last read of settings.yaml.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// The last good settings; empty while there have been none.
    pub settings: Settings,
    /// Why the file as it is now is not what `settings` says: it is broken, empty or cannot be read.
    pub problem: Option<Report>,
}

/// Keeps the watch going; the watch ends when it is dropped.
#[derive(Debug)]
pub struct WatchGuard {
    wake: Sender<Wake>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // the thread may have gone already; there is nobody left to tell
        let _ = self.wake.send(Wake::Stop);
    }
}

enum Wake {
    Look,
    Stop,
}

/// Watches the settings.yaml at `path`. What is there now is read before this returns. A file or directory that is
/// missing is waited for; one that is gone for more than a moment is empty settings; one that is broken, emptied or
/// unreadable keeps the last good settings and sets the problem. A change of content that changes nothing is not told.
///
/// # Errors
/// Only that no thread can be started.
pub fn watch(path: &Path, context: Context) -> std::io::Result<(channel::Receiver<Loaded>, WatchGuard)> {
    let (wake, woken) = mpsc::channel();
    let mut reader = Reader { path: path.to_owned(), context, last: None, missing: true, loaded: Loaded::default() };
    // before the first reading, so that no change falls between them
    let mut eyes = Eyes::new(path, wake.clone());
    eyes.open();
    reader.look();
    let (told, receiver) = channel::channel(reader.loaded.clone());
    std::thread::Builder::new().name("settings-watch".into()).spawn(move || follow(&woken, &mut eyes, &mut reader, &told))?;
    Ok((receiver, WatchGuard { wake }))
}

fn follow(woken: &Receiver<Wake>, eyes: &mut Eyes, reader: &mut Reader, told: &channel::Sender<Loaded>) {
    loop {
        match woken.recv_timeout(POLL) {
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
        if reader.look() && told.send(reader.loaded.clone()).is_err() {
            return;
        }
    }
}

/// The watch on the directory; it is opened anew when the directory is another one.
struct Eyes {
    directory: PathBuf,
    wake: Sender<Wake>,
    open: Option<((u64, u64), RecommendedWatcher)>,
}

impl Eyes {
    fn new(path: &Path, wake: Sender<Wake>) -> Self {
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        Self { directory, wake, open: None }
    }

    fn open(&mut self) {
        let identity = std::fs::metadata(&self.directory).map(|m| (m.dev(), m.ino()));
        let Ok(identity) = identity else {
            self.open = None;
            return;
        };
        if self.open.as_ref().is_some_and(|(open, _)| *open == identity) {
            return;
        }
        let wake = self.wake.clone();
        let told = move |event: notify::Result<notify::Event>| {
            // reading the file is an event too, and not a change
            if event.as_ref().is_ok_and(|e| e.kind.is_access() && !is_close_write(e)) {
                return;
            }
            let _ = wake.send(Wake::Look);
        };
        // without a watch the poll alone has to do
        self.open = match notify::recommended_watcher(told) {
            Ok(mut watcher) => match watcher.watch(&self.directory, RecursiveMode::NonRecursive) {
                Ok(()) => Some((identity, watcher)),
                Err(e) => {
                    tracing::debug!("{} is polled, not watched: {e}", self.directory.display());
                    None
                }
            },
            Err(e) => {
                tracing::debug!("settings are polled, not watched: {e}");
                None
            }
        };
    }
}

fn is_close_write(event: &notify::Event) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    event.kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}

struct Reader {
    path: PathBuf,
    context: Context,
    /// The content that was last judged: a text, or why there is none.
    last: Option<Result<String, String>>,
    /// Whether the last look found no file.
    missing: bool,
    loaded: Loaded,
}

impl Reader {
    /// Reads the file when its content is another. Returns whether there is something to tell.
    fn look(&mut self) -> bool {
        let origin = self.path.display().to_string();
        let found = match std::fs::File::open(&self.path) {
            Ok(file) => bounded(file, &origin).map_err(|report| report.message),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                // one look is not enough: a file is often deleted and written again
                let gone = std::mem::replace(&mut self.missing, true);
                if !gone || self.last.is_none() {
                    return false;
                }
                self.last = None;
                return self.become_loaded(Loaded::default());
            }
            Err(e) => Err(e.to_string()),
        };
        self.missing = false;
        if self.last.as_ref() == Some(&found) {
            return false;
        }
        let next = self.judge(&found, &origin);
        self.last = Some(found);
        self.become_loaded(next)
    }

    fn judge(&self, found: &Result<String, String>, origin: &str) -> Loaded {
        let keep = |problem: Report| Loaded { settings: self.loaded.settings.clone(), problem: Some(problem) };
        match found {
            Err(message) => keep(Report::without_place(origin, message.clone())),
            // an editor truncates before it writes; somebody who wants none deletes the file or writes `runtimes: {}`
            Ok(text) if text.trim().is_empty() && !self.loaded.settings.runtimes.is_empty() => {
                keep(Report::without_place(origin, "the file is empty; what it said before still holds"))
            }
            Ok(text) => match read(text, origin, &self.context) {
                Ok(settings) => Loaded { settings, problem: None },
                Err(report) => keep(report),
            },
        }
    }

    fn become_loaded(&mut self, next: Loaded) -> bool {
        if next == self.loaded {
            return false;
        }
        self.loaded = next;
        true
    }
}
