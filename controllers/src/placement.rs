//! Where an environment goes: to the runtime that was named, else to the first of that one's own list, in its order, that
//! can hold it. What is asked and in which order is decided here, purely; [`ask`] and [`look`] only carry it out.

use crate::core::ReconcileError;
use crate::runtime::{self, unreadable};
use crate::target::{known_endpoint, not_saved, target, undriven};
use crate::world::World;
use hmz_api::kinds::{PassedFor, PassedOver, Runtime, RuntimeSpec, Share};
use hmz_api::launch::CallerContext;
use hmz_api::{Resource, RuntimeRef};
use hmz_drivers::{Admitted, Driver, DriverError, Promised, Target, Want};
use jiff::Timestamp;

/// A runtime an environment may be put on, as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Which.
    pub runtime: RuntimeRef,
    /// What was saved; the defaults where nothing is.
    pub spec: RuntimeSpec,
    /// The daemon's address; `None`: only whoever is on its machine can tell.
    pub endpoint: Option<String>,
    /// The directory there.
    pub workdir: Option<String>,
    /// Why nothing can be started there, whatever it has.
    pub unusable: Option<String>,
    /// Why an agent's CLI could not run for work there. That refuses, and the list is not followed any further.
    pub harness: Option<String>,
}

impl Place {
    /// As it is asked.
    pub fn target(&self) -> Target {
        target(&self.runtime, Some(&self.spec), self.endpoint.as_deref())
    }
}

/// A place that holds an environment's share, and what led there.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Which.
    pub runtime: RuntimeRef,
    /// The daemon's address.
    pub endpoint: Option<String>,
    /// The directory there.
    pub workdir: Option<String>,
    /// The runtimes before it, which could not hold it.
    pub passed: Vec<PassedOver>,
    /// What a person is told when there are any.
    pub told: String,
}

/// What was passed over so far, in the order of the list, and the place to ask next; `asked` is what the daemons said.
pub fn survey<'a>(places: &'a [Place], asked: &[PassedOver], now: Timestamp) -> (Vec<PassedOver>, Option<&'a Place>) {
    let mut passed = Vec::new();
    for place in places {
        if let Some(known) = asked.iter().rfind(|p| p.runtime == place.runtime) {
            passed.push(known.clone());
            continue;
        }
        let Some(why) = place.unusable.as_ref().or(place.harness.as_ref()) else { return (passed, Some(place)) };
        passed.push(PassedOver { runtime: place.runtime.clone(), reason: PassedFor::Unusable, message: why.clone(), at: now });
        if place.unusable.is_none() {
            break;
        }
    }
    (passed, None)
}

/// Whether one of these may have room later.
pub fn may_change(passed: &[PassedOver]) -> bool {
    passed.iter().any(|p| matches!(p.reason, PassedFor::Full | PassedFor::Unreachable))
}

/// What a person is told: why each of them could not hold the role, in order, and where it went. One that has no list is
/// told its reason alone.
pub fn told(role: &str, places: &[Place], passed: &[PassedOver], used: Option<&RuntimeRef>) -> String {
    if let ([only], true) = (passed, places.len() < 2) {
        return only.message.clone();
    }
    let clause = |p: &PassedOver| format!("{} cannot hold '{role}': {}", p.runtime, p.message);
    passed.iter().map(clause).chain(used.map(|used| format!("using {used}"))).collect::<Vec<_>>().join("; ")
}

/// What a daemon's answer makes of a place: the shares, or why it is passed over.
///
/// # Errors
/// What may work when it is tried again, and so says nothing about the place.
pub fn answer(answer: Result<Admitted, DriverError>) -> Result<Result<Vec<Share>, (PassedFor, String)>, DriverError> {
    let (reason, message) = match answer {
        Ok(Admitted::Held(shares)) => return Ok(Ok(shares)),
        Ok(Admitted::Short(short)) => (if short.could_fit { PassedFor::Full } else { PassedFor::TooSmall }, short.message),
        Err(error @ DriverError::Transient(_)) => return Err(error),
        Err(error @ DriverError::Unreachable { .. }) => (PassedFor::Unreachable, error.to_string()),
        Err(error @ DriverError::NoRoom(_)) => (PassedFor::Full, error.to_string()),
        Err(error @ (DriverError::Refused(_) | DriverError::Foreign(_) | DriverError::NoProgram { .. })) => {
            (PassedFor::Refused, error.to_string())
        }
    };
    Ok(Err((reason, message)))
}

/// Asks a place for shares; its address is found out first where only the daemon's machine can tell it.
pub(crate) async fn ask(
    world: &World,
    target: &mut Target,
    endpoint: &mut Option<String>,
    wants: &[Want],
) -> Result<Admitted, DriverError> {
    reach(world, target, endpoint).await?.admit(target, wants).await
}

