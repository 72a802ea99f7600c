//! Where the paths of a manifest begin.

use std::path::{Component, Path, PathBuf};

/// What relative paths and `~` mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The folder relative paths begin in: the manifest's own, or the caller's directory for standard input. Absolute.
    pub base: PathBuf,
    /// What `~` is; a manifest that says `~` is refused without it.
    pub home: Option<PathBuf>,
}

impl Context {
    /// A context.
    pub fn new(base: impl Into<PathBuf>, home: Option<PathBuf>) -> Self {
        Self { base: base.into(), home }
    }

    /// The same with another base.
    #[must_use]
    pub fn at(&self, base: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), home: self.home.clone() }
    }

    /// An absolute path without `.` and `..`, links not followed.
    pub(crate) fn absolute(&self, text: &str) -> Result<String, String> {
        if text.is_empty() {
            return Err("an empty path".into());
        }
        if text.contains(['\n', '\0']) {
            return Err("a path cannot hold a newline or a zero byte".into());
        }
        let path = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.as_deref().filter(|h| h.is_absolute());
                let home = home.ok_or_else(|| format!("'{text}' is under a home directory, and HOME is not set"))?;
                let inner = lexical(Path::new(rest.trim_start_matches('/')));
                let inner = inner.ok_or_else(|| format!("'{text}' climbs out of the home directory it is under"))?;
                home.join(inner)
            }
            _ => self.base.join(text),
        };
        if !path.is_absolute() {
            return Err(format!("'{text}' is relative, and so is what it is relative to"));
        }
        // above the root is the root, as the kernel has it
        let mut clean = PathBuf::from("/");
        for part in path.components() {
            match part {
                Component::ParentDir => {
                    clean.pop();
                }
                Component::Normal(name) => clean.push(name),
                _ => {}
            }
        }
        clean.into_os_string().into_string().map_err(|_| format!("'{text}' resolves to a path that is not UTF-8"))
    }
}

/// A relative path without `.` and `..`; `None` when it climbs above where it begins.
fn lexical(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir if !clean.pop() => return None,
            _ => {}
        }
    }
    Some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute() {
        let context = Context::new("/m/a", Some("/home/me".into()));
        for (text, path) in [
            ("/x/./y/../z", Ok("/x/z")),
            ("./p", Ok("/m/a/p")),
            ("p/q", Ok("/m/a/p/q")),
            (".", Ok("/m/a")),
            ("../../..", Ok("/")),
            ("~", Ok("/home/me")),
            ("~/p/../q", Ok("/home/me/q")),
            ("~other", Ok("/m/a/~other")),
            ("~/../x", Err("'~/../x' climbs out of the home directory it is under")),
            ("", Err("an empty path")),
        ] {
            assert_eq!(context.absolute(text).as_deref().map_err(String::as_str), path, "{text}");
        }
        let homeless = Context::new("/m", None);
        assert_eq!(homeless.absolute("~/x"), Err("'~/x' is under a home directory, and HOME is not set".into()));
    }
}
