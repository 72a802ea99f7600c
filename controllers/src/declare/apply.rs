//! Carrying an apply out on a store: each resource by itself, then what a set has lost.

use super::decide::{Asked, Decision, How, decide};
use async_trait::async_trait;
use hmz_api::launch::CallerContext;
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult};
use hmz_api::{AnyResource, Error, ErrorKind, Metadata, failpoint, name};
use hmz_store::{Store, StoreError};
use serde_json::Value;
use std::collections::BTreeSet;
use uuid::Uuid;

/// How many attempts one resource makes against other writers.
const ATTEMPTS: u32 = 16;

/// The order in which what a set has lost goes: first what uses the rest.
const LAST_TO_FIRST: [&str; 4] = ["Run", "Environment", "Flow", "Runtime"];

/// What is used by others, and so is as it is declared before whoever uses it looks.
const IS_USED: [&str; 2] = ["Flow", "Runtime"];

/// Who applies, as far as the store does not know.
#[async_trait]
pub trait Applier: Send + Sync {
    /// The uid of the next thing that is made.
    fn uid(&self) -> Uuid {
        Uuid::new_v4()
    }

    /// Keeps what a verb passed along, for a run's or an environment's uid.
    fn put(&self, uid: Uuid, context: &CallerContext);

    /// Whether anything is kept for it.
    fn knows(&self, uid: Uuid) -> bool;

    /// Forgets it.
    fn forget(&self, uid: Uuid);

    /// Waits until a resource whose deletion was asked for is gone, or can be gone on without.
    ///
    /// # Errors
    /// It does not go.
    async fn gone(&self, store: &Store, kind: &'static str, name: &str) -> Result<(), Error>;
}

/// Applies each resource by itself, in their order but for what others use, which comes first; one that is refused does not hold
/// up another. Members that a set has lost go when nothing was refused.
///
/// # Errors
/// The request as a whole is refused: it asks for what cannot be, such as a set that is emptied by an oversight.
pub async fn apply(store: &Store, applier: &dyn Applier, request: &ApplyRequest) -> Result<Vec<ApplyResult>, Error> {
    check(request)?;
    let mut results = Vec::with_capacity(request.resources.len());
    let mut declared = BTreeSet::new();
    let mut order: Vec<(usize, &AnyResource)> = request.resources.iter().enumerate().collect();
    order.sort_by_key(|(_, resource)| !IS_USED.contains(&resource.kind()));
    for (nth, resource) in order {
        let kind = resource.kind().to_owned();
        let done = match asked(resource, request.written.get(nth)) {
            Ok(asked) => one(store, applier, request, asked).await,
            Err(e) => Err(e),
        };
        let (name, outcome) = match done {
            Ok((name, applied)) => (name, Ok(applied)),
            Err(e) => (shown(resource.metadata()), Err(e)),
        };
        declared.insert((kind.clone(), name.clone()));
        results.push((nth, ApplyResult { kind, name, outcome }));
    }
    // they are told of as they are declared
    results.sort_by_key(|(nth, _)| *nth);
    let mut results: Vec<ApplyResult> = results.into_iter().map(|(_, result)| result).collect();
    if let Some(set) = request.set.as_deref().filter(|_| request.prune) {
        if results.iter().all(|result| result.outcome.is_ok()) {
            results.extend(prune(store, set, &declared).await?);
        } else {
            results.extend(lost(store, set, &declared).await?.into_iter().map(|one| ApplyResult {
                kind: one.kind().to_owned(),
                name: one.metadata().name.clone(),
                outcome: match one.metadata().is_deleting() {
                    true => Ok(Applied::Going),
                    false => Err(Error::failed(format!("it stays in the set '{set}', since not all of that could be applied"))),
                },
            }));
        }
    }
    Ok(results)
}

fn asked(resource: &AnyResource, written: Option<&Value>) -> Result<Asked, Error> {
    Asked::of(resource, written.filter(|written| !written.is_null()))
}

/// What of a request would be refused at this moment, so that one that is to be carried out whole or not at all can be left.
///
/// # Errors
/// The request as a whole would be, as [`apply`] has it.
pub async fn refusals(store: &Store, request: &ApplyRequest) -> Result<Vec<(String, String, Error)>, Error> {
    check(request)?;
    let how = how(request);
    let mut refused = Vec::new();
    for (nth, resource) in request.resources.iter().enumerate() {
        let judged = match asked(resource, request.written.get(nth)) {
            Ok(asked) => {
                let current = store.get_any(asked.key().0, asked.key().1).await?;
                decide(current.as_ref(), &asked, &how).map(drop)
            }
            Err(e) => Err(e),
        };
        if let Err(e) = judged {
            refused.push((resource.kind().to_owned(), shown(resource.metadata()), e));
        }
    }
    Ok(refused)
}

fn how(request: &ApplyRequest) -> How<'_> {
    How {
        replace: request.replace,
        set: request.set.as_deref(),
        attached: request.attached,
        cwd: &request.caller.cwd,
        trace: request.caller.trace.as_deref(),
    }
}

