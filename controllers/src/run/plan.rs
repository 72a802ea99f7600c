//! What is to be done next about one run, from what is declared and what was seen. Pure.

use super::FINALIZER;
use super::refusal::{self, Runtimes};
use super::second::{self, Due};
use super::walk::{self, Next, Stage, Walk};
use crate::core::Action;
use crate::environment::address::{Carrier, address_of};
use crate::environment::plan::{admission_pause, is_down, key_of, remaining};
use crate::environment::{self, ROLE_LABEL, outcome};
use crate::placement::{Place, Placed};
use crate::target::{Saved, known_endpoint};
use crate::world::RunnerState;
use crate::{ABANDON, CANCEL};
use hmz_api::condition::ConditionStatus::{False, True};
use hmz_api::journal::Outcome;
use hmz_api::kinds::annotation::TRACE;
use hmz_api::kinds::condition::{
    ACCEPTED, COMPLETE, CREATED, ENVIRONMENTS_READY, FELL_BACK, IMAGE_READY, NO_HARNESS, READY, RUNNING, SCHEDULED,
};
use hmz_api::kinds::{
    Admission, BoxedAgent, Environment, EnvironmentSpec, FlowSpec, Harness, RestartPolicy, RoleStatus, Run, RunStatus,
    Step as FlowStep,
};
use hmz_api::launch::{BOXES_FILE, BoxAddress, CallerContext, RunLaunch, Told};
use hmz_api::link::Link;
use hmz_api::{Backend, Error, Kind, OwnerReference, Resource};
use hmz_drivers::{BoxKey, Target, Want};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a runner that was asked to end may take until it is killed.
pub const GRACE: Duration = Duration::from_secs(10);
/// How often a runner is looked at.
pub const FOLLOW: Duration = Duration::from_secs(1);
/// How often one that found no room asks again, besides when something on a daemon changed.
pub const ROOM_RETRY: Duration = Duration::from_secs(5);
/// Reason of `EnvironmentsReady` while there is no room.
pub const WAITING: &str = "Waiting";

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The random id of this HMZ_HOME.
    pub instance: String,
    /// What it knows of the ways to its boxes.
    pub carrier: Carrier,
    /// Backends that have a driver.
    pub driven: Vec<Backend>,
    /// The flow; looked up until the runner is at work.
    pub flow: Option<Result<FlowSpec, Error>>,
    /// Whether its agents could run at all, and its boxes be given the directories they ask for; asked until it is accepted.
    pub agents: Result<(), Error>,
    /// The runtimes its roles are put on.
    pub runtimes: Runtimes,
    /// The names there are, when one of them is missing.
    pub saved: Saved,
    /// What is wrong with settings.yaml, beside entries that are there: why a runtime may be missing.
    pub settings: Vec<String>,
    /// Whether the file cannot be read at all, so that each runtime it declares is as it was when it could be.
    pub settings_broken: bool,
    /// Where each of its environments may be put, in the order that is tried, by the environment's name.
    pub places: BTreeMap<String, Vec<Place>>,
    /// What was asked of them in this pass.
    pub walk: Walk,
    /// The environments it owns, by name.
    pub owned: BTreeMap<String, Resource<Environment>>,
    /// Names of its environments that belong to somebody else.
    pub taken: Vec<String>,
    /// Its runner, when there is one or one may be there.
    pub runner: Option<(String, RunnerState)>,
    /// Why boxes of it do not run any more, a sentence each; looked for once its runner says that it failed.
    pub lost: Vec<String>,
    /// What the verb passed along.
    pub caller: CallerContext,
    /// Agent role → what a box needs to run its CLI there, where it needs something.
    pub boxed: BTreeMap<String, BoxedAgent>,
}

/// What is to be written and then done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The status; written before the step, when it differs.
    pub status: RunStatus,
    /// The step.
    pub step: Step,
}

