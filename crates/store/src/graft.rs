//! Putting a new spec or a new status onto what is stored, kind by kind.

use hmz_api::{AnyResource, Kind, Resource};
use std::any::Any;

/// `current` with the spec of `new`, and whether that changed it; `None` when they are of different kinds.
pub(crate) fn with_spec(current: &AnyResource, new: &AnyResource) -> Option<(AnyResource, bool)> {
    macro_rules! of {
        ($($kind:ident),*) => {
            match (current, new) {
                $((AnyResource::$kind(current), AnyResource::$kind(new)) => {
                    let mut out = current.clone();
                    let changed = out.spec != new.spec;
                    out.spec = new.spec.clone();
                    Some((AnyResource::$kind(out), changed))
                })*
                _ => None,
            }
        };
    }
    of!(Run, Environment, Runtime, Flow)
}

/// `current` with the status of `new`; `None` when they are of different kinds.
pub(crate) fn with_status(current: &AnyResource, new: &AnyResource) -> Option<AnyResource> {
    macro_rules! of {
        ($($kind:ident),*) => {
            match (current, new) {
                $((AnyResource::$kind(current), AnyResource::$kind(new)) => {
                    let mut out = current.clone();
                    out.status = new.status.clone();
                    Some(AnyResource::$kind(out))
                })*
                _ => None,
            }
        };
    }
    of!(Run, Environment, Runtime, Flow)
}

/// A resource whose kind is known, out of one whose kind is not.
pub(crate) fn typed<K: Kind>(any: AnyResource) -> Option<Resource<K>> {
    let any: Box<dyn Any> = match any {
        AnyResource::Run(r) => r,
        AnyResource::Environment(r) => r,
        AnyResource::Runtime(r) => r,
        AnyResource::Flow(r) => r,
    };
    any.downcast::<Resource<K>>().ok().map(|r| *r)
}

/// The other way round; `None` for a kind that is none of ours.
pub(crate) fn any<K: Kind>(resource: Resource<K>) -> Option<AnyResource> {
    let boxed: Box<dyn Any> = Box::new(resource);
    let boxed = match boxed.downcast() {
        Ok(r) => return Some(AnyResource::Run(r)),
        Err(other) => other,
    };
    let boxed = match boxed.downcast() {
        Ok(r) => return Some(AnyResource::Environment(r)),
        Err(other) => other,
    };
    let boxed = match boxed.downcast() {
        Ok(r) => return Some(AnyResource::Runtime(r)),
        Err(other) => other,
    };
    boxed.downcast().ok().map(AnyResource::Flow)
}
