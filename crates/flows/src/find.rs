//! Where flows are: `./.hmz/flows/*.yaml`, `$HMZ_HOME/flows/*.yaml`, and the built-in ones. The nearest wins.

use hmz_api::kinds::FlowSpec;
use hmz_api::{AnyResource, Error};
use hmz_manifest::{Context, into_error, nearest, read};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The built-in flows.
const BUILTIN: &[(&str, &str)] = &[("boxed", include_str!("../../../manifests/flows/boxed.yaml"))];

/// Where a built-in flow comes from.
const BUILTIN_SOURCE: &str = "builtin";

/// Largest file of flows, in bytes.
const LARGEST: u64 = 1 << 20;

/// Most files looked at in one folder.
const MOST: usize = 1000;

/// A flow that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// What it is.
    pub spec: FlowSpec,
    /// `builtin`, or the path of its file.
    pub source: String,
}

/// All flows there are, and what could not be read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// By name; of two with the same name the nearest.
    pub flows: Vec<Found>,
    /// Files that could not be read, each with the reason.
    pub faults: Vec<Error>,
}

/// What was read of the folders, the nearest first.
#[derive(Default)]
struct Read {
    /// By name, each with how far it is; of two with the same name the nearest.
    flows: BTreeMap<String, (usize, Found)>,
    faults: Vec<Fault>,
}

/// A file that could not be read.
struct Fault {
    far: usize,
    /// Its name without its ending.
    stem: String,
    /// What it says, as far as that could be read.
    text: String,
    error: Error,
}

impl Fault {
    /// Whether it is where a flow of that name would be: by the file's name, or by what it says.
    fn may_be(&self, name: &str) -> bool {
        let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || "-._".contains(c));
        let says = |before: &str| self.text.match_indices(before).any(|(at, _)| is_end(&self.text[at + before.len()..]));
        self.stem == name || says(&format!("name: {name}")) || says(&format!("\"name\": \"{name}"))
    }
}

impl Read {
    /// The broken file that is nearer than the flow of this name, and may be the one that is meant.
    fn before(&self, name: &str) -> Option<&Fault> {
        let far = self.flows.get(name).map_or(usize::MAX, |(far, _)| *far);
        self.faults.iter().find(|fault| if fault.far == far { fault.stem == name } else { fault.far < far && fault.may_be(name) })
    }
}

/// The flow of this name; `cwd` is the caller's directory, `home` is HMZ_HOME. A file that is broken does not give way to one
/// that is farther.
///
/// # Errors
/// A refusal with a suggestion when there is none, and what is wrong with its file when that cannot be read.
pub fn find(name: &str, cwd: &Path, home: &Path) -> Result<Found, Error> {
    let read = look(cwd, home);
    if let Some(fault) = read.before(name) {
        return Err(fault.error.clone());
    }
    if let Some((_, found)) = read.flows.get(name) {
        return Ok(found.clone());
    }
    let names = read.flows.keys().map(String::as_str);
    let error = Error::refused(format!("there is no flow '{name}'"));
    let unread = read.faults.iter().map(|fault| format!("a file of flows is not read as it stands: {}", fault.error.message));
    let error = match nearest(name, names.clone()) {
        Some(near) => Error { message: format!("{}; did you mean '{near}'?", error.message), ..error }.hint(format!("-f {near}")),
        None => error.hint(format!("known flows: {}", names.collect::<Vec<_>>().join(", "))),
    };
    Err(unread.fold(error, Error::hint))
}

/// All flows of a caller in `cwd` whose HMZ_HOME is `home`, but for those that [`find`] would refuse.
pub fn list(cwd: &Path, home: &Path) -> Listing {
    let read = look(cwd, home);
    let flows = read.flows.iter().filter(|(name, _)| read.before(name).is_none()).map(|(_, (_, found))| found.clone()).collect();
    Listing { flows, faults: read.faults.into_iter().map(|fault| fault.error).collect() }
}

fn look(cwd: &Path, home: &Path) -> Read {
    let mut read = Read::default();
    let folders = [cwd.join(".hmz/flows"), home.join("flows")];
    for (far, folder) in folders.iter().enumerate() {
        for file in files(folder) {
            let said = text(&file);
            let found = said.as_ref().map_err(Clone::clone).and_then(|text| flows_of(text, &file.to_string_lossy(), folder));
            match found {
                Ok(found) => found.into_iter().for_each(|flow| keep(&mut read.flows, far, flow)),
                Err(error) => {
                    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    read.faults.push(Fault { far, stem, text: said.unwrap_or_default(), error });
                }
            }
        }
    }
    for (name, text) in BUILTIN {
        match flows_of(text, BUILTIN_SOURCE, Path::new("/")) {
            Ok(found) => found.into_iter().for_each(|flow| keep(&mut read.flows, folders.len(), flow)),
            Err(fault) => {
                let error = Error::new(hmz_api::ErrorKind::Internal, format!("{name}: {fault}"));
                read.faults.push(Fault { far: folders.len(), stem: String::new(), text: String::new(), error });
            }
        }
    }
    read
}

/// Keeps the first one of a name.
fn keep(flows: &mut BTreeMap<String, (usize, Found)>, far: usize, flow: Found) {
    flows.entry(flow.name.clone()).or_insert((far, flow));
}

