//! settings.yaml as a source of runtimes. It owns what it names.
//!
//! A file that cannot be read changes nothing: the last good state stays. An entry that cannot be read keeps its last good
//! spec and says so in a condition, and so is refused with the place to fix. An entry that is gone is removed once no
//! environment and no run needs it (until then it says for whom it stays, and takes nothing new); written again meanwhile, it is
//! as it was. The default of a backend that every machine is taken to have is always there; those of others come and go with
//! their daemons (`runtime`).

use crate::core::{Action, ReconcileError, Reconciler};
use crate::runtime;
use crate::world::{SettingsSnapshot, World};
use async_trait::async_trait;
use hmz_api::condition::ConditionStatus;
use hmz_api::kinds::condition::{SAVED, SETTINGS_VALID};
use hmz_api::kinds::{Runtime, RuntimeSource, RuntimeSpec};
use hmz_api::{Backend, Resource, RuntimeRef};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
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

/// What is to be done so that the runtimes are as settings.yaml says. `users` is who still needs a runtime, by its name. Pure.
pub fn plan(
    settings: &SettingsSnapshot,
    there: &[Resource<Runtime>],
    users: &BTreeMap<String, Vec<String>>,
    driven: &[Backend],
    now: Timestamp,
) -> Vec<Step> {
    let there: BTreeMap<&str, &Resource<Runtime>> = there.iter().map(|r| (r.name(), r)).collect();
    let mut steps = Vec::new();
    for backend in driven.iter().filter(|backend| backend.is_expected()) {
        let default = runtime::default_of(*backend);
        if !there.contains_key(default.name()) {
            steps.push(Step::Create(Box::new(default)));
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
        conditions.0.retain(|c| c.kind != SAVED);
        match entry {
            Ok(spec) => {
                runtime.spec = spec.clone();
                conditions.0.retain(|c| c.kind != SETTINGS_VALID);
            }
            Err(why) => {
                let why = unreadable(reference, why);
                conditions.set(SETTINGS_VALID, ConditionStatus::False, "Unreadable", why, generation, now);
            }
        }
        match before {
            None => steps.push(Step::Create(Box::new(runtime))),
            // one that is on its way out is made anew when it is gone
            Some(before) if before.metadata.is_deleting() || *before == runtime => {}
            Some(_) => steps.push(Step::Update(Box::new(runtime))),
        }
    }
    let named = named(settings);
    for (name, before) in there.into_iter().filter(|(_, runtime)| settings.settled && is_dropped(&named, runtime)) {
        let Some(users) = users.get(name).filter(|users| !users.is_empty()) else {
            steps.push(Step::Delete(name.to_owned()));
            continue;
        };
        let why = format!("settings.yaml does not name it any more; it goes when nothing is on it: {}", users.join(", "));
        let mut runtime = before.clone();
        let generation = runtime.metadata.generation;
        if runtime.status.conditions.set(SAVED, ConditionStatus::False, "InUse", why, generation, now) {
            steps.push(Step::Update(Box::new(runtime)));
        }
    }
    steps
}

/// The names of the runtimes that settings.yaml names.
fn named(settings: &SettingsSnapshot) -> BTreeSet<String> {
    settings.runtimes.iter().map(|(reference, _)| reference.resource_name()).collect()
}

/// Whether a runtime came from settings.yaml, which does not name it any more.
fn is_dropped(named: &BTreeSet<String>, runtime: &Resource<Runtime>) -> bool {
    runtime.status.source == RuntimeSource::Settings && !named.contains(runtime.name()) && !runtime.metadata.is_deleting()
}

fn unreadable(runtime: &RuntimeRef, why: &str) -> String {
    let (backend, name) = (runtime.backend, runtime.name.as_deref().unwrap_or_default());
    let what = backend.noun();
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
        let there = world.store.list::<Runtime>().await?;
        let driven: Vec<Backend> = world.drivers.keys().copied().collect();
        let mut users = BTreeMap::new();
        let named = named(&settings);
        for runtime in there.iter().filter(|runtime| is_dropped(&named, runtime)) {
            users.insert(runtime.name().to_owned(), runtime::users(&world.store, runtime.name()).await?);
        }
        for step in plan(&settings, &there, &users, &driven, world.clock.now()) {
            match step {
                Step::Create(runtime) => drop(world.store.create(*runtime).await?),
                Step::Update(runtime) => {
                    let status = runtime.status.clone();
                    let mut stored = world.store.update(*runtime).await?;
                    stored.status = status;
                    world.store.update_status(stored).await?;
                }
                Step::Delete(name) => drop(world.store.delete::<Runtime>(&name).await?),
            }
        }
        let waits = users.values().any(|users| !users.is_empty());
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
        let (docker, now) = ([Backend::Docker, Backend::Swarm], Timestamp::UNIX_EPOCH);
        let here = RuntimeRef::named(Backend::Docker, "here");
        let spec = RuntimeSpec { cpus: Some(Cpus::whole(4)), ..RuntimeSpec::default() };
        let runtimes = vec![(here.clone(), Ok(spec.clone()))];
        let mut settings = SettingsSnapshot { runtimes, settled: true, ..SettingsSnapshot::default() };
        let nobody = BTreeMap::new();
        let manifest = Resource::<Runtime>::new("docker:mine", RuntimeSpec::default());
        let steps = plan(&settings, std::slice::from_ref(&manifest), &nobody, &docker, now);
        assert_eq!(names(&steps), ["create docker Unsaved", "create docker:here Settings"]);
        let there = after(vec![manifest], steps);
        assert_eq!(plan(&settings, &there, &nobody, &docker, now), []);

        // a file that cannot be read changes nothing
        let broken = SettingsSnapshot { problem: Some("line 3".into()), ..SettingsSnapshot::default() };
        assert_eq!(plan(&broken, &there, &nobody, &docker, now), []);

        // an entry that cannot be read keeps what it was and says so
        settings.runtimes[0].1 = Err("cpus: not a number".into());
        let steps = plan(&settings, &there, &nobody, &docker, now);
        let [Step::Update(kept)] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!(kept.spec, spec);
        let why = runtime::unreadable(kept).unwrap();
        let says = "the docker host 'here' cannot be read; fix or remove it: runtimes.docker.here in settings.yaml";
        assert!(why.starts_with(says), "{why}");
        let there = after(there, steps);
        assert_eq!(plan(&settings, &there, &nobody, &docker, now), []);

        // and is well again when it can
        settings.runtimes[0].1 = Ok(spec);
        let steps = plan(&settings, &there, &nobody, &docker, now);
        let there = after(there, steps);
        assert!(there.iter().all(|r| runtime::unreadable(r).is_none()));

        // what it does not name any more goes; what a manifest made stays
        settings.runtimes.clear();
        assert_eq!(names(&plan(&settings, &there, &nobody, &docker, now)), ["delete docker:here"]);
        // but not while an editor may be in the middle of a save
        let unsettled = SettingsSnapshot { settled: false, ..settings.clone() };
        assert_eq!(plan(&unsettled, &there, &nobody, &docker, now), []);

        // one that is in use says so and stays, takes nothing new, and is as it was when it is named again
        let users = BTreeMap::from([("docker:here".to_owned(), vec!["env/box".to_owned()])]);
        let steps = plan(&settings, &there, &users, &docker, now);
        let [Step::Update(kept)] = steps.as_slice() else { panic!("{steps:?}") };
        let why = &kept.status.conditions.get(SAVED).unwrap().message;
        assert_eq!(why, "settings.yaml does not name it any more; it goes when nothing is on it: env/box");
        assert!(runtime::is_leaving(kept));
        let there = after(there, steps);
        assert_eq!(plan(&settings, &there, &users, &docker, now), []);
        assert_eq!(names(&plan(&settings, &there, &nobody, &docker, now)), ["delete docker:here"]);
        settings.runtimes = vec![(here, Ok(RuntimeSpec::default()))];
        let there = after(there.clone(), plan(&settings, &there, &users, &docker, now));
        assert!(!there.iter().any(runtime::is_leaving));
    }
}
