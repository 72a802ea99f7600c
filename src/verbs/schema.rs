//! `hmz schema`: the JSON Schema of a kind, as an editor and a pipeline hold a file to it. What it prints is, byte for byte, the
//! file of that name in `schemas/`.

use crate::cli;
use crate::show;
use hmz_api::{AnyResource, Error};
use hmz_manifest::nearest;
use std::process::ExitCode;

/// What is offered where a name is typed.
pub const NAMES: [&str; 7] = ["env", "flow", "manifest", "run", "runtime", "settings", "steps"];

/// Of what a `script` agent reads, written by hand.
const STEPS: &str = include_str!("../../schemas/steps.json");

/// Runs it.
///
/// # Errors
/// When there is none of that name.
pub fn run(args: &cli::Schema) -> Result<ExitCode, Error> {
    show::print(&text(&args.what)?);
    Ok(ExitCode::SUCCESS)
}

/// The text of the one that a word means.
fn text(word: &str) -> Result<String, Error> {
    let file = file(word).ok_or_else(|| {
        let near = nearest(word, NAMES).map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        Error::usage(format!("there is no schema '{word}'{near}")).hint(format!("there are {}", NAMES.join(", ")))
    })?;
    let found = hmz_manifest::schema::files().into_iter().find(|(name, _)| *name == file);
    Ok(found.map_or_else(|| STEPS.to_owned(), |(_, text)| text))
}

/// The name of its file in `schemas/`.
pub fn file(word: &str) -> Option<String> {
    let word = word.strip_suffix(".json").unwrap_or(word);
    if let Some(kind) = AnyResource::kind_of_word(word) {
        return Some(format!("{}.json", kind.to_ascii_lowercase()));
    }
    let plain = if word == "settings.yaml" { "settings" } else { word };
    ["manifest", "settings", "steps"].contains(&plain).then(|| format!("{plain}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_file_is_printed_as_it_is() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let there: BTreeSet<String> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let named: BTreeSet<String> = NAMES.iter().map(|name| file(name).unwrap()).collect();
        assert_eq!(named, there, "a file that no name prints");
        for name in NAMES {
            let path = folder.join(file(name).unwrap());
            assert!(text(name).unwrap() == std::fs::read_to_string(&path).unwrap(), "{name} is not {}", path.display());
        }
        for (word, same) in [("envs", "env"), ("environment.json", "env"), ("runs", "run"), ("settings.yaml", "settings")] {
            assert_eq!(file(word), file(same), "{word}");
        }
    }

    #[test]
    fn a_slip_is_met_with_the_name() {
        let error = text("manifests").unwrap_err();
        assert_eq!(error.message, "there is no schema 'manifests'; did you mean 'manifest'?");
        assert_eq!(error.hints, ["there are env, flow, manifest, run, runtime, settings, steps"]);
    }
}
