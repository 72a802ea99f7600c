//! The three-way merge: what was applied last, what is there, what is asked. Pure.
//!
//! A field that is asked for is as asked; one that was applied last and is not asked for any more goes; one that neither
//! says was set by somebody else and stays. Mappings are merged field by field, lists are one value.

use serde_json::{Map, Value};

/// What becomes of `live`.
pub fn merge(last: Option<&Value>, live: &Value, asked: &Value) -> Value {
    let (Value::Object(live), Value::Object(asked)) = (live, asked) else { return asked.clone() };
    let none = Map::new();
    let last = last.and_then(Value::as_object).unwrap_or(&none);
    let mut out = live.clone();
    out.retain(|key, _| asked.contains_key(key) || !last.contains_key(key));
    for (key, value) in asked {
        let next = live.get(key).map_or_else(|| value.clone(), |live| merge(last.get(key), live, value));
        out.insert(key.clone(), next);
    }
    Value::Object(out)
}

/// What a manifest asks for: the fields it writes, with the values they were read as. A field it does not write is not asked
/// for, though it was read as its default; one that it writes and whose value is the default is, as it is written.
pub fn asked(read: &Value, written: &Value) -> Value {
    let (Value::Object(read), Value::Object(written)) = (read, written) else { return read.clone() };
    let fields = written.iter().filter_map(|(key, written)| match read.get(key) {
        Some(read) => Some((key.clone(), asked(read, written))),
        None => (!written.is_null()).then(|| (key.clone(), written.clone())),
    });
    Value::Object(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_is_so_what_is_asked_no_more_goes_and_what_others_set_stays() {
        let last = json!({"image": "a", "cpus": 1, "env": {"one": 1, "two": 2}, "list": [1, 2]});
        let live = json!({"image": "b", "cpus": 1, "memory": "8G", "env": {"one": 1, "two": 2, "theirs": 3}, "list": [1, 2, 3]});
        let asked = json!({"image": "a", "env": {"one": 5}, "list": [1]});
        let merged = json!({"image": "a", "memory": "8G", "env": {"one": 5, "theirs": 3}, "list": [1]});
        assert_eq!(merge(Some(&last), &live, &asked), merged);
        // a value of another shape is a value
        assert_eq!(merge(None, &json!({"box": "docker/w"}), &json!({"box": {"runtime": "docker"}}))["box"]["runtime"], "docker");
    }

    #[test]
    fn only_what_is_written_is_asked_for_and_a_default_that_is_written_is() {
        let read = json!({"flow": "f", "task": "", "agents": {}, "place": {"cpus": 2}});
        let written = json!({"flow": "f", "restart": "never", "place": {"cpus": "2", "gpus": null}});
        assert_eq!(asked(&read, &written), json!({"flow": "f", "restart": "never", "place": {"cpus": 2}}));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from), Just(json!(["x"]))];
        leaf.prop_recursive(3, 12, 3, |inner| {
            proptest::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn a_merge_merged_again_is_the_same_and_has_what_is_asked(last in value(), live in value(), ask in value()) {
            let once = merge(Some(&last), &live, &ask);
            prop_assert_eq!(merge(Some(&ask), &once, &ask), once.clone());
            // nothing that was asked is another: merging it in alone changes nothing
            prop_assert_eq!(merge(None, &once, &ask), once);
        }
    }
}
