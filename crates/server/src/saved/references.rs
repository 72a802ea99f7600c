//! Who still names a runtime that was taken out of settings.yaml. Pure.

use hmz_api::kinds::{Endpoint, Harness, RuntimeSpec};
use hmz_api::{Backend, RuntimeRef};
use hmz_manifest::settings::Settings;

/// A sentence for each way in which readable entries name it.
pub(super) fn to(settings: &Settings, gone: &RuntimeRef) -> Vec<String> {
    let named = |test: &dyn Fn(&RuntimeRef, &RuntimeSpec) -> bool| -> Vec<String> {
        let read = settings.runtimes.iter().filter_map(|(runtime, entry)| Some((runtime, entry.as_ref().ok()?)));
        read.filter(|(runtime, spec)| test(runtime, spec)).map(|(runtime, _)| runtime.path()).collect()
    };
    let ssh = gone.backend == Backend::Ssh;
    let through = |spec: &RuntimeSpec| ssh && matches!(&spec.endpoint, Endpoint::Saved(name) if Some(name) == gone.name.as_ref());
    let by_node = |spec: &RuntimeSpec| ssh && spec.nodes.values().any(|way| Some(way) == gone.name.as_ref());
    let path = gone.path();
    let all = [
        (named(&|r, spec| r.backend == Backend::Docker && through(spec)), "reached docker through this host".to_owned()),
        (
            named(&|r, spec| r.backend == Backend::Swarm && (through(spec) || by_node(spec))),
            "reached a swarm through this host".to_owned(),
        ),
        (named(&|_, spec| spec.fallback.contains(gone)), format!("had {path} to fall back to")),
        (named(&|_, spec| spec.harness == Harness::On(gone.clone())), format!("had the harness on {path}")),
    ];
    all.into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, did)| format!("{} {did}; edit {}", names.join(", "), if names.len() == 1 { "it" } else { "them" }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_manifest::{Context, settings};

    #[test]
    fn everybody_who_names_it_is_told() {
        let text = "runtimes:\n  docker:\n    a: {endpoint: 'ssh:far'}\n    b: {endpoint: 'ssh:far', fallback: ['ssh:far']}\n    \
                    c: {harness: 'docker:b', fallback: ['docker:b']}\n  swarm:\n    s: {nodes: {w: far}}\n";
        let settings = settings::read(text, "s.yaml", &Context::new("/", None)).unwrap();
        let said = |name: &str| to(&settings, &name.parse().unwrap());
        assert_eq!(
            said("ssh:far"),
            [
                "docker/a, docker/b reached docker through this host; edit them",
                "swarm/s reached a swarm through this host; edit it",
                "docker/b had ssh/far to fall back to; edit it"
            ]
        );
        assert_eq!(
            said("docker:b"),
            ["docker/c had docker/b to fall back to; edit it", "docker/c had the harness on docker/b; edit it"]
        );
        assert_eq!(said("docker:far"), [] as [&str; 0]);
    }
}
