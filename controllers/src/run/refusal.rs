//! What refuses a run before anything of it starts, in the words people know. Pure.

use super::plan::Observed;
use super::second;
use crate::environment::outcome;
use crate::placement::Place;
use crate::target::{Saved, not_saved, undriven};
use hmz_api::condition::ConditionStatus;
use hmz_api::grammar::{AgentSpec, EnvSpec};
use hmz_api::kinds::condition::COMPLETE;
use hmz_api::kinds::{EnvironmentRequest, FlowSpec, Harness, Run, Runtime, RuntimeSource, RuntimeSpec, Step};
use hmz_api::{Backend, Error, Resource, RuntimeRef, Span};
use hmz_manifest::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// Parts the sentence of a refusal from its hints in a condition's message.
const PART: &str = "\n\n";

/// What a run's environment roles are put on: each runtime, when there is one of that name.
pub type Runtimes = BTreeMap<RuntimeRef, Option<Resource<Runtime>>>;

/// As it stands in a condition: the sentence, then its hints.
pub fn message(error: &Error) -> String {
    std::iter::once(error.message.clone()).chain(error.hints.iter().cloned()).collect::<Vec<_>>().join(PART)
}

/// The error of a run that was refused, with its hints, as `hmz exec` says it; `None` for any other run.
pub fn of(run: &Resource<Run>) -> Option<Error> {
    let complete = run.status.conditions.get(COMPLETE)?;
    if complete.status != ConditionStatus::True || complete.reason != "Refused" {
        return None;
    }
    let mut parts = complete.message.split(PART).map(str::to_owned);
    let error = Error::refused(parts.next().unwrap_or_default());
    Some(parts.fold(error, Error::hint))
}

/// Whether the run is well formed: every role has somebody or some place, and each place can be had in principle.
///
/// # Errors
/// The refusal.
pub fn check(
    run: &Resource<Run>,
    flow: &FlowSpec,
    runtimes: &Runtimes,
    driven: &[Backend],
    saved: &Saved,
    local: Option<&str>,
) -> Result<(), Error> {
    let name = &run.spec.flow;
    let agent = |role: &str| run.spec.agents.get(role).map(ToString::to_string);
    roles(name, "agent role", "-a", flow.agents.keys(), run.spec.agents.keys(), agent)?;
    if let Some(missing) = missing(flow.agents.keys(), |role| run.spec.agents.contains_key(role)) {
        return Err(Error::refused(format!("{name} needs an agent for {missing}; specify each with -a ROLE=CLI/MODEL:EFFORT")));
    }
    let environment = |role: &str| match run.spec.environments.get(role) {
        Some(EnvironmentRequest::Text(spec)) => Some(spec.to_string()),
        _ => None,
    };
    roles(name, "environment role", "-e", flow.environments.keys(), run.spec.environments.keys(), environment)?;
    if let Some(missing) = missing(flow.environments.keys(), |role| run.spec.environments.contains_key(role)) {
        let how = "specify each with -e ROLE=BACKEND[@PROVIDER]/WORKDIR";
        return Err(Error::refused(format!("{name} needs an environment for {missing}; {how}")));
    }
    for (role, request) in &run.spec.environments {
        place(role, request, runtimes, driven, saved)?;
    }
    params(run, flow)?;
    for step in &flow.steps {
        if let Step::Turn { agent, environment, .. } = step {
            harness(run, (agent, environment), runtimes, driven, saved, local)?;
        }
    }
    Ok(())
}

/// The same refusal, with what is wrong with settings.yaml where that may be why: a runtime is missing, or one that settings.yaml
/// declares is as it was when the file could be read.
pub fn with_settings(mut error: Error, runtimes: &Runtimes, faults: &[String], is_broken: bool) -> Error {
    let missing = runtimes.values().any(Option::is_none);
    let stale = runtimes.values().flatten().any(|r| is_stale(r, is_broken));
    if faults.is_empty() || !(missing || stale) {
        return error;
    }
    if missing {
        // what to write there is no help while the file cannot be read
        error.hints.clear();
    }
    with_faults(error, faults)
}

/// Whether a runtime is as it was when settings.yaml, which declares it, could be read.
pub fn is_stale(runtime: &Resource<Runtime>, is_broken: bool) -> bool {
    is_broken && runtime.status.source == RuntimeSource::Settings
}

/// The same refusal, with these faults of settings.yaml.
pub fn with_faults(error: Error, faults: &[String]) -> Error {
    faults.iter().fold(error, |error, fault| error.hint(format!("settings.yaml is not read as it stands: {fault}")))
}

/// What is said behind the reason where somebody waited so long before.
pub fn waited(limit: Span) -> String {
    format!(" (it waited {limit})")
}

fn quoted<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(|w| format!("'{w}'")).collect::<Vec<_>>().join(", ")
}

