//! The watches on the way to the file: each directory that is passed, links followed, for the one name in it that matters.
//! So a change of the file is seen, one of what a link points to, and one of any directory above.

use super::Wake;
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the file is looked at though no event told: a network home has none.
const POLL: Duration = Duration::from_secs(2);
/// The same where nothing can be watched.
const BLIND: Duration = Duration::from_millis(500);
/// As many links as the kernel follows.
const LINKS: u32 = 40;
/// How often the way is looked at again while it changes under the look.
const TRIES: u32 = 8;

pub(super) struct Eyes {
    path: PathBuf,
    wake: Sender<Wake>,
    watcher: Option<RecommendedWatcher>,
    /// Each directory that is watched, and which one it was.
    open: BTreeMap<PathBuf, (u64, u64)>,
    /// The paths whose changes matter.
    names: Arc<Mutex<HashSet<PathBuf>>>,
    /// Whether something could not be watched for want of room.
    blind: bool,
    warned: bool,
}

impl Eyes {
    pub fn new(path: &Path, wake: Sender<Wake>) -> Self {
        let names = Arc::default();
        Self { path: path.to_owned(), wake, watcher: None, open: BTreeMap::new(), names, blind: false, warned: false }
    }

    /// How long to wait for an event before looking without one.
    pub fn pause(&self) -> Duration {
        if self.blind { BLIND } else { POLL }
    }

    /// Brings the watches up to date with the directories as they are.
    pub fn open(&mut self) {
        self.blind = false;
        if self.watcher.is_none() {
            match self.watcher() {
                Ok(watcher) => self.watcher = Some(watcher),
                Err(e) => return self.cannot(&e),
            }
        }
        // a directory that is put in place of another while the watches are made is found by looking again
        for _ in 0..TRIES {
            let way = way(&self.path);
            *self.names.lock().unwrap_or_else(PoisonError::into_inner) = way.iter().map(|(dir, name)| dir.join(name)).collect();
            let wanted: BTreeMap<PathBuf, (u64, u64)> =
                way.into_iter().filter_map(|(dir, _)| identity(&dir).map(|id| (dir, id))).collect();
            if wanted == self.open {
                return;
            }
            self.bring_to(wanted);
        }
    }

    fn bring_to(&mut self, wanted: BTreeMap<PathBuf, (u64, u64)>) {
        let Some(watcher) = &mut self.watcher else { return };
        for dir in self.open.iter().filter(|(dir, id)| wanted.get(*dir) != Some(id)).map(|(dir, _)| dir) {
            // a directory that is gone took its watch along
            let _ = watcher.unwatch(dir);
        }
        let mut full = None;
        for dir in wanted.iter().filter(|(dir, id)| self.open.get(*dir) != Some(id)).map(|(dir, _)| dir) {
            match watcher.watch(dir, RecursiveMode::NonRecursive) {
                Ok(()) => {}
                Err(e) if matches!(e.kind, ErrorKind::MaxFilesWatch) => full = Some(e),
                // one we may not read, or that is gone again: the look without events has to do
                Err(e) => tracing::debug!("{} is not watched: {e}", dir.display()),
            }
        }
        self.open = wanted;
        if let Some(e) = full {
            // tried again at the next look
            self.open.clear();
            self.watcher = None;
            self.cannot(&e);
        }
    }

    fn cannot(&mut self, e: &notify::Error) {
        self.blind = true;
        if !self.warned {
            self.warned = true;
            let path = self.path.display();
            tracing::warn!(
                "{path} is looked at twice a second, since it cannot be watched: {e}; fs.inotify.max_user_instances and \
                 fs.inotify.max_user_watches say how much there is"
            );
        }
    }

    fn watcher(&self) -> notify::Result<RecommendedWatcher> {
        let (wake, names) = (self.wake.clone(), Arc::clone(&self.names));
        notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let matters = match &event {
                // reading the file is an event too, and not a change
                Ok(event) if event.kind.is_access() && !is_close_write(event) => false,
                Ok(event) => {
                    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
                    event.need_rescan() || event.paths.iter().any(|path| names.contains(path))
                }
                Err(_) => true,
            };
            if matters {
                // nobody listens any more when the watch has ended
                let _ = wake.send(Wake::Look);
            }
        })
    }
}

fn identity(dir: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(dir).ok().map(|found| (found.dev(), found.ino()))
}

