//! The manifests of a source at one moment, and what they declare.

use super::Folders;
use hmz_api::{AnyResource, Error, Metadata};
use hmz_manifest::{Across, Context, Report, into_error, manifests_of, read_declared, read_manifest};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What was found at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The commit, or `sha256:` and the digest of what the files say.
    pub revision: String,
    /// The first line of the commit's message.
    pub subject: Option<String>,
    files: Vec<File>,
}

/// One manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    shown: String,
    /// Where its relative paths begin.
    base: PathBuf,
    text: Result<String, Report>,
}

/// What a revision declares.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Declaration {
    /// The revision.
    pub revision: String,
    /// The first line of the commit's message.
    #[serde(default)]
    pub subject: Option<String>,
    /// The resources.
    pub resources: Vec<AnyResource>,
    /// The spec of each as it is written.
    pub written: Vec<serde_json::Value>,
}

/// Where a snapshot is read.
pub(super) struct Place<'a> {
    /// The directory whose files are read.
    pub root: &'a Path,
    /// The same as it is named in what is declared: it is there for longer.
    pub named: &'a Path,
    /// What of it is read.
    pub folders: &'a Folders,
    /// Whether a link may lead out of it.
    pub is_closed: bool,
}

impl Snapshot {
    /// Reads the manifests there are.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn read(place: &Place<'_>, commit: Option<(String, Option<String>)>) -> Result<Self, Error> {
        let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
        let (here, paths) = ([PathBuf::from("")], place.folders.paths.as_slice());
        for path in if paths.is_empty() { &here[..] } else { paths } {
            let folder = place.root.join(path);
            let at = |e: std::io::Error| {
                let shown = if path.as_os_str().is_empty() { place.named } else { path.as_path() };
                Error::failed(format!("{}: {e}", shown.display()))
            };
            if !std::fs::metadata(&folder).map_err(at)?.is_dir() {
                return Err(Error::failed(format!("{}: this is not a directory", path.display())));
            }
            for (shown, full) in manifests_of(path, &folder, place.folders.depth)? {
                let base = place.named.join(shown.parent().unwrap_or(path));
                let shown = shown.display().to_string();
                // a folder may be below another that is named
                if !seen.insert(shown.clone()) {
                    continue;
                }
                let text = if place.is_closed && leads_out(&full, place.root) {
                    Err(Report::without_place(shown.clone(), "this is a link that leads out of the repository"))
                } else {
                    read_manifest(&full, &shown)
                };
                files.push(File { shown, base, text });
            }
        }
        let (revision, subject) = commit.unwrap_or_else(|| (digest(&files), None));
        Ok(Self { revision, subject, files })
    }

    /// What they declare, all of it or nothing.
    ///
    /// # Errors
    /// Every fault of every file, each with its place.
    pub fn declaration(&self, home: Option<&Path>) -> Result<Declaration, Error> {
        let mut declared =
            Declaration { revision: self.revision.clone(), subject: self.subject.clone(), ..Declaration::default() };
        let mut reports = Vec::new();
        let mut across = Across::default();
        for file in &self.files {
            let text = match &file.text {
                Ok(text) => text,
                Err(report) => {
                    reports.push(report.clone());
                    continue;
                }
            };
            let context = Context::new(&file.base, home.map(Path::to_path_buf));
            match read_declared(text, &file.shown, &context) {
                Err(found) => reports.extend(found),
                Ok(found) => {
                    reports.extend(across.take(&found, text, &file.shown));
                    for one in found {
                        let Metadata { name, generate_name, .. } = one.resource.metadata();
                        if name.is_empty() {
                            let kind = one.resource.kind();
                            let made = generate_name.clone().unwrap_or_default();
                            let message =
                                format!("{kind} '{made}?' has a generateName, and a set that is kept in step needs names");
                            reports.push(Report::without_place(file.shown.clone(), message));
                        }
                        declared.resources.push(one.resource);
                        declared.written.push(one.written);
                    }
                }
            }
        }
        if reports.is_empty() { Ok(declared) } else { Err(into_error(reports)) }
    }
}

