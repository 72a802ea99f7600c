//! Whether a new text says what the old one said with one field changed, and nothing else.

use crate::de::{Plain, meaning};
use crate::tree::{Map, Node, Value};
use std::collections::BTreeSet;

/// Whether `new` is `old` with the field at `path` being `value` (`None`: not there).
pub(super) fn is_only_change(old: Option<&Node>, new: Option<&Node>, path: &[String], value: Option<&Node>) -> bool {
    let Some((key, below)) = path.split_first() else {
        return match (value, new) {
            (Some(value), Some(new)) => is_same(value, new),
            (None, new) => new.is_none(),
            (Some(_), None) => false,
        };
    };
    let empty = Map::default();
    let (before, after) = match (old.map(|o| (o, o.map())), new.and_then(Node::map)) {
        (None, Some(after)) => (&empty, after),
        (Some((_, Some(before))), Some(after)) => (before, after),
        (Some((old, None)), Some(after)) if old.is_null() => (&empty, after),
        _ => return false,
    };
    let others_same = keys(before).union(&keys(after)).filter(|k| **k != key).all(|k| match (get(before, k), get(after, k)) {
        (Some(a), Some(b)) => is_same(a, b),
        _ => false,
    });
    others_same && doubles(before) == doubles(after) && is_only_change(get(before, key), get(after, key), below, value)
}

fn keys(map: &Map) -> BTreeSet<&str> {
    map.entries.iter().map(|e| e.key.as_str()).collect()
}

fn get<'a>(map: &'a Map, key: &str) -> Option<&'a Node> {
    map.entries.iter().find(|e| e.key == key).map(|e| &*e.value)
}

fn doubles(map: &Map) -> Vec<&str> {
    map.duplicates.iter().map(|(key, ..)| key.as_str()).collect()
}

/// Whether two nodes say the same, however and wherever they are written.
pub(super) fn is_same(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::Scalar { text: one, plain: p }, Value::Scalar { text: other, plain: q }) => {
            let is_text = |text: &str, plain: bool| !plain || matches!(meaning(text), Plain::Text(_));
            if a.is_null() || b.is_null() {
                a.is_null() && b.is_null()
            } else {
                one == other && is_text(one, *p) == is_text(other, *q)
            }
        }
        (Value::Seq(one), Value::Seq(other)) => one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b)),
        (Value::Map(one), Value::Map(other)) => {
            keys(one) == keys(other)
                && doubles(one) == doubles(other)
                && one.entries.iter().all(|e| get(other, &e.key).is_some_and(|b| is_same(&e.value, b)))
        }
        _ => false,
    }
}