/// A part of a gang that is on one runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Where.
    pub target: Target,
    /// Environments' names, in the order of `wants`.
    pub names: Vec<String>,
    /// What each asks for.
    pub wants: Vec<Want>,
    /// The daemon's address; `None`: it is asked for it first.
    pub endpoint: Option<String>,
    /// What each is when its share is held.
    pub placed: Vec<Placed>,
    /// Whether some of them may go elsewhere when all of them together do not fit.
    pub may_part: bool,
}

/// One step. Each can be begun again.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, until then.
    Wait(Action),
    /// The status says more now; plan again.
    Again,
    /// Put the finalizer on.
    AddFinalizer,
    /// Make the environments that are not there yet.
    CreateEnvironments(Vec<Resource<Environment>>),
    /// Ask one daemon for the shares of what goes there, and note what it says.
    Admit(Box<Group>),
    /// Weigh what goes to one daemon, and note what it would say.
    Weigh(Box<Group>),
    /// Every share could be held: begin to ask for them.
    Weighed,
    /// Every share is held: write down where.
    Hold,
    /// One of them can be held nowhere: give the others' back. It is refused or waits, as it says.
    NoRoom {
        /// Why.
        message: String,
        /// Whether that may change.
        could_fit: bool,
        /// The environments that hold nothing now.
        names: Vec<String>,
    },
    /// Make the journal's directory.
    OpenEpic,
    /// Start the runner. Its boxes are up.
    Start(Box<RunLaunch>),
    /// Start the runner while its boxes start: each role's box, whose files are made first and say where its scratch is.
    Begin(Box<RunLaunch>, BTreeMap<String, BoxKey>),
    /// Tell the runner what became of its boxes, in this directory; look again after that.
    Tell(String, Box<Told>),
    /// Ask the runner to end, or end it; look again after that.
    EndRunner {
        /// Which.
        runner: String,
        /// Whether it had its time.
        kill: bool,
    },
    /// Ask for the deletion of environments.
    DeleteEnvironments(Vec<String>),
    /// Take the finalizer off.
    Release,
    /// Ask for its own deletion: its time after the end is over.
    DeleteSelf,
}

/// The name of a role's environment: `<run>-<role>`, in the letters of names.
pub fn environment_name(run: &str, role: &str) -> String {
    let role: String = role.chars().map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect();
    format!("{run}-{}", role.trim_matches('-'))
}

/// What is to be done.
pub fn plan(run: &Resource<Run>, seen: &Observed) -> Plan {
    let mut planned = run.clone();
    let step = step(&mut planned, seen);
    Plan { status: planned.status, step }
}

fn step(run: &mut Resource<Run>, seen: &Observed) -> Step {
    let held = run.metadata.finalizers.iter().any(|f| f == FINALIZER);
    if run.metadata.is_deleting() {
        return if held { going(run, seen) } else { Step::Wait(Action::await_change()) };
    }
    if run.status.is_complete() {
        return after(run, seen);
    }
    if !held {
        return Step::AddFinalizer;
    }
    if let Some(asked) = run.metadata.annotations.get(CANCEL).cloned() {
        // a time that cannot be read counts as long ago
        let asked = asked.parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH);
        return cancel(run, seen, asked);
    }
    if let Some((runner, state)) = &seen.runner {
        return follow(run, seen, runner, state);
    }
    prepare(run, seen)
}

/// It ended: how, why.
pub fn complete(run: &mut Resource<Run>, how: Outcome, message: &str, now: Timestamp) {
    let reason = how.reason();
    if how == Outcome::Refused && !run.status.conditions.is_true(ACCEPTED) {
        set(run, ACCEPTED, False, reason, message, now);
    }
    if run.status.conditions.is_true(RUNNING) {
        set(run, RUNNING, False, reason, "", now);
    }
    set(run, COMPLETE, True, reason, message, now);
    run.status.finished_at.get_or_insert(now);
}

fn set(run: &mut Resource<Run>, kind: &str, status: hmz_api::ConditionStatus, reason: &str, message: &str, now: Timestamp) {
    run.status.conditions.set(kind, status, reason, message, run.metadata.generation, now);
}

