//! Which HMZ_HOME a directory of boxes belongs to: `/tmp/hmz-<uid>/<8 hex of the instance>/owner` says it, and a daemon
//! holds a shared lock on that file while it lives. Whoever sweeps takes the lock alone first, so that neither a daemon that
//! lives nor one that is about to loses anything.

use crate::paths::{Paths, private_dir};
use hmz_api::Error;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file's name.
pub(crate) const OWNER: &str = "owner";
/// How much of it is read, in bytes: more than a path is long.
const LONGEST: u64 = 16 << 10;
/// How often, and how long apart, the lock is tried: a sweep holds it for as long as a removal takes.
const TRIES: u32 = 1200;
const APART: Duration = Duration::from_millis(50);

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The random id of the HMZ_HOME.
    pub instance: String,
    /// Its state directory, where that id is.
    pub state: PathBuf,
}

impl Mark {
    /// Whether that HMZ_HOME is gone; one that cannot be looked at is not.
    pub fn is_gone(&self) -> bool {
        match std::fs::read_to_string(self.state.join("instance")) {
            Ok(text) => text.trim() != self.instance,
            Err(e) => matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory),
        }
    }
}

/// The directory of an instance's boxes.
pub(crate) fn dir(paths: &Paths, instance: &str) -> PathBuf {
    paths.boxes.join(instance.get(..8).unwrap_or(instance))
}

/// A daemon's hold on the directory of its boxes; it ends with the value, and with the process.
#[derive(Debug)]
pub(crate) struct Claim {
    dir: PathBuf,
    file: File,
}

impl Claim {
    /// Makes the directory, and says whose it is.
    ///
    /// # Errors
    /// When it cannot be made, or is another HMZ_HOME's.
    pub async fn take(paths: &Paths, instance: &str) -> Result<Self, Error> {
        let dir = dir(paths, instance);
        let failed = |e: std::io::Error| Error::failed(format!("{}: {e}", dir.join(OWNER).display()));
        let mark = Mark { instance: instance.to_owned(), state: paths.state.clone() };
        for _ in 0..TRIES {
            private_dir(&dir, true)?;
            let mut file = open(&dir, OFlags::CREATE).map_err(|e| failed(e.into()))?;
            match flock(&file, FlockOperation::NonBlockingLockShared) {
                // a sweep that was before us may have removed the file meanwhile
                Ok(()) if is_there(&dir, &file) => {}
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK) => {
                    tokio::time::sleep(APART).await;
                    continue;
                }
                Err(e) => return Err(failed(e.into())),
            }
            match read(&mut file) {
                Some(found) if found == mark => {}
                Some(found) if found.instance != mark.instance && !found.is_gone() => {
                    let (dir, state) = (dir.display(), found.state.display());
                    return Err(Error::failed(format!("{dir} belongs to the HMZ_HOME whose state is in {state}")));
                }
                _ => write(&dir, &file, &mark).map_err(failed)?,
            }
            return Ok(Self { dir, file });
        }
        Err(Error::failed(format!("{} stays locked", dir.join(OWNER).display())))
    }

    /// Gives it up; a directory without boxes goes.
    pub fn release(self) {
        let is_empty =
            std::fs::read_dir(&self.dir).is_ok_and(|mut entries| entries.all(|e| e.is_ok_and(|e| e.file_name() == OWNER)));
        // alone, or somebody else has it too
        if is_empty && flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_there(&self.dir, &self.file) {
            let _ = std::fs::remove_file(self.dir.join(OWNER)).and_then(|()| std::fs::remove_dir(&self.dir));
        }
    }
}

/// The mark's file, which is an ordinary one of ours and no link.
pub(crate) fn open(dir: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    let file = File::from(rustix::fs::open(dir.join(OWNER), flags, Mode::RUSR | Mode::WUSR)?);
    let found = file.metadata().map_err(|_| Errno::IO)?;
    let ours = found.is_file() && found.uid() == rustix::process::getuid().as_raw();
    if ours { Ok(file) } else { Err(Errno::PERM) }
}

/// What an open mark says; `None` when it says nothing that can be read.
pub(crate) fn read(file: &mut File) -> Option<Mark> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether the file is still the one of its name.
pub(crate) fn is_there(dir: &Path, file: &File) -> bool {
    let (named, open) = (std::fs::symlink_metadata(dir.join(OWNER)), file.metadata());
    matches!((named, open), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

fn write(dir: &Path, mut file: &File, mark: &Mark) -> std::io::Result<()> {
    let text = serde_json::to_vec(mark).map_err(|e| std::io::Error::other(format!("{}: {e}", dir.display())))?;
    file.set_len(0)?;
    std::io::Seek::rewind(&mut file)?;
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: &Path) -> Paths {
        let at = |name: &str| root.join(name);
        std::fs::create_dir_all(at("state")).unwrap();
        std::fs::create_dir_all(at("boxes")).unwrap();
        Paths { home: at("home"), state: at("state"), runtime: at("run"), boxes: at("boxes") }
    }

    #[tokio::test]
    async fn a_home_has_its_directory_and_leaves_none_behind() {
        let root = tempfile::tempdir().unwrap();
        let paths = paths(root.path());
        let instance = "0123456789abcdef0123456789abcdef";
        let claim = Claim::take(&paths, instance).await.unwrap();
        let dir = paths.boxes.join("01234567");
        let mut mark = open(&dir, OFlags::empty()).unwrap();
        assert_eq!(read(&mut mark), Some(Mark { instance: instance.into(), state: paths.state.clone() }));
        assert_eq!(flock(&mark, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        // one with a box in it stays, for the next
        std::fs::create_dir(dir.join("aaaaaaaa")).unwrap();
        claim.release();
        assert!(dir.join("aaaaaaaa").exists());
        let again = Claim::take(&paths, instance).await.unwrap();
        std::fs::remove_dir(dir.join("aaaaaaaa")).unwrap();
        again.release();
        assert!(!dir.exists());
    }

    #[tokio::test]
    async fn a_directory_of_a_living_home_and_a_planted_link_are_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let paths = paths(root.path());
        let dir = paths.boxes.join("01234567");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(paths.state.join("instance"), "0123456700").unwrap();
        let other = Mark { instance: "0123456700".into(), state: paths.state.clone() };
        std::fs::write(dir.join(OWNER), serde_json::to_vec(&other).unwrap()).unwrap();
        let error = Claim::take(&paths, "0123456711").await.unwrap_err();
        assert!(error.message.contains("belongs to the HMZ_HOME"), "{}", error.message);
        // that home is gone
        std::fs::remove_file(paths.state.join("instance")).unwrap();
        Claim::take(&paths, "0123456711").await.unwrap();

        let victim = root.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::fs::remove_file(dir.join(OWNER)).unwrap();
        std::os::unix::fs::symlink(&victim, dir.join(OWNER)).unwrap();
        assert!(Claim::take(&paths, "0123456711").await.is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
}
