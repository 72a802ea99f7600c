//! A node as JSON: what is written, and what a plain scalar means by itself.

use crate::de::{Plain, meaning};
use crate::tree::{Node, Value};

/// The node as JSON.
pub(crate) fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Map(map) => map.entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.value))).collect(),
        Value::Seq(items) => items.iter().map(|item| to_json(item)).collect(),
        Value::Scalar { text, plain: false } => text.as_str().into(),
        Value::Scalar { text, plain: true } => match meaning(text) {
            Plain::Null => serde_json::Value::Null,
            Plain::Bool(value) => value.into(),
            Plain::Unsigned(number) => number.into(),
            Plain::Signed(number) => number.into(),
            Plain::Float(number) => number.into(),
            Plain::Text(text) => text.into(),
        },
    }
}
