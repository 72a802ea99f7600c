//! `POST /v1/apply`: what is declared becomes what is stored.

use super::{Api, Failure};
use axum::Json;
use axum::extract::State;
use hmz_api::kinds::{Admission, RuntimeSource, annotation};
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult};
use hmz_api::{AnyResource, Error, ErrorKind, Metadata, RuntimeRef, failpoint, name};
use hmz_store::StoreError;

/// How many attempts one resource makes against other writers.
const ATTEMPTS: u32 = 16;

/// Applies each resource by itself; one that is refused does not hold up another.
pub(crate) async fn apply(State(api): State<Api>, Json(request): Json<ApplyRequest>) -> Result<Json<Vec<ApplyResult>>, Failure> {
    api.settings.settled(&api.store).await?;
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in &request.resources {
        let kind = resource.kind().to_owned();
        let (name, outcome) = match one(&api, &request, resource.clone()).await {
            Ok((name, applied)) => (name, Ok(applied)),
            Err(e) => (shown(resource.metadata()), Err(e)),
        };
        results.push(ApplyResult { kind, name, outcome });
    }
    Ok(Json(results))
}

fn shown(metadata: &Metadata) -> String {
    if metadata.name.is_empty() {
        format!("{}?", metadata.generate_name.clone().unwrap_or_default())
    } else {
        metadata.name.clone()
    }
}

async fn one(api: &Api, request: &ApplyRequest, mut wanted: AnyResource) -> Result<(String, Applied), Error> {
    settle(&mut wanted, request.attached)?;
    for _ in 0..ATTEMPTS {
        let name = wanted.metadata().name.clone();
        let current = if name.is_empty() { None } else { api.store.get_any(wanted.kind(), &name).await? };
        let Some(current) = current else {
            // the context has to be there before the controllers look
            let uid = uuid::Uuid::new_v4();
            wanted.metadata_mut().uid = Some(uid);
            if let AnyResource::Run(run) = &mut wanted {
                run.metadata.annotations.insert(annotation::CWD.into(), request.caller.cwd.clone());
            }
            api.callers.put(uid, request.caller.clone());
            let made = api.store.create_any(wanted.clone()).await;
            if made.is_err() {
                api.callers.forget(uid);
            }
            match made {
                Ok(made) => {
                    failpoint::pass("apply.created");
                    return Ok((made.metadata().name.clone(), Applied::Created));
                }
                Err(StoreError::AlreadyExists { .. }) => continue,
                Err(e) => return Err(e.into()),
            }
        };
        if current.metadata().is_deleting() {
            return Err(Error::new(ErrorKind::Conflict, "it is being deleted")
                .hint(format!("hmz wait --for=delete {}/{name}", wanted.kind().to_ascii_lowercase())));
        }
        let Some(mut next) = merged(&current, &wanted)? else {
            // a daemon that was started since knows nothing of the caller of a run that has not begun
            if let Some(uid) = current.metadata().uid.filter(|uid| api.callers.get(*uid).is_none()) {
                api.callers.put(uid, request.caller.clone());
            }
            return Ok((name, Applied::Unchanged));
        };
        if let Some(uid) = current.metadata().uid {
            api.callers.put(uid, request.caller.clone());
        }
        if let AnyResource::Run(run) = &mut next {
            run.metadata.annotations.insert(annotation::CWD.into(), request.caller.cwd.clone());
        }
        match api.store.update_any(next).await {
            Ok(_) => return Ok((name, Applied::Configured)),
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Error::new(ErrorKind::Conflict, "it changes too often to be applied"))
}

/// Checks what the types cannot, and fills in what an apply means.
fn settle(wanted: &mut AnyResource, attached: bool) -> Result<(), Error> {
    let metadata = wanted.metadata().clone();
    match (&metadata.name, &metadata.generate_name) {
        (name, None) if name.is_empty() => return Err(Error::usage("metadata has neither name nor generateName")),
        (name, Some(prefix)) if name.is_empty() => name::check(prefix.trim_end_matches('-'))?,
        (name, _) => match wanted {
            AnyResource::Runtime(_) => {
                let canonical = name.parse::<RuntimeRef>()?.resource_name();
                wanted.metadata_mut().name = canonical;
            }
            _ => name::check(name)?,
        },
    }
    if let AnyResource::Run(run) = wanted {
        run.spec.admission.get_or_insert(Admission::Wait);
        if attached {
            run.metadata.annotations.insert(annotation::ATTACHED.into(), "true".into());
        }
    }
    Ok(())
}

/// The stored resource as it becomes; `None` when it is that already.
fn merged(current: &AnyResource, wanted: &AnyResource) -> Result<Option<AnyResource>, Error> {
    let mut next = current.clone();
    match (&mut next, wanted) {
        (AnyResource::Run(next), AnyResource::Run(wanted)) => {
            let started = !next.status.conditions.0.is_empty();
            if next.spec != wanted.spec && started {
                return Err(Error::refused("it has started, so what it does cannot be changed")
                    .hint(format!("delete it first: hmz delete run/{}", next.metadata.name))
                    .hint("or give the new one a name of its own with metadata.generateName"));
            }
            next.spec = wanted.spec.clone();
        }
        (AnyResource::Environment(next), AnyResource::Environment(wanted)) => {
            if let Some(owner) = next.metadata.owner_references.first() {
                return Err(Error::refused(format!("it belongs to {}/{}", owner.kind.to_ascii_lowercase(), owner.name)));
            }
            next.spec = wanted.spec.clone();
        }
        (AnyResource::Runtime(next), AnyResource::Runtime(wanted)) => {
            if next.status.source == RuntimeSource::Settings {
                return Err(Error::refused("settings.yaml declares it, and owns what it names"));
            }
            next.spec = wanted.spec.clone();
        }
        (AnyResource::Flow(next), AnyResource::Flow(wanted)) => next.spec = wanted.spec.clone(),
        _ => return Err(Error::new(ErrorKind::Internal, "the kinds differ")),
    }
    let metadata = next.metadata_mut();
    metadata.labels.extend(wanted.metadata().labels.clone());
    metadata.annotations.extend(wanted.metadata().annotations.clone());
    Ok((next != *current).then_some(next))
}