fn refuse(run: &mut Resource<Run>, error: &Error, now: Timestamp) -> Step {
    complete(run, Outcome::Refused, &refusal::message(error), now);
    Step::Again
}

/// It is to go: first its runner, then its environments, then itself.
fn going(run: &mut Resource<Run>, seen: &Observed) -> Step {
    let asked = run.metadata.deletion_timestamp.unwrap_or(seen.now);
    match &seen.runner {
        Some((runner, RunnerState::Alive)) => {
            let kill = remaining(asked, GRACE, seen.now).is_none();
            return Step::EndRunner { runner: runner.clone(), kill };
        }
        Some((_, state @ RunnerState::Ended(..))) if !run.status.is_complete() => ended(run, seen, state),
        _ if !run.status.is_complete() => complete(run, Outcome::Cancelled, "it was deleted", seen.now),
        _ => {}
    }
    match clean_up(seen) {
        Some(step) if !run.metadata.annotations.contains_key(ABANDON) => step,
        _ => Step::Release,
    }
}

/// It has ended: nothing of it stays but itself, for its time.
fn after(run: &Resource<Run>, seen: &Observed) -> Step {
    if let Some((runner, RunnerState::Alive)) = &seen.runner {
        // it waits for boxes that do not come: it ends by that, and so does its journal
        let why = run.status.conditions.get(COMPLETE).map(|c| (c.reason.clone(), c.message.clone())).unwrap_or_default();
        let outcome = if why.0 == Outcome::Refused.reason() { Outcome::Refused } else { Outcome::Failed };
        let down = Told::Down { outcome, message: why.1 };
        return match &run.status.epic {
            Some(epic) if !was_told(run, &down) => Step::Tell(epic.clone(), Box::new(down)),
            _ if remaining(run.status.finished_at.unwrap_or(seen.now), GRACE, seen.now).is_some() => {
                Step::Wait(Action::requeue(FOLLOW))
            }
            _ => Step::EndRunner { runner: runner.clone(), kill: true },
        };
    }
    if let Some(step) = clean_up(seen) {
        return step;
    }
    let (Some(ttl), Some(finished)) = (run.spec.ttl_after_finish, run.status.finished_at) else {
        return Step::Wait(Action::await_change());
    };
    match remaining(finished, ttl.duration(), seen.now) {
        Some(rest) => Step::Wait(Action::requeue(rest)),
        None => Step::DeleteSelf,
    }
}

/// The environments that are still there.
fn clean_up(seen: &Observed) -> Option<Step> {
    let left: Vec<String> = seen.owned.values().filter(|e| !e.metadata.is_deleting()).map(|e| e.metadata.name.clone()).collect();
    match (seen.owned.is_empty(), left.is_empty()) {
        (true, _) => None,
        (false, true) => Some(Step::Wait(Action::await_change())),
        (false, false) => Some(Step::DeleteEnvironments(left)),
    }
}

/// Somebody asked for its end.
fn cancel(run: &mut Resource<Run>, seen: &Observed, asked: Timestamp) -> Step {
    match &seen.runner {
        Some((runner, RunnerState::Alive)) => {
            Step::EndRunner { runner: runner.clone(), kill: remaining(asked, GRACE, seen.now).is_none() }
        }
        Some((_, RunnerState::Died)) => {
            complete(run, Outcome::Cancelled, "", seen.now); // it was asked to end and did
            Step::Again
        }
        Some((_, state)) => {
            ended(run, seen, state);
            Step::Again
        }
        None => {
            complete(run, Outcome::Cancelled, "it was cancelled before it started", seen.now);
            Step::Again
        }
    }
}

fn ended(run: &mut Resource<Run>, seen: &Observed, state: &RunnerState) {
    match state {
        RunnerState::Alive => {}
        RunnerState::Ended(Outcome::Failed, message) => {
            // the runner sees that a box is gone, and the daemon knows why
            let more = seen.lost.iter().filter(|why| !message.contains(why.as_str()));
            let parts: Vec<&str> = std::iter::once(message).chain(more).map(String::as_str).collect();
            complete(run, Outcome::Failed, &parts.join("; "), seen.now);
        }
        RunnerState::Ended(how, message) => complete(run, *how, message, seen.now),
        RunnerState::Died => complete(run, Outcome::Failed, "the run's runner died", seen.now),
    }
}

