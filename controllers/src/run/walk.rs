//! A gang's way through the places its environments may be put on: all of them are held in the end, or none. Pure.

use super::plan::Group;
use crate::environment::plan::{key_of, placed, standing, target_of, want_of};
use crate::placement::{self, Place, Placed, may_change, survey, told};
use crate::target::{is_same_daemon, not_saved};
use hmz_api::kinds::condition::SCHEDULED;
use hmz_api::kinds::{Environment, PassedOver, Share};
use hmz_api::{Resource, RuntimeRef};
use hmz_drivers::{Admitted, BoxKey, DriverError, Promised, Target};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What the places that were asked in this pass said, by environment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Walk {
    /// Where each share is held, and what has to be given back if another's cannot be.
    pub held: BTreeMap<String, Held>,
    /// Which runtimes could not hold it.
    pub passed: BTreeMap<String, Vec<PassedOver>>,
    /// Runtimes that could not hold the whole of what goes there, and are asked for one after another since some of it may
    /// go elsewhere.
    pub apart: BTreeSet<RuntimeRef>,
    /// How much of it is so.
    pub stage: Stage,
}

/// Whether what a walk says is held is held. A gang that asks several times weighs all of it first: one that got a part, and
/// gave it back since it cannot have the rest, would wake everybody who waits for the same, and be woken by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// It is.
    #[default]
    Holding,
    /// It would be: nothing was asked for yet.
    Weighing,
    /// It is, and all of it was weighed before.
    Weighed,
}

/// A share that is held, and not yet written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The daemon.
    pub target: Target,
    /// The box it is for.
    pub key: BoxKey,
    /// The place.
    pub placed: Placed,
    /// The share.
    pub share: Share,
}

/// What is to be asked next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// This, of one daemon.
    Ask(Box<Group>),
    /// Nothing: every share is held.
    AllHeld,
    /// Nothing: one of them can be held nowhere.
    Nowhere {
        /// Why, in the order of its list.
        message: String,
        /// Whether that may change.
        could_fit: bool,
    },
}

/// Why one is asked for nowhere whose runtime is not there any more: it went in the moment that its run was accepted, or was
/// let go by force. Its own controller says so too, and what is held for it is not.
fn gone(env: &Resource<Environment>, role: &str) -> String {
    if env.status.serves.is_some() {
        return not_saved(&env.spec.runtime, None);
    }
    format!("'{role}': {}", not_saved(&env.spec.runtime, Some(role)))
}

/// The places of an environment. One that has no list is asked whatever its runtime has become since it was accepted.
fn places_of(env: &Resource<Environment>, places: &BTreeMap<String, Vec<Place>>) -> Vec<Place> {
    let status = &env.status;
    let mut places = match places.get(&env.metadata.name).map(Vec::as_slice) {
        Some(several @ [_, _, ..]) => several.to_vec(),
        other => vec![Place {
            runtime: status.used.clone().unwrap_or_else(|| env.spec.runtime.clone()),
            spec: other.and_then(<[Place]>::first).map(|p| p.spec.clone()).unwrap_or_default(),
            endpoint: None,
            workdir: env.spec.workdir.clone(),
            unusable: None,
            harness: None,
        }],
    };
    // an address that was written down stays
    for place in places.iter_mut().filter(|p| status.used.as_ref() == Some(&p.runtime)) {
        place.endpoint = status.endpoint.clone().or(place.endpoint.take());
    }
    places
}

/// What is to be asked next for a gang.
pub fn next(
    gang: &[&Resource<Environment>],
    places: &BTreeMap<String, Vec<Place>>,
    walk: &Walk,
    instance: &str,
    now: Timestamp,
) -> Next {
    let scheduled = |env: &Resource<Environment>| env.status.conditions.is_true(SCHEDULED);
    // in the order of names, so that two runs that span the same daemons do not hold half each for long
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for env in gang.iter().filter(|e| !scheduled(e) && !walk.held.contains_key(&e.metadata.name)) {
        let name = &env.metadata.name;
        let role = key_of(env, instance).role;
        if places.get(name).is_some_and(Vec::is_empty) {
            return Next::Nowhere { message: gone(env, &role), could_fit: false };
        }
        let places = places_of(env, places);
        let mut asked = standing(env, None);
        asked.extend(walk.passed.get(name).into_iter().flatten().cloned());
        let (passed, found) = survey(&places, &asked, now);
        let Some(place) = found else {
            // what was started of the gang does not wait for the rest
            let could_fit = may_change(&passed) && !gang.iter().any(|e| scheduled(e));
            return Next::Nowhere { message: told(&role, &places, &passed, None), could_fit };
        };
        let endpoint = place.endpoint.clone();
        let target = if places.len() > 1 { place.target() } else { target_of(env, Some(&place.spec)) };
        let at = format!("{} {}", place.runtime.resource_name(), endpoint.as_deref().unwrap_or_default());
        let group = groups.entry(at).or_insert_with(|| Group {
            target,
            endpoint,
            names: Vec::new(),
            wants: Vec::new(),
            placed: Vec::new(),
            may_part: false,
        });
        if walk.apart.contains(&place.runtime) && !group.names.is_empty() {
            continue;
        }
        let after: Vec<PassedOver> = passed.iter().cloned().chain([passed_at(&place.runtime, now)]).collect();
        group.may_part |= survey(&places, &after, now).1.is_some();
        group.names.push(name.clone());
        group.wants.push(want_of(env, Some(&place.spec), instance));
        let told = told(&role, &places, &passed, Some(&place.runtime));
        group.placed.push(placed(place, passed, told));
    }
    groups.into_values().next().map_or(Next::AllHeld, |group| Next::Ask(Box::new(group)))
}

