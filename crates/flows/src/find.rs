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

/// The flow of this name; `cwd` is the caller's directory, `home` is HMZ_HOME.
///
/// # Errors
/// A refusal with a suggestion when there is none, and what is wrong with its file when that cannot be read.
pub fn find(name: &str, cwd: &Path, home: &Path) -> Result<Found, Error> {
    let Listing { flows, faults } = list(cwd, home);
    if let Some(found) = flows.iter().find(|flow| flow.name == name) {
        return Ok(found.clone());
    }
    // its own file may be the one that is broken
    if let Some(fault) = faults.iter().find(|fault| fault.message.contains(&format!("/{name}.y"))) {
        return Err(fault.clone());
    }
    let names = flows.iter().map(|flow| flow.name.as_str());
    let error = Error::refused(format!("there is no flow '{name}'"));
    let unread = faults.iter().map(|fault| format!("a file of flows is not read as it stands: {}", fault.message));
    let error = match nearest(name, names.clone()) {
        Some(near) => Error { message: format!("{}; did you mean '{near}'?", error.message), ..error }.hint(format!("-f {near}")),
        None => error.hint(format!("known flows: {}", names.collect::<Vec<_>>().join(", "))),
    };
    Err(unread.fold(error, Error::hint))
}

/// All flows of a caller in `cwd` whose HMZ_HOME is `home`.
pub fn list(cwd: &Path, home: &Path) -> Listing {
    let mut flows = BTreeMap::new();
    let mut faults = Vec::new();
    for folder in [cwd.join(".hmz/flows"), home.join("flows")] {
        for file in files(&folder) {
            match text(&file).and_then(|text| flows_of(&text, &file.to_string_lossy(), &folder)) {
                Ok(found) => found.into_iter().for_each(|flow| keep(&mut flows, flow)),
                Err(fault) => faults.push(fault),
            }
        }
    }
    for (name, text) in BUILTIN {
        match flows_of(text, BUILTIN_SOURCE, Path::new("/")) {
            Ok(found) => found.into_iter().for_each(|flow| keep(&mut flows, flow)),
            Err(fault) => faults.push(Error::new(hmz_api::ErrorKind::Internal, format!("{name}: {fault}"))),
        }
    }
    Listing { flows: flows.into_values().collect(), faults }
}

/// Keeps the first one of a name.
fn keep(flows: &mut BTreeMap<String, Found>, flow: Found) {
    flows.entry(flow.name.clone()).or_insert(flow);
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
}
