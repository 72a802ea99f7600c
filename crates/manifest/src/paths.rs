//! What `-f` names: a file, the manifests of a directory, or standard input.

use crate::across::Across;
use crate::document::{Declared, read_declared};
use crate::place::Context;
use crate::report::{At, Report, into_error, lines, snippet};
use crate::tree::MAX_BYTES;
use hmz_api::{AnyResource, Error};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// How much of a directory is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Its own files.
    #[default]
    Alone,
    /// Those of the directories below it too, without links to directories.
    Whole,
}

/// Reads everything `-f` named, in order: a file by its path, a directory by its `*.yaml`, `*.yml` and `*.json` files
/// sorted by path, `-` by `stdin`. What of a directory begins with a dot is other programs' (`.gitlab-ci.yml`), and
/// `*.steps.yaml` is a `script` agent's: both are passed over. A relative path in a manifest begins in the manifest's folder, and in
/// the context's base for standard input; a relative path in `paths` begins in the context's base too.
///
/// # Errors
/// A usage error with every fault of every file, a resource that two of them declare among them, or that a path cannot be
/// read, or that there is no manifest.
pub fn read_paths(paths: &[PathBuf], depth: Depth, stdin: &mut dyn Read, context: &Context) -> Result<Vec<AnyResource>, Error> {
    let declared = read_paths_declared(paths, depth, stdin, context, false)?;
    Ok(declared.into_iter().map(|one| one.resource).collect())
}

/// As [`read_paths`], with what is written; none, when it `may_be_empty` and there is nothing in what was named.
///
/// # Errors
/// As there.
pub fn read_paths_declared(
    paths: &[PathBuf],
    depth: Depth,
    stdin: &mut dyn Read,
    context: &Context,
    may_be_empty: bool,
) -> Result<Vec<Declared>, Error> {
    let mut resources = Vec::new();
    let mut reports = Vec::new();
    let mut stdin = Some(stdin);
    let mut across = Across::default();
    let mut take = |text: String, origin: &str, context: &Context| match read_declared(&text, origin, context) {
        Ok(found) => {
            reports.extend(across.take(&found, &text, origin));
            resources.extend(found);
        }
        Err(found) => reports.extend(found),
    };
    for path in paths {
        if path.as_os_str() == "-" {
            let stdin = stdin.take().ok_or_else(|| Error::usage("-f - is given twice"))?;
            take(bounded(stdin, "-").map_err(Error::from)?, "-", context);
            continue;
        }
        let full = context.base.join(path);
        let metadata = std::fs::metadata(&full).map_err(|e| unreadable(path, e))?;
        let files = if metadata.is_dir() { manifests(path, &full, depth, may_be_empty)? } else { vec![(path.clone(), full)] };
        for (shown, full) in files {
            let shown = shown.to_string_lossy();
            let file = std::fs::File::open(&full).map_err(|e| unreadable(Path::new(&*shown), e))?;
            let base = full.parent().map_or_else(|| context.base.clone(), Path::to_path_buf);
            match bounded(file, &shown) {
                Ok(text) => take(text, &shown, &context.at(base)),
                Err(report) => return Err(report.into()),
            }
        }
    }
    if !reports.is_empty() {
        return Err(into_error(reports));
    }
    if resources.is_empty() && !may_be_empty {
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(Error::usage(format!("no resource in {}", names.join(", "))));
    }
    Ok(resources)
}

fn unreadable(path: &Path, e: std::io::Error) -> Error {
    Error::usage(format!("{}: {e}", path.display()))
}

/// The manifests of a directory, as they are shown and as they are opened; there may be none.
///
/// # Errors
/// It cannot be read.
pub fn manifests_of(shown: &Path, full: &Path, depth: Depth) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
    manifests(shown, full, depth, true)
}

/// The text of a manifest.
///
/// # Errors
/// It cannot be read, is too long, or is no text.
pub fn read_manifest(full: &Path, shown: &str) -> Result<String, Report> {
    let failed = |e: std::io::Error| Report::without_place(shown, e.to_string());
    bounded(std::fs::File::open(full).map_err(failed)?, shown)
}

fn manifests(shown: &Path, full: &Path, depth: Depth, may_be_empty: bool) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![(shown.to_owned(), full.to_owned())];
    while let Some((shown, full)) = folders.pop() {
        for entry in std::fs::read_dir(&full).map_err(|e| unreadable(&shown, e))? {
            let entry = entry.map_err(|e| unreadable(&shown, e))?;
            let (name, path) = (entry.file_name(), entry.path());
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let is_manifest = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json") && !is_steps(&path);
            // what is a directory by itself: a link may lead back up
            let is_folder = depth == Depth::Whole && entry.file_type().map_err(|e| unreadable(&shown, e))?.is_dir();
            if is_folder {
                folders.push((shown.join(name), path));
            } else if is_manifest && may_be_read(&path) {
                files.push((shown.join(name), path));
            }
        }
    }
    if files.is_empty() && !may_be_empty {
        let below = if depth == Depth::Whole { " or below it" } else { "" };
        return Err(Error::usage(format!("{}: no *.yaml, *.yml or *.json in this directory{below}", shown.display())));
    }
    files.sort();
    Ok(files)
}

/// Whether it is named as the steps of a `script` agent are, which lie beside the manifests that name them.
fn is_steps(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem.as_encoded_bytes().ends_with(b".steps"))
}

/// Whether a manifest of a directory is a file, for all that is known: one that cannot be looked at, or a link to nothing, is read
/// too, which says why it cannot be. What was left out without a word would be taken for not declared any more.
fn may_be_read(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        // an entry may have gone since it was listed
        Err(e) if e.kind() == ErrorKind::NotFound => path.symlink_metadata().is_ok(),
        Err(_) => true,
    }
}

/// A whole text, never more than a manifest may be.
pub(crate) fn bounded(source: impl Read, origin: &str) -> Result<String, Report> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    source.take(limit).read_to_end(&mut bytes).map_err(|e| Report::without_place(origin, e.to_string()))?;
    if bytes.len() > MAX_BYTES {
        return Err(Report::without_place(origin, format!("longer than {} MiB", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]).into_owned();
        let line = lines(&good).count().max(1) + usize::from(good.ends_with('\n'));
        let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let (text, at) = (String::from_utf8_lossy(e.as_bytes()), At { line, column });
        let byte = e.as_bytes().get(good.len()).copied().unwrap_or_default();
        Report {
            line,
            column,
            snippet: snippet(&text, at),
            ..Report::without_place(origin, format!("this is not UTF-8 text (the byte 0x{byte:02X}); save the file as UTF-8"))
        }
    })
}