/// Its runner is there.
fn follow(run: &mut Resource<Run>, seen: &Observed, runner: &str, state: &RunnerState) -> Step {
    run.status.runner = Some(runner.to_owned());
    run.status.started_at.get_or_insert(seen.now);
    if *state == RunnerState::Alive && !run.status.conditions.is_true(ENVIRONMENTS_READY) {
        return begun(run, seen);
    }
    if *state == RunnerState::Alive {
        set(run, RUNNING, True, "Started", "", seen.now);
        return Step::Wait(Action::requeue(FOLLOW));
    }
    ended(run, seen, state);
    Step::Again
}

/// Its runner waits for its boxes.
fn begun(run: &mut Resource<Run>, seen: &Observed) -> Step {
    let Some(epic) = run.status.epic.clone() else { return Step::Wait(Action::requeue(FOLLOW)) };
    let mut boxes = BTreeMap::new();
    let mut gang = Vec::new();
    let mut down = None;
    for (role, of_role) in &run.status.environments {
        let name = of_role.environment.clone().unwrap_or_default();
        let Some(env) = seen.owned.get(&name) else {
            down = down.or(Some((Outcome::Failed, format!("environment '{name}' was deleted"))));
            continue;
        };
        down = down.or_else(|| failure(run, env, seen));
        gang.push(env);
        let address = address_of(env, &seen.carrier).filter(|_| env.status.conditions.is_true(READY));
        boxes.extend(address.map(|address| (role.clone(), address)));
    }
    if let Some((outcome, message)) = down {
        // it ends by that; one that was told so already has only not been seen to end
        let down = Told::Down { outcome, message };
        return if was_told(run, &down) { Step::Wait(Action::requeue(FOLLOW)) } else { Step::Tell(epic, Box::new(down)) };
    }
    if gang.iter().any(|e| !e.status.conditions.is_true(SCHEDULED)) {
        // it could not be started, and its share is given back: it is asked for again
        return admit(run, &gang, seen);
    }
    if boxes.len() < run.status.environments.len() {
        // its end is no event of an environment's
        return Step::Wait(Action::requeue(FOLLOW));
    }
    Step::Tell(epic, Box::new(Told::Up(boxes)))
}

/// Whether its runner was told that.
fn was_told(run: &Resource<Run>, down: &Told) -> bool {
    let Told::Down { outcome, message } = down else { return run.status.conditions.is_true(ENVIRONMENTS_READY) };
    let said = run.status.conditions.get(ENVIRONMENTS_READY);
    said.is_some_and(|c| c.status == False && c.reason == outcome.reason() && c.message == *message)
}

/// Its runner was told what became of its boxes.
pub fn told(run: &mut Resource<Run>, told: &Told, now: Timestamp) {
    match told {
        Told::Up(_) => set(run, ENVIRONMENTS_READY, True, "Ready", "", now),
        Told::Down { outcome, message } => set(run, ENVIRONMENTS_READY, False, outcome.reason(), message, now),
    }
}