fn is_close_write(event: &notify::Event) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    event.kind == EventKind::Access(AccessKind::Close(AccessMode::Write))
}

/// Each directory that is passed on the way to a file, and the name that is looked up in it. It ends where nothing is.
fn way(path: &Path) -> Vec<(PathBuf, OsString)> {
    let mut passed = Vec::new();
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut rest: VecDeque<PathBuf> = parts(path);
    while let Some(part) = rest.pop_front() {
        if part.as_os_str() == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        passed.push((at.clone(), part.into_os_string()));
        if let Ok(target) = std::fs::read_link(&next) {
            links += 1;
            if links > LINKS {
                break;
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            rest = parts(&target).into_iter().chain(rest).collect();
        } else if next.is_dir() {
            at = next;
        } else {
            break;
        }
    }
    passed
}

fn parts(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("..")),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_way_passes_every_link() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("dots/deep")).unwrap();
        std::fs::create_dir(root.join("me")).unwrap();
        symlink("../dots", root.join("me/.hmz")).unwrap();
        symlink("deep/../deep/real.yaml", root.join("dots/settings.yaml")).unwrap();
        let passed: Vec<PathBuf> =
            way(&root.join("me/.hmz/settings.yaml")).into_iter().map(|(dir, name)| dir.join(name)).collect();
        let below: Vec<&Path> =
            passed.iter().filter_map(|p| p.strip_prefix(&root).ok()).filter(|p| p.components().count() > 0).collect();
        let expected = ["me", "me/.hmz", "dots", "dots/settings.yaml", "dots/deep", "dots/deep", "dots/deep/real.yaml"];
        assert_eq!(below, expected.map(Path::new));
        assert!(passed.contains(&PathBuf::from("/").join(root.components().nth(1).unwrap())), "from the root on");
        // it ends where nothing is, and at a link to itself
        let ends = |path: &str| way(&root.join(path)).last().map(|(dir, name)| dir.join(name));
        assert_eq!(ends("none/of/this"), Some(root.join("none")));
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(ends("loop/x"), Some(root.join("loop")));
    }

    /// A home that is a link, with a settings.yaml that is a link: `me/.hmz -> ../dots`, `dots/settings.yaml -> deep/real.yaml`.
    fn linked() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("dots/deep")).unwrap();
        std::fs::create_dir(root.join("me")).unwrap();
        std::fs::write(root.join("dots/deep/real.yaml"), "a: 1\n").unwrap();
        symlink("../dots", root.join("me/.hmz")).unwrap();
        symlink("deep/real.yaml", root.join("dots/settings.yaml")).unwrap();
        (dir, root)
    }

    /// What it is, and how it is made.
    type Change = (&'static str, fn(&Path));

    fn swap(root: &Path, what: &str) {
        std::fs::rename(root.join(what), root.join("last")).unwrap();
        std::fs::create_dir_all(root.join(what)).unwrap();
    }

    #[test]
    fn a_change_anywhere_on_the_way_is_told_without_a_look() {
        let changes: [Change; 6] = [
            ("written", |root| std::fs::write(root.join("dots/deep/real.yaml"), "a: 2\n").unwrap()),
            ("replaced", |root| {
                std::fs::write(root.join("dots/deep/new"), "a: 2\n").unwrap();
                std::fs::rename(root.join("dots/deep/new"), root.join("dots/deep/real.yaml")).unwrap();
            }),
            ("removed", |root| std::fs::remove_file(root.join("dots/deep/real.yaml")).unwrap()),
            ("its link turned", |root| {
                symlink("other", root.join("dots/next")).unwrap();
                std::fs::rename(root.join("dots/next"), root.join("dots/settings.yaml")).unwrap();
            }),
            ("a directory below a link replaced", |root| swap(root, "dots")),
            ("a directory above replaced", |root| swap(root, "me")),
        ];
        for (what, change) in changes {
            let (_dir, root) = linked();
            let (wake, woken) = std::sync::mpsc::channel();
            let mut eyes = Eyes::new(&root.join("me/.hmz/settings.yaml"), wake);
            eyes.open();
            assert!(woken.try_recv().is_err(), "nothing has happened yet");
            change(&root);
            // against hanging only: nobody looks here without being told
            assert!(matches!(woken.recv_timeout(Duration::from_secs(60)), Ok(Wake::Look)), "{what}");
        }
    }
}