fn passed_at(runtime: &RuntimeRef, at: Timestamp) -> PassedOver {
    PassedOver { runtime: runtime.clone(), reason: hmz_api::kinds::PassedFor::Full, message: String::new(), at }
}

impl Walk {
    /// Whether a group of a gang of so many is to be weighed before any of them is asked for.
    pub fn weighs(&self, group: &Group, gang: usize) -> bool {
        match self.stage {
            Stage::Weighing => true,
            Stage::Weighed => false,
            Stage::Holding => gang > 1 && (group.names.len() < gang || group.may_part),
        }
    }

    /// What is promised to others of the gang on the daemon that a group is weighed on.
    pub fn promised(&self, at: &Target) -> Vec<Promised> {
        let on = self.held.values().filter(|held| is_same_daemon(&held.target, at));
        let promised = |held: &Held| Promised {
            key: held.key.clone(),
            name: format!("'{}' of the same run", held.key.role),
            provider: held.target.runtime.provider().to_owned(),
            share: held.share.clone(),
        };
        on.map(promised).collect()
    }

    /// All of it would be held: from now on it is.
    pub fn weighed(&mut self) {
        self.held.clear();
        self.stage = Stage::Weighed;
    }

    /// Takes a daemon's answer in.
    ///
    /// # Errors
    /// The daemon did not do it and may when it is asked again.
    pub fn answered(&mut self, group: Group, answer: Result<Admitted, DriverError>, now: Timestamp) -> Result<(), DriverError> {
        let Group { target, endpoint, names, wants, placed, may_part } = group;
        match placement::answer(answer)? {
            Ok(shares) => {
                for (((name, want), mut placed), share) in names.into_iter().zip(wants).zip(placed).zip(shares) {
                    placed.endpoint.clone_from(&endpoint);
                    self.held.insert(name, Held { target: target.clone(), key: want.key, placed, share });
                }
            }
            Err(_) if may_part && names.len() > 1 => {
                self.apart.insert(target.runtime);
            }
            Err((reason, message)) => {
                for name in names {
                    let passed = PassedOver { runtime: target.runtime.clone(), reason, message: message.clone(), at: now };
                    self.passed.entry(name).or_default().push(passed);
                }
            }
        }
        Ok(())
    }

