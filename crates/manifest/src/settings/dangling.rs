//! What entries of settings.yaml name that it does not save. It is no fault of the file: a manifest may declare it, or somebody will
//! save it later.

use super::Settings;
use hmz_api::kinds::{Endpoint, Harness, RuntimeSpec};
use hmz_api::{Backend, RuntimeRef};

impl Settings {
    /// A sentence for each runtime that a readable entry names and that is not saved, in the order of the entries.
    pub fn dangling(&self) -> Vec<String> {
        let read = self.runtimes.iter().filter_map(|(runtime, entry)| Some((runtime, entry.as_ref().ok()?)));
        let named = read.flat_map(|(runtime, spec)| named_by(spec).into_iter().map(move |(how, other)| (runtime, how, other)));
        let missing = named.filter(|(_, _, other)| !self.runtimes.iter().any(|(saved, _)| saved == other));
        missing.map(|(runtime, how, other)| format!("{} {how} {}, which is not saved", runtime.path(), other.path())).collect()
    }
}

/// The runtimes that an entry names, each with how.
fn named_by(spec: &RuntimeSpec) -> Vec<(&'static str, RuntimeRef)> {
    let mut named = Vec::new();
    if let Endpoint::Saved(host) = &spec.endpoint {
        named.push(("is reached through", RuntimeRef::named(Backend::Ssh, host)));
    }
    named.extend(spec.fallback.iter().map(|other| ("falls back to", other.clone())));
    if let Harness::On(other) = &spec.harness {
        named.push(("has the harness on", other.clone()));
    }
    // the default of a backend is there unsaved
    named.retain(|(_, other)| other.name.as_deref().is_some_and(|name| name != "local"));
    named
}

#[cfg(test)]
mod tests {
    use crate::{Context, settings};

    #[test]
    fn what_nobody_saved_is_told_once_for_each_who_names_it() {
        let text = "runtimes:\n  docker:\n    a: {endpoint: 'ssh:far', fallback: ['docker:b', 'docker:c', 'docker:local']}\n    b: {harness: \
                    'docker:c'}\n    wrong: {harness: 7, fallback: ['docker:d']}\n  ssh:\n    near: {host: near}\n";
        let settings = settings::read(text, "s.yaml", &Context::new("/", None)).unwrap();
        assert_eq!(
            settings.dangling(),
            [
                "docker/a is reached through ssh/far, which is not saved",
                "docker/a falls back to docker/c, which is not saved",
                "docker/b has the harness on docker/c, which is not saved"
            ]
        );
    }
}
