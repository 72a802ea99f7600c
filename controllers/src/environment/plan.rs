//! What is to be done next about one environment, from what is declared and what was seen. Pure.

use super::address::{Carrier, address_of};
use super::{FINALIZER, ROLE_LABEL, admission, outcome};
use crate::ABANDON;
use crate::core::Action;
use crate::placement::{Place, Placed, may_change, survey, told};
use crate::run::refusal;
use crate::target::{Saved, known_endpoint, not_saved, target, undriven};
use hmz_api::condition::ConditionStatus::{False, True, Unknown};
use hmz_api::kinds::condition::{CREATED, GUEST_READY, IMAGE_READY, SCHEDULED};
use hmz_api::kinds::{
    DefaultRequest, Environment, EnvironmentSpec, Harness, PassedFor, PassedOver, RestartPolicy, Run, RuntimeSpec, Share,
};
use hmz_api::launch::BoxAddress;
use hmz_api::{Error, Kind, OwnerReference, Resource};
use hmz_drivers::{BoxKey, BoxState, Ending, Target, Want};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// The image when nobody names one.
pub const DEFAULT_IMAGE: &str = "python:3.12-slim";
/// Seconds a run's box lives without an owner when its runtime does not say.
pub const DEFAULT_LEASE: u64 = 120;
/// How long after a refused start the same is tried again, at first; half the time it has been down for later on.
pub const REFUSED_RETRY: Duration = Duration::from_secs(60);
/// No longer than that.
pub const REFUSED_RETRY_MAX: Duration = Duration::from_secs(600);
/// How long after a share was lost it is asked for again.
pub const LOST_RETRY: Duration = Duration::from_secs(1);
/// How often one that found no room asks again, besides when something on its daemon changed.
pub const ROOM_RETRY: Duration = Duration::from_secs(10);
/// How long the guest of a run's box may take to answer.
pub const GUEST_LIMIT: Duration = Duration::from_secs(60);
/// Boxes that die sooner than this after they were ready are not started again at once.
const SHORT_LIFE: SignedDuration = SignedDuration::from_secs(30);

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The random id of this HMZ_HOME.
    pub instance: String,
    /// What it knows of the ways to its boxes.
    pub carrier: Carrier,
    /// The runtime, as saved; `None` when there is none of that name (or it is being deleted).
    pub runtime: Option<RuntimeSpec>,
    /// What is saved, when the runtime is not.
    pub saved: Saved,
    /// Where it may be put, in the order that is tried, while nothing of it was started; more than one when the runtime that
    /// was named has others to fall back to.
    pub places: Vec<Place>,
    /// What those that were asked in this pass said.
    pub asked: Vec<PassedOver>,
    /// Why its entry in settings.yaml cannot be used, if so.
    pub unreadable: Option<String>,
    /// What is wrong with settings.yaml beside its entries: why a runtime may be missing.
    pub settings: Vec<String>,
    /// The same where its runtime is as it was before, which may be why it has no room.
    pub stale: Vec<String>,
    /// Whether its backend has a driver.
    pub driven: bool,
    /// What `local` means to whoever asked.
    pub local_endpoint: Option<String>,
    /// The run that owns it.
    pub owner: Owner,
    /// The environment whose agents' CLIs run in it, where it is a second box.
    pub served: Option<Resource<Environment>>,
    /// What is on the daemon.
    pub boxes: Boxes,
    /// What the daemon remembers of the end of one that does not run.
    pub ending: Option<Ending>,
}

/// The run that owns an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// None does.
    Nobody,
    /// Its runner is not at work yet.
    Preparing,
    /// Its runner is at work.
    Running,
    /// It has ended, or is not there any more.
    Ended,
}

/// What is on the daemon of an environment's box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boxes {
    /// It was not asked, since nothing was started.
    NotAsked,
    /// It does not answer.
    Unreachable(String),
    /// The box of the current incarnation.
    Seen(Option<BoxState>),
}