/// It has not started yet.
fn prepare(run: &mut Resource<Run>, seen: &Observed) -> Step {
    let now = seen.now;
    let flow = match &seen.flow {
        Some(Ok(flow)) => flow,
        Some(Err(error)) => return refuse(run, error, now),
        None => return Step::Wait(Action::requeue(FOLLOW)),
    };
    if !run.status.conditions.is_true(ACCEPTED) {
        let checked = refusal::check(run, flow, &seen.runtimes, &seen.driven, &seen.saved, local(seen))
            .map_err(|error| refusal::with_settings(error, &seen.runtimes, &seen.settings, seen.settings_broken))
            .and_then(|()| seen.agents.clone());
        if let Err(error) = checked {
            return refuse(run, &error, now);
        }
        if let Some(name) = seen.taken.first() {
            let error = Error::refused(format!("environment '{name}' is there already and is not one of this run's"));
            return refuse(run, &error, now);
        }
        set(run, ACCEPTED, True, "Accepted", "", now);
    }
    let roles: Vec<String> = flow.environments.keys().cloned().collect();
    let mut missing = Vec::new();
    for role in &roles {
        let name = environment_name(run.name(), role);
        match (seen.owned.contains_key(&name), run.status.environments.get(role)) {
            (true, _) => {
                let used = seen.owned.get(&name).and_then(|e| e.status.used.clone());
                let used = used.or_else(|| run.spec.environments.get(role).map(|r| r.place().runtime));
                let scheduled = seen.owned.get(&name).and_then(|e| e.status.conditions.get(SCHEDULED));
                let fell_back = scheduled.filter(|c| c.reason == FELL_BACK).map(|c| c.message.clone());
                let harness = run.status.environments.remove(role).and_then(|status| status.harness);
                run.status.environments.insert(role.clone(), RoleStatus { environment: Some(name), used, fell_back, harness });
            }
            (false, Some(_)) => {
                complete(run, Outcome::Failed, &format!("environment '{name}' was deleted"), now);
                return Step::Again;
            }
            (false, None) => missing.extend(declare(run, flow, role, seen)),
        }
    }
    if !missing.is_empty() {
        return Step::CreateEnvironments(missing);
    }
    let gang: Vec<&Resource<Environment>> =
        roles.iter().filter_map(|role| seen.owned.get(&environment_name(run.name(), role))).collect();
    let seconds = match seconds(run, seen) {
        Ok(seconds) => seconds,
        Err(name) => {
            complete(run, Outcome::Failed, &format!("environment '{name}' was deleted"), now);
            return Step::Again;
        }
    };
    let all: Vec<&Resource<Environment>> = gang.iter().copied().chain(seconds.iter().map(|(_, second)| *second)).collect();
    if let Some((how, message)) = all.iter().find_map(|e| failure(run, e, seen)) {
        complete(run, how, &message, now);
        return Step::Again;
    }
    let is_held = |e: &&Resource<Environment>| e.status.conditions.is_true(SCHEDULED);
    if !all.iter().all(is_held) || !matches!(second::due(run, flow, seen), Due::Gang(_)) {
        return admit(run, &gang, seen);
    }
    let is = |e: &Resource<Environment>, kind: &str| e.status.conditions.is_true(kind);
    let late = all.iter().find(|e| !is(e, READY)).map(|e| e.name().to_owned());
    if let Some(waiting) = &late {
        set(run, ENVIRONMENTS_READY, False, "Starting", waiting, now);
        if !all.iter().all(|e| is(e, IMAGE_READY) && stays(e, seen)) {
            return Step::Wait(Action::await_change());
        }
    } else {
        set(run, ENVIRONMENTS_READY, True, "Ready", "", now);
    }
    let Some(epic) = run.status.epic.clone() else { return Step::OpenEpic };
    let file = format!("{epic}/{BOXES_FILE}");
    let address = |role: &String, env| if late.is_some() { expected(env, role, &file) } else { address_of(env, &seen.carrier) };
    let boxes = roles.iter().zip(&gang).filter_map(|(role, env)| Some((role.clone(), address(role, env)?))).collect();
    let launch = Box::new(RunLaunch {
        name: run.metadata.name.clone(),
        uid: run.metadata.uid.unwrap_or_default(),
        flow_name: run.spec.flow.clone(),
        flow: flow.clone(),
        task: run.spec.task.clone(),
        agents: run.spec.agents.clone(),
        envs: run.spec.environments.iter().map(|(role, request)| (role.clone(), request.as_given())).collect(),
        boxes,
        seconds: seconds.into_iter().filter_map(|(role, e)| Some((role, address_of(e, &seen.carrier)?))).collect(),
        harnesses: roles.iter().zip(&gang).map(|(role, e)| (role.clone(), harness_of(e, seen))).collect(),
        params: run.spec.params.clone(),
        epic,
        caller: seen.caller.clone(),
    });
    if late.is_none() {
        return Step::Start(launch);
    }
    let keys = roles.iter().zip(&gang).map(|(role, env)| (role.clone(), key_of(env, &seen.instance))).collect();
    Step::Begin(launch, keys)
}

