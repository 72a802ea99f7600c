//! The hosts that ssh's configuration names: those of its `Host` lines and of the files it includes. Nothing else is read, no
//! key above all, and nothing is resolved: an imported host is its alias, which ssh itself resolves when it goes there.

use std::fs::{File, read_dir};
use std::io::{ErrorKind, Read, Result};
use std::path::{Component, Path, PathBuf};

/// As deep as ssh follows `Include`.
const DEEP: u32 = 16;
/// Largest file read, in bytes.
const MAX: u64 = 4 << 20;
/// The most files read: an include may name a folder with anything in it.
const FILES: u32 = 1024;

/// The hosts, in the order they are named, each once. Patterns are no hosts. `home` is what `~` is, and has the `.ssh` that
/// relative includes are in.
///
/// # Errors
/// When the file itself cannot be read; an included one that cannot is left out, as ssh does.
pub(super) fn hosts(config: &Path, home: &Path) -> Result<Vec<String>> {
    let mut found = Found { home, hosts: Vec::new(), files: 0 };
    let text = read(config)?;
    found.text(&text, 0);
    Ok(found.hosts)
}

struct Found<'a> {
    home: &'a Path,
    hosts: Vec<String>,
    files: u32,
}

impl Found<'_> {
    fn text(&mut self, text: &str, depth: u32) {
        for line in text.lines() {
            let Some((keyword, words)) = words(line) else { continue };
            if keyword.eq_ignore_ascii_case("host") {
                for word in words.into_iter().filter(|word| !word.is_empty() && !word.contains(['*', '?', '!'])) {
                    if !self.hosts.contains(&word) {
                        self.hosts.push(word);
                    }
                }
            } else if keyword.eq_ignore_ascii_case("include") && depth < DEEP {
                let included: Vec<PathBuf> = words.iter().flat_map(|word| globbed(&self.place(word))).collect();
                for path in included {
                    self.files += 1;
                    if self.files > FILES {
                        return;
                    }
                    if let Ok(text) = read(&path) {
                        self.text(&text, depth + 1);
                    }
                }
            }
        }
    }

    fn place(&self, word: &str) -> PathBuf {
        match word.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => self.home.join(".ssh").join(word),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    // a pipe or a device of that name would be waited for
    if !std::fs::metadata(path)?.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The keyword of a line and what follows it: words between spaces, or in double quotes. `None` for a line that says nothing
/// or has a quote without its end.
fn words(line: &str) -> Option<(&str, Vec<String>)> {
    let line = line.trim();
    let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    if keyword.is_empty() || keyword.starts_with('#') {
        return None;
    }
    let rest = rest.trim_start();
    let mut rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let mut words = Vec::new();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(inner) => inner.split_once('"')?,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Some((keyword, words))
}

/// The paths there are of a pattern, in order; a path without a wildcard is itself.
fn globbed(pattern: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for part in pattern.components() {
        let wild = match part {
            Component::Normal(name) => name.to_str().filter(|name| name.contains(['*', '?'])),
            _ => None,
        };
        paths = match wild {
            None => paths.into_iter().map(|path| path.join(part)).collect(),
            Some(wild) => {
                let mut found: Vec<PathBuf> = Vec::new();
                for path in paths {
                    let entries = read_dir(&path).into_iter().flatten().flatten();
                    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
                    // as a shell has it, a hidden file is named and not met
                    let names = names.filter(|name| wild.starts_with('.') || !name.starts_with('.'));
                    found.extend(names.filter(|name| matches(wild.as_bytes(), name.as_bytes())).map(|name| path.join(name)));
                }
                found.sort();
                found
            }
        };
    }
    paths
}

/// Whether a name is one of a pattern of `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // where the last star was, and the name when it was met
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, met)) => {
                    star = Some((at, met + 1));
                    (p, n) = (at + 1, met + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_every_host_line() {
        let home = tempfile::tempdir().unwrap();
        let ssh = home.path().join(".ssh");
        std::fs::create_dir_all(ssh.join("config.d/deep")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(ssh.join(name), text).unwrap();
        write(
            "config",
            "# Host commented\nInclude config.d/*.conf nowhere\nHOST web  \"my box\" *.lab !not gpu?1\n  HostName web.example\n\
             Host=eq\nMatch host m\nHost open \"quote\nHost web again # and not this\nInclude ~/more config\n",
        );
        write("config.d/b.conf", "Host b\n");
        write("config.d/a.conf", "Host a\r\nInclude config.d/deep/*\n");
        write("config.d/.hidden.conf", "Host hidden\n");
        write("config.d/c.txt", "Host c\n");
        write("config.d/deep/x", "Host deep\nIdentityFile ~/.ssh/id\n");
        std::fs::write(home.path().join("more"), "Host more\n").unwrap();
        let found = hosts(&ssh.join("config"), home.path()).unwrap();
        // a file that includes itself is met a bounded number of times
        assert_eq!(found, ["a", "deep", "b", "web", "my box", "eq", "again", "more"]);
        assert!(hosts(&ssh.join("none"), home.path()).is_err());
        assert!(hosts(&ssh, home.path()).is_err());
    }

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, is) in
            [("*", "", true), ("*.conf", "a.conf", true), ("a*b?c", "axxbyc", true), ("a*", "b", false), ("*a", "aab", false)]
        {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
    }
}
