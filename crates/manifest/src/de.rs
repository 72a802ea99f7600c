//! A serde deserializer over a [`Node`], whose errors know their place.
//!
//! A text field takes a scalar's text as written; a number takes a plain number only; a mapping or list that is left
//! empty is an empty one. An unknown field is an error that can be passed over, so that one reading finds all of them.

use crate::report::At;
use crate::suggest::suggestion;
use crate::tree::{Entry, Node, Value};
use hmz_api::quantity::QUANTITY;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, VariantAccess, Visitor};
use serde::de::{IntoDeserializer, Unexpected};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::rc::Rc;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: Option<At>,
    pub message: String,
    pub suggestion: Option<String>,
    /// What is wrong is inside the text at `at`, at this line and column of it.
    pub inside: Option<Inside>,
    /// An unknown field: reading may go on without it.
    unknown_field: bool,
}

/// A place inside the text of a scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    pub text: String,
    pub line: usize,
    pub column: usize,
}

impl Fault {
    pub fn new(at: At, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into(), suggestion: None, inside: None, unknown_field: false }
    }

    pub fn suggest(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion;
        self
    }

    fn or_at(mut self, at: At) -> Self {
        self.at.get_or_insert(at);
        self
    }

    fn is_missing(&self, field: &str) -> bool {
        self.message.starts_with(&missing(field))
    }

    /// With an example of what the field takes, when it is of the field itself and of its type.
    fn with_example(mut self, of: At, field: &str) -> Self {
        if self.at == Some(of) && self.suggestion.is_none() && self.message.starts_with("expected ") {
            self.suggestion = example(field).map(|example| format!("write it as '{field}: {example}'"));
        }
        self
    }

    fn plain(message: String) -> Self {
        Self { at: None, message, suggestion: None, inside: None, unknown_field: false }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        Self::plain(message.to_string())
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::plain(format!("expected {}, found {}", words(&expected.to_string()), found_words(&found)))
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let mut fault = Self::plain(format!("'{variant}' is not known here"));
        fault.suggestion = suggestion(variant, expected);
        fault
    }
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        // what stands for no key at all
        if field == "~" {
            return Self { unknown_field: true, ..Self::plain("a key is missing before this ':'".into()) };
        }
        let mut fault = Self::plain(format!("unknown field '{field}'"));
        fault.suggestion = suggestion(field, expected);
        fault.unknown_field = true;
        fault
    }
    fn missing_field(field: &'static str) -> Self {
        Self::plain(missing_with_example(field))
    }
    fn duplicate_field(field: &'static str) -> Self {
        Self::plain(format!("the field '{field}' is there twice"))
    }
}

fn missing(field: &str) -> String {
    format!("the field '{field}' is missing")
}

/// The same with what it looks like.
fn missing_with_example(field: &str) -> String {
    example(field).map_or_else(|| missing(field), |example| format!("{}, such as '{field}: {example}'", missing(field)))
}

/// What a field looks like.
fn example(field: &str) -> Option<&'static str> {
    Some(match field {
        "runtime" => "docker:here",
        "runtimes" => "{docker: {here: {endpoint: local}}}",
        "workdir" => "/home/me/project",
        "image" => "python:3.12-slim",
        "cpus" => "0.5",
        "memory" | "gpu_memory" => "8G",
        "gpus" | "max_containers" | "max_tasks" => "2",
        "name" => "box",
        "labels" => "{team: red}",
        "annotations" => "{note: ask Ann}",
        "metadata" => "{name: box}",
        "flow" => "boxed",
        "task" => "Fix add() in calc.py.",
        "agents" => "{coder: claude/claude-haiku-4-5:low}",
        "environments" => "{box: {runtime: docker:here, workdir: .}}",
        "params" => "{budget: {duration: 10m}}",
        "budget" => "{duration: 10m}",
        "duration" | "timeout" => "10m",
        "endpoint" => "local",
        "fallback" => "[docker:spare]",
        "run_args" => "[--init]",
        "steps" => "[{exec: {environment: box, command: make test}}]",
        "exec" => "{environment: box, command: make test}",
        "command" => "make test",
        _ => return None,
    })
}