/// The second boxes there are, noted in the statuses of their roles.
///
/// # Errors
/// The name of one that is gone and was held.
fn seconds<'a>(run: &mut Resource<Run>, seen: &'a Observed) -> Result<Vec<(String, &'a Resource<Environment>)>, String> {
    let there = second::there(run, seen);
    for (role, status) in &mut run.status.environments {
        let now = there.iter().find(|(of, _)| of == role).map(|(_, second)| second::told(second));
        let is_held = |name: &String| seen.owned.get(name).is_some_and(|e| e.status.conditions.is_true(SCHEDULED));
        if let (Some(before), None, true) = (&status.harness, &now, status.environment.as_ref().is_some_and(is_held)) {
            return Err(before.environment.clone());
        }
        status.harness = now;
    }
    // one that is for another place is on its way out before anything is held
    Ok(there.into_iter().filter(|(_, e)| !e.metadata.is_deleting() || e.status.conditions.is_true(SCHEDULED)).collect())
}

/// What endpoint `local` means to whoever asked.
fn local(seen: &Observed) -> Option<&str> {
    seen.caller.docker_endpoint.as_deref()
}

/// Whether its box starts here and nowhere else, so that what it will be is known before it runs.
fn stays(env: &Resource<Environment>, seen: &Observed) -> bool {
    // a swarm says where when it runs, and may find no place for it
    let is_placed = env.status.used.as_ref().is_some_and(|used| used.backend != Backend::Swarm);
    let here = is_placed && env.status.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("unix://"));
    // a CLI that lives in a box has nothing to begin before it
    let local = harness_of(env, seen) == Harness::Local;
    let places = seen.places.get(env.name());
    // one that runs already has its guest where its start says
    let own = places.and_then(|places| places.first()).is_none_or(|place| place.spec.container.is_none());
    here && local && own && env.status.workdir.is_some() && places.is_none_or(|places| places.len() < 2)
}

/// Where a box that is being started will be; its scratch is known when its files are made.
fn expected(env: &Resource<Environment>, role: &str, file: &str) -> Option<BoxAddress> {
    Some(BoxAddress {
        environment: env.metadata.name.clone(),
        used: env.status.used.as_ref()?.resource_name(),
        link: Link::Awaited { file: file.to_owned(), role: role.to_owned() },
        workdir: env.status.workdir.clone()?,
        scratch: String::new(),
    })
}

/// Where the CLIs of the agents that work in an environment run: where its box was made for, else where the runtime that
/// holds its share says.
fn harness_of(env: &Resource<Environment>, seen: &Observed) -> Harness {
    let places = seen.places.get(&env.metadata.name).into_iter().flatten();
    let place = places.into_iter().find(|place| Some(&place.runtime) == env.status.used.as_ref());
    env.status.harness.clone().or_else(|| place.map(|place| place.spec.harness.clone())).unwrap_or_default()
}

