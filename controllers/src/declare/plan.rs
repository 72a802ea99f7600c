//! What an apply would do: the apply itself, on a copy of the store and with a rehearsal of what follows.

use super::apply::{Applier, apply, shown};
use super::rehearsal::{Key, Rehearsal};
use crate::environment::outcome;
use crate::environment::plan::REFUSED_RETRY_MAX;
use crate::world::World;
use async_trait::async_trait;
use hmz_api::condition::ConditionStatus::Unknown;
use hmz_api::kinds::annotation::LAST_APPLIED;
use hmz_api::kinds::{PassedFor, condition};
use hmz_api::launch::CallerContext;
use hmz_api::rest::{Affected, Applied, ApplyRequest, ApplyResult, Effect, Planned};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Error, Metadata};
use hmz_store::Store;
use std::collections::{BTreeMap, BTreeSet};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use uuid::Uuid;

/// Plans an apply. Nothing is changed anywhere, and no daemon is asked but those on which something would happen.
///
/// # Errors
/// As [`apply`] refuses a request as a whole; a store that cannot be read.
pub async fn plan(world: &World, request: &ApplyRequest) -> Result<Vec<Planned>, Error> {
    // nothing of it is done, so nothing of it is logged as done
    rehearsed(world, request).with_subscriber(NoSubscriber::default()).await
}

async fn rehearsed(world: &World, request: &ApplyRequest) -> Result<Vec<Planned>, Error> {
    let rehearsal = Rehearsal::new(world).await?;
    let before = known(rehearsal.store()).await?;
    let results = apply(rehearsal.store(), &Rehearsed(&rehearsal), request).await?;
    // in the order in which they are told of: who comes first has the room
    let mut touched: Vec<Key> = Vec::new();
    for key in results.iter().filter(|r| is_change(r)).map(|r| (r.kind.clone(), r.name.clone())) {
        if is_moved(before.get(&key), rehearsal.store().get_any(&key.0, &key.1).await?.as_ref()) {
            touched.push(key);
        }
    }
    rehearsal.settle(&touched).await?;
    let others = rehearsal.settle_others(&touched).await?;
    let mut unsure = rehearsal.doubts(&touched, &others, &before).await?;
    let is_other: BTreeSet<Key> = others.iter().map(|(who, _)| who.clone()).collect();
    let mut affected = affected(&rehearsal, others, &before, &mut unsure).await?;
    let (mut planned, mut generated) = (Vec::with_capacity(results.len()), Vec::new());
    for (nth, result) in results.into_iter().enumerate() {
        let key = (result.kind.clone(), result.name.clone());
        let after = rehearsal.store().get_any(&key.0, &key.1).await?;
        // one that was to be made anew and does not go has been ended as far as it could be
        let is_told = is_change(&result) || (result.outcome.is_err() && !is_other.contains(&key));
        let mut effects = if is_told { rehearsal.effects(&key) } else { Vec::new() };
        let outcome = match (result.outcome, after.as_ref().and_then(verdict::of)) {
            (Ok(Applied::Unchanged), _) => Ok(Applied::Unchanged),
            (Ok(applied @ (Applied::Created | Applied::Configured | Applied::Replaced)), Some(Verdict::Refused(error))) => {
                if unsure.contains_key(&key) {
                    effects.push(Effect::Refuse { why: error.message });
                    Ok(applied)
                } else {
                    Err(error)
                }
            }
            (Ok(applied), Some(Verdict::Waits(why))) if !applied.goes() => {
                effects.push(Effect::Wait { why });
                Ok(applied)
            }
            (Ok(Applied::Pruned), _) => {
                if let Some(left) = &after {
                    effects.push(Effect::Wait { why: stays(&rehearsal, left).await? });
                }
                Ok(Applied::Pruned)
            }
            (outcome, _) => outcome,
        };
        if effects.is_empty() && touched.contains(&key) {
            effects.extend(after.as_ref().and_then(out_of_reach));
        }
        effects.extend(unsure.remove(&key));
        let others = affected.remove(&key).unwrap_or_default();
        let name = request.resources.get(nth).map_or(key.1.clone(), |asked| match asked.metadata().name.as_str() {
            "" => shown(asked.metadata()),
            _ => key.1.clone(),
        });
        let after = after.filter(|after| outcome.is_ok() && !after.metadata().is_deleting());
        let before = before.get(&key).cloned();
        if name != key.1 {
            generated.push((key.1, name.clone()));
        }
        planned.push(Planned { kind: key.0, name, outcome, before, after, effects, others });
    }
    for (from, to) in generated {
        let all =
            planned.iter_mut().flat_map(|one| one.effects.iter_mut().chain(one.others.iter_mut().flat_map(|o| &mut o.effects)));
        all.for_each(|effect| *effect = effect.clone().naming(&from, &to));
    }
    Ok(planned)
}

