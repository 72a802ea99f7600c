//! The second boxes of a run: a runtime may name another for the CLIs of the agents that work on it, and then each role on it
//! has a box there too. Which one that is, is known once the role's own share is held; it is a part of the gang. Pure.

use super::plan::{Observed, environment_name};
use super::refusal;
use crate::environment::{self, ROLE_LABEL, outcome};
use crate::placement::Place;
use crate::runtime;
use crate::target::{known_endpoint, undriven};
use hmz_api::condition::ConditionStatus::False;
use hmz_api::grammar::AgentSpec;
use hmz_api::kinds::condition::SCHEDULED;
use hmz_api::kinds::{
    BoxedAgent, Environment, EnvironmentSpec, FlowSpec, Harness, RestartPolicy, Run, Runtime, SecondBox, Served,
};
use hmz_api::{Backend, Resource, RuntimeRef};

/// The role of every second box, as its container's labels and refusals say it.
pub const ROLE: &str = "harness";

/// The name of the second box of an environment. No role's environment has one with a dot.
pub fn name_of(environment: &str) -> String {
    format!("{environment}.{ROLE}")
}

/// Why no second box can be had on a runtime, before anything is asked of its daemon; `local` is what that endpoint means to
/// whoever asked.
pub fn unusable(
    named: &RuntimeRef,
    found: Option<&Resource<Runtime>>,
    driven: &[Backend],
    local: Option<&str>,
    (agent, spec): (&str, &AgentSpec),
) -> Option<String> {
    if let Some(why) = undriven(named, driven.contains(&named.backend)) {
        return Some(why);
    }
    if named.backend != Backend::Docker {
        return Some(format!("{named} gives nobody a box for a harness; name a docker runtime"));
    }
    let Some(found) = found.filter(|r| !runtime::is_leaving(r)) else {
        return Some(format!("no {} runtime is saved as '{}'", named.backend, named.provider()));
    };
    if let Some(why) = runtime::unreadable(found) {
        return Some(why);
    }
    match known_endpoint(&found.spec, local) {
        Some(endpoint) if !endpoint.starts_with("unix://") => {
            Some(format!("{agent}={spec}: {}: a fence cannot hold a harness that runs on another machine", spec.class()))
        }
        _ => None,
    }
}

/// What is to be done about the second boxes, when every share of the roles' own is held.
#[derive(Debug, PartialEq)]
pub enum Due<'a> {
    /// These are to be made.
    Create(Vec<Resource<Environment>>),
    /// These are for another place than the roles have got.
    Delete(Vec<String>),
    /// One is on its way out.
    Wait,
    /// These are all; there may be none.
    Gang(Vec<&'a Resource<Environment>>),
}

/// Where a role is, or is about to be: the place, and the directory it works in.
fn place_of<'a>(env: &'a Resource<Environment>, seen: &'a Observed) -> Option<(&'a Place, Option<&'a String>)> {
    let (used, workdir) = match seen.walk.held.get(&env.metadata.name) {
        Some(held) => (&held.placed.runtime, held.placed.workdir.as_ref()),
        None if env.status.conditions.is_true(SCHEDULED) => {
            (env.status.used.as_ref()?, env.status.workdir.as_ref().or(env.spec.workdir.as_ref()))
        }
        None => return None,
    };
    let place = seen.places.get(&env.metadata.name)?.iter().find(|place| place.runtime == *used)?;
    Some((place, workdir.or(place.workdir.as_ref())))
}