/// One step. Each can be begun again.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, until then.
    Wait(Action),
    /// Put the finalizer on.
    AddFinalizer,
    /// Ask for its deletion: its owner is gone.
    DeleteSelf,
    /// Take the finalizer off.
    Release,
    /// Remove box, hold and files, then take the finalizer off.
    Teardown(Target, BoxKey),
    /// Remove box, hold and files of one that died.
    Discard(Target, BoxKey),
    /// The same, and begin the next incarnation.
    Replace(Target, BoxKey),
    /// The same of one that was refused, which begins another one when it is declared otherwise.
    Withdraw(Target, BoxKey),
    /// Ask the daemon where it is, since `local` was not resolved by whoever asked.
    Resolve(Target),
    /// Ask for its share.
    Admit(Target, Want),
    /// Ask one of several places for its share, and note what it says.
    Place(Box<Attempt>),
    /// Have the image there, renewing the hold meanwhile.
    Pull(Target, BoxKey, Pull),
    /// Make and start the box.
    Start(Target, Box<Start>),
    /// See whether the guest answers.
    Probe(BoxAddress),
}

/// One of several places, to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its daemon.
    pub target: Target,
    /// What is asked for.
    pub want: Want,
    /// What it is when it holds the share.
    pub placed: Placed,
}

/// An image to have there.
#[derive(Debug, Clone, PartialEq)]
pub struct Pull {
    /// Which.
    pub image: String,
    /// Whether another place is asked when it is refused here.
    pub falls_back: bool,
}

/// A box to start, but for the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Which box.
    pub key: BoxKey,
    /// The run that owns it.
    pub run: Option<Uuid>,
    /// The image.
    pub image: String,
    /// The workdir.
    pub workdir: String,
    /// The share that was granted.
    pub share: Share,
    /// What it is limited to.
    pub limit: Share,
    /// How long it lives without an owner.
    pub lease: Option<Duration>,
    /// Programs that have to be in it.
    pub programs: Vec<String>,
    /// The box that it is the second one for, whose scratch directory it has.
    pub serves: Option<BoxKey>,
    /// Whether another place is asked when it is refused here.
    pub falls_back: bool,
}

/// The run that owns an environment.
pub fn owner_run(environment: &Resource<Environment>) -> Option<&OwnerReference> {
    environment.metadata.owner_references.iter().find(|o| o.kind == Run::KIND)
}

/// Whether its box died and nothing is started in its place.
pub fn is_down(environment: &Resource<Environment>) -> bool {
    environment.status.conditions.get(CREATED).is_some_and(|c| c.status == False && outcome::is_death(&c.reason))
}

/// Which box is the current one.
pub fn key_of(environment: &Resource<Environment>, instance: &str) -> BoxKey {
    let metadata = &environment.metadata;
    let role = metadata.labels.get(ROLE_LABEL).filter(|_| owner_run(environment).is_some());
    BoxKey {
        instance: instance.to_owned(),
        uid: metadata.uid.unwrap_or_default(),
        incarnation: environment.status.incarnation,
        role: role.unwrap_or(&metadata.name).clone(),
    }
}

/// The target of what was started, or is to be.
pub fn target_of(environment: &Resource<Environment>, runtime: Option<&RuntimeSpec>) -> Target {
    let status = &environment.status;
    target(status.used.as_ref().unwrap_or(&environment.spec.runtime), runtime, status.endpoint.as_deref())
}

/// The share it asks for; where it declares no amount, what its runtime says such a one asks for.
pub fn want_of(environment: &Resource<Environment>, runtime: Option<&RuntimeSpec>, instance: &str) -> Want {
    let run = owner_run(environment).map(|o| o.uid);
    let DefaultRequest { cpus, memory, gpus } = asked(environment, runtime);
    let (key, gpu_memory) = (key_of(environment, instance), environment.spec.gpu_memory);
    Want { key, run, cpus, memory, gpus, gpu_memory, image: Some(image_of(&environment.spec, runtime)) }
}