    /// Everything that is held, to be given back; nothing is then.
    pub fn take_held(&mut self) -> Vec<(Target, BoxKey)> {
        if self.stage == Stage::Weighing {
            self.held.clear();
        }
        std::mem::take(&mut self.held).into_values().map(|h| (h.target, h.key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::kinds::{EnvironmentSpec, RuntimeSpec};
    use hmz_api::{Backend, Cpus};
    use hmz_drivers::Shortage;
    use uuid::Uuid;

    fn named(name: &str) -> RuntimeRef {
        RuntimeRef::named(Backend::Docker, name)
    }

    fn place(name: &str) -> Place {
        let (runtime, spec, endpoint) = (named(name), RuntimeSpec::default(), Some(format!("unix:///{name}.sock")));
        Place { runtime, spec, endpoint, workdir: Some(format!("/{name}")), unusable: None, harness: None }
    }

    fn env(n: u128, runtime: &str) -> Resource<Environment> {
        let spec: EnvironmentSpec =
            serde_json::from_str(&format!(r#"{{"runtime": "docker:{runtime}", "workdir": "/w"}}"#)).unwrap();
        let mut env = Resource::<Environment>::new(format!("e{n}"), spec);
        env.metadata.uid = Some(Uuid::from_u128(n));
        env.status.used = Some(named(runtime));
        env.status.endpoint = Some(format!("unix:///{runtime}.sock"));
        env
    }

    fn short(message: &str) -> Result<Admitted, DriverError> {
        Ok(Admitted::Short(Shortage { message: message.into(), could_fit: true }))
    }

    /// A walk to its end: what each daemon is asked, and what it answers, from `answers` by runtime.
    fn walk(
        gang: &[Resource<Environment>],
        lists: &[&[&str]],
        mut answers: impl FnMut(&Group) -> Result<Admitted, DriverError>,
    ) -> Vec<String> {
        let of = |e: &Resource<Environment>, list: &&[&str]| (e.metadata.name.clone(), list.iter().map(|n| place(n)).collect());
        let places: BTreeMap<String, Vec<Place>> = gang.iter().zip(lists).map(|(e, list)| of(e, list)).collect();
        let gang: Vec<&Resource<Environment>> = gang.iter().collect();
        let (mut walk, mut said, now) = (Walk::default(), Vec::new(), Timestamp::UNIX_EPOCH);
        loop {
            match next(&gang, &places, &walk, "us", now) {
                Next::Ask(group) => {
                    let without = gang.iter().filter(|e| !e.status.conditions.is_true(SCHEDULED)).count();
                    let weighs = walk.weighs(&group, without);
                    if weighs {
                        walk.stage = Stage::Weighing;
                    }
                    let how = if weighs { "weigh" } else { "ask" };
                    said.push(format!("{how} {} for {}", group.target.runtime, group.names.join(", ")));
                    let answer = answers(&group);
                    if let Err(error) = walk.answered(*group, answer, now) {
                        said.push(format!("again: {error}; give back {}", walk.take_held().len()));
                        return said;
                    }
                }
                Next::AllHeld if walk.stage == Stage::Weighing => walk.weighed(),
                Next::AllHeld => {
                    for (name, held) in &walk.held {
                        let Placed { runtime, endpoint, workdir, told, passed } = &held.placed;
                        let told = if passed.is_empty() { "" } else { told };
                        let (endpoint, workdir) = (endpoint.as_deref().unwrap_or("-"), workdir.as_deref().unwrap_or("-"));
                        said.push(format!("{name} on {runtime} at {endpoint} in {workdir}: {told}"));
                    }
                    return said;
                }
                Next::Nowhere { message, could_fit } => {
                    let held: Vec<String> =
                        walk.take_held().iter().map(|(t, k)| format!("{} on {}", k.role, t.runtime)).collect();
                    said.push(format!("nowhere, could fit {could_fit}: {message}; give back {}", held.join(", ")));
                    return said;
                }
            }
        }
    }

    fn holds(group: &Group) -> Result<Admitted, DriverError> {
        Ok(Admitted::Held(group.wants.iter().map(|_| Share { cpus: Some(Cpus::whole(1)), ..Share::default() }).collect()))
    }

    #[test]
    fn what_a_gang_asks_and_where_it_is_in_the_end() {
        let mut out = Vec::new();
        let mut says = |what: &str, lines: Vec<String>| out.push(format!("# {what}\n{}", lines.join("\n")));
        let two = [env(1, "a"), env(2, "a")];
        let (list, alone): (&[&str], &[&str]) = (&["a", "b"], &["a"]);
        says("room for all", walk(&two, &[list, list], holds));
        let one_fits = |group: &Group| match (group.target.runtime.name.as_deref(), group.names.as_slice()) {
            (Some("a"), [_, _]) => short("runs 0 of the 1 containers it may, and 'e1' and 'e2' ask for 2"),
            (Some("a"), [name]) if name == "e2" => short("runs 1 of the 1 containers it may"),
            _ => holds(group),
        };
        says("room for one here and for one there", walk(&two, &[list, list], one_fits));
        says("no list, and the whole is said", walk(&two, &[alone, alone], |_| short("no room for both")));
        let full = |group: &Group| short(&format!("docker@{} is full", group.target.runtime.provider()));
        says("no room anywhere", walk(&two[..1], &[list], full));
        let split = [env(1, "a"), env(2, "c")];
        let c_is_full = |group: &Group| if group.names == ["e2"] { full(group) } else { holds(group) };
        let mut asked = 0;
        let taken_meanwhile = |group: &Group| {
            asked += 1;
            if asked > 2 && group.names == ["e2"] { full(group) } else { holds(group) }
        };
        says(
            "what had room when it was weighed has none when it is asked for",
            walk(&split, &[alone, &["c", "d"]], taken_meanwhile),
        );
        says("one is held and the other cannot be", walk(&split, &[alone, &["c", "d"]], c_is_full));
        let gone = |group: &Group| match group.target.runtime.provider() {
            "a" => Err(DriverError::Unreachable { at: "docker@a".into(), why: "refused".into() }),
            "b" => Err(DriverError::Refused("docker@b: not like this".into())),
            _ => holds(group),
        };
        says("a daemon does not answer, one refuses", walk(&two[..1], &[&["a", "b", "c"]], gone));
        says("all of them refuse", walk(&two[..1], &[&["b"]], gone));
        let busy = |group: &Group| match group.target.runtime.provider() {
            "c" => Err(DriverError::Transient("busy".into())),
            _ => holds(group),
        };
        says("one is busy", walk(&split, &[alone, &["c", "d"]], busy));
        // what was refused after its share was held is not asked again, and what is up does not wait
        let mut refused = env(1, "a");
        let error = DriverError::Refused("no such image".into());
        crate::environment::outcome::pull_failed(&mut refused, &error, true, Timestamp::UNIX_EPOCH);
        says("its image was refused", walk(std::slice::from_ref(&refused), &[list], holds));
        says("its runtime is gone", walk(&split, &[list, &[]], holds));
        let mut up = env(2, "a");
        crate::environment::outcome::held(&mut up, Share::default(), Timestamp::UNIX_EPOCH);
        says("beside one that is up", walk(&[refused, up], &[list, list], full));
        insta::assert_snapshot!(out.join("\n\n"));
    }
}
