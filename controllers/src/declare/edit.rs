//! Changing one resource in place, by hand: what was applied last stays remembered, so that the next apply knows which fields
//! are its own.

use super::apply::Applier;
use super::decide::{OURS, may_become, spec};
use hmz_api::kinds::label;
use hmz_api::rest::{Applied, Edit};
use hmz_api::{AnyResource, Error, ErrorKind};
use hmz_store::{Store, StoreError};
use std::collections::BTreeMap;

/// How many attempts an edit makes against other writers.
const ATTEMPTS: u32 = 16;

/// Edits a resource that is there.
///
/// # Errors
/// It is not there, it was changed meanwhile by somebody else, or it may not become that.
pub async fn edit(store: &Store, applier: &dyn Applier, kind: &'static str, name: &str, edit: &Edit) -> Result<Applied, Error> {
    for _ in 0..ATTEMPTS {
        let missing = || StoreError::NotFound { kind: kind.into(), name: name.into() };
        let current = store.get_any(kind, name).await?.ok_or_else(missing)?;
        let next = edited(&current, edit)?;
        if next == current {
            return Ok(Applied::Unchanged);
        }
        if let (Some(uid), Some(_)) = (current.metadata().uid, &edit.whole) {
            applier.put(uid, &edit.caller);
        }
        match store.update_any(next).await {
            Ok(_) => return Ok(Applied::Configured),
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Error::new(ErrorKind::Conflict, "it changes too often to be edited"))
}

/// As it becomes.
fn edited(current: &AnyResource, edit: &Edit) -> Result<AnyResource, Error> {
    let mut next = current.clone();
    if let Some(whole) = &edit.whole {
        let (old, new) = (current.metadata(), whole.metadata());
        if (current.kind(), &old.name) != (whole.kind(), &new.name) {
            return Err(Error::usage("kind and name of a resource cannot be changed; apply a new one, and delete this one"));
        }
        if let Some(base) = &edit.base {
            let is_same = |a: &AnyResource, b: &AnyResource| -> Result<bool, Error> {
                let (one, other) = (a.metadata(), b.metadata());
                let marks = one.labels == other.labels && one.annotations == other.annotations;
                Ok(marks && one.uid == other.uid && spec(a)? == spec(b)?)
            };
            if !is_same(base, current)? {
                return Err(Error::new(ErrorKind::Conflict, "it was changed by somebody else meanwhile"));
            }
        }
        next = may_become(current, whole)?;
        let ours = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
            map.iter().filter(|(key, _)| key.starts_with(OURS)).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let theirs = |map: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.iter().filter(|(key, _)| !key.starts_with(OURS)).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let metadata = next.metadata_mut();
        metadata.labels = theirs(&new.labels).into_iter().chain(ours(&old.labels)).collect();
        metadata.annotations = theirs(&new.annotations).into_iter().chain(ours(&old.annotations)).collect();
    }
    change("label", &mut next.metadata_mut().labels, &edit.labels, edit.overwrite)?;
    change("annotation", &mut next.metadata_mut().annotations, &edit.annotations, edit.overwrite)?;
    Ok(next)
}

fn change(
    what: &str,
    map: &mut BTreeMap<String, String>,
    changes: &BTreeMap<String, Option<String>>,
    overwrite: bool,
) -> Result<(), Error> {
    for (key, value) in changes {
        // of ours, that it is in a set is all that may be taken away
        if key.starts_with(OURS) && (key != label::SET || value.is_some()) {
            let refused = Error::refused(format!("the {what} '{key}' is hmz's own"));
            return Err(if key == label::SET {
                let how = "a set has as members what is applied as such: hmz apply -f FILE --set NAME";
                refused.hint(how).hint(format!("to take it out of a set: hmz label KIND/NAME {key}-"))
            } else {
                refused
            });
        }
        match (map.get(key), value) {
            (Some(old), Some(value)) if old != value && !overwrite => {
                return Err(Error::refused(format!("the {what} '{key}' is '{old}' already")).hint("to change it: --overwrite"));
            }
            (_, Some(value)) => {
                map.insert(key.clone(), value.clone());
            }
            (_, None) => {
                map.remove(key);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_left_by_hand_and_joined_by_an_apply() {
        let text = r#"{"apiVersion": "hmz/v1", "kind": "Environment", "metadata": {"name": "a", "labels": {"hmz/set": "one"}},
            "spec": {"runtime": "docker:here"}}"#;
        let current: AnyResource = serde_json::from_str(text).unwrap();
        let labelled = |key: &str, value: Option<&str>| {
            let labels = BTreeMap::from([(key.to_owned(), value.map(str::to_owned))]);
            edited(&current, &Edit { labels, overwrite: true, ..Edit::default() })
        };
        for set in ["other", "one", "No Such"] {
            let refused = labelled("hmz/set", Some(set)).unwrap_err();
            assert_eq!((refused.kind, refused.message.as_str()), (ErrorKind::Refused, "the label 'hmz/set' is hmz's own"));
            assert!(refused.hints[0].contains("hmz apply -f FILE --set NAME"), "{:?}", refused.hints);
        }
        assert!(labelled("hmz/set", None).unwrap().metadata().labels.is_empty());
        assert!(labelled("hmz/other", None).is_err());
        assert_eq!(labelled("team", Some("red")).unwrap().metadata().labels.len(), 2);
    }
}
