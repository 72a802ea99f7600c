//! What an apply would do: the apply itself, on a copy of the store and with a rehearsal of what follows.

use super::apply::{Applier, apply, shown};
use super::rehearsal::Rehearsal;
use crate::world::World;
use async_trait::async_trait;
use hmz_api::kinds::condition;
use hmz_api::launch::CallerContext;
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult, Effect, Planned};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{AnyResource, Error};
use hmz_store::Store;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Plans an apply. Nothing is changed anywhere, and no daemon is asked but those on which something would happen.
///
/// # Errors
/// As [`apply`] refuses a request as a whole; a store that cannot be read.
pub async fn plan(world: &World, request: &ApplyRequest) -> Result<Vec<Planned>, Error> {
    let rehearsal = Rehearsal::new(world).await?;
    let before = known(rehearsal.store()).await?;
    let results = apply(rehearsal.store(), &Rehearsed(&rehearsal), request).await?;
    // in the order in which they are told of: who comes first has the room
    let touched: Vec<(String, String)> =
        results.iter().filter(|r| is_change(r)).map(|r| (r.kind.clone(), r.name.clone())).collect();
    rehearsal.settle(&touched).await?;
    let mut planned = Vec::with_capacity(results.len());
    for (nth, result) in results.into_iter().enumerate() {
        let key = (result.kind.clone(), result.name.clone());
        let after = rehearsal.store().get_any(&key.0, &key.1).await?;
        let mut effects = if is_change(&result) { rehearsal.effects(&key) } else { Vec::new() };
        let outcome = match (result.outcome, after.as_ref().and_then(verdict::of)) {
            (Ok(Applied::Unchanged), _) => Ok(Applied::Unchanged),
            (Ok(Applied::Created | Applied::Configured | Applied::Replaced), Some(Verdict::Refused(error))) => Err(error),
            (Ok(applied), Some(Verdict::Waits(why))) if applied != Applied::Pruned => {
                effects.push(Effect::Wait { why });
                Ok(applied)
            }
            (Ok(Applied::Pruned), _) => {
                effects.extend(after.as_ref().map(|left| Effect::Wait { why: stays(left) }));
                Ok(Applied::Pruned)
            }
            (outcome, _) => outcome,
        };
        let name = request.resources.get(nth).map_or(key.1.clone(), |asked| match asked.metadata().name.as_str() {
            "" => shown(asked.metadata()),
            _ => key.1.clone(),
        });
        let after = after.filter(|after| outcome.is_ok() && !after.metadata().is_deleting());
        let before = before.get(&key).cloned();
        planned.push(Planned { kind: key.0, name, outcome, before, after, effects });
    }
    Ok(planned)
}

/// Why one that is to go is still there.
fn stays(left: &AnyResource) -> String {
    let ready = match left {
        AnyResource::Environment(environment) => environment.status.conditions.get(condition::READY),
        _ => None,
    };
    let said = ready.map(|ready| ready.message.clone()).filter(|message| !message.is_empty());
    said.unwrap_or_else(|| "it goes when all it has started is gone".into())
}

fn is_change(result: &ApplyResult) -> bool {
    result.outcome.as_ref().is_ok_and(|applied| *applied != Applied::Unchanged)
}

async fn known(store: &Store) -> Result<BTreeMap<(String, String), AnyResource>, Error> {
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