/// The manifests of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST);
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml" || e == "yml"))
        .filter(|path| !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(['.', '_'])))
        .collect();
    files.sort();
    files
}

fn text(file: &Path) -> Result<String, Error> {
    let wrong = |what: &dyn std::fmt::Display| Error::usage(format!("{}: {what}", file.display()));
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|f| f.take(LARGEST + 1).read_to_string(&mut text)).map_err(|e| wrong(&e))?;
    if read as u64 > LARGEST {
        return Err(wrong(&"a file of flows is at most 1 MiB"));
    }
    Ok(text)
}

fn flows_of(text: &str, origin: &str, base: &Path) -> Result<Vec<Found>, Error> {
    let resources = read(text, origin, &Context::new(base, None)).map_err(into_error)?;
    let flows = resources.into_iter().filter_map(|resource| match resource {
        AnyResource::Flow(flow) => Some(Found { name: flow.metadata.name, spec: flow.spec, source: origin.to_owned() }),
        _ => None,
    });
    Ok(flows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (cwd, home) = (dir.path().join("project"), dir.path().join("home"));
        for folder in [cwd.join(".hmz/flows"), home.join("flows")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        (dir, cwd, home)
    }

    fn flow(name: &str, description: &str) -> String {
        format!(
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {name}}}\nspec:\n  description: {description}\n  \
             environments: {{box: {{}}}}\n  steps:\n    - exec: {{environment: box, command: ls}}\n"
        )
    }

    #[test]
    fn boxed_is_built_in() {
        let (_dir, cwd, home) = world();
        let found = find("boxed", &cwd, &home).unwrap();
        assert_eq!(found.source, "builtin");
        assert_eq!(found.spec.environments["box"].image.as_deref(), Some("python:3.12-slim"));
        assert_eq!(list(&cwd, &home).faults, []);
    }

    #[test]
    fn the_nearest_wins() {
        let (_dir, cwd, home) = world();
        std::fs::write(home.join("flows/a.yaml"), flow("boxed", "of the user's")).unwrap();
        assert_eq!(find("boxed", &cwd, &home).unwrap().spec.description.as_deref(), Some("of the user's"));
        std::fs::write(cwd.join(".hmz/flows/b.yml"), flow("boxed", "of the project's")).unwrap();
        let found = find("boxed", &cwd, &home).unwrap();
        assert_eq!(found.spec.description.as_deref(), Some("of the project's"));
        assert_eq!(found.source, cwd.join(".hmz/flows/b.yml").to_string_lossy());
    }

    #[test]
    fn an_unknown_name_is_refused_with_what_was_meant() {
        let (_dir, cwd, home) = world();
        let error = find("boxd", &cwd, &home).unwrap_err();
        assert_eq!(error.message, "there is no flow 'boxd'; did you mean 'boxed'?");
        assert_eq!(error.exit_code(), 2);
        let error = find("nothing-like-it", &cwd, &home).unwrap_err();
        assert_eq!(error.hints, ["known flows: boxed"]);
    }

    #[test]
    fn a_broken_file_hides_no_other() {
        let (_dir, cwd, home) = world();
        std::fs::write(
            cwd.join(".hmz/flows/mine.yaml"),
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: mine}\nspec: {stps: []}\n",
        )
        .unwrap();
        assert!(find("boxed", &cwd, &home).is_ok());
        assert_eq!(list(&cwd, &home).faults.len(), 1);
        let error = find("other", &cwd, &home).unwrap_err();
        assert!(error.message.contains("there is no flow 'other'") && error.hints[1].contains("mine.yaml:4"), "{error}");
        let error = find("mine", &cwd, &home).unwrap_err();
        assert!(error.message.contains("mine.yaml:4") && error.message.contains("stps"), "{error}");
    }

    #[test]
    fn a_broken_file_does_not_give_way_to_one_that_is_farther() {
        let (_dir, cwd, home) = world();
        let broken = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: boxed}\nspec: {stps: []}\n";
        // by its file's name, and by what it says
        for file in ["boxed.yaml", "mine.yml"] {
            let file = cwd.join(".hmz/flows").join(file);
            std::fs::write(&file, broken).unwrap();
            let error = find("boxed", &cwd, &home).unwrap_err();
            assert!(error.message.contains(":4:") && error.message.contains("'stps'"), "{error}");
            assert_eq!(list(&cwd, &home).flows, [], "it is not listed as what it is not");
            std::fs::remove_file(file).unwrap();
        }
        // one that is farther than a good one is nobody's business
        std::fs::write(home.join("flows/boxed.yaml"), broken).unwrap();
        assert!(find("boxed", &cwd, &home).is_err());
        std::fs::write(cwd.join(".hmz/flows/boxed.yaml"), flow("boxed", "of the project's")).unwrap();
        assert_eq!(find("boxed", &cwd, &home).unwrap().spec.description.as_deref(), Some("of the project's"));
        // nor one of another that begins so
        std::fs::write(cwd.join(".hmz/flows/boxed2.yaml"), broken.replace("boxed", "boxed-2")).unwrap();
        assert!(find("boxed", &cwd, &home).is_ok() && find("boxed-2", &cwd, &home).is_err());
    }
}