/// Whether the request can be meant.
fn check(request: &ApplyRequest) -> Result<(), Error> {
    if let Some(set) = &request.set {
        name::check(set)?;
    }
    if !request.prune {
        return Ok(());
    }
    let Some(set) = &request.set else {
        return Err(Error::usage("only a set can be pruned: name it with --set NAME"));
    };
    if request.resources.is_empty() && !request.allow_empty {
        return Err(Error::refused(format!("nothing is declared, so every member of the set '{set}' would be deleted"))
            .hint("if that is meant: --allow-empty"));
    }
    match request.resources.iter().find(|resource| resource.metadata().name.is_empty() || is_generated(resource.metadata())) {
        Some(one) => Err(Error::refused(format!(
            "{} '{}' has a generateName, so each apply would delete what the one before it has made: a set that is pruned \
             needs names",
            one.kind().to_ascii_lowercase(),
            shown(one.metadata())
        ))),
        None => Ok(()),
    }
}

/// Whether its name was made from `generateName` for this very request.
fn is_generated(metadata: &Metadata) -> bool {
    metadata.generate_name.as_ref().is_some_and(|prefix| metadata.name.starts_with(prefix.as_str()))
}

/// The name as it is shown; one that is still to be made ends in `?`.
pub(super) fn shown(metadata: &Metadata) -> String {
    if metadata.name.is_empty() {
        format!("{}?", metadata.generate_name.clone().unwrap_or_default())
    } else {
        metadata.name.clone()
    }
}

async fn one(store: &Store, applier: &dyn Applier, request: &ApplyRequest, asked: Asked) -> Result<(String, Applied), Error> {
    let how = how(request);
    let (kind, name) = (asked.key().0, asked.key().1.to_owned());
    let mut done = Applied::Created;
    for _ in 0..ATTEMPTS {
        let current = if name.is_empty() { None } else { store.get_any(kind, &name).await? };
        let uid = current.as_ref().and_then(|current| current.metadata().uid);
        let (next, applied) = match decide(current.as_ref(), &asked, &how)? {
            Decision::Create(new) => match create(store, applier, request, new).await {
                Ok(made) => return Ok((made.metadata().name.clone(), done)),
                Err(StoreError::AlreadyExists { .. }) => continue,
                Err(e) => return Err(e.into()),
            },
            Decision::Anew(_) => {
                match store.delete_any(kind, &name).await {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
                applier.gone(store, kind, &name).await?;
                done = Applied::Replaced;
                continue;
            }
            Decision::Nothing => {
                // a daemon that was started since knows nothing of the caller of a run that has not begun
                if let Some(uid) = uid.filter(|uid| !applier.knows(*uid)) {
                    applier.put(uid, &request.caller);
                }
                return Ok((name, Applied::Unchanged));
            }
            Decision::Note(next) => (next, Applied::Unchanged),
            Decision::Change(next) => (next, Applied::Configured),
        };
        if let Some(uid) = uid.filter(|uid| applied == Applied::Configured || !applier.knows(*uid)) {
            applier.put(uid, &request.caller);
        }
        match store.update_any(next).await {
            Ok(_) => return Ok((name, applied)),
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Error::new(ErrorKind::Conflict, "it changes too often to be applied"))
}

async fn create(
    store: &Store,
    applier: &dyn Applier,
    request: &ApplyRequest,
    mut new: AnyResource,
) -> Result<AnyResource, StoreError> {
    // the context has to be there before the controllers look
    let uid = applier.uid();
    new.metadata_mut().uid = Some(uid);
    applier.put(uid, &request.caller);
    let made = store.create_any(new).await;
    match &made {
        Ok(_) => failpoint::pass("apply.created"),
        Err(_) => applier.forget(uid),
    }
    made
}

/// The members of a set that are not declared any more, in the order they go; some may be going already.
async fn lost(store: &Store, set: &str, declared: &BTreeSet<(String, String)>) -> Result<Vec<AnyResource>, Error> {
    let mut members = store.members(set).await?;
    members.retain(|one| !declared.contains(&(one.kind().to_owned(), one.metadata().name.clone())));
    members.sort_by_key(|one| LAST_TO_FIRST.iter().position(|kind| *kind == one.kind()));
    Ok(members)
}

/// Asks for the deletion of those. One that has gone meanwhile is as it should be.
async fn prune(store: &Store, set: &str, declared: &BTreeSet<(String, String)>) -> Result<Vec<ApplyResult>, Error> {
    let mut results = Vec::new();
    for one in lost(store, set, declared).await? {
        let name = one.metadata().name.clone();
        let outcome = match one.metadata().is_deleting() {
            true => Ok(Applied::Going),
            false => match store.delete_any(one.kind(), &name).await {
                Ok(_) => Ok(Applied::Pruned),
                Err(StoreError::NotFound { .. }) => continue,
                Err(e) => Err(e.into()),
            },
        };
        results.push(ApplyResult { kind: one.kind().to_owned(), name, outcome });
    }
    Ok(results)
}
