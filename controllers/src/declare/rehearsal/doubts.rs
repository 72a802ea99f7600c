//! What nobody can know before, however exactly it is rehearsed: who of several that ask for the same room asks first, and
//! whether one that asks once does so before room is given back or after.
//!
//! A rehearsal asks in one order. Where each answer would be the same in any other, that order is as good as any; where one
//! would not, whom it concerns is told so.

use super::driver::{Asked, Onlooker, Would, is_same_place};
use super::{Key, Rehearsal, others};
use hmz_api::kinds::{Admission, Environment, Flow, Runtime};
use hmz_api::rest::Effect;
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Error, Kind, Resource};
use hmz_drivers::{Admitted, BoxKey, Promised, Want, is_same_box};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How many of those who want the same are named.
const NAMED: usize = 8;

impl Rehearsal {
    /// What cannot be told of these since it is chance, by whom it concerns; `touched` are those that were applied, `others` those
    /// that this concerns, each with the one of `touched` that it is for, and `before` is what was there.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub async fn doubts(
        &self,
        touched: &[Key],
        others: &[(Key, Key)],
        before: &BTreeMap<Key, AnyResource>,
    ) -> Result<BTreeMap<Key, Effect>, Error> {
        let mut unsure = self.going(touched, others).await?;
        unsure.extend(self.coming(touched, before).await?);
        let is_used = |key: &Key| [Runtime::KIND, Flow::KIND].contains(&key.0.as_str());
        // who waited for a runtime or a flow asks when that is applied, and who waited for room when it is given back
        let at_once = |who: &Key| touched.contains(who) || others.iter().any(|(other, cause)| other == who && is_used(cause));
        for onlooker in self.onlookers.values() {
            let doubts = of_daemons(onlooker).await;
            let mut rivals: BTreeMap<BTreeSet<Uuid>, (BTreeSet<Key>, usize)> = BTreeMap::new();
            for (nth, doubt) in doubts.iter().enumerate() {
                let What::Contended(holders) = &doubt.what else { continue };
                match rivals.get_mut(holders) {
                    Some((_, last)) => *last = nth,
                    None => {
                        let keys = holders.iter().filter_map(|uid| self.owner(*uid)).collect();
                        rivals.insert(holders.clone(), (keys, nth));
                    }
                }
            }
            for (nth, Doubt { of, at, what }) in doubts.into_iter().enumerate() {
                let Some(who) = of.iter().find_map(|uid| self.owner(*uid)) else { continue };
                let now = self.store().get_any(&who.0, &who.1).await?;
                match what {
                    What::Contended(holders) => {
                        let Some((rivals, last)) = rivals.get(&holders) else { continue };
                        unsure.insert(who.clone(), contention(&at, rivals, &who, &who));
                        // where many find the same in their way, that is told of the last of them
                        for one in rivals.iter().filter(|one| *last == nth && **one != who) {
                            unsure.insert(one.clone(), contention(&at, rivals, &who, one));
                        }
                    }
                    What::Before if matches!(now.as_ref().and_then(verdict::of), Some(Verdict::Waits(_))) => {}
                    What::After if !at_once(&who) || !self.asks_once(now.as_ref()).await? => {}
                    What::Before | What::After => {
                        let why = format!("{at} is about to give room back, and it may ask before that or after");
                        unsure.insert(who, Effect::Unsure { why });
                    }
                }
            }
        }
        Ok(unsure)
    }

    /// Whether a refusal for room is not followed by another question for the same.
    async fn asks_once(&self, one: Option<&AnyResource>) -> Result<bool, Error> {
        let admission = match one {
            Some(AnyResource::Run(run)) => run.spec.admission.unwrap_or_default(),
            // it waits where nothing is said, and so does not for being told to
            Some(AnyResource::Environment(environment)) => environment.spec.admission.unwrap_or(Admission::Wait),
            _ => return Ok(false),
        };
        if admission == Admission::Refuse {
            return Ok(true);
        }
        for name in named(one) {
            let falls = self.store().part(&name, |runtime: &Resource<Runtime>| !runtime.spec.fallback.is_empty()).await?;
            if falls == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whom it concerns that they go with the apply that brings the runtime they wait for: they may be taken in between.
    async fn coming(&self, touched: &[Key], before: &BTreeMap<Key, AnyResource>) -> Result<BTreeMap<Key, Effect>, Error> {
        let (mut unsure, mut coming) = (BTreeMap::new(), Vec::new());
        for key in touched.iter().filter(|key| key.0 == Runtime::KIND) {
            if self.store().get_any(&key.0, &key.1).await?.is_some_and(|one| !one.metadata().is_deleting()) {
                coming.push(key.clone());
            }
        }
        if coming.is_empty() {
            return Ok(unsure);
        }
        let leads = others::leading_to(self.store(), &coming).await?;
        for key in touched {
            let is_there = self.store().get_any(&key.0, &key.1).await?.is_some_and(|one| !one.metadata().is_deleting());
            let waited =
                before.get(key).filter(|one| !matches!(verdict::of(one), Some(Verdict::Taken)) && !verdict::is_final(one));
            if let (false, Some(used)) = (is_there, named(waited).iter().find_map(|name| leads.get(name))) {
                let why = format!("{} comes with the same apply, and it may begin before it goes", used.1);
                unsure.insert(key.clone(), Effect::Unsure { why });
            }
        }
        Ok(unsure)
    }

    /// Whether room is given back anywhere.
    fn gives_back(&self) -> bool {
        self.onlookers.values().any(|onlooker| !onlooker.would().gone.is_empty())
    }

    /// Whom it concerns that a runtime or a flow goes with the apply that has them use it, or that gives back the room that they
    /// wait for there.
    async fn going(&self, touched: &[Key], others: &[(Key, Key)]) -> Result<BTreeMap<Key, Effect>, Error> {
        let (mut unsure, mut going) = (BTreeMap::new(), Vec::new());
        for key in touched.iter().filter(|key| [Runtime::KIND, Flow::KIND].contains(&key.0.as_str())) {
            let there = self.store().get_any(&key.0, &key.1).await?;
            if there.is_none_or(|one| one.metadata().is_deleting()) {
                going.push(key.clone());
            }
        }
        if going.is_empty() {
            return Ok(unsure);
        }
        let (runtimes, flows): (Vec<Key>, Vec<Key>) = going.into_iter().partition(|key| key.0 == Runtime::KIND);
        let leads = others::leading_to(self.store(), &runtimes).await?;
        for key in touched.iter().chain(others.iter().map(|(who, _)| who)) {
            let one = self.store().get_any(&key.0, &key.1).await?.filter(|one| !one.metadata().is_deleting());
            let runtime = named(one.as_ref()).iter().find_map(|name| leads.get(name));
            let flow = || flows.iter().find(|flow| matches!(&one, Some(AnyResource::Run(run)) if run.spec.flow == flow.1));
            let Some(used) = runtime.or_else(flow) else { continue };
            // one that is not applied has looked before, and does so again when there is room
            if !touched.contains(key) && !self.gives_back() {
                continue;
            }
            let is_refused = matches!(one.as_ref().and_then(verdict::of), Some(Verdict::Refused(_)));
            if is_refused || !self.effects(key).is_empty() {
                let why = |it: &str| format!("{} goes with the same apply, and {it} may look before that or after", used.1);
                unsure.insert(key.clone(), Effect::Unsure { why: why("it") });
                unsure.insert(used.clone(), Effect::Unsure { why: why(&shown(key)) });
            }
        }
        Ok(unsure)
    }
}

/// The runtimes that an environment or a run names.
fn named(one: Option<&AnyResource>) -> Vec<String> {
    match one {
        Some(AnyResource::Environment(environment)) => vec![environment.spec.runtime.resource_name()],
        Some(AnyResource::Run(run)) => {
            run.spec.environments.values().map(|request| request.place().runtime.resource_name()).collect()
        }
        _ => Vec::new(),
    }
}

/// That there is no room for all of those who have it now and of one who asks, as `of` is told it.
fn contention(at: &str, rivals: &BTreeSet<Key>, asks: &Key, of: &Key) -> Effect {
    let count = rivals.len() + usize::from(!rivals.contains(asks));
    let one = if count <= NAMED { asks } else { of };
    let named: BTreeSet<&Key> = rivals.iter().filter(|rival| *rival != one).take(NAMED - 1).chain([one]).collect();
    let mut names: Vec<String> = named.iter().map(|key| shown(key)).collect();
    if count > names.len() {
        names.push(format!("and {} others", count - names.len()));
    }
    Effect::Unsure { why: format!("{at} has no room for all of {}, and who asks first has it", names.join(", ")) }
}

/// What is not known of one question for room.
#[derive(Debug)]
struct Doubt {
    /// The boxes it was asked for.
    of: BTreeSet<Uuid>,
    /// The runtime, as refusals say it.
    at: String,
    what: What,
}

/// Why.
#[derive(Debug)]
enum What {
    /// These have the room now, and may not have it when they ask later.
    Contended(BTreeSet<Uuid>),
    /// It has no room there since it asked before room was given back.
    Before,
    /// It has room there since it asked after room was given back.
    After,
}

/// The doubts about what daemons of one backend were asked. One that does not answer any more has none.
async fn of_daemons(onlooker: &Onlooker) -> Vec<Doubt> {
    let asked = onlooker.would().asked.clone();
    let mut doubts = Vec::new();
    for one in asked {
        if let Some(what) = about(onlooker, &one).await {
            let of = one.wants.iter().map(|want| want.key.uid).collect();
            doubts.push(Doubt { of, at: one.target.runtime.at(), what });
        }
    }
    doubts
}

async fn about(onlooker: &Onlooker, asked: &Asked) -> Option<What> {
    let own = |key: &BoxKey| {
        asked.wants.iter().map(|want| want.key.uid).chain(asked.promised.iter().map(|p| p.key.uid)).any(|uid| uid == key.uid)
    };
    let (is_there, gone) = {
        let would = onlooker.would();
        (asked.wants.iter().all(|want| is_held(&would, asked, want)), would.gone_from(&asked.target))
    };
    if is_there {
        let (mine, given_back): (Vec<BoxKey>, Vec<BoxKey>) = gone.into_iter().partition(own);
        if given_back.is_empty() {
            return None;
        }
        let others = onlooker.would().promised_but(&asked.target, &own);
        return is_short(onlooker, asked, &others, &mine).await?.then_some(What::After);
    }
    let holders = onlooker.would().holders_but(&asked.target, &own);
    if !asked.is_short {
        // it had room there, and came to nothing elsewhere: it would not have come so far if others had asked before
        let others = onlooker.would().promised_but(&asked.target, &own);
        let is_contended = !others.is_empty() && is_short(onlooker, asked, &others, &gone).await?;
        return is_contended.then_some(What::Contended(holders));
    }
    if holders.is_empty() && gone.is_empty() {
        return None;
    }
    if is_short(onlooker, asked, &[], &gone).await? {
        return None;
    }
    Some(if holders.is_empty() { What::Before } else { What::Contended(holders) })
}

fn is_held(would: &Would, asked: &Asked, want: &Want) -> bool {
    would.held.iter().any(|(at, p)| is_same_box(&p.key, &want.key) && is_same_place(at, &asked.target))
}

/// Whether there would be no room beside these, when those are gone.
async fn is_short(onlooker: &Onlooker, asked: &Asked, others: &[Promised], gone: &[BoxKey]) -> Option<bool> {
    let promised: Vec<Promised> = others.iter().chain(&asked.promised).cloned().collect();
    let answer = onlooker.answers.weigh(&asked.target, &asked.wants, &promised, gone).await.ok()??;
    Some(matches!(answer, Admitted::Short(_)))
}

fn shown(key: &Key) -> String {
    let kind = if key.0 == Environment::KIND { "env".to_owned() } else { key.0.to_ascii_lowercase() };
    format!("{kind}/{}", key.1)
}