/// Whether anything is to be done for a resource that was changed: what is for people and selectors alone moves nothing.
fn is_moved(before: Option<&AnyResource>, after: Option<&AnyResource>) -> bool {
    let (Some(before), Some(after)) = (before.map(AnyResource::metadata), after.map(AnyResource::metadata)) else { return true };
    let is = |metadata: &Metadata| (metadata.uid, metadata.generation, metadata.is_deleting());
    is(before) != is(after) || !for_us(before).eq(for_us(after))
}

/// What annotations say to controllers.
fn for_us(metadata: &Metadata) -> impl Iterator<Item = (&String, &String)> {
    metadata.annotations.iter().filter(|(name, _)| name.starts_with("hmz/") && *name != LAST_APPLIED)
}

/// That its daemon is away, where that is why nothing would be done for it now.
fn out_of_reach(after: &AnyResource) -> Option<Effect> {
    let AnyResource::Environment(environment) = after else { return None };
    let away = environment.status.conditions.get(condition::READY).filter(|ready| ready.status == Unknown)?;
    Some(Effect::Wait { why: away.message.clone() })
}

/// What would become of those that are not applied, by what of the apply that is for: what would be done for each, and what it
/// would come to where that is something else than it is now.
async fn affected(
    rehearsal: &Rehearsal,
    others: Vec<(Key, Key)>,
    before: &BTreeMap<Key, AnyResource>,
    unsure: &mut BTreeMap<Key, Effect>,
) -> Result<BTreeMap<Key, Vec<Affected>>, Error> {
    let mut affected: BTreeMap<Key, Vec<Affected>> = BTreeMap::new();
    for (who, cause) in others {
        let after = rehearsal.store().get_any(&who.0, &who.1).await?;
        let mut effects = rehearsal.effects(&who);
        match (before.get(&who).and_then(verdict::of), after.as_ref().and_then(verdict::of)) {
            (Some(Verdict::Refused(_)), Some(Verdict::Refused(_))) => effects.extend(tried_again(after.as_ref())),
            (Some(Verdict::Waits(_)), Some(Verdict::Waits(_))) => {}
            (_, Some(Verdict::Refused(error))) => effects.push(Effect::Refuse { why: error.message }),
            (_, Some(Verdict::Waits(why))) => effects.push(Effect::Wait { why }),
            _ => {}
        }
        effects.extend(unsure.remove(&who));
        if !effects.is_empty() {
            affected.entry(cause).or_default().push(Affected { kind: who.0, name: who.1, effects });
        }
    }
    Ok(affected)
}

/// What is said of one that a daemon refused: the same is asked of it again after a pause, and whether that makes a difference it
/// alone knows.
fn tried_again(after: Option<&AnyResource>) -> Option<Effect> {
    let Some(AnyResource::Environment(environment)) = after else { return None };
    let scheduled = environment.status.conditions.get(condition::SCHEDULED);
    let was_refused = scheduled.is_some_and(|c| [outcome::RELEASED, outcome::PASSED_OVER].contains(&c.reason.as_str()));
    // or by each daemon of its list, which says so in one sentence
    let stands = !environment.is_refused() && environment.status.passed_over.iter().any(|p| p.reason == PassedFor::Refused);
    if !was_refused && !stands {
        return None;
    }
    let minutes = REFUSED_RETRY_MAX.as_secs() / 60;
    Some(Effect::Unsure { why: format!("what was refused of it is asked for again within {minutes} minutes") })
}

/// Why one that is to go is still there.
async fn stays(rehearsal: &Rehearsal, left: &AnyResource) -> Result<String, Error> {
    let ready = match left {
        AnyResource::Environment(environment) => environment.status.conditions.get(condition::READY),
        AnyResource::Runtime(runtime) => {
            let users = rehearsal.users(runtime.name()).await?;
            return Ok(format!("it goes when nothing is on it: {}", users.join(", ")));
        }
        _ => None,
    };
    let said = ready.map(|ready| ready.message.clone()).filter(|message| !message.is_empty());
    Ok(said.unwrap_or_else(|| "it goes when all it has started is gone".into()))
}

fn is_change(result: &ApplyResult) -> bool {
    result.outcome.as_ref().is_ok_and(|applied| applied.is_change())
}

async fn known(store: &Store) -> Result<BTreeMap<Key, AnyResource>, Error> {
    let items = store.list_any(None).await?.items;
    Ok(items.into_iter().map(|one| ((one.kind().to_owned(), one.metadata().name.clone()), one)).collect())
}

/// Who applies to the copy.
struct Rehearsed<'a>(&'a Rehearsal);

#[async_trait]
impl Applier for Rehearsed<'_> {
    fn put(&self, uid: Uuid, context: &CallerContext) {
        self.0.callers().put(uid, context);
    }

    fn knows(&self, uid: Uuid) -> bool {
        self.0.callers().knows(uid)
    }

    fn forget(&self, _: Uuid) {}

    async fn gone(&self, store: &Store, kind: &'static str, name: &str) -> Result<(), Error> {
        self.0.settle(&[(kind.to_owned(), name.to_owned())]).await?;
        match store.get_any(kind, name).await? {
            Some(_) => Err(Error::failed("what it has started could not be ended now, so it would not be begun anew yet")),
            None => Ok(()),
        }
    }
}