/// serde's words for a type, as a person says them.
fn words(expected: &str) -> String {
    match expected {
        "a string" => "a text".into(),
        "a map" => "a mapping".into(),
        "a sequence" => "a list".into(),
        "a boolean" => "true or false".into(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        other if other.starts_with("struct ") => "a mapping".into(),
        other => other.into(),
    }
}

fn found_words(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(b) => b.to_string(),
        Unexpected::Unsigned(n) => format!("the number {n}"),
        Unexpected::Signed(n) => format!("the number {n}"),
        Unexpected::Float(n) => format!("the number {n}"),
        Unexpected::Str("") => "an empty text".into(),
        Unexpected::Str(text) => format!("the text '{}'", short(text)),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a mapping".into(),
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        other => other.to_string(),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Most faults one document reports.
const MAX_FAULTS: usize = 20;

/// Reads a `T`, or every fault found: all unknown fields, and the first of any other kind.
pub(crate) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, Vec<Fault>> {
    let mut skip = BTreeSet::new();
    let mut faults = Vec::new();
    loop {
        match T::deserialize(De { node, skip: &skip }) {
            Ok(value) if faults.is_empty() => return Ok(value),
            Ok(_) => return Err(faults),
            Err(fault) => {
                let fault = fault.or_at(node.at);
                let again = fault.unknown_field && fault.at.is_some_and(|at| skip.insert(at)) && faults.len() + 1 < MAX_FAULTS;
                // a field that is missing because its name is misspelt is one fault, not two
                let misspelt = |f: &Fault| {
                    f.suggestion.as_deref().and_then(|s| s.split('\'').nth(1)).is_some_and(|near| fault.is_missing(near))
                };
                if !faults.iter().any(misspelt) {
                    faults.push(fault);
                }
                if !again {
                    return Err(faults);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct De<'a> {
    node: &'a Node,
    /// Places of keys that were reported already.
    skip: &'a BTreeSet<At>,
}

/// What a plain scalar means by the core schema.
pub(crate) enum Plain<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

pub(crate) fn meaning(text: &str) -> Plain<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Bool(true),
        "false" | "False" | "FALSE" => return Plain::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        if let Ok(n) = text.parse() {
            return Plain::Unsigned(n);
        }
        if let Ok(n) = text.parse() {
            return Plain::Signed(n);
        }
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(n) = text.strip_prefix(prefix).and_then(|d| u64::from_str_radix(d, radix).ok()) {
            return Plain::Unsigned(n);
        }
    }
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(n) if numeric && n.is_finite() => Plain::Float(n),
        _ => Plain::Text(text),
    }
}

/// Whether a number is written in another way than with digits and a point.
fn is_odd_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.split_once('.').map_or_else(|| vec![digits], |(whole, rest)| vec![whole, rest]);
    let is_plain = plain.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    !is_plain && !matches!(meaning(text), Plain::Null | Plain::Bool(_) | Plain::Text(_))
}

impl<'a> De<'a> {
    fn below(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }

    fn meaning(self) -> Option<Plain<'a>> {
        match &self.node.value {
            Value::Scalar { text, plain: true } => Some(meaning(text)),
            Value::Scalar { text, plain: false } => Some(Plain::Text(text)),
            _ => None,
        }
    }

    fn unexpected(self, expected: &dyn de::Expected) -> Fault {
        let found = match (self.meaning(), &self.node.value) {
            (Some(Plain::Null), _) => Unexpected::Unit,
            (Some(Plain::Bool(b)), _) => Unexpected::Bool(b),
            (Some(Plain::Unsigned(n)), _) => Unexpected::Unsigned(n),
            (Some(Plain::Signed(n)), _) => Unexpected::Signed(n),
            (Some(Plain::Float(n)), _) => Unexpected::Float(n),
            (Some(Plain::Text(text)), _) => Unexpected::Str(text),
            (None, Value::Seq(_)) => Unexpected::Seq,
            (None, _) => Unexpected::Map,
        };
        <Fault as de::Error>::invalid_type(found, expected).or_at(self.node.at)
    }
}

macro_rules! numbers {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match self.meaning() {
                Some(Plain::Unsigned(n)) => visitor.visit_u64(n),
                Some(Plain::Signed(n)) => visitor.visit_i64(n),
                Some(Plain::Float(n)) => visitor.visit_f64(n),
                _ => return Err(self.unexpected(&visitor)),
            }
            .map_err(|e: Fault| e.or_at(self.node.at))
        }
    )*};
}

