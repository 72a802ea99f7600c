//! What `--sync` names: a directory, or a repository by any address that git takes.

use hmz_api::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where manifests come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A directory, which is watched. Absolute.
    Folder(PathBuf),
    /// A repository, which is fetched.
    Repository(String),
}

impl Source {
    /// Reads what was typed; a relative path begins in `cwd`.
    ///
    /// # Errors
    /// It is neither a directory that is there nor the address of a repository.
    pub fn read(text: &str, cwd: &Path) -> Result<Self, Error> {
        if is_address(text) {
            return Ok(Self::Repository(text.to_owned()));
        }
        let folder = cwd.join(text);
        let folder = folder.canonicalize().map_err(|e| {
            Error::usage(format!("--sync {text}: {e}"))
                .hint("a directory of manifests, or the address of a repository: https://…, ssh://…, git@host:path, file:///…")
        })?;
        if !folder.is_dir() {
            return Err(Error::usage(format!("--sync {text}: this is not a directory")));
        }
        // a bare repository has no files to watch
        if folder.join("HEAD").is_file() && folder.join("objects").is_dir() {
            return Ok(Self::Repository(format!("file://{}", folder.display())));
        }
        Ok(Self::Folder(folder))
    }

    /// A name for a set of what is there.
    pub fn set_name(&self) -> String {
        let whole = match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Repository(address) => address.trim_end_matches('/').trim_end_matches(".git").to_owned(),
        };
        let last = whole.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        let name: String = last
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
            .take(63)
            .collect();
        let name = name.trim_matches(['-', '.']);
        if name.is_empty() { "main".into() } else { name.to_owned() }
    }
}

/// As it is shown: a password or token in an address is not.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Repository(address) => f.write_str(&without_secret(address)),
        }
    }
}

/// An address without what stands between `//` and `@`, but for the name of an ssh user.
fn without_secret(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (host, path) = rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
    match host.rsplit_once('@') {
        Some((who, host)) if scheme.contains("ssh") && !who.contains(':') => format!("{scheme}://{who}@{host}{path}"),
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => address.to_owned(),
    }
}

/// Whether git would take it for an address and not for a path: `scheme://…`, or `[user@]host:path`.
fn is_address(text: &str) -> bool {
    text.contains("://") || text.split('/').next().is_some_and(|first| first.contains(':') && !first.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_by_its_look() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("My Team")).unwrap();
        std::fs::create_dir_all(root.join("bare.git/objects")).unwrap();
        std::fs::write(root.join("bare.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let here = root.display();
        for (text, shown, name) in [
            ("My Team", format!("{here}/My Team"), "my-team"),
            ("./My Team/../My Team", format!("{here}/My Team"), "my-team"),
            ("bare.git", format!("file://{here}/bare.git"), "bare"),
            ("https://me:tok@example.com/a/Fleet.git/", "https://example.com/a/Fleet.git/".into(), "fleet"),
            ("ssh://git@example.com:22/a/b", "ssh://git@example.com:22/a/b".into(), "b"),
            ("git@example.com:c.git", "git@example.com:c.git".into(), "c"),
            ("file:///", "file:///".into(), "main"),
        ] {
            let source = Source::read(text, &root).unwrap();
            assert_eq!((source.to_string(), source.set_name()), (shown, name.to_owned()), "{text}");
        }
        let said = Source::read("none", &root).unwrap_err();
        assert!(said.message.starts_with("--sync none: ") && said.exit_code() == 2, "{said:?}");
    }
}
