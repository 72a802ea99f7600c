//! settings.yaml as a source of runtimes. It owns what it names.
//!
//! A file that cannot be read changes nothing: the last good state stays. An entry that cannot be read keeps its last good
//! spec and says so in a condition, and so is refused with the place to fix. An entry that is gone is removed once no
//! environment needs it (the runtime's finalizer waits for that). The default with nothing saved is always there.

use crate::core::{Action, ReconcileError, Reconciler};
use crate::runtime::{self, plan::READABLE};
use crate::world::{SettingsSnapshot, World};
use async_trait::async_trait;
use hmz_api::condition::ConditionStatus;
use hmz_api::kinds::{Runtime, RuntimeSource, RuntimeSpec};
use hmz_api::{Backend, Resource, RuntimeRef};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The only key of this controller.
pub(crate) const KEY: &str = "settings.yaml";

/// How often it is looked whether a runtime that settings.yaml no longer names is still in use.
const IN_USE: Duration = Duration::from_secs(5);

/// One change of the runtimes.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A new one.
    Create(Box<Resource<Runtime>>),
    /// Another spec, source or condition.
    Update(Box<Resource<Runtime>>),
    /// It is gone.
    Delete(String),
}

/// What is to be done so that the runtimes are as settings.yaml says. Pure.
pub fn plan(settings: &SettingsSnapshot, there: &[Resource<Runtime>], driven: &[Backend], now: Timestamp) -> Vec<Step> {
    let there: BTreeMap<&str, &Resource<Runtime>> = there.iter().map(|r| (r.name(), r)).collect();
    let mut steps = Vec::new();
    for backend in driven {
        let name = RuntimeRef::unsaved(*backend).resource_name();
        if !there.contains_key(name.as_str()) {
            let mut runtime = Resource::<Runtime>::new(name, RuntimeSpec::default());
            runtime.status.source = RuntimeSource::Unsaved;
            steps.push(Step::Create(Box::new(runtime)));
        }
    }
    if settings.problem.is_some() {
        return steps;
    }
    for (reference, entry) in &settings.runtimes {
        let name = reference.resource_name();
        let before = there.get(name.as_str()).copied();
        let mut runtime = before.cloned().unwrap_or_else(|| Resource::new(name, RuntimeSpec::default()));
        runtime.status.source = RuntimeSource::Settings;
        let generation = runtime.metadata.generation.max(1);
        let conditions = &mut runtime.status.conditions;
        match entry {
            Ok(spec) => {
                runtime.spec = spec.clone();
                conditions.0.retain(|c| c.kind != READABLE);
            }
            Err(why) => {
                let why = unreadable(reference, why);
                conditions.set(READABLE, ConditionStatus::False, "Unreadable", why, generation, now);
            }
        }
        match before {
            None => steps.push(Step::Create(Box::new(runtime))),
            // one that is on its way out is made anew when it is gone
            Some(before) if before.metadata.is_deleting() || *before == runtime => {}
            Some(_) => steps.push(Step::Update(Box::new(runtime))),
        }
    }
    for (name, runtime) in there {
        let named = settings.runtimes.iter().any(|(reference, _)| reference.resource_name() == name);
        if runtime.status.source == RuntimeSource::Settings && !named && !runtime.metadata.is_deleting() {
            steps.push(Step::Delete(name.to_owned()));
        }
    }
    steps
}

fn unreadable(runtime: &RuntimeRef, why: &str) -> String {
    let (backend, name) = (runtime.backend, runtime.name.as_deref().unwrap_or_default());
    let what = match backend {
        Backend::Docker => "docker host",
        Backend::Swarm => "docker swarm",
        Backend::Ssh => "ssh host",
        Backend::AppleContainer => "apple-container host",
        Backend::Slurm => "Slurm cluster",
        Backend::Local => "runtime",
    };
    format!("the {what} '{name}' cannot be read; fix or remove it: runtimes.{backend}.{name} in settings.yaml ({why})")
}

/// The controller.
pub(crate) struct Settings(pub(crate) World);

