//! Removing a tree that somebody hostile has made: links are removed and not followed, directories that were closed are
//! opened, and neither depth nor breadth costs descriptors, stack or memory.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use uuid::Uuid;

/// How many names are held at once.
const BATCH: usize = 512;

/// Removes the directory with all below it. Whoever fills it has to have ended.
///
/// # Errors
/// When something in it is another user's, or the disk does not do it.
pub(crate) fn remove_tree(dir: &Path) -> std::io::Result<()> {
    let root = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let names = names(&root)?;
        if names.is_empty() {
            return std::fs::remove_dir(dir);
        }
        for name in names {
            if !is_removed(&root, &name)? {
                empty(&root, &name)?;
                is_removed(&root, &name)?;
            }
        }
    }
}

/// Some of the names in a directory.
fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(dir)?.filter_map(|entry| match entry {
        Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
        other => Some(other.map(|entry| entry.file_name().to_owned())),
    });
    entries.take(BATCH).collect()
}

/// Removes a file, a link or an empty directory; false for a directory with something in it.
fn is_removed(at: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e),
    }
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Moves what is in a directory up beside it when it is a directory itself, and removes it otherwise.
fn empty(root: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let handle = opened_up(root, name)?;
    let dir = openat(&handle, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let names = names(&dir)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if !is_removed(&dir, &name)? {
                // one that moves to another parent has to be writable itself
                opened_up(&dir, &name)?;
                renameat(&dir, &name, root, Uuid::new_v4().to_string())?;
            }
        }
    }
}

/// A handle of a directory, not of what a link of that name leads to, with all rights for its owner.
fn opened_up(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let handle = openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_tree_goes_whatever_it_is_made_of() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::fs::write(victim.join("file"), "precious").unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        for at in ["l", "a/l", "a/b/l", "a/b/c/l"] {
            symlink(&victim, tree.join(at)).unwrap();
            symlink(victim.join("file"), tree.join(at).with_extension("f")).unwrap();
        }
        for n in 0..2000 {
            std::fs::write(tree.join(format!("a/b/{n}")), "").unwrap();
        }
        for at in ["a/b/c", "a/b", "a"] {
            std::fs::set_permissions(tree.join(at), PermissionsExt::from_mode(0o000)).unwrap();
        }
        // deeper than a path is long, and than a process has descriptors
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = open(&tree, flags, Mode::empty()).unwrap();
        for _ in 0..2500 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(std::fs::read_to_string(victim.join("file")).unwrap(), "precious");
        assert_eq!(remove_tree(&tree).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        let link = dir.path().join("link");
        symlink(&victim, &link).unwrap();
        assert!(remove_tree(&link).is_err() && victim.join("file").exists());
    }
}