/// The second box a role needs, as it is to be made; `None` when it needs none, or is nowhere yet.
fn wanted(run: &Resource<Run>, flow: &FlowSpec, role: &str, seen: &Observed) -> Option<Resource<Environment>> {
    let env = seen.owned.get(&environment_name(run.name(), role))?;
    let (place, workdir) = place_of(env, seen)?;
    let Harness::On(runtime) = env.status.harness.as_ref().unwrap_or(&place.spec.harness) else { return None };
    let mut agents: Vec<&String> = refusal::agents_of(run, flow, role).map(|(agent, _)| agent).collect();
    if agents.is_empty() {
        return None;
    }
    agents.sort();
    agents.dedup();
    let name = name_of(&env.metadata.name);
    let spec = EnvironmentSpec {
        runtime: runtime.clone(),
        workdir: workdir.cloned(),
        image: None,
        cpus: None,
        memory: None,
        gpus: None,
        gpu_memory: None,
        restart: RestartPolicy::Never,
        admission: None,
        wait_for: None,
    };
    let mut second = Resource::<Environment>::new(name, spec);
    second.metadata.labels.insert(ROLE_LABEL.into(), ROLE.into());
    second.metadata.finalizers.push(environment::FINALIZER.into());
    second.metadata.owner_references.clone_from(&env.metadata.owner_references);
    second.metadata.generation = 1;
    second.status.incarnation = 1;
    second.status.used = Some(runtime.clone());
    second.status.serves = Some(Served { environment: env.metadata.name.clone(), runtime: place.runtime.clone() });
    second.status.agents = agents.into_iter().filter_map(|agent| seen.boxed.get(agent).cloned()).collect::<Vec<BoxedAgent>>();
    let saved = seen.runtimes.get(runtime).and_then(Option::as_ref);
    second.status.endpoint = saved.and_then(|r| known_endpoint(&r.spec, seen.caller.docker_endpoint.as_deref()));
    outcome::set(&mut second, SCHEDULED, False, "Pending", "", seen.now);
    Some(second)
}

/// What is to be done about them.
pub fn due<'a>(run: &Resource<Run>, flow: &FlowSpec, seen: &'a Observed) -> Due<'a> {
    let (mut missing, mut stray, mut gang, mut leaves) = (Vec::new(), Vec::new(), Vec::new(), false);
    for role in flow.environments.keys() {
        let name = name_of(&environment_name(run.name(), role));
        let is = |there: &Resource<Environment>, wanted: &Resource<Environment>| {
            there.spec == wanted.spec && there.status.serves == wanted.status.serves
        };
        match (seen.owned.get(&name), wanted(run, flow, role, seen)) {
            (None, None) => {}
            (None, Some(wanted)) => missing.push(wanted),
            (Some(there), _) if there.metadata.is_deleting() => leaves = true,
            (Some(there), Some(wanted)) if is(there, &wanted) || there.status.conditions.is_true(SCHEDULED) => gang.push(there),
            (Some(_), _) => stray.push(name),
        }
    }
    match (stray.is_empty(), leaves, missing.is_empty()) {
        (false, ..) => Due::Delete(stray),
        (true, true, _) => Due::Wait,
        (true, false, false) => Due::Create(missing),
        (true, false, true) => Due::Gang(gang),
    }
}

/// The second boxes there are, each with its role.
pub fn there<'a>(run: &Resource<Run>, seen: &'a Observed) -> Vec<(String, &'a Resource<Environment>)> {
    let of = |role: &String| Some((role.clone(), seen.owned.get(&name_of(&environment_name(run.name(), role)))?));
    run.spec.environments.keys().filter_map(of).collect()
}

/// As a role's status tells it.
pub fn told(second: &Resource<Environment>) -> SecondBox {
    SecondBox { environment: second.metadata.name.clone(), runtime: second.spec.runtime.clone() }
}

/// What is said when the second box of a role has no room: of its first agent, as of every harness that cannot be had.
pub fn no_room(run: &Resource<Run>, flow: &FlowSpec, seconds: &[&Resource<Environment>], why: &str) -> String {
    let served = seconds.iter().find_map(|second| second.status.serves.as_ref().map(|served| (served, &second.spec.runtime)));
    let Some((served, runtime)) = served else { return why.to_owned() };
    let role = run.spec.environments.keys().find(|role| environment_name(run.name(), role) == served.environment);
    let agent = role.and_then(|role| refusal::agents_of(run, flow, role).next());
    let Some((_, spec)) = agent else { return why.to_owned() };
    outcome::harness_cannot_run(&served.runtime.at(), &spec.cli, &Harness::On(runtime.clone()), why)
}
