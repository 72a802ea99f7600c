//! What is done for an environment and a run, as spans of their trace: `environment` is how one incarnation of an environment became
//! ready, with its parts below it, `teardown` its removal, `runner` the start of a run's runner. They are told when they are
//! over, where anybody hears; a look that finds nothing to do tells none. The first span's id is made of the incarnation's
//! name, so that its parts can be told before it, by whichever daemon.

use crate::environment::outcome::LOST;
use crate::world::World;
use hmz_api::kinds::annotation::TRACE;
use hmz_api::kinds::condition::{CREATED, READY, SCHEDULED};
use hmz_api::kinds::{Environment, Run};
use hmz_api::{Metadata, Resource};
use hmz_telemetry::{Ended, TraceContext};
use jiff::Timestamp;
use std::fmt::Display;

/// When something began and ended.
pub(crate) type Times = (Timestamp, Timestamp);

/// Where in a trace whoever declared it is; `None` where nobody hears.
fn trace(world: &World, metadata: &Metadata) -> Option<TraceContext> {
    world.spans.as_ref()?;
    TraceContext::read(metadata.annotations.get(TRACE)?)
}

/// The span in which this incarnation becomes ready.
fn whole(world: &World, env: &Resource<Environment>) -> Option<TraceContext> {
    let (_, random) = env.metadata.uid?.as_u64_pair();
    Some(trace(world, &env.metadata)?.at_span(random ^ env.status.incarnation))
}

/// Tells spans. What a status says too is told once that is written: whoever could not write it does the same again.
pub(crate) fn tell(world: &World, spans: impl IntoIterator<Item = Ended>) {
    if let Some(hear) = &world.spans {
        spans.into_iter().for_each(|span| hear(span));
    }
}

/// A span about an environment.
fn about(name: &'static str, env: &Resource<Environment>, context: TraceContext, (began, ended): Times) -> Ended {
    let span = Ended::new(name, context, began, ended).with("env", env.name());
    match env.metadata.owner_references.first() {
        Some(owner) => span.with("run", owner.name.as_str()),
        None => span,
    }
}

/// A span that came to this.
fn came_to(span: Ended, result: &Result<impl Sized, impl Display>) -> Ended {
    match result {
        Ok(_) => span,
        Err(error) => span.failed(error.to_string()),
    }
}

/// Since when this incarnation is to become ready: since it was declared, or the one before was ready no more.
pub(crate) fn since(env: &Resource<Environment>) -> Option<Timestamp> {
    let again = env.status.conditions.get(READY).filter(|_| env.status.incarnation > 1);
    again.map(|ready| ready.last_transition_time).or(env.metadata.creation_timestamp)
}

/// Its share is held, which was asked for at that time; how long it had waited before is said. `env` is as it was before.
pub(crate) fn admitted(world: &World, env: &Resource<Environment>, (asked, now): Times) -> Option<Ended> {
    let (whole, since) = (whole(world, env)?, since(env)?);
    // one that had its share and lost it waits since then
    let lost = env.status.conditions.get(SCHEDULED).filter(|c| c.reason == LOST);
    let since = lost.map_or(since, |lost| lost.last_transition_time.max(since));
    let waited = u64::try_from(asked.duration_since(since).as_millis()).unwrap_or_default();
    Some(about("admission", env, whole.child(), (since, now)).with("waited_ms", waited))
}

/// A part of it was done, or failed.
pub(crate) fn part(
    world: &World,
    name: &'static str,
    env: &Resource<Environment>,
    times: Times,
    result: &Result<impl Sized, impl Display>,
) {
    let Some(whole) = whole(world, env) else { return };
    tell(world, [came_to(about(name, env, whole.child(), times), result)]);
}

/// The guest of a box that was started has answered, and with it the environment is ready, which it was to be since then.
pub(crate) fn ready(world: &World, env: &Resource<Environment>, since: Option<Timestamp>, now: Timestamp) -> Vec<Ended> {
    let (Some(whole), Some(since)) = (whole(world, env), since) else { return Vec::new() };
    let created = env.status.conditions.get(CREATED);
    let probe = created.map(|created| about("probe", env, whole.child(), (created.last_transition_time, now)));
    let used = env.status.used.as_ref().unwrap_or(&env.spec.runtime);
    let all = about("environment", env, whole, (since, now)).with("runtime", used.resource_name());
    probe.into_iter().chain([all]).collect()
}

/// Its box, hold and files are removed, and one that was never ready will not be.
pub(crate) fn removed(world: &World, env: &Resource<Environment>, (began, now): Times) -> Vec<Ended> {
    let Some(trace) = trace(world, &env.metadata) else { return Vec::new() };
    let mut told = Vec::new();
    if env.status.started_at.is_none()
        && let (Some(whole), Some(since)) = (whole(world, env), since(env))
    {
        let why = env.status.conditions.get(READY).map_or("", |ready| &ready.message);
        let why = if why.is_empty() { "it was removed before it was ready" } else { why };
        told.push(about("environment", env, whole, (since.min(began), began)).failed(why));
    }
    told.push(about("teardown", env, trace.child(), (began, now)));
    told
}

/// A run's runner was started, or not.
pub(crate) fn runner(world: &World, run: &Resource<Run>, (began, now): Times, result: &Result<impl Sized, impl Display>) {
    let Some(trace) = trace(world, &run.metadata) else { return };
    tell(world, [came_to(Ended::new("runner", trace.child(), began, now).with("run", run.name()), result)]);
}