/// What a place would answer now if those `promised` were held too. Nothing is held; a backend that cannot tell is taken to
/// have room.
pub(crate) async fn weigh(
    world: &World,
    target: &mut Target,
    endpoint: &mut Option<String>,
    wants: &[Want],
    promised: &[Promised],
) -> Result<Admitted, DriverError> {
    let weighed = reach(world, target, endpoint).await?.weigh(target, wants, promised, &[]).await?;
    let share = |w: &Want| Share { cpus: w.cpus, memory: w.memory, gpus: Vec::new() };
    Ok(weighed.unwrap_or_else(|| Admitted::Held(wants.iter().map(share).collect())))
}

async fn reach<'a>(world: &'a World, target: &mut Target, endpoint: &mut Option<String>) -> Result<&'a dyn Driver, DriverError> {
    let backend = target.runtime.backend;
    let Some(driver) = world.drivers.get(&backend) else {
        return Err(DriverError::Refused(format!("environments on {backend} are not supported yet; use docker or swarm")));
    };
    if endpoint.is_none() {
        let found = driver.probe(target).await?.endpoint;
        target.local_endpoint = Some(found.clone());
        *endpoint = Some(found);
    }
    Ok(&**driver)
}

/// The places of an environment that is to be on `named`, in the order they are tried; none when nothing is saved so.
/// `workdir` is the directory it asks for. `is_begun`: it was taken in, so that the one that was named is there for it for as
/// long as it is there at all; one that is on its way out takes nothing new. `known` is that one, where it was read already.
pub(crate) async fn look(
    world: &World,
    named: &RuntimeRef,
    workdir: Option<&str>,
    is_begun: bool,
    caller: &CallerContext,
    known: Option<Resource<Runtime>>,
) -> Result<Vec<Place>, ReconcileError> {
    let first = match known {
        Some(known) => Some(known),
        None => runtime::find(&world.store, named).await?,
    };
    let Some(first) = first.filter(|r| is_begun || !runtime::is_leaving(r)) else { return Ok(Vec::new()) };
    let fallback = first.spec.fallback.clone();
    let mut list = vec![(named.clone(), Some(first))];
    for listed in &fallback {
        let mut reference = listed.clone();
        let mut saved = runtime::find(&world.store, &reference).await?;
        if saved.is_none() && reference.name.as_deref() == Some("local") {
            // the backend's default here, with nothing saved
            reference = RuntimeRef::unsaved(reference.backend);
            saved = runtime::find(&world.store, &reference).await?;
        }
        list.push((reference, saved));
    }
    let mut places: Vec<Place> = Vec::new();
    for (reference, saved) in list {
        let original = places.first().map_or(workdir, |p| p.workdir.as_deref());
        let driven = world.drivers.contains_key(&reference.backend);
        let mut place = place(reference, saved, original, places.is_empty(), driven, caller);
        // a path in a container that runs already is given nothing
        let given = place.workdir.as_ref().filter(|_| place.spec.container.is_none());
        if let (None, Some(dir)) = (&place.unusable, given) {
            place.unusable = world.files.refusal(dir, caller).await;
        }
        places.push(place);
    }
    Ok(places)
}