/// A role's environment, as it is to be made.
fn declare(run: &Resource<Run>, flow: &FlowSpec, role: &str, seen: &Observed) -> Option<Resource<Environment>> {
    let place = run.spec.environments.get(role)?.place();
    let asked = flow.environments.get(role)?;
    let runtime = seen.runtimes.get(&place.runtime)?.as_ref();
    let home = seen.caller.env.get("HOME").map(String::as_str);
    let workdir = place.workdir.or_else(|| runtime.and_then(|r| r.spec.workdir.clone())).map(|dir| under(&dir, home));
    let spec = EnvironmentSpec {
        runtime: place.runtime.clone(),
        workdir,
        image: place.image.or_else(|| asked.image.clone()),
        cpus: place.cpus.or(asked.cpus),
        memory: place.memory.or(asked.memory),
        gpus: place.gpus.or(asked.gpus),
        gpu_memory: place.gpu_memory.or(asked.gpu_memory),
        restart: RestartPolicy::Never,
        admission: None,
        wait_for: None,
    };
    let mut env = Resource::<Environment>::new(environment_name(run.name(), role), spec);
    env.metadata.labels.insert(ROLE_LABEL.into(), role.into());
    if let Some(trace) = run.metadata.annotations.get(TRACE) {
        env.metadata.annotations.insert(TRACE.into(), trace.clone());
    }
    env.metadata.finalizers.push(environment::FINALIZER.into());
    env.metadata.owner_references.push(OwnerReference {
        kind: Run::KIND.into(),
        name: run.metadata.name.clone(),
        uid: run.metadata.uid.unwrap_or_default(),
    });
    env.metadata.generation = 1;
    // what names derive from is in the store before anything is asked of a daemon
    env.status.incarnation = 1;
    env.status.used = Some(place.runtime);
    let agents: BTreeSet<&String> = flow.steps.iter().filter_map(|step| works_in(step, role)).collect();
    env.status.agents = agents.into_iter().filter_map(|agent| seen.boxed.get(agent).cloned()).collect();
    let local = seen.caller.docker_endpoint.as_deref();
    env.status.endpoint = runtime.and_then(|r| known_endpoint(&r.spec, local));
    outcome::set(&mut env, SCHEDULED, False, "Pending", "", seen.now);
    Some(env)
}

/// The agent role of a step that is a turn in an environment role.
fn works_in<'a>(step: &'a FlowStep, role: &str) -> Option<&'a String> {
    match step {
        FlowStep::Turn { agent, environment, .. } if environment == role => Some(agent),
        _ => None,
    }
}

/// `~` and `~/…` under the home of whoever asked.
pub fn under(dir: &str, home: Option<&str>) -> String {
    match (dir.strip_prefix('~'), home) {
        (Some(rest), Some(home)) => format!("{home}{rest}"),
        _ => dir.to_owned(),
    }
}

/// Why an environment will not become ready.
fn failure(run: &Resource<Run>, env: &Resource<Environment>, seen: &Observed) -> Option<(Outcome, String)> {
    let conditions = &env.status.conditions;
    let role = env.metadata.labels.get(ROLE_LABEL).unwrap_or(&env.metadata.name);
    if env.metadata.is_deleting() {
        return Some((Outcome::Failed, format!("environment '{}' was deleted", env.name())));
    }
    if is_down(env) {
        let why = conditions.get(CREATED).map(|c| c.message.clone()).unwrap_or_default();
        return Some((Outcome::Failed, format!("'{role}' did not come up: {why}")));
    }
    if let Some(created) = conditions.get(CREATED).filter(|c| c.status == False && c.reason == NO_HARNESS) {
        let serves = env.status.serves.as_ref();
        let of = serves.and_then(|s| run.spec.environments.keys().find(|r| environment_name(run.name(), r) == s.environment));
        let used = serves.map(|s| &s.runtime).or(env.status.used.as_ref());
        let error = refusal::to_local(run, of.unwrap_or(role), used, &created.message, seen);
        return Some((Outcome::Refused, refusal::message(&error)));
    }
    [SCHEDULED, IMAGE_READY, CREATED].into_iter().find_map(|kind| {
        let refused = conditions.get(kind).filter(|c| c.status == False && c.reason == outcome::REFUSED)?;
        Some((Outcome::Refused, refused.message.clone()))
    })
}

