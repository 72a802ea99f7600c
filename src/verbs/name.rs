//! Names as they are typed: `env box`, `env/box`, `runtime docker@gpubox`.

use hmz_api::{AnyResource, Error, RuntimeRef};
use hmz_manifest::nearest;

/// The kind a word means.
///
/// # Errors
/// When it means none.
pub fn kind(word: &str) -> Result<&'static str, Error> {
    AnyResource::kind_of_word(word).ok_or_else(|| {
        let near =
            nearest(word, ["env", "envs", "environment", "environments", "flow", "flows", "run", "runs", "runtime", "runtimes"]);
        let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        Error::usage(format!("'{word}' is not a kind{near}")).hint("the kinds are runs, environments (envs), runtimes and flows")
    })
}

/// A name within a kind, as it is stored. A runtime may be written in any of its three ways.
///
/// # Errors
/// When a runtime's name is none.
pub fn stored(kind: &str, name: &str) -> Result<String, Error> {
    if kind == "Runtime" { Ok(name.parse::<RuntimeRef>()?.resource_name()) } else { Ok(name.to_owned()) }
}

/// Kind and name of `env box` or `env/box`.
///
/// # Errors
/// When the kind is none or there is no name.
pub fn one(what: &str, name: Option<&str>) -> Result<(&'static str, String), Error> {
    let (word, name) = match (what.split_once('/'), name) {
        (None, Some(name)) => (what, name),
        (Some((word, name)), None) if !name.is_empty() => (word, name),
        (Some(_), Some(name)) => return Err(Error::usage(format!("'{what} {name}' names a resource twice"))),
        _ => return Err(Error::usage(format!("'{what}' names no resource")).hint("write it as kind/name, such as env/box")),
    };
    let kind = kind(word)?;
    Ok((kind, stored(kind, name)?))
}

/// Kind and name of what a manifest declares.
///
/// # Errors
/// A name is made of its generateName at each apply: it names none that is there.
pub fn declared(resource: &AnyResource) -> Result<(&'static str, String), Error> {
    let (kind, metadata) = (resource.kind(), resource.metadata());
    if metadata.name.is_empty() {
        let prefix = metadata.generate_name.as_deref().unwrap_or_default();
        return Err(Error::usage(format!("{}? has a generateName: which one is meant?", shown(kind, prefix)))
            .hint("what hmz apply -o name printed"));
    }
    Ok((kind, metadata.name.clone()))
}

/// The name of a set in `set team` or `set/team`; a set is no resource.
pub fn set(what: &str, name: Option<&str>) -> Option<String> {
    match (what.split_once('/'), name) {
        (Some(("set" | "sets", name)), None) if !name.is_empty() => Some(name.to_owned()),
        (None, Some(name)) if is_set(what) => Some(name.to_owned()),
        _ => None,
    }
}

/// Whether a word means sets.
pub fn is_set(word: &str) -> bool {
    matches!(word, "set" | "sets")
}

/// The name of a resource of a known kind, typed with or without the kind.
///
/// # Errors
/// When another kind was typed.
pub fn of_kind(wanted: &str, typed: &str) -> Result<String, Error> {
    match typed.split_once('/') {
        None => Ok(typed.to_owned()),
        Some((word, name)) if kind(word)? == wanted => Ok(name.to_owned()),
        Some((word, _)) => {
            let (is, wants) = (kind(word)?.to_ascii_lowercase(), wanted.to_ascii_lowercase());
            let an = |word: &str| if word.starts_with('e') { "an" } else { "a" };
            Err(Error::usage(format!("'{typed}' is {} {is} and not {} {wants}", an(&is), an(&wants))))
        }
    }
}

/// `env/box`, as `-o name` and messages print it.
pub fn shown(kind: &str, name: &str) -> String {
    format!("{}/{name}", crate::output::table::kind_word(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_is_said_to_be_that() {
        let said = |wanted, typed| of_kind(wanted, typed).map_err(|e| e.message);
        assert_eq!(said("Environment", "env/box"), Ok("box".into()));
        assert_eq!(said("Environment", "run/a"), Err("'run/a' is a run and not an environment".into()));
        assert_eq!(said("Run", "env/a"), Err("'env/a' is an environment and not a run".into()));
        assert_eq!(said("Run", "pod/a"), Err("'pod' is not a kind".into()));
    }

    #[test]
    fn a_manifest_without_a_name_names_none() {
        let run = |metadata: &str| {
            let text = format!(r#"{{"apiVersion": "hmz/v1", "kind": "Run", "metadata": {metadata}, "spec": {{"flow": "x"}}}}"#);
            declared(&serde_json::from_str(&text).unwrap()).map_err(|e| e.message)
        };
        assert_eq!(run(r#"{"name": "a"}"#), Ok(("Run", "a".into())));
        assert_eq!(run(r#"{"generateName": "a-"}"#), Err("run/a-? has a generateName: which one is meant?".into()));
    }

    #[test]
    fn a_slip_in_a_kind_is_met_with_the_kind() {
        for (word, near) in [("evn", "env"), ("evns", "envs"), ("rnus", "runs"), ("runtme", "runtime"), ("flwos", "flows")] {
            assert_eq!(kind(word).unwrap_err().message, format!("'{word}' is not a kind; did you mean '{near}'?"));
        }
        assert_eq!(kind("thing").unwrap_err().message, "'thing' is not a kind");
    }
}
