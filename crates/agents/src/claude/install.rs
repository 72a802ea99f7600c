//! Where claude is installed. Nothing is run: the version is read from the package, or from the file's own name.

use crate::Installed;
use crate::path::{find, is_executable};
use hmz_api::Error;
use hmz_api::launch::CallerContext;
use serde::Deserialize;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

const NOT_INSTALLED: &str = "claude is not installed here: npm i -g @anthropic-ai/claude-code";

/// Largest package.json read, in bytes.
const LARGEST_PACKAGE: u64 = 1 << 20;

/// Most helpers taken from an installation.
const MOST_HELPERS: usize = 64;

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Option<String>,
}

pub(super) fn check(caller: &CallerContext) -> Result<Installed, Error> {
    let path = caller.env.get("PATH").map(String::as_str).unwrap_or_default();
    let found = find("claude", path).ok_or_else(|| Error::refused(NOT_INSTALLED).hint("npm i -g @anthropic-ai/claude-code"))?;
    let program = found.canonicalize().map_err(|e| Error::refused(format!("claude at {}: {e}", found.display())))?;
    let mut executables = vec![program.clone()];
    if let Some(interpreter) = interpreter(&program, path) {
        match interpreter.file_name().and_then(|n| n.to_str()) {
            Some("node" | "nodejs" | "bun") => executables.push(interpreter),
            // whatever a wrapper starts would be taken for one of the agent's commands and land in the box
            _ => {
                return Err(Error::refused(format!("claude at {} is a script around the real one", found.display()))
                    .hint("put the directory of the real claude first on PATH"));
            }
        }
    }
    let mut directories = Vec::new();
    let mut version = None;
    if let Some((package, about)) = package_of(&program) {
        version = about.version;
        helpers(&package.join("vendor"), &mut executables);
        // the platform's own package lies beside it and holds the binary the first one links to
        if let Some(scope) = package.parent() {
            for entry in std::fs::read_dir(scope).into_iter().flatten().flatten().take(MOST_HELPERS) {
                let binary = entry.path().join("claude");
                if entry.file_name().to_string_lossy().starts_with("claude-code-") && is_executable(&binary) {
                    executables.push(binary);
                    directories.push(entry.path());
                }
            }
        }
        directories.push(package);
    } else if let Some(parent) = program.parent() {
        // the native installer keeps `versions/2.1.332`, one file a version
        version = program
            .file_name()
            .and_then(|n| n.to_str())
            .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            .map(str::to_owned);
        directories.push(if version.is_some() { program.clone() } else { parent.to_path_buf() });
    }
    Ok(Installed { program, directories, executables, version })
}

/// The package a file belongs to.
fn package_of(program: &Path) -> Option<(PathBuf, Package)> {
    program.ancestors().skip(1).take(4).find_map(|dir| {
        let file = File::open(dir.join("package.json")).ok()?;
        let package: Package = serde_json::from_reader(file.take(LARGEST_PACKAGE)).ok()?;
        package.name.starts_with("@anthropic-ai/claude-code").then(|| (dir.to_path_buf(), package))
    })
}

/// The interpreter a script names in its first line, as it is found; `None` for a binary.
fn interpreter(program: &Path, path: &str) -> Option<PathBuf> {
    let mut head = Vec::new();
    File::open(program).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = String::from_utf8_lossy(head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?).into_owned();
    let mut words = line.split_whitespace();
    let first = Path::new(words.next()?);
    let named = if first.file_name().is_some_and(|n| n == "env") {
        find(words.find(|w| !w.starts_with('-'))?, path)?
    } else {
        first.to_path_buf()
    };
    // the name a script asks for says what it is, whatever file that leads to
    Some(named)
}

/// Executables below an installation's folder of helpers, such as its own `rg`.
fn helpers(folder: &Path, executables: &mut Vec<PathBuf>) {
    let mut folders = vec![(folder.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < 4 {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && is_executable(&entry.path()) && executables.len() < MOST_HELPERS {
                executables.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn caller(path: &Path) -> CallerContext {
        CallerContext {
            env: [("PATH".to_owned(), format!("{}:/usr/bin:/bin", path.display()))].into(),
            ..CallerContext::default()
        }
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_missing_one_is_refused_with_the_line_that_installs_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut caller = caller(dir.path());
        caller.env.insert("PATH".into(), dir.path().display().to_string());
        let error = check(&caller).unwrap_err();
        assert_eq!(error.message, "claude is not installed here: npm i -g @anthropic-ai/claude-code");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_package_says_its_version_and_its_helpers() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let scope = root.join("node_modules/@anthropic-ai");
        write(&scope.join("claude-code/bin/claude.exe"), "\x7fELF");
        write(&scope.join("claude-code/vendor/ripgrep/x64-linux/rg"), "\x7fELF");
        write(&scope.join("claude-code-linux-x64/claude"), "\x7fELF");
        write(&scope.join("claude-code/package.json"), r#"{"name":"@anthropic-ai/claude-code","version":"2.1.332"}"#);
        std::fs::create_dir(root.join("bin")).unwrap();
        symlink("../node_modules/@anthropic-ai/claude-code/bin/claude.exe", root.join("bin/claude")).unwrap();
        let installed = check(&caller(&root.join("bin"))).unwrap();
        assert_eq!(installed.version.as_deref(), Some("2.1.332"));
        assert_eq!(installed.program, scope.join("claude-code/bin/claude.exe"));
        assert_eq!(
            installed.executables,
            [
                scope.join("claude-code/bin/claude.exe"),
                scope.join("claude-code/vendor/ripgrep/x64-linux/rg"),
                scope.join("claude-code-linux-x64/claude")
            ]
        );
        assert_eq!(installed.directories, [scope.join("claude-code-linux-x64"), scope.join("claude-code")]);
    }

    #[test]
    fn the_native_installers_file_is_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join("share/claude/versions/2.1.332"), "\x7fELF");
        std::fs::create_dir(root.join("bin")).unwrap();
        symlink("../share/claude/versions/2.1.332", root.join("bin/claude")).unwrap();
        let installed = check(&caller(&root.join("bin"))).unwrap();
        assert_eq!(installed.version.as_deref(), Some("2.1.332"));
        assert_eq!(installed.directories, [root.join("share/claude/versions/2.1.332")]);
    }

    #[test]
    fn a_shell_script_around_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("claude"), "#!/bin/sh\nexec /opt/claude \"$@\"\n");
        let error = check(&caller(dir.path())).unwrap_err();
        assert!(error.message.contains("is a script around the real one"), "{error}");
    }
}