/// The image of its box: its own, else its runtime's. A container that runs already has what it has.
fn image_of(spec: &EnvironmentSpec, runtime: Option<&RuntimeSpec>) -> String {
    if let Some(container) = runtime.and_then(|r| r.container.as_ref()) {
        return format!("container:{container}");
    }
    let saved = || runtime.and_then(|r| r.image.clone());
    spec.image.clone().or_else(saved).unwrap_or_else(|| DEFAULT_IMAGE.into())
}

/// The amounts it asks for.
fn asked(environment: &Resource<Environment>, runtime: Option<&RuntimeSpec>) -> DefaultRequest {
    let spec = &environment.spec;
    let usual = runtime.and_then(|r| r.default_request.clone()).unwrap_or_default();
    DefaultRequest { cpus: spec.cpus.or(usual.cpus), memory: spec.memory.or(usual.memory), gpus: spec.gpus.or(usual.gpus) }
}

/// What is to be done. The status of what was given is what is to be written before.
pub fn plan(environment: &mut Resource<Environment>, seen: &Observed) -> Step {
    let step = step(environment, seen);
    if !environment.metadata.is_deleting() && environment.metadata.finalizers.iter().any(|f| f == FINALIZER) {
        outcome::sum_up(environment, seen.now);
    }
    step
}

fn step(env: &mut Resource<Environment>, seen: &Observed) -> Step {
    let created = env.status.container_id.is_some();
    if env.metadata.is_deleting() {
        return going(env, seen);
    }
    if seen.owner == Owner::Ended {
        return Step::DeleteSelf;
    }
    if !env.metadata.finalizers.iter().any(|f| f == FINALIZER) {
        return Step::AddFinalizer;
    }
    if env.status.conditions.get(CREATED).is_some_and(|c| c.reason == outcome::REPLACING) {
        return Step::Replace(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
    }
    if created {
        return watch(env, seen);
    }
    if is_down(env) {
        return down(env, seen);
    }
    bring_up(env, seen)
}

/// It is to go.
fn going(env: &Resource<Environment>, seen: &Observed) -> Step {
    let metadata = &env.metadata;
    if !metadata.finalizers.iter().any(|f| f == FINALIZER) {
        return Step::Wait(Action::await_change());
    }
    // nothing was begun of the first incarnation, or of this one
    if env.status.used.is_none() || metadata.annotations.contains_key(ABANDON) {
        return Step::Release;
    }
    Step::Teardown(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance))
}