fn missing<'a>(roles: impl Iterator<Item = &'a String>, has: impl Fn(&str) -> bool) -> Option<String> {
    Some(quoted(roles.filter(|role| !has(role)))).filter(|text| !text.is_empty())
}

/// `spec` is what stands after the `=` for a role, as it would be typed after `flag`.
fn roles<'a>(
    flow: &str,
    what: &str,
    flag: &str,
    known: impl Iterator<Item = &'a String> + Clone,
    given: impl Iterator<Item = &'a String>,
    spec: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    for role in given {
        if !known.clone().any(|k| k == role) {
            let names = quoted(known.clone());
            let available = if names.is_empty() { "there are none".into() } else { format!("available roles are {names}") };
            let error = Error::refused(format!("{flow} has no {what} '{role}'; {available}"));
            let near = nearest(role, known.map(String::as_str));
            let near = near.and_then(|near| Some(format!("{flag} {near}={}", spec(role)?)));
            return Err(near.into_iter().fold(error, Error::hint));
        }
    }
    Ok(())
}

/// The parameters are those the flow has, and those without a default are given.
fn params(run: &Resource<Run>, flow: &FlowSpec) -> Result<(), Error> {
    let (name, given) = (&run.spec.flow, &run.spec.params.own);
    let typed = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some((key, value)) = given.iter().find(|(key, _)| !flow.params.contains_key(*key)) {
        let known = quoted(flow.params.keys());
        let available = if known.is_empty() { "it has none".into() } else { format!("its parameters are {known}") };
        let error = Error::refused(format!("{name} has no parameter '{key}'; {available}"));
        // the budget is the run's own, and no flow's
        let near = nearest(key, flow.params.keys().map(String::as_str).chain(["budget.duration"]));
        return Err(near.map(|near| format!("-p {near}={}", typed(value))).into_iter().fold(error, Error::hint));
    }
    match flow.params.iter().find(|(key, param)| param.default.is_none() && !given.contains_key(*key)) {
        Some((key, _)) => {
            Err(Error::refused(format!("{name} needs a value for its parameter '{key}'; give it with -p {key}=VALUE")))
        }
        None => Ok(()),
    }
}

/// Whether one environment role can be put where it is put.
fn place(role: &str, request: &EnvironmentRequest, runtimes: &Runtimes, driven: &[Backend], names: &Saved) -> Result<(), Error> {
    let place = request.place();
    let item = match request {
        EnvironmentRequest::Text(spec) => format!("-e '{role}={spec}': "),
        EnvironmentRequest::Place(_) => format!("'{role}': "),
    };
    let refused = |why: String| Err(Error::refused(format!("{item}{why}")));
    let is_driven = driven.contains(&place.runtime.backend);
    let saved = runtimes.get(&place.runtime).and_then(Option::as_ref).filter(|r| !crate::runtime::is_leaving(r));
    if is_driven && saved.is_none() {
        let (backend, name) = (place.runtime.backend, place.runtime.name.as_deref());
        if backend == Backend::Swarm && name == Some("local") {
            return refused(format!("{backend} on this machine names no provider; write {role}={backend}/x"));
        }
        let near = names.near(&place.runtime).map(|near| match request {
            EnvironmentRequest::Text(spec) => format!("-e {role}={}", EnvSpec { runtime: near.clone(), ..spec.clone() }),
            EnvironmentRequest::Place(_) => format!("did you mean {}?", near.at()),
        });
        let hints = near.into_iter().chain([names.entry(&place.runtime)]);
        return refused(not_saved(&place.runtime, Some(role))).map_err(|error| hints.fold(error, Error::hint));
    }
    let spec = saved.map(|r| r.spec.clone()).unwrap_or_default();
    // one that has others to fall back to is passed over for that
    if let Some(why) = undriven(&place.runtime, is_driven).filter(|_| spec.fallback.is_empty()) {
        return refused(why);
    }
    if let Some(why) = saved.and_then(crate::runtime::unreadable) {
        return Err(Error::refused(why));
    }
    match place.workdir.as_deref().or(spec.workdir.as_deref()) {
        None => refused(
            "expected <role>=<backend>[@<provider>][/<workdir>]; /<workdir> may be left off only for a runtime saved with one"
                .into(),
        ),
        Some(dir) if dir.starts_with('/') || dir == "~" || dir.starts_with("~/") => Ok(()),
        Some(dir) => refused(format!("{dir} is neither absolute nor under ~")),
    }
}

