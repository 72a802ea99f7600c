//! Directories of boxes whose HMZ_HOME is gone. Nobody else would remove them: a sweep knows its own boxes only.
//!
//! What is removed has no owner left in any sense: its HMZ_HOME no longer has that instance, no daemon of it lives, the
//! daemon that was asked has no container of it, and no guest answers in it. Directories without an owner's mark (as earlier
//! versions made them, all homes' in one) go when no guest answers, no container is of them, and nothing has changed in
//! them for an hour. Links are not followed, and what is another user's is left.

use crate::claim::{self, OWNER};
use crate::files::name_of;
use crate::removal::remove_tree;
use hmz_api::clock::Clock;
use hmz_drivers::BoxKey;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where earlier versions had the boxes of all homes.
pub(crate) const BEFORE: &str = "b";
/// How long nothing must have changed in a directory without a mark, in seconds.
const QUIET: i64 = 3600;

/// Removes them from below `root`; `own` is the directory of this home's own boxes, `there` are all boxes a daemon has.
pub(crate) fn sweep(root: &Path, own: &Path, there: &[BoxKey], clock: &dyn Clock) {
    let old = clock.now().as_second() - QUIET;
    Sweep { there, old, uid: rustix::process::getuid().as_raw() }.all(root, own);
}

struct Sweep<'a> {
    there: &'a [BoxKey],
    /// What has not changed since then is quiet.
    old: i64,
    /// Whose directories are looked at.
    uid: u32,
}

impl Sweep<'_> {
    fn all(&self, root: &Path, own: &Path) {
        for dir in self.directories(root) {
            let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if name == BEFORE {
                self.unmarked(&dir);
            } else if is_short_id(name) && dir != own {
                self.of_home(&dir);
            }
        }
    }

    /// The boxes of another home.
    fn of_home(&self, dir: &Path) {
        let mut mark = match claim::open(dir, OFlags::empty()) {
            Ok(mark) => mark,
            Err(Errno::NOENT) => return self.unmarked(dir),
            Err(_) => return,
        };
        // a daemon that lives has it too
        if flock(&mark, FlockOperation::NonBlockingLockExclusive).is_err() || !claim::is_there(dir, &mark) {
            return;
        }
        match claim::read(&mut mark) {
            None => self.unmarked(dir),
            Some(home) if home.is_gone() && !self.there.iter().any(|key| key.instance == home.instance) => {
                let boxes: Vec<PathBuf> = self.boxes(dir).filter(|one| !answers(one)).collect();
                tracing::info!(dir = %dir.display(), boxes = boxes.len(), "sweeps what a home left that is gone");
                boxes.iter().for_each(|one| remove(one));
                remove_empty(dir);
            }
            Some(_) => {}
        }
    }

    /// Boxes of which nothing says whose they are.
    fn unmarked(&self, dir: &Path) {
        for one in self.boxes(dir) {
            let name = one.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let is_used = self.there.iter().any(|key| name_of(key) == name);
            let is_quiet = [one.clone(), one.join("run"), one.join("s")].iter().all(|dir| self.is_quiet(dir));
            if is_quiet && !is_used && !answers(&one) {
                tracing::info!(dir = %one.display(), "sweeps the directory of a box that nobody uses");
                remove(&one);
            }
        }
        if self.is_quiet(dir) {
            remove_empty(dir);
        }
    }

    /// Whether nothing has been made or removed in a directory for long; one that is not there is quiet.
    fn is_quiet(&self, dir: &Path) -> bool {
        let found = std::fs::symlink_metadata(dir);
        found.map_or_else(|e| e.kind() == std::io::ErrorKind::NotFound, |found| found.mtime() < self.old)
    }

    /// This user's directories in one; links are none.
    fn directories(&self, dir: &Path) -> impl Iterator<Item = PathBuf> {
        let uid = self.uid;
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(move |path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid))
    }

    fn boxes(&self, dir: &Path) -> impl Iterator<Item = PathBuf> {
        self.directories(dir).filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(is_short_id))
    }
}

fn remove(dir: &Path) {
    match remove_tree(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => tracing::warn!("{}: {e}", dir.display()),
        _ => {}
    }
}

