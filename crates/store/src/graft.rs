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

/// What a new status makes of what is stored.
pub(crate) enum Grafted {
    /// Nothing: it says the same.
    Same,
    /// This.
    Changed(AnyResource),
    /// Nothing: they are of different kinds.
    Differ(AnyResource),
}

/// `current` with the status of `new`.
pub(crate) fn with_status(current: &AnyResource, new: AnyResource) -> Grafted {
    macro_rules! of {
        ($($kind:ident),*) => {
            match (current, new) {
                $((AnyResource::$kind(current), AnyResource::$kind(new)) => {
                    if current.status == new.status {
                        return Grafted::Same;
                    }
                    // of what was given only the status is taken; nothing is copied that is not kept
                    let mut out = new;
                    out.metadata.clone_from(&current.metadata);
                    out.spec.clone_from(&current.spec);
                    Grafted::Changed(AnyResource::$kind(out))
                })*
                (_, new) => Grafted::Differ(new),
            }
        };
    }
    of!(Run, Environment, Runtime, Flow)
}

/// A resource whose kind is known, out of one whose kind is not, as it is kept.
pub(crate) fn typed_ref<K: Kind>(any: &AnyResource) -> Option<&Resource<K>> {
    let any: &dyn Any = match any {
        AnyResource::Run(r) => &**r,
        AnyResource::Environment(r) => &**r,
        AnyResource::Runtime(r) => &**r,
        AnyResource::Flow(r) => &**r,
    };
    any.downcast_ref()
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