/// Its gang is to be admitted, or goes on waiting.
fn admit(run: &mut Resource<Run>, gang: &[&Resource<Environment>], seen: &Observed) -> Step {
    let waiting = run.status.conditions.get(ENVIRONMENTS_READY).filter(|c| c.reason == WAITING).cloned();
    if let (Some(condition), Some(limit)) = (&waiting, run.spec.wait_for) {
        let since = run.status.conditions.get(ACCEPTED).map_or(seen.now, |c| c.last_transition_time);
        if remaining(since, limit.duration(), seen.now).is_none() {
            let error = Error::refused(format!("{}{}", condition.message, refusal::waited(limit)));
            return refuse(run, &error, seen.now);
        }
    }
    // an address that only the daemon's machine can tell is found out by the environment's controller first, where it can be
    let alone = |e: &Resource<Environment>| seen.places.get(&e.metadata.name).is_none_or(|p| p.len() == 1);
    if gang.iter().any(|e| e.status.endpoint.is_none() && alone(e)) {
        return Step::Wait(Action::await_change());
    }
    if let Some(rest) = gang.iter().filter_map(|e| admission_pause(e, seen.now)).max() {
        return Step::Wait(Action::requeue(rest));
    }
    let ask = |gang: &[&Resource<Environment>]| walk::next(gang, &seen.places, &seen.walk, &seen.instance, seen.now);
    let there: Vec<_> = second::there(run, seen).into_iter().map(|(_, second)| second).collect();
    match ask(gang) {
        Next::Ask(group) => {
            // second boxes that are there have waited before: no room for one of them is no room for all
            let all = gang.iter().chain(there.iter().filter(|e| !e.metadata.is_deleting()));
            let without = all.filter(|e| !e.status.conditions.is_true(SCHEDULED)).count();
            return if seen.walk.weighs(&group, without) { Step::Weigh(group) } else { Step::Admit(group) };
        }
        Next::AllHeld => {}
        Next::Nowhere { message, could_fit } => return without_room(gang.iter().chain(&there), message, could_fit),
    }
    // where each of them is says what second boxes there are
    let is_weighing = seen.walk.stage == Stage::Weighing;
    let Some(Ok(flow)) = &seen.flow else { return if is_weighing { Step::Weighed } else { Step::Hold } };
    let seconds = match second::due(run, flow, seen) {
        Due::Gang(seconds) => seconds,
        // what is to be made or to go is so once the others are held
        _ if is_weighing => return Step::Weighed,
        Due::Create(missing) => return Step::CreateEnvironments(missing),
        Due::Delete(names) => return Step::DeleteEnvironments(names),
        Due::Wait => return Step::Wait(Action::await_change()),
    };
    match ask(&seconds) {
        Next::Ask(group) if is_weighing => Step::Weigh(group),
        Next::Ask(group) => Step::Admit(group),
        Next::AllHeld if is_weighing => Step::Weighed,
        Next::AllHeld => Step::Hold,
        Next::Nowhere { message, could_fit } => {
            let message = second::no_room(run, flow, &seconds, &message);
            let begun = gang.iter().any(|e| e.status.conditions.is_true(SCHEDULED));
            without_room(gang.iter().chain(&seconds), message, could_fit && !begun)
        }
    }
}

/// What is done when some of these can be held nowhere.
fn without_room<'a>(all: impl Iterator<Item = &'a &'a Resource<Environment>>, message: String, could_fit: bool) -> Step {
    let without = all.filter(|e| !e.status.conditions.is_true(SCHEDULED) && !e.metadata.is_deleting());
    Step::NoRoom { message, could_fit, names: without.map(|e| e.metadata.name.clone()).collect() }
}

/// No room was found: it is refused or waits, as it says. `could_fit`: whether it would on an empty daemon.
pub fn no_room(run: &mut Resource<Run>, message: &str, could_fit: bool, now: Timestamp) -> Step {
    if !could_fit || run.spec.admission.unwrap_or_default() == Admission::Refuse {
        return refuse(run, &Error::refused(message), now);
    }
    set(run, ENVIRONMENTS_READY, False, WAITING, message, now);
    let since = run.status.conditions.get(ACCEPTED).map_or(now, |c| c.last_transition_time);
    let rest = run.spec.wait_for.and_then(|limit| remaining(since, limit.duration(), now));
    Step::Wait(Action::requeue(rest.map_or(ROOM_RETRY, |rest| rest.min(ROOM_RETRY))))
}