impl<'de> Deserializer<'de> for De<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match (self.meaning(), &self.node.value) {
            (Some(Plain::Null), _) => visitor.visit_unit(),
            (Some(Plain::Bool(b)), _) => visitor.visit_bool(b),
            (Some(Plain::Unsigned(n)), _) => visitor.visit_u64(n),
            (Some(Plain::Signed(n)), _) => visitor.visit_i64(n),
            (Some(Plain::Float(n)), _) => visitor.visit_f64(n),
            (Some(Plain::Text(text)), _) => visitor.visit_str(text),
            (None, Value::Seq(items)) => visitor.visit_seq(Items { rest: items.iter(), de: self }),
            (None, _) => visitor.visit_map(Entries::new(self, self.node.map().map_or(&[], |m| &m.entries))),
        }
        .map_err(|e: Fault| e.or_at(self.node.at))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.meaning() {
            Some(Plain::Bool(b)) => visitor.visit_bool(b).map_err(|e: Fault| e.or_at(self.node.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node.text() {
            Some(text) => visitor.visit_str(text).map_err(|e: Fault| e.or_at(self.node.at)),
            None => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.node.is_null() { visitor.visit_unit() } else { Err(self.unexpected(&visitor)) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Scalar { text, plain: true } if name == QUANTITY && is_odd_number(text) => {
                visitor.visit_str(text).map_err(|e: Fault| e.or_at(self.node.at))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let items = match &self.node.value {
            Value::Seq(items) => items.as_slice(),
            _ if self.node.is_null() => &[],
            Value::Map(map) if map.entries.first().is_some_and(|e| e.key.starts_with('-')) => {
                let fault = self.unexpected(&visitor);
                return Err(fault.suggest(Some("a '-' that begins an item has a space after it".into())));
            }
            _ => return Err(self.unexpected(&visitor)),
        };
        visitor.visit_seq(Items { rest: items.iter(), de: self }).map_err(|e: Fault| e.or_at(self.node.at))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let entries = match self.node.map() {
            Some(map) => map.entries.as_slice(),
            None if self.node.is_null() => &[],
            None => return Err(self.unexpected(&visitor)),
        };
        visitor.visit_map(Entries::new(self, entries)).map_err(|e: Fault| e.or_at(self.node.at))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let variant = match &self.node.value {
            Value::Scalar { .. } if !self.node.is_null() => Variant { de: self, entry: None },
            Value::Map(map) if map.entries.len() == 1 => Variant { de: self, entry: map.entries.first() },
            _ => {
                let message = format!("expected exactly one of {}", variants.join(", "));
                // a key that is none of them is the fault; else the second one of two
                let stray = self.node.map().and_then(|m| m.entries.iter().find(|e| !variants.contains(&e.key.as_str())));
                let second = self.node.map().and_then(|m| m.entries.get(1));
                return Err(match (stray, second) {
                    (Some(stray), _) => Fault::new(stray.key_at, format!("unknown field '{}'", stray.key))
                        .suggest(suggestion(&stray.key, variants)),
                    (None, Some(second)) => Fault::new(second.key_at, message),
                    (None, None) => Fault::new(self.node.at, message),
                });
            }
        };
        visitor.visit_enum(variant).map_err(|e: Fault| e.or_at(self.node.at))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }
}

struct Items<'a> {
    rest: std::slice::Iter<'a, Rc<Node>>,
    de: De<'a>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Fault;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.rest.next().map(|node| seed.deserialize(self.de.below(node)).map_err(|e| e.or_at(node.at))).transpose()
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    de: De<'a>,
}

impl<'a> Entries<'a> {
    fn new(de: De<'a>, entries: &'a [Entry]) -> Self {
        Self { rest: entries.iter(), value: None, de }
    }
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Fault;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let skip = self.de.skip;
        let Some(entry) = self.rest.find(|e| !skip.contains(&e.key_at)) else { return Ok(None) };
        self.value = Some(entry);
        let key: de::value::StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|e| e.or_at(entry.key_at))
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let Some(entry) = self.value.take() else { return Err(Fault::plain("a value was asked for before its key".into())) };
        let node = &entry.value;
        seed.deserialize(self.de.below(node)).map_err(|e| e.or_at(node.at).with_example(node.at, &entry.key))
    }
}

struct Variant<'a> {
    de: De<'a>,
    /// The one entry of a mapping; `None` for a scalar.
    entry: Option<&'a Entry>,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Fault;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let (word, at) = match self.entry {
            Some(entry) => (entry.key.as_str(), entry.key_at),
            None => (self.de.node.text().unwrap_or_default(), self.de.node.at),
        };
        let word: de::value::StrDeserializer<'_, Fault> = word.into_deserializer();
        Ok((seed.deserialize(word).map_err(|e| e.or_at(at))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Fault;
    fn unit_variant(self) -> Result<(), Fault> {
        match self.entry {
            None => Ok(()),
            Some(entry) => Err(Fault::new(entry.key_at, format!("'{}' takes nothing below it", entry.key))),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        match self.entry {
            Some(entry) => seed.deserialize(self.de.below(&entry.value)).map_err(|e| e.or_at(entry.value.at)),
            None => Err(self.alone()),
        }
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.entry {
            Some(entry) => self.de.below(&entry.value).deserialize_seq(visitor),
            None => Err(self.alone()),
        }
    }
    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        match self.entry {
            Some(entry) => self.de.below(&entry.value).deserialize_map(visitor),
            None => Err(self.alone()),
        }
    }
}

impl Variant<'_> {
    fn alone(&self) -> Fault {
        Fault::new(self.de.node.at, format!("'{}' needs something below it", self.de.node.text().unwrap_or_default()))
    }
}