/// Why an agent's CLI cannot run for work on a runtime, if that can be told before anything is asked of its daemon. `runtimes`
/// has the one that its harness setting names.
fn cannot_run(
    agent: (&str, &AgentSpec),
    runtime: &RuntimeRef,
    saved: &RuntimeSpec,
    runtimes: &Runtimes,
    driven: &[Backend],
    local: Option<&str>,
) -> Option<String> {
    // whether a box has the CLI is asked of the one that is made
    let Harness::On(named) = &saved.harness else { return None };
    let found = runtimes.get(named).and_then(Option::as_ref);
    let why = second::unusable(named, found, driven, local, agent)?;
    Some(outcome::harness_cannot_run(&runtime.at(), &agent.1.cli, &saved.harness, &why))
}

/// The agent roles that work in an environment role.
fn agents_in<'a>(flow: &'a FlowSpec, role: &str) -> impl Iterator<Item = &'a String> {
    flow.steps.iter().filter_map(move |step| match step {
        Step::Turn { agent, environment, .. } if environment == role => Some(agent),
        _ => None,
    })
}

/// Why no agent that works in a role could do so on that runtime, if so.
pub fn harness_on(
    run: &Resource<Run>,
    flow: &FlowSpec,
    role: &str,
    place: &Place,
    runtimes: &Runtimes,
    driven: &[Backend],
    local: Option<&str>,
) -> Option<String> {
    agents_of(run, flow, role)
        .find_map(|(agent, spec)| cannot_run((agent, spec), &place.runtime, &place.spec, runtimes, driven, local))
}

/// The agents whose CLIs run here when each environment is on the runtime that was named for it.
pub fn here(run: &Resource<Run>, flow: &FlowSpec, runtimes: &Runtimes) -> BTreeSet<String> {
    let is_local = |request: &EnvironmentRequest| {
        let saved = runtimes.get(&request.place().runtime).and_then(Option::as_ref);
        saved.is_some_and(|r| r.spec.harness == Harness::Local)
    };
    let roles = run.spec.environments.iter().filter(|(_, request)| is_local(request));
    roles.flat_map(|(role, _)| agents_in(flow, role).cloned()).collect()
}

/// The agents that work in a role, each with what was said of it.
pub fn agents_of<'a>(
    run: &'a Resource<Run>,
    flow: &'a FlowSpec,
    role: &str,
) -> impl Iterator<Item = (&'a String, &'a AgentSpec)> {
    agents_in(flow, role).filter_map(|agent| Some((agent, run.spec.agents.get(agent)?)))
}

/// Whether an agent can work in an environment.
fn harness(
    run: &Resource<Run>,
    (agent, environment): (&str, &str),
    runtimes: &Runtimes,
    driven: &[Backend],
    names: &Saved,
    local: Option<&str>,
) -> Result<(), Error> {
    let (Some(spec), Some(request)) = (run.spec.agents.get(agent), run.spec.environments.get(environment)) else {
        let what = format!("{}: a turn of '{agent}' in '{environment}' names a role the flow does not have", run.spec.flow);
        return Err(Error::refused(what));
    };
    let runtime = request.place().runtime;
    let saved = runtimes.get(&runtime).and_then(Option::as_ref).map(|r| r.spec.clone()).unwrap_or_default();
    match cannot_run((agent, spec), &runtime, &saved, runtimes, driven, local) {
        Some(text) => Err(hinted(Error::refused(text), environment, request, &saved, names)),
        None => Ok(()),
    }
}

/// The refusal of a role whose box, on the runtime `used`, cannot run the CLI of an agent.
pub fn to_local(run: &Resource<Run>, role: &str, used: Option<&RuntimeRef>, text: &str, seen: &Observed) -> Error {
    let error = Error::refused(text);
    let Some(request) = run.spec.environments.get(role) else { return error };
    let runtime = request.place().runtime;
    let saved = seen.runtimes.get(&runtime).and_then(Option::as_ref).map(|r| r.spec.clone()).unwrap_or_default();
    // what to write for a runtime that was fallen to is said by the sentence alone
    if used.is_some_and(|used| *used != runtime) { error } else { hinted(error, role, request, &saved, &seen.saved) }
}

/// With what makes the CLI run here.
fn hinted(error: Error, environment: &str, request: &EnvironmentRequest, saved: &RuntimeSpec, names: &Saved) -> Error {
    let place = request.place();
    let runtime = &place.runtime;
    let name = runtime.name.as_deref().unwrap_or("here");
    let workdir = place.workdir.as_deref().unwrap_or_default();
    let slash = if workdir.is_empty() || workdir.starts_with('/') { "" } else { "/" };
    let entry =
        format!("runtimes:\n  {0}:\n    {name}:\n      endpoint: {1}\n      harness: local", runtime.backend, saved.endpoint);
    let error = error.hint(format!("{}\n{entry}", names.heading()));
    if runtime.name.is_some() {
        return error;
    }
    error.hint(format!("-e {environment}={}@{name}{slash}{workdir}", runtime.backend))
}
