//! Which daemon: a runtime as saved, and the address it was resolved to when something was started on it.

use hmz_api::RuntimeRef;
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_drivers::Target;

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
    (!driven).then(|| format!("environments on {} are not supported yet; use docker", runtime.backend))
}

/// Why nothing can be started on a runtime like this yet, in words.
pub fn unsupported(runtime: &RuntimeRef, spec: &RuntimeSpec, driven: bool) -> Option<String> {
    if let Some(why) = undriven(runtime, driven) {
        return Some(why);
    }
    if matches!(spec.endpoint, Endpoint::Tcp { .. } | Endpoint::Ssh(_) | Endpoint::Saved(_)) {
        let at = runtime.at();
        return Some(format!("{at}: the endpoint {} is not supported yet; use local or unix:///PATH", spec.endpoint));
    }
    if spec.container.is_some() {
        return Some(format!("{}: a running container is not supported yet", runtime.at()));
    }
    if !spec.fallback.is_empty() {
        return Some(format!("{}: fallback is not supported yet", runtime.at()));
    }
    None
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