/// One of them. `original` is the directory to work in where the runtime does not have one of its own; the runtime that was
/// named has what was asked for first.
fn place(
    reference: RuntimeRef,
    saved: Option<Resource<Runtime>>,
    original: Option<&str>,
    is_named: bool,
    driven: bool,
    caller: &CallerContext,
) -> Place {
    let saved = saved.filter(|r| is_named || !runtime::is_leaving(r));
    let (is_saved, unread) = (saved.is_some(), saved.as_ref().and_then(unreadable));
    let spec = saved.map(|r| r.spec).unwrap_or_default();
    let (first, second) = if is_named { (original, spec.workdir.as_deref()) } else { (spec.workdir.as_deref(), original) };
    let home = caller.env.get("HOME").map(String::as_str);
    let workdir = first.or(second).map(|dir| crate::run::plan::under(dir, home));
    let unusable =
        undriven(&reference, driven).or_else(|| (!is_saved).then(|| not_saved(&reference, None))).or(unread).or_else(|| {
            match workdir.as_deref() {
                Some(dir) if dir.starts_with('/') => None,
                Some(dir) => Some(format!("{dir} is neither absolute nor under ~")),
                None => Some(format!("{} has no workdir of its own, and none was asked for", reference.at())),
            }
        });
    let endpoint = known_endpoint(&spec, caller.docker_endpoint.as_deref());
    Place { runtime: reference, spec, endpoint, workdir, unusable, harness: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Backend;
    use hmz_drivers::Shortage;

    fn named(name: &str) -> RuntimeRef {
        RuntimeRef::named(Backend::Docker, name)
    }

    fn at(name: &str) -> Place {
        let caller = CallerContext { docker_endpoint: Some("unix:///d.sock".into()), ..CallerContext::default() };
        let saved = Resource::<Runtime>::new(format!("docker:{name}"), RuntimeSpec::default());
        place(named(name), Some(saved), Some("/w"), true, true, &caller)
    }

    fn full(name: &str) -> PassedOver {
        let message = format!("docker@{name} runs 2 of the 2 containers it may");
        PassedOver { runtime: named(name), reason: PassedFor::Full, message, at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn the_order_is_the_lists_and_what_is_told_is_the_seeds() {
        let places = [at("gpubox"), at("spare"), at("last")];
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(survey(&places, &[], now), (vec![], Some(&places[0])));
        let (passed, next) = survey(&places, &[full("gpubox")], now);
        assert_eq!(next, Some(&places[1]));
        assert_eq!(
            told("box", &places, &passed, Some(&named("spare"))),
            "docker:gpubox cannot hold 'box': docker@gpubox runs 2 of the 2 containers it may; using docker:spare"
        );
        // a later one that was asked before does not hide an earlier one that was not
        assert_eq!(survey(&places, &[full("spare")], now), (vec![], Some(&places[0])));
        let (passed, next) = survey(&places, &[full("last"), full("spare"), full("gpubox")], now);
        assert_eq!(next, None);
        assert_eq!(
            told("box", &places, &passed, None),
            "docker:gpubox cannot hold 'box': docker@gpubox runs 2 of the 2 containers it may; docker:spare cannot hold 'box': \
             docker@spare runs 2 of the 2 containers it may; docker:last cannot hold 'box': docker@last runs 2 of the 2 \
             containers it may"
        );
        // one without a list is told its reason as it is
        let (passed, next) = survey(&places[..1], &[full("gpubox")], now);
        assert_eq!(next, None);
        assert_eq!(told("box", &places[..1], &passed, None), "docker@gpubox runs 2 of the 2 containers it may");
    }

    #[test]
    fn what_cannot_be_used_is_a_reason_in_its_turn_and_a_harness_ends_the_list() {
        let now = Timestamp::UNIX_EPOCH;
        let caller = CallerContext::default();
        let slurm = RuntimeRef::named(Backend::Slurm, "cluster");
        let mut places = vec![at("gpubox"), place(slurm, None, Some("/w"), false, false, &caller)];
        places.push(place(named("nope"), None, Some("/w"), false, true, &caller));
        places.push(at("spare"));
        let (passed, next) = survey(&places, &[full("gpubox")], now);
        assert_eq!(next, Some(&places[3]));
        let said: Vec<_> = passed.iter().map(|p| (p.runtime.to_string(), p.message.clone())).collect();
        assert_eq!(said[1], ("slurm:cluster".into(), "environments on slurm are not supported yet; use docker or swarm".into()));
        assert_eq!(said[2].0, "docker:nope");
        assert!(said[2].1.starts_with("no docker runtime is saved as 'nope'; "), "{said:?}");
        places[2] = Place { harness: Some("its CLI cannot run".into()), ..at("far") };
        let (passed, next) = survey(&places, &[full("gpubox")], now);
        assert_eq!((next, passed.last().map(|p| p.message.as_str())), (None, Some("its CLI cannot run")));
    }

    #[test]
    fn a_fallen_to_runtime_has_its_own_workdir_first_and_the_named_one_what_was_asked_for() {
        let caller = CallerContext { env: [("HOME".into(), "/home/me".into())].into(), ..CallerContext::default() };
        let saved = || {
            let spec = RuntimeSpec { workdir: Some("~/own".into()), ..RuntimeSpec::default() };
            Some(Resource::<Runtime>::new("docker:a", spec))
        };
        let dir = |asked, is_named| place(named("a"), saved(), asked, is_named, true, &caller).workdir;
        assert_eq!(dir(Some("/w"), true).as_deref(), Some("/w"));
        assert_eq!(dir(None, true).as_deref(), Some("/home/me/own"));
        assert_eq!(dir(Some("/w"), false).as_deref(), Some("/home/me/own"));
        let none = place(named("a"), None, None, false, true, &caller);
        assert!(none.unusable.is_some() && none.workdir.is_none());
    }

    #[test]
    fn an_answer_passes_over_or_says_nothing() {
        let short = |could_fit| Ok(Admitted::Short(Shortage { message: "no".into(), could_fit }));
        let reason = |a| answer(a).map(|r| r.map_err(|(reason, _)| reason));
        assert_eq!(reason(short(true)), Ok(Err(PassedFor::Full)));
        assert_eq!(reason(short(false)), Ok(Err(PassedFor::TooSmall)));
        let gone = DriverError::Unreachable { at: "d".into(), why: "no".into() };
        assert_eq!(reason(Err(gone)), Ok(Err(PassedFor::Unreachable)));
        assert_eq!(reason(Err(DriverError::Refused("no".into()))), Ok(Err(PassedFor::Refused)));
        let busy = DriverError::Transient("busy".into());
        assert_eq!(reason(Err(busy.clone())), Err(busy));
        assert!(may_change(&[full("a")]));
        assert!(!may_change(&[PassedOver { reason: PassedFor::TooSmall, ..full("a") }]));
    }
}