/// Removes the directory of a home when no box is left in it, and its mark with it.
fn remove_empty(dir: &Path) {
    let is_mark = |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == OWNER);
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.all(is_mark)) {
        // one without a mark has none to remove
        let _ = std::fs::remove_file(dir.join(OWNER));
        if let Err(e) = std::fs::remove_dir(dir) {
            tracing::warn!("{}: {e}", dir.display());
        }
    }
}

/// As instances and boxes are shortened.
fn is_short_id(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a guest may be at the socket of a box: one listens there, or that cannot be told.
fn answers(dir: &Path) -> bool {
    match ask(dir) {
        Ok(()) => true,
        // nobody is there, or what is there is no socket
        Err(e) => !matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::CONNREFUSED | Errno::NOTSOCK),
    }
}

fn ask(dir: &Path) -> Result<(), Errno> {
    // what a box has in its place may be a link: each name is opened as it is, and the socket is reached through its handle
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = open(dir, flags | OFlags::DIRECTORY, Mode::empty())?;
    let dir = openat(&dir, "run", flags | OFlags::DIRECTORY, Mode::empty())?;
    let at: OwnedFd = openat(&dir, hmz_wire::SOCKET_NAME, flags, Mode::empty())?;
    if !rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&at)?.st_mode).is_socket() {
        return Err(Errno::NOTSOCK);
    }
    // one whose queue is full says "again", which is an answer
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(format!("/proc/self/fd/{}", at.as_raw_fd()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Mark;
    use hmz_api::clock::SystemClock;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use uuid::Uuid;

    const GONE: &str = "gone0000gone0000gone0000gone0000";

    struct Scene {
        dir: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("root")).unwrap();
            Self { dir }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        /// A box with a link out of it.
        fn a_box(&self, path: &str) -> PathBuf {
            let made = self.at("root").join(path);
            std::fs::create_dir_all(made.join("run")).unwrap();
            std::fs::create_dir_all(made.join("s/deep")).unwrap();
            std::fs::create_dir_all(self.at("victim")).unwrap();
            std::fs::write(self.at("victim/file"), "precious").unwrap();
            symlink(self.at("victim"), made.join("s/link")).unwrap();
            made
        }

        /// Whose a directory is; `is_there`: whether that home still is.
        fn marked(&self, name: &str, instance: &str, is_there: bool) {
            let state = self.at(&format!("state-{name}"));
            std::fs::create_dir_all(&state).unwrap();
            if is_there {
                std::fs::write(state.join("instance"), instance).unwrap();
            }
            let mark = Mark { instance: instance.into(), state };
            std::fs::write(self.at("root").join(name).join(OWNER), serde_json::to_vec(&mark).unwrap()).unwrap();
        }

        fn sweep(&self, there: &[BoxKey]) {
            sweep(&self.at("root"), &self.at("root/00000000"), there, &SystemClock);
            assert_eq!(std::fs::read_to_string(self.at("victim/file")).unwrap(), "precious");
        }
    }

    fn key(instance: &str) -> BoxKey {
        BoxKey { instance: instance.into(), uid: Uuid::from_u128(7), incarnation: 1, role: "box".into() }
    }

    fn age(dir: &Path) {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
        let old = Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
        utimensat(CWD, dir, &Timestamps { last_access: old, last_modification: old }, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    #[test]
    fn what_a_home_left_that_is_gone_goes() {
        let s = Scene::new();
        s.a_box("11111111/aaaaaaaa");
        s.a_box("11111111/bbbbbbbb");
        s.marked("11111111", GONE, false);
        // another id is in its place by now
        s.a_box("22222222/aaaaaaaa");
        s.marked("22222222", GONE, false);
        std::fs::write(s.at("state-22222222/instance"), "another").unwrap();
        s.sweep(&[key("somebody")]);
        assert!(!s.at("root/11111111").exists() && !s.at("root/22222222").exists());
        assert!(s.at("root").exists());
    }

    #[test]
    fn nothing_goes_of_a_home_that_is_there_in_any_sense() {
        let s = Scene::new();
        for name in ["00000000", "11111111", "22222222", "33333333", "44444444"] {
            s.a_box(&format!("{name}/aaaaaaaa"));
            s.marked(name, GONE, name == "11111111");
        }
        // a daemon of the second lives, a container of the third is there, a guest of the fourth answers
        let daemon = claim::open(&s.at("root/22222222"), OFlags::empty()).unwrap();
        flock(&daemon, FlockOperation::NonBlockingLockShared).unwrap();
        s.marked("33333333", "listed", false);
        let guest = UnixListener::bind(s.at("root/44444444/aaaaaaaa/run/g.sock")).unwrap();
        s.a_box("44444444/bbbbbbbb");
        s.sweep(&[key("listed")]);
        for name in ["00000000", "11111111", "22222222", "33333333", "44444444"] {
            assert!(s.at("root").join(name).join("aaaaaaaa/s/deep").exists(), "{name}");
            assert!(s.at("root").join(name).join(OWNER).exists(), "{name}");
        }
        assert!(!s.at("root/44444444/bbbbbbbb").exists(), "beside the one that answers");
        drop((daemon, guest));
        s.sweep(&[]);
        let left = ["00000000", "11111111", "22222222", "33333333", "44444444"].map(|name| s.at("root").join(name).exists());
        assert_eq!(left, [true, true, false, false, false]);
    }

    #[test]
    fn links_and_what_is_not_ours_stay() {
        let s = Scene::new();
        s.a_box("11111111/aaaaaaaa");
        s.marked("11111111", GONE, false);
        // links in the place of a home, of a box and of a mark
        symlink(s.at("root/11111111"), s.at("root/22222222")).unwrap();
        symlink(s.at("victim"), s.at("root/11111111/bbbbbbbb")).unwrap();
        s.a_box("33333333/aaaaaaaa");
        s.marked("33333333", GONE, false);
        std::fs::rename(s.at("root/33333333/owner"), s.at("mark")).unwrap();
        symlink(s.at("mark"), s.at("root/33333333/owner")).unwrap();
        std::fs::create_dir_all(s.at("root/run/11111111")).unwrap();
        s.sweep(&[]);
        assert!(!s.at("root/11111111/aaaaaaaa").exists());
        assert!(std::fs::symlink_metadata(s.at("root/11111111/bbbbbbbb")).is_ok(), "it is no box");
        assert!(std::fs::symlink_metadata(s.at("root/22222222")).is_ok());
        assert!(s.at("root/33333333/aaaaaaaa/s/deep").exists() && s.at("root/run/11111111").exists());
    }

    #[test]
    fn another_users_directories_stay() {
        let s = Scene::new();
        s.a_box("11111111/aaaaaaaa");
        s.marked("11111111", GONE, false);
        s.a_box("b/aaaaaaaa");
        let own = rustix::process::getuid().as_raw();
        let sweep = |uid| Sweep { there: &[], old: i64::MAX, uid }.all(&s.at("root"), &s.at("root/00000000"));
        sweep(own + 1);
        assert!(s.at("root/11111111/aaaaaaaa").exists() && s.at("root/b/aaaaaaaa").exists());
        sweep(own);
        assert!(!s.at("root/11111111").exists() && !s.at("root/b").exists());
    }

    #[test]
    fn boxes_of_earlier_versions_go_when_nobody_uses_them() {
        let s = Scene::new();
        let used = name_of(&key("listed"));
        for name in ["11111111", "22222222", &used, "33333333", "44444444"] {
            s.a_box(&format!("b/{name}"));
        }
        let guest = UnixListener::bind(s.at("root/b/22222222/run/g.sock")).unwrap();
        // a link in the socket's place is no guest, whatever listens behind it
        symlink(s.at("root/b/22222222/run/g.sock"), s.at("root/b/44444444/run/g.sock")).unwrap();
        for name in ["11111111", "22222222", &used, "44444444"] {
            for below in ["s", "run", "."] {
                age(&s.at("root/b").join(name).join(below));
            }
        }
        s.sweep(&[key("listed")]);
        let left = ["11111111", "22222222", &used, "33333333", "44444444"].map(|name| s.at("root/b").join(name).exists());
        assert_eq!(left, [false, true, true, true, false]);
        drop(guest);
        for name in ["22222222", &used, "33333333"] {
            for below in ["s", "run", "."] {
                age(&s.at("root/b").join(name).join(below));
            }
        }
        s.sweep(&[]);
        let left = ["22222222", &used, "33333333"].map(|name| s.at("root/b").join(name).exists());
        assert_eq!(left, [false; 3]);
        age(&s.at("root/b"));
        s.sweep(&[]);
        assert!(!s.at("root/b").exists());
    }
}
