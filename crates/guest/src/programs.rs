//! The box's PATH: the names on it, and the paths to try for a name.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The PATH of a box whose image sets none.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Most names told.
const MAX_NAMES: usize = 16_384;

/// What a directory was when its names were read: device, inode, and time of its last change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// One directory of PATH.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// It, as it was found there.
    open: Option<File>,
    stamp: Stamp,
}

impl Directory {
    fn of(path: PathBuf) -> Self {
        Self { path, open: None, stamp: None }
    }

    /// As it is now at its path.
    fn now(&self) -> Stamp {
        std::fs::metadata(&self.path).ok().map(|found| stamp(&found))
    }

    /// As it is now where it was found, which takes no look-up of its path.
    fn kept(&self) -> Stamp {
        match &self.open {
            Some(open) => open.metadata().ok().map(|found| stamp(&found)),
            None => self.now(),
        }
    }

    /// Takes down what is there now.
    fn keep(&mut self) {
        let path = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&self.path);
        self.open = path.ok();
        self.stamp = self.kept();
    }
}

fn stamp(found: &Metadata) -> (u64, u64, i64, i64) {
    (found.dev(), found.ino(), found.mtime(), found.mtime_nsec())
}

/// The programs on the box's PATH.
#[derive(Debug)]
pub(crate) struct Programs(Vec<Directory>);

impl Programs {
    /// Those of a PATH; `None` for a box that has none.
    pub(crate) fn of(path: Option<&[u8]>) -> Self {
        let path = path.unwrap_or(DEFAULT_PATH);
        let directories = path.split(|&b| b == b':').map(|part| PathBuf::from(std::ffi::OsString::from_vec(part.to_vec())));
        Self(directories.map(Directory::of).collect())
    }

    /// The names of what is no directory, sorted. What may not be executed is named too: then the kernel says so, and
    /// one that is made executable later is not missed.
    pub(crate) fn names(&mut self) -> Vec<String> {
        self.0.iter_mut().for_each(Directory::keep);
        let mut names = BTreeSet::new();
        for directory in self.0.iter().map(|d| &d.path).filter(|path| path.is_absolute()) {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if names.len() < MAX_NAMES
                    && entry.file_type().is_ok_and(|kind| !kind.is_dir())
                    && let Ok(name) = entry.file_name().into_string()
                {
                    names.insert(name);
                }
            }
        }
        names.into_iter().collect()
    }

    /// Whether a directory has other names than when they were read last.
    pub(crate) fn changed(&self) -> bool {
        self.0.iter().any(|directory| directory.kept() != directory.stamp)
    }

    /// Whether another directory has come in the place of one, which is rare, and takes longer to see.
    pub(crate) fn replaced(&self) -> bool {
        self.0.iter().any(|directory| directory.now() != directory.stamp)
    }

    /// The paths to try for a name, in order. An empty part of PATH is the command's own directory.
    pub(crate) fn candidates(&self, name: &[u8]) -> Vec<CString> {
        let path =
            |directory: &PathBuf| CString::new(directory.join(std::ffi::OsStr::from_bytes(name)).into_os_string().into_vec());
        self.0.iter().filter_map(|directory| path(&directory.path).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = format!("{}:/nowhere/at/all", directory.path().display());
        std::fs::create_dir(directory.path().join("sub")).expect("sub");
        std::fs::write(directory.path().join("tool"), "").expect("tool");
        let mut programs = Programs::of(Some(path.as_bytes()));
        assert_eq!(programs.names(), ["tool"]);
        assert!(!programs.changed());
        std::fs::write(directory.path().join("other"), "").expect("other");
        assert!(programs.changed());
        assert_eq!(programs.names(), ["other", "tool"]);
        assert!(!programs.changed() && !programs.replaced());
        let (here, away) = (directory.path().to_owned(), directory.path().with_extension("away"));
        std::fs::rename(&here, &away).expect("moved");
        std::fs::create_dir(&here).expect("another in its place");
        assert!(!programs.changed() && programs.replaced());
        assert_eq!(programs.names(), [""; 0]);
        assert!(!programs.changed() && !programs.replaced());
        std::fs::remove_dir_all(&away).expect("gone");
    }

    #[test]
    fn candidates_in_order() {
        let programs = Programs::of(Some(b"/a::/b"));
        let texts: Vec<_> = programs.candidates(b"x").into_iter().map(|p| p.into_string().expect("text")).collect();
        assert_eq!(texts, ["/a/x", "x", "/b/x"]);
        assert_eq!(Programs::of(None).candidates(b"sh").len(), 6);
    }
}