/// Its box was started: see that it lives.
fn watch(env: &mut Resource<Environment>, seen: &Observed) -> Step {
    match &seen.boxes {
        Boxes::NotAsked => Step::Wait(Action::await_change()),
        Boxes::Unreachable(why) => {
            for kind in [CREATED, GUEST_READY] {
                // nothing was observed: what it was started as is as old as it was
                let generation = env.status.conditions.get(kind).map_or(0, |c| c.observed_generation);
                env.status.conditions.set(kind, Unknown, "Unreachable", why, generation, seen.now);
            }
            Step::Wait(Action::requeue(Duration::from_secs(5)))
        }
        Boxes::Seen(Some(BoxState::Running(pid))) => {
            let since = env.status.conditions.get(CREATED).map_or(0, |c| c.observed_generation);
            if since < env.metadata.generation && drifted(env, seen) {
                // that it is removed by us is written before it is
                outcome::set(env, CREATED, False, outcome::REPLACING, "", seen.now);
                return Step::Replace(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
            }
            let name = env.status.container_name.clone().unwrap_or_default();
            outcome::set(env, CREATED, True, "Started", &name, seen.now);
            outcome::at_home(env, seen.now);
            for kind in [SCHEDULED, IMAGE_READY] {
                outcome::keep(env, kind);
            }
            let restarted = env.status.pid != Some(*pid);
            env.status.pid = Some(*pid);
            answer(env, seen, restarted)
        }
        Boxes::Seen(other) => {
            let (target, key) = (target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
            outcome::died(env, other.as_ref(), seen.ending.as_ref(), seen.now);
            Step::Discard(target, key)
        }
    }
}

/// Its box runs: see that its guest answers.
fn answer(env: &mut Resource<Environment>, seen: &Observed, restarted: bool) -> Step {
    let ready = env.status.conditions.is_true(GUEST_READY) && !restarted;
    let Some(address) = address_of(env, &seen.carrier) else { return Step::Wait(Action::await_change()) };
    if ready {
        outcome::keep(env, GUEST_READY);
        // until a runner owns it, its lease is renewed from here
        let renew = seen.owner == Owner::Preparing && env.status.lease_seconds.is_some();
        return if renew { Step::Probe(address) } else { Step::Wait(Action::settled()) };
    }
    let since = |kind: &str| env.status.conditions.get(kind).map_or(Duration::ZERO, |c| age(c.last_transition_time, seen.now));
    if seen.owner == Owner::Preparing && since(CREATED).min(since(GUEST_READY)) > GUEST_LIMIT {
        let said = env.status.conditions.get(GUEST_READY).map(|c| c.message.clone()).filter(|m| !m.is_empty());
        let why = said.map_or_else(String::new, |said| format!(": {said}"));
        let why = format!("its guest did not answer within {} s{why}", GUEST_LIMIT.as_secs());
        outcome::down(env, outcome::GUEST_SILENT, &why, seen.now);
        return Step::Discard(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
    }
    Step::Probe(address)
}

/// How long after a probe the next look is.
pub fn after_probe(environment: &Resource<Environment>, owner: Owner, now: Timestamp) -> Action {
    let status = &environment.status;
    if status.conditions.is_true(GUEST_READY) {
        return match status.lease_seconds {
            Some(lease) if owner == Owner::Preparing => Action::requeue(Duration::from_secs((lease / 3).max(1))),
            _ => Action::settled(),
        };
    }
    // often at first, when a guest is about to be there, then more and more rarely
    let waited = status.conditions.get(CREATED).map_or(Duration::ZERO, |c| age(c.last_transition_time, now));
    Action::requeue((waited / 4).clamp(Duration::from_millis(2), Duration::from_secs(5)))
}

/// Its box died.
fn down(env: &mut Resource<Environment>, seen: &Observed) -> Step {
    let Some(death) = env.status.conditions.get(CREATED).cloned() else { return Step::Wait(Action::await_change()) };
    let next = Step::Replace(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
    if env.status.scratch.is_some() {
        return Step::Discard(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
    }
    if seen.owner != Owner::Nobody {
        return Step::Wait(Action::settled()); // nothing re-creates a run's box
    }
    if death.observed_generation < env.metadata.generation {
        return next;
    }
    if env.spec.restart == RestartPolicy::Never {
        return Step::Wait(Action::settled());
    }
    let lived = env.status.started_at.map_or(SignedDuration::ZERO, |at| death.last_transition_time.duration_since(at));
    let pause = (SHORT_LIFE - lived).clamp(SignedDuration::from_secs(1), SHORT_LIFE);
    match remaining(death.last_transition_time, pause.unsigned_abs(), seen.now) {
        Some(rest) => Step::Wait(Action::requeue(rest)),
        None => next,
    }
}

/// Nothing of it runs: the next step to where it does.
fn bring_up(env: &mut Resource<Environment>, seen: &Observed) -> Step {
    for kind in [SCHEDULED, IMAGE_READY, CREATED, GUEST_READY] {
        if env.status.conditions.get(kind).is_none() {
            outcome::set(env, kind, False, "Pending", "", seen.now);
        }
    }
    if env.is_refused() {
        return refused(env, seen);
    }
    if seen.owner == Owner::Nobody && !is_observed(env, SCHEDULED) {
        // it was another declaration that was refused there
        env.status.passed_over.retain(|p| p.reason != PassedFor::Refused);
    }
    if superseded(env, seen) {
        return Step::Replace(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance));
    }
    if seen.places.len() > 1 && !env.status.conditions.is_true(SCHEDULED) {
        return place(env, seen);
    }
    let wanted = env.status.used.clone().unwrap_or_else(|| env.spec.runtime.clone());
    let Some(runtime) = &seen.runtime else {
        let near = seen.saved.near(&wanted).map(|near| format!("did you mean {}?", near.at()));
        let hints = near.into_iter().chain([seen.saved.entry(&wanted)]);
        let error = hints.fold(Error::refused(not_saved(&wanted, None)), Error::hint);
        let missing = BTreeMap::from([(wanted, None)]);
        let why = refusal::message(&refusal::with_settings(error, &missing, &seen.settings, false));
        outcome::set(env, SCHEDULED, False, "RuntimeMissing", &why, seen.now);
        return Step::Wait(Action::await_change());
    };
    let refusal = seen.unreadable.clone().or_else(|| undriven(&wanted, seen.driven));
    let workdir = match workdir(env, runtime) {
        Ok(dir) if refusal.is_none() => dir,
        found => {
            let why = refusal.or(found.err()).unwrap_or_default();
            outcome::set(env, SCHEDULED, False, outcome::REFUSED, &why, seen.now);
            return Step::Wait(Action::await_change());
        }
    };
    let image = image_of(&env.spec, Some(runtime));
    if env.status.image.as_ref() != Some(&image) {
        outcome::set(env, IMAGE_READY, False, "Pending", "", seen.now);
        // it was another image that was refused, and this one is waited for no longer
        if env.status.conditions.get(SCHEDULED).is_some_and(|c| c.reason == outcome::RELEASED) {
            outcome::set(env, SCHEDULED, False, "Pending", "", seen.now);
        }
    }
    env.status.incarnation = env.status.incarnation.max(1);
    env.status.used.get_or_insert(wanted);
    env.status.image = Some(image.clone());
    env.status.workdir = Some(workdir.clone());
    let owned = seen.owner != Owner::Nobody;
    // what runs already does not end with whoever works in it
    let lease = runtime.lease.map_or(DEFAULT_LEASE, |lease| lease.duration().as_secs().max(1));
    env.status.lease_seconds = (owned && runtime.container.is_none()).then_some(lease);
    // nothing but a hold, which ages out, can be at the address it had before
    if let Some(endpoint) = known_endpoint(runtime, seen.local_endpoint.as_deref()) {
        if env.status.endpoint.as_ref().is_some_and(|before| *before != endpoint) {
            outcome::elsewhere(env, seen.now);
        }
        env.status.endpoint = Some(endpoint);
    }
    let target = target_of(env, Some(runtime));
    if env.status.endpoint.is_none() {
        return Step::Resolve(target);
    }
    let key = key_of(env, &seen.instance);
    if !env.status.conditions.is_true(SCHEDULED) {
        return match admission_pause(env, seen.now) {
            _ if owned => Step::Wait(Action::await_change()),
            Some(rest) => Step::Wait(Action::requeue(rest)),
            None => Step::Admit(target, want_of(env, seen.runtime.as_ref(), &seen.instance)),
        };
    }
    let falls_back = seen.places.len() > 1;
    if !env.status.conditions.is_true(IMAGE_READY) {
        return Step::Pull(target, key, Pull { image, falls_back });
    }
    let share = env.status.share.clone().unwrap_or_default();
    let limit = Share { cpus: share.cpus.or(runtime.cpus), memory: share.memory.or(runtime.memory), gpus: share.gpus.clone() };
    let lease = env.status.lease_seconds.map(Duration::from_secs);
    let run = owner_run(env).map(|o| o.uid);
    let is_second = env.status.serves.is_some();
    let serves = seen.served.as_ref().map(|served| key_of(served, &seen.instance));
    if is_second && serves.is_none() {
        return Step::Wait(Action::await_change()); // what it is for is gone, and so its run is ending
    }
    // from here on its agents' CLIs are where the box is made for
    env.status.harness = (owned && !is_second).then(|| runtime.harness.clone());
    let boxed = env.status.agents.iter().filter(|_| is_second || (owned && runtime.harness == Harness::Env));
    let programs = boxed.map(|agent| agent.program.clone()).collect();
    Step::Start(target, Box::new(Start { key, run, image, workdir, share, limit, lease, programs, serves, falls_back }))
}

/// It was refused for want of room: what a start that came to nothing may have left goes, and nothing is asked any more.
fn refused(env: &Resource<Environment>, seen: &Observed) -> Step {
    if env.status.used.is_none() {
        return Step::Wait(Action::settled());
    }
    Step::Withdraw(target_of(env, seen.runtime.as_ref()), key_of(env, &seen.instance))
}

/// It has no share yet, and there are several places to ask.
fn place(env: &mut Resource<Environment>, seen: &Observed) -> Step {
    env.status.incarnation = env.status.incarnation.max(1);
    let owned = seen.owner != Owner::Nobody;
    if env.status.used.is_none() {
        env.status.used = Some(env.spec.runtime.clone());
        env.status.endpoint = seen.places.first().and_then(|p| p.endpoint.clone());
    }
    if owned {
        return Step::Wait(Action::await_change()); // its run asks for all of them together
    }
    if let Some(rest) = admission_pause(env, seen.now) {
        return Step::Wait(Action::requeue(rest));
    }
    let mut asked = standing(env, Some(seen.now));
    asked.extend(seen.asked.iter().cloned());
    let (passed, next) = survey(&seen.places, &asked, seen.now);
    let role = key_of(env, &seen.instance).role;
    let Some(place) = next else {
        let waits = may_change(&passed);
        let (reason, pause) = if waits { (outcome::INSUFFICIENT, ROOM_RETRY) } else { (outcome::REFUSED, REFUSED_RETRY) };
        outcome::set(env, SCHEDULED, False, reason, &told(&role, &seen.places, &passed, None), seen.now);
        return match admission::no_room(env, &seen.stale, seen.now).pause(pause) {
            Some(pause) => Step::Wait(Action::requeue(pause)),
            None => refused(env, seen),
        };
    };
    let told = told(&role, &seen.places, &passed, Some(&place.runtime));
    let want = want_of(env, Some(&place.spec), &seen.instance);
    Step::Place(Box::new(Attempt { target: place.target(), want, placed: placed(place, passed, told) }))
}

/// A place that is about to hold a share.
pub fn placed(place: &Place, passed: Vec<PassedOver>, told: String) -> Placed {
    let (runtime, endpoint, workdir) = (place.runtime.clone(), place.endpoint.clone(), place.workdir.clone());
    Placed { runtime, endpoint, workdir, passed, told }
}

/// What was refused after a share was held, and so is not asked again: for good in a run, for a while when it stands alone
/// (`now`).
pub fn standing(env: &Resource<Environment>, now: Option<Timestamp>) -> Vec<PassedOver> {
    let stands = |p: &&PassedOver| {
        let fresh = now.is_none_or(|now| remaining(p.at, REFUSED_RETRY_MAX, now).is_some());
        p.reason == PassedFor::Refused && fresh
    };
    env.status.passed_over.iter().filter(stands).cloned().collect()
}

/// Whether a condition tells of what is declared now.
fn is_observed(env: &Resource<Environment>, kind: &str) -> bool {
    env.status.conditions.get(kind).is_some_and(|c| c.observed_generation >= env.metadata.generation)
}

/// Whether it is on what is declared, or on what that fell back to.
fn is_as_declared(env: &Resource<Environment>) -> bool {
    let named = &env.spec.runtime;
    env.status.used.as_ref().is_none_or(|used| used == named || env.status.passed_over.iter().any(|p| p.runtime == *named))
}

/// Whether it is on a runtime that the one that was named fell back to.
fn has_moved(env: &Resource<Environment>) -> bool {
    env.status.used.as_ref().is_some_and(|used| *used != env.spec.runtime)
}

/// Whether what is under way was for something else than what is declared now.
fn superseded(env: &Resource<Environment>, seen: &Observed) -> bool {
    let status = &env.status;
    if status.incarnation == 0 || seen.owner != Owner::Nobody {
        return false;
    }
    let share = status.share.as_ref().filter(|_| status.conditions.is_true(SCHEDULED));
    let endpoint = seen.runtime.as_ref().and_then(|r| known_endpoint(r, seen.local_endpoint.as_deref()));
    let asked = asked(env, seen.runtime.as_ref());
    let may_be_started = status.conditions.is_true(IMAGE_READY);
    // what it fell back to is no place any more when there is no list
    let stray = share.is_none() && has_moved(env) && seen.places.len() < 2;
    stray
        || !is_as_declared(env)
        || share.is_some_and(|s| differs(s, &asked))
        || (may_be_started && endpoint.is_some() && status.endpoint.is_some() && endpoint != status.endpoint)
}

/// How long it is until its share may be asked for again; `None`: now.
pub fn admission_pause(env: &Resource<Environment>, now: Timestamp) -> Option<Duration> {
    let scheduled = env.status.conditions.get(SCHEDULED)?;
    let pause = match scheduled.reason.as_str() {
        outcome::LOST => LOST_RETRY,
        outcome::RELEASED if scheduled.observed_generation >= env.metadata.generation => {
            let down = env.status.conditions.get(CREATED).map_or(Duration::ZERO, |c| age(c.last_transition_time, now));
            (down / 2).clamp(REFUSED_RETRY, REFUSED_RETRY_MAX)
        }
        _ => return None,
    };
    remaining(scheduled.last_transition_time, pause, now)
}

/// The directory it works in.
///
/// # Errors
/// The refusal, in words.
pub fn workdir(env: &Resource<Environment>, runtime: &RuntimeSpec) -> Result<String, String> {
    let moved = env.status.workdir.clone().filter(|_| has_moved(env));
    let Some(dir) = moved.or_else(|| env.spec.workdir.clone()).or_else(|| runtime.workdir.clone()) else {
        return Err(
            "expected <backend>[@<provider>][/<workdir>]; /<workdir> may be left off only for a runtime saved with one".into()
        );
    };
    if !dir.starts_with('/') {
        return Err(format!("{dir} is neither absolute nor under ~"));
    }
    Ok(dir)
}

/// Whether what was started is not what is declared now.
fn drifted(env: &Resource<Environment>, seen: &Observed) -> bool {
    let (spec, status) = (&env.spec, &env.status);
    let asked = asked(env, seen.runtime.as_ref());
    let runtime = seen.runtime.clone().unwrap_or_default();
    let image = image_of(spec, Some(&runtime));
    let share = status.share.clone().unwrap_or_default();
    // one that moved is in that runtime's own directory, or else in the one that was asked for
    let workdir = match (has_moved(env), runtime.workdir) {
        (true, own) => own.is_none() && spec.workdir.is_some() && status.workdir != spec.workdir,
        (false, own) => status.workdir != spec.workdir.clone().or(own),
    };
    status.image.as_ref() != Some(&image) || workdir || !is_as_declared(env) || differs(&share, &asked)
}

/// Whether a share is another one than what is asked for.
fn differs(share: &Share, asked: &DefaultRequest) -> bool {
    let gpus = usize::try_from(asked.gpus.unwrap_or(0)).unwrap_or(usize::MAX);
    share.cpus != asked.cpus || share.memory != asked.memory || share.gpus.len() != gpus
}

/// How long ago; zero for the future.
pub fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// What is left of `pause` since `then`; `None` when it is over.
pub fn remaining(then: Timestamp, pause: Duration, now: Timestamp) -> Option<Duration> {
    pause.checked_sub(age(then, now)).filter(|rest| !rest.is_zero())
}