/// Whether a file is not below `root` when its links are followed.
fn leads_out(file: &Path, root: &Path) -> bool {
    match (file.canonicalize(), root.canonicalize()) {
        (Ok(file), Ok(root)) => !file.starts_with(root),
        // it cannot be read either, which says why
        _ => false,
    }
}

fn digest(files: &[File]) -> String {
    let mut sum = Sha256::new();
    for file in files {
        let text = file.text.as_ref().map_or_else(ToString::to_string, Clone::clone);
        for part in [&file.shown, &text] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
    }
    format!("sha256:{}", &crate::paths::hex(&sum.finalize())[..40])
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_manifest::Depth;

    const BOX: &str = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: box}\nspec: {runtime: docker:here, workdir: .}\n";

    #[test]
    fn a_revision_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("envs")).unwrap();
        let folders = Folders { paths: vec![PathBuf::from("envs")], ..Folders::default() };
        let place = Place { root, named: Path::new("/named"), folders: &folders, is_closed: true };
        let read = || Snapshot::read(&place, None).unwrap();
        std::fs::write(root.join("envs/a.yaml"), BOX).unwrap();
        let first = read();
        let declared = first.declaration(None).unwrap();
        let spec = serde_json::to_value(&declared.resources).unwrap();
        assert_eq!(spec[0]["spec"]["workdir"], "/named/envs");
        assert_eq!(read(), first);
        // a second that is broken, one that is declared twice, and a link out
        std::fs::write(root.join("envs/b.yaml"), "apiVersion: hmz/v1\nkind: Environmnt\n").unwrap();
        std::fs::write(root.join("envs/c.yaml"), BOX).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("envs/d.yaml")).unwrap();
        assert_ne!(read().revision, first.revision);
        let said = read().declaration(None).unwrap_err().message;
        assert!(said.contains("envs/b.yaml:2:7: 'Environmnt' is not a kind, did you mean 'Environment'?"), "{said}");
        assert!(said.contains("envs/c.yaml:3:18: Environment 'box' is declared here and in envs/a.yaml"), "{said}");
        assert!(said.contains("envs/d.yaml: this is a link that leads out of the repository"), "{said}");
    }

    #[test]
    fn a_manifest_that_is_a_link_to_nothing_is_not_one_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let folders = Folders::default();
        let place = Place { root, named: Path::new("/named"), folders: &folders, is_closed: true };
        let read = || Snapshot::read(&place, None).unwrap();
        std::fs::write(root.join("a.yaml"), BOX.replace("box", "other")).unwrap();
        std::os::unix::fs::symlink("elsewhere/box.yaml", root.join("box.yaml")).unwrap();
        let first = read();
        let said = first.declaration(None).unwrap_err().message;
        assert_eq!(said, "box.yaml: No such file or directory (os error 2)");
        std::fs::create_dir(root.join("elsewhere")).unwrap();
        std::fs::write(root.join("elsewhere/box.yaml"), BOX).unwrap();
        assert_eq!(read().declaration(None).unwrap().resources.len(), 2);
        assert_ne!(read().revision, first.revision);
    }

    #[test]
    fn folders_below_are_read_where_that_is_meant_and_each_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (file, name) in [("a.yaml", "a"), ("envs/b.yaml", "b"), ("envs/deep/c.yaml", "c"), (".git/d.yaml", "d")] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), BOX.replace("name: box", &format!("name: {name}"))).unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("envs/up")).unwrap();
        let read = |paths: &[&str], depth| {
            let folders = Folders { paths: paths.iter().map(PathBuf::from).collect(), depth };
            let place = Place { root, named: Path::new("/named"), folders: &folders, is_closed: true };
            let declared = Snapshot::read(&place, None).unwrap().declaration(None).unwrap();
            let spec = serde_json::to_value(&declared.resources).unwrap();
            let each = spec.as_array().unwrap().iter();
            each.map(|one| format!("{} {}", one["metadata"]["name"], one["spec"]["workdir"]).replace('"', "")).collect::<Vec<_>>()
        };
        assert_eq!(read(&[], Depth::Alone), ["a /named"]);
        assert_eq!(read(&[], Depth::Whole), ["a /named", "b /named/envs", "c /named/envs/deep"]);
        assert_eq!(read(&["envs", "envs/deep"], Depth::Whole), ["b /named/envs", "c /named/envs/deep"]);
    }
}