#[async_trait]
impl Reconciler for Settings {
    fn name(&self) -> &'static str {
        "settings"
    }

    async fn reconcile(&self, _key: &str) -> Result<Action, ReconcileError> {
        let world = &self.0;
        let settings = world.settings.borrow().clone();
        if let Some(problem) = &settings.problem {
            tracing::warn!(%problem, "settings.yaml cannot be read; what it said before stays");
        }
        let mut waits = false;
        let there = world.store.list::<Runtime>().await?;
        let driven: Vec<Backend> = world.drivers.keys().copied().collect();
        for step in plan(&settings, &there, &driven, world.clock.now()) {
            match step {
                Step::Create(runtime) => drop(world.store.create(*runtime).await?),
                Step::Update(runtime) => {
                    let status = runtime.status.clone();
                    let mut stored = world.store.update(*runtime).await?;
                    stored.status = status;
                    world.store.update_status(stored).await?;
                }
                Step::Delete(name) if runtime::is_used(&world.store, &name).await? => waits = true,
                Step::Delete(name) => drop(world.store.delete::<Runtime>(&name).await?),
            }
        }
        Ok(if waits { Action::requeue(IN_USE) } else { Action::await_change() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Cpus;

    fn names(steps: &[Step]) -> Vec<String> {
        let name = |step: &Step| match step {
            Step::Create(r) => format!("create {} {:?}", r.name(), r.status.source),
            Step::Update(r) => format!("update {} {:?}", r.name(), r.status.source),
            Step::Delete(name) => format!("delete {name}"),
        };
        steps.iter().map(name).collect()
    }

    fn after(mut there: Vec<Resource<Runtime>>, steps: Vec<Step>) -> Vec<Resource<Runtime>> {
        for step in steps {
            match step {
                Step::Create(r) | Step::Update(r) => {
                    there.retain(|t| t.name() != r.name());
                    there.push(*r);
                }
                Step::Delete(name) => there.retain(|t| t.name() != name),
            }
        }
        there
    }

    #[test]
    fn runtimes_follow_the_file() {
        let (docker, now) = ([Backend::Docker], Timestamp::UNIX_EPOCH);
        let here = RuntimeRef::named(Backend::Docker, "here");
        let spec = RuntimeSpec { cpus: Some(Cpus::whole(4)), ..RuntimeSpec::default() };
        let mut settings = SettingsSnapshot { runtimes: vec![(here.clone(), Ok(spec.clone()))], ..SettingsSnapshot::default() };
        let manifest = Resource::<Runtime>::new("docker:mine", RuntimeSpec::default());
        let steps = plan(&settings, std::slice::from_ref(&manifest), &docker, now);
        assert_eq!(names(&steps), ["create docker Unsaved", "create docker:here Settings"]);
        let there = after(vec![manifest], steps);
        assert_eq!(plan(&settings, &there, &docker, now), []);

        // a file that cannot be read changes nothing
        let broken = SettingsSnapshot { problem: Some("line 3".into()), ..SettingsSnapshot::default() };
        assert_eq!(plan(&broken, &there, &docker, now), []);

        // an entry that cannot be read keeps what it was and says so
        settings.runtimes[0].1 = Err("cpus: not a number".into());
        let steps = plan(&settings, &there, &docker, now);
        let [Step::Update(kept)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!(kept.spec, spec);
        let why = runtime::unreadable(kept).unwrap();
        let says = "the docker host 'here' cannot be read; fix or remove it: runtimes.docker.here in settings.yaml";
        assert!(why.starts_with(says), "{why}");
        let there = after(there, steps);
        assert_eq!(plan(&settings, &there, &docker, now), []);

        // and is well again when it can
        settings.runtimes[0].1 = Ok(spec);
        let steps = plan(&settings, &there, &docker, now);
        let there = after(there, steps);
        assert!(there.iter().all(|r| runtime::unreadable(r).is_none()));

        // what it does not name any more goes; what a manifest made stays
        settings.runtimes.clear();
        assert_eq!(names(&plan(&settings, &there, &docker, now)), ["delete docker:here"]);
    }
}
