//! Which daemon: a runtime as saved, and the address it was resolved to when something was started on it.

use hmz_api::RuntimeRef;
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_drivers::Target;
use hmz_manifest::nearest;

/// What is saved, for whoever named something else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// The path of settings.yaml; empty when nobody knows it.
    pub path: String,
    /// The runtimes that have a name.
    pub names: Vec<RuntimeRef>,
}

impl Saved {
    /// The first line of a hint that is pasted into settings.yaml: which file that is.
    pub fn heading(&self) -> String {
        format!("# in {}", if self.path.is_empty() { "settings.yaml" } else { &self.path })
    }

    /// The saved runtime of the same backend whose name is nearest to a name that is not saved.
    pub fn near(&self, runtime: &RuntimeRef) -> Option<&RuntimeRef> {
        let names = self.names.iter().filter(|saved| saved.backend == runtime.backend);
        let name = nearest(runtime.name.as_deref()?, names.clone().filter_map(|saved| saved.name.as_deref()))?;
        names.into_iter().find(|saved| saved.name.as_deref() == Some(name))
    }

    /// The entry to write so that a runtime is saved.
    pub fn entry(&self, runtime: &RuntimeRef) -> String {
        let (backend, name) = (runtime.backend, runtime.name.as_deref().unwrap_or("here"));
        format!("{}\nruntimes:\n  {backend}:\n    {name}:\n      endpoint: local\n      harness: local", self.heading())
    }
}

/// The target of a runtime. What was started on an address stays there, whatever the runtime says by now.
pub fn target(runtime: &RuntimeRef, spec: Option<&RuntimeSpec>, endpoint: Option<&str>) -> Target {
    let mut spec = spec.cloned().unwrap_or_default();
    let saved = (spec.endpoint != Endpoint::Local).then(|| spec.endpoint.to_string());
    if saved.is_some() && endpoint.is_some() && saved.as_deref() != endpoint {
        spec.endpoint = Endpoint::Local;
    }
    let local_endpoint = if spec.endpoint == Endpoint::Local { endpoint.map(str::to_owned) } else { None };
    Target { runtime: runtime.clone(), spec, local_endpoint }
}

/// Whether two targets are the same daemon, as far as names and addresses tell. `local` is the address it was resolved to,
/// which another runtime may have been saved with.
pub fn is_same_daemon(a: &Target, b: &Target) -> bool {
    let address = |target: &Target| known_endpoint(&target.spec, target.local_endpoint.as_deref());
    a.runtime == b.runtime || (a.runtime.backend == b.runtime.backend && address(a) == address(b))
}

/// The address of a runtime that needs nobody to resolve it, with what `local` means to whoever asked.
pub fn known_endpoint(spec: &RuntimeSpec, local: Option<&str>) -> Option<String> {
    match &spec.endpoint {
        Endpoint::Unix(path) => Some(format!("unix://{path}")),
        Endpoint::Local => local.map(str::to_owned),
        other => Some(other.to_string()),
    }
}

/// Why a runtime is not driven at all, in words.
pub fn undriven(runtime: &RuntimeRef, driven: bool) -> Option<String> {
    (!driven).then(|| format!("environments on {} are not supported yet; use docker or swarm", runtime.backend))
}

/// What a person is told when a runtime of that name is not there. `role` is the environment role, when there is one.
pub fn not_saved(runtime: &RuntimeRef, role: Option<&str>) -> String {
    let (backend, name) = (runtime.backend, runtime.name.as_deref().unwrap_or("local"));
    let place = role.map_or_else(|| format!("{backend}/x"), |role| format!("{role}={backend}/x"));
    format!(
        "no {backend} runtime is saved as '{name}'; save one on the runtimes page of /settings, or write {place} for {backend} on this machine"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Backend;

    #[test]
    fn the_nearest_name_is_one_of_the_same_backend() {
        let of = |backend, name: &str| RuntimeRef::named(backend, name);
        let names = vec![of(Backend::Swarm, "gpubxo"), of(Backend::Docker, "gpubox"), of(Backend::Docker, "here")];
        let saved = Saved { path: "/h/settings.yaml".into(), names };
        assert_eq!(saved.near(&of(Backend::Docker, "gpubxo")), Some(&of(Backend::Docker, "gpubox")));
        assert_eq!(saved.near(&of(Backend::Docker, "elsewhere")), None);
        assert_eq!(saved.near(&RuntimeRef::unsaved(Backend::Docker)), None);
        assert!(saved.entry(&of(Backend::Docker, "x")).starts_with("# in /h/settings.yaml\nruntimes:\n  docker:\n    x:\n"));
    }

    #[test]
    fn one_daemon_under_two_names_is_one() {
        let unix = |path: &str| RuntimeSpec { endpoint: Endpoint::Unix(path.into()), ..RuntimeSpec::default() };
        let saved = target(&RuntimeRef::named(Backend::Docker, "a"), Some(&unix("/a.sock")), None);
        let local = |at| target(&RuntimeRef::unsaved(Backend::Docker), None, at);
        assert!(is_same_daemon(&saved, &local(Some("unix:///a.sock"))));
        assert!(!is_same_daemon(&saved, &local(Some("unix:///b.sock"))));
        assert!(!is_same_daemon(&saved, &local(None)));
        let other = target(&RuntimeRef::named(Backend::Docker, "b"), Some(&unix("/a.sock")), None);
        assert!(is_same_daemon(&saved, &other));
        let swarm = target(&RuntimeRef::named(Backend::Swarm, "a"), Some(&unix("/a.sock")), None);
        assert!(!is_same_daemon(&saved, &swarm));
    }

    #[test]
    fn a_box_stays_on_the_address_it_was_started_on() {
        let here = RuntimeRef::named(Backend::Docker, "here");
        let unix = RuntimeSpec { endpoint: Endpoint::Unix("/b.sock".into()), ..RuntimeSpec::default() };
        let moved = target(&here, Some(&unix), Some("unix:///a.sock"));
        assert_eq!((moved.spec.endpoint, moved.local_endpoint.as_deref()), (Endpoint::Local, Some("unix:///a.sock")));
        let same = target(&here, Some(&unix), Some("unix:///b.sock"));
        assert_eq!((same.spec.endpoint, same.local_endpoint), (unix.endpoint, None));
        let local = target(&here, None, Some("unix:///a.sock"));
        assert_eq!(local.local_endpoint.as_deref(), Some("unix:///a.sock"));
    }
}
