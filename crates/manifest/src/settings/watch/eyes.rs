//! The watches on the way to the file: each directory that is passed, links followed, for the one name in it that matters.
//! So a change of the file is seen, one of what a link points to, and one of any directory above. Of a folder whatever is
//! directly in it is seen as well.

use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
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

/// Told of each change that matters.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// What is looked out for.
#[derive(Default)]
struct Matters {
    /// The paths whose changes matter.
    names: HashSet<PathBuf>,
    /// The folder in which every change does.
    folder: Option<PathBuf>,
}

impl Matters {
    fn has(&self, path: &Path) -> bool {
        self.names.contains(path) || (self.folder.is_some() && path.parent() == self.folder.as_deref())
    }
}

pub(crate) struct Eyes {
    path: PathBuf,
    whole: bool,
    wake: Wake,
    watcher: Option<RecommendedWatcher>,
    /// Each directory that is watched, and which one it was.
    open: BTreeMap<PathBuf, (u64, u64)>,
    matters: Arc<Mutex<Matters>>,
    /// Whether something could not be watched for want of room.
    blind: bool,
    warned: bool,
}

impl Eyes {
    /// Those on a file.
    pub fn new(path: &Path, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (path, wake, matters) = (path.to_owned(), Arc::new(wake), Arc::default());
        Self { path, whole: false, wake, watcher: None, open: BTreeMap::new(), matters, blind: false, warned: false }
    }

    /// Those on a folder and what is directly in it.
    pub fn of_folder(path: &Path, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { whole: true, ..Self::new(path, wake) }
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
            let names: HashSet<PathBuf> = way.iter().map(|(dir, name)| dir.join(name)).collect();
            let end = way.last().map_or_else(|| PathBuf::from("/"), |(dir, name)| dir.join(name));
            let folder = Some(end).filter(|end| self.whole && end.is_dir());
            let dirs = way.into_iter().map(|(dir, _)| dir).chain(folder.clone());
            let wanted: BTreeMap<PathBuf, (u64, u64)> = dirs.filter_map(|dir| identity(&dir).map(|id| (dir, id))).collect();
            *self.matters.lock().unwrap_or_else(PoisonError::into_inner) = Matters { names, folder };
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
        let (wake, known) = (self.wake.clone(), Arc::clone(&self.matters));
        notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let matters = match &event {
                // reading the file is an event too, and not a change
                Ok(event) if event.kind.is_access() && !is_close_write(event) => false,
                Ok(event) => {
                    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
                    event.need_rescan() || event.paths.iter().any(|path| known.has(path))
                }
                Err(_) => true,
            };
            if matters {
                wake();
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
            let mut eyes = Eyes::new(&root.join("me/.hmz/settings.yaml"), move || wake.send(()).unwrap_or_default());
            eyes.open();
            assert!(woken.try_recv().is_err(), "nothing has happened yet");
            change(&root);
            // against hanging only: nobody looks here without being told
            assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok(()), "{what}");
        }
    }

    #[test]
    fn what_happens_in_a_folder_is_told() {
        let changes: [Change; 4] = [
            ("a new file", |root| std::fs::write(root.join("dots/new.yaml"), "a: 1\n").unwrap()),
            ("a file removed", |root| std::fs::remove_file(root.join("dots/settings.yaml")).unwrap()),
            ("a file renamed", |root| std::fs::rename(root.join("dots/settings.yaml"), root.join("dots/b.yaml")).unwrap()),
            ("the folder replaced", |root| swap(root, "dots")),
        ];
        for (what, change) in changes {
            let (_dir, root) = linked();
            let (wake, woken) = std::sync::mpsc::channel();
            let mut eyes = Eyes::of_folder(&root.join("me/.hmz"), move || wake.send(()).unwrap_or_default());
            eyes.open();
            assert!(woken.try_recv().is_err(), "nothing has happened yet");
            change(&root);
            assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok(()), "{what}");
        }
    }
}
