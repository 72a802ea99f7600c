//! Finding programs, and where a path really leads.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// The first executable file of this name on `path` (a PATH), absolute and as it was found there.
pub(crate) fn find(name: &str, path: &str) -> Option<PathBuf> {
    // an empty or relative element means the current directory, where whatever a project holds would be run
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

/// Whether it is a file somebody may execute.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Where an absolute path leads with every symbolic link followed, though its last parts need not exist yet.
/// `None` when it is not absolute, cannot be followed, or a part that does not exist is left by `..`.
pub(crate) fn resolve(path: &Path) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    let mut missing: Vec<OsString> = Vec::new();
    let mut here = path.to_path_buf();
    loop {
        match here.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Some(real);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                // a link that leads nowhere would be followed by whoever creates the file
                if here.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
                    return None;
                }
                match here.components().next_back()? {
                    Component::Normal(name) => missing.push(name.to_owned()),
                    _ => return None,
                }
                here = here.parent()?.to_path_buf();
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_what_does_not_exist_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("in")).unwrap();
        symlink("/etc", root.join("in/out")).unwrap();
        symlink("/nowhere/at/all", root.join("in/dangling")).unwrap();
        assert_eq!(resolve(&root.join("in/new/file")), Some(root.join("in/new/file")));
        assert_eq!(resolve(&root.join("in/out/new")), Some("/etc/new".into()));
        assert_eq!(resolve(&root.join("in/../in/x")), Some(root.join("in/x")));
        assert_eq!(resolve(&root.join("in/dangling")), None);
        assert_eq!(resolve(&root.join("in/none/../../x")), None);
        assert_eq!(resolve(Path::new("in/x")), None);
    }

    #[test]
    fn a_relative_element_of_path_finds_nothing() {
        assert_eq!(find("sh", ".::/nonexistent"), None);
        assert!(find("sh", "/nonexistent:/bin").is_some());
    }
}
