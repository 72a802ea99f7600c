//! A YAML document as a tree that knows where each node is.
//!
//! Scalars keep their text as written, so that a text field of `1000:10` or `3.12` is that text; what a plain scalar
//! means is decided by whoever asks. Anchors share nodes and merge keys are expanded here. A document is refused when
//! it would be larger than [`MAX_NODES`] with its aliases written out: an alias bomb costs nothing.

use crate::report::At;
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Nodes of one document with its aliases written out.
pub(crate) const MAX_NODES: usize = 50_000;
/// How deep nodes may lie in each other.
pub(crate) const MAX_DEPTH: usize = 64;
/// Bytes of one text.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    pub at: At,
    pub value: Value,
    /// Nodes below and including this one, aliases written out.
    size: usize,
    depth: usize,
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Value {
    /// A scalar; `plain` when its text may mean a number, a boolean or nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    Seq(Vec<Rc<Node>>),
    Map(Map),
}

/// A mapping with text keys, merge keys expanded.
#[derive(Debug, Default)]
pub(crate) struct Map {
    pub entries: Vec<Entry>,
    /// Keys that were there already: the key, where it is, where the first one is.
    pub duplicates: Vec<(String, At, At)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: At,
    pub value: Rc<Node>,
}

/// What stops the reading of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub at: At,
    pub message: String,
}

impl Node {
    pub fn of(at: At, value: Value) -> Self {
        let (size, depth) = measure(&value);
        Self { at, value, size, depth }
    }

    /// A node that says nothing.
    pub fn empty(at: At) -> Self {
        Self::of(at, Value::Scalar { text: String::new(), plain: true })
    }

    pub fn map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The text of a scalar that is not nothing.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.map().and_then(|m| m.entries.iter().find(|e| e.key == key))
    }

    /// The node at a path of keys.
    pub fn at_path(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key).map(|e| &*e.value))
    }
}

fn at(mark: &Marker) -> At {
    At { line: mark.line(), column: mark.col() + 1 }
}

/// Reads every document of a text. Empty ones are left out.
pub(crate) fn parse(text: &str) -> Result<Vec<Rc<Node>>, Broken> {
    if text.len() > MAX_BYTES {
        let message = format!("the text is longer than {} MiB", MAX_BYTES >> 20);
        return Err(Broken { at: At { line: 1, column: 1 }, message });
    }
    let mut builder = Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut documents = Vec::new();
    while let Some((event, _)) = builder.next()? {
        if let Event::DocumentStart(..) = event {
            builder.anchors.clear();
            builder.nodes = 0;
            let Some((event, mark)) = builder.next()? else { break };
            let root = builder.node(event, mark, 0)?;
            if !root.is_null() {
                documents.push(root);
            }
        }
    }
    Ok(documents)
}

struct Builder<'a> {
    parser: Parser<'a, serde_saphyr::granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, Rc<Node>>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    /// The next event that is not a comment, and where it starts.
    fn next(&mut self) -> Result<Option<(Event<'a>, At)>, Broken> {
        loop {
            return match self.parser.next_event() {
                None => Ok(None),
                Some(Ok((Event::Comment(..), _))) => continue,
                Some(Ok((event, span))) => Ok(Some((event, at(&span.start)))),
                Some(Err(e)) => Err(Broken { at: at(e.marker()), message: e.info() }),
            };
        }
    }

    fn expect(&mut self, from: At) -> Result<(Event<'a>, At), Broken> {
        self.next()?.ok_or_else(|| Broken { at: from, message: "the text ends in the middle of this".into() })
    }

    fn node(&mut self, event: Event<'a>, here: At, level: usize) -> Result<Rc<Node>, Broken> {
        if level >= MAX_DEPTH {
            return Err(Broken { at: here, message: format!("nested more than {MAX_DEPTH} levels deep") });
        }
        let (value, anchor) = match event {
            Event::Alias(id) => {
                // an anchor that is still open is not there yet: the document would contain itself
                let node = self.anchors.get(&id).cloned();
                let node = node.ok_or_else(|| Broken { at: here, message: "this alias is inside what it names".into() })?;
                self.count(node.size, here)?;
                if level + node.depth >= MAX_DEPTH {
                    return Err(Broken { at: here, message: format!("nested more than {MAX_DEPTH} levels deep") });
                }
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = match tag_of(tag.as_deref(), here)? {
                    None => style == ScalarStyle::Plain,
                    Some("str") => false,
                    Some(_) => true,
                };
                self.count(1, here)?;
                (Value::Scalar { text: text.into_owned(), plain }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                tag_of(tag.as_deref(), here)?;
                self.count(1, here)?;
                let mut items = Vec::new();
                loop {
                    match self.expect(here)? {
                        (Event::SequenceEnd, _) => break,
                        (event, mark) => items.push(self.node(event, mark, level + 1)?),
                    }
                }
                (Value::Seq(items), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                tag_of(tag.as_deref(), here)?;
                self.count(1, here)?;
                (Value::Map(self.map(here, level)?), anchor)
            }
            _ => return Err(Broken { at: here, message: "a value is missing here".into() }),
        };
        let node = Rc::new(Node::of(here, value));
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn map(&mut self, here: At, level: usize) -> Result<Map, Broken> {
        let mut map = Map::default();
        let mut merged: Vec<Entry> = Vec::new();
        let mut first: HashMap<String, At> = HashMap::new();
        loop {
            let (event, key_at) = match self.expect(here)? {
                (Event::MappingEnd, _) => break,
                other => other,
            };
            let key_node = self.node(event, key_at, level + 1)?;
            let (key, plain) = match &key_node.value {
                Value::Scalar { text, plain } => (text.clone(), *plain),
                _ => return Err(Broken { at: key_at, message: "a key has to be a text".into() }),
            };
            let (event, mark) = self.expect(here)?;
            let value = self.node(event, mark, level + 1)?;
            if plain && key == "<<" {
                self.merge(&value, mark, &mut merged)?;
            } else if let Some(before) = first.get(&key) {
                map.duplicates.push((key, key_at, *before));
            } else {
                first.insert(key.clone(), key_at);
                map.entries.push(Entry { key, key_at, value });
            }
        }
        // what a mapping says itself wins over what it merges, and an earlier merge over a later one
        let mut there: HashSet<String> = first.into_keys().collect();
        for entry in merged {
            if there.insert(entry.key.clone()) {
                map.entries.push(entry);
            }
        }
        Ok(map)
    }

    fn merge(&mut self, value: &Rc<Node>, here: At, into: &mut Vec<Entry>) -> Result<(), Broken> {
        let mut sources = Vec::new();
        match &value.value {
            Value::Map(map) => sources.push(map),
            Value::Seq(items) => {
                for item in items {
                    let wrong = || Broken { at: item.at, message: "<< takes a mapping or a list of mappings".into() };
                    sources.push(item.map().ok_or_else(wrong)?);
                }
            }
            Value::Scalar { .. } => {
                return Err(Broken { at: here, message: "<< takes a mapping or a list of mappings".into() });
            }
        }
        for map in sources {
            self.count(map.entries.len(), here)?;
            into.extend(map.entries.iter().cloned());
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, here: At) -> Result<(), Broken> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(Broken {
                at: here,
                message: format!("the document has more than {MAX_NODES} nodes, aliases written out"),
            });
        }
        Ok(())
    }
}

fn measure(value: &Value) -> (usize, usize) {
    let fold = |(size, depth): (usize, usize), n: &Rc<Node>| (size.saturating_add(n.size), depth.max(n.depth));
    let (size, depth) = match value {
        Value::Scalar { .. } => (0, 0),
        Value::Seq(items) => items.iter().fold((0, 0), fold),
        Value::Map(map) => map.entries.iter().map(|e| &e.value).fold((map.entries.len(), 0), fold),
    };
    (size.saturating_add(1), depth + 1)
}

/// The core schema's word of a tag; any other tag is refused, because nobody here would act on it.
fn tag_of(tag: Option<&Tag>, here: At) -> Result<Option<&'static str>, Broken> {
    let Some(tag) = tag else { return Ok(None) };
    let text = tag.to_string();
    match text.rsplit([':', '!']).next().unwrap_or_default() {
        "str" | "" => Ok(Some("str")),
        "int" | "float" | "bool" | "null" => Ok(Some("plain")),
        "map" | "seq" => Ok(Some("collection")),
        _ => Err(Broken { at: here, message: format!("the tag {text} means nothing here") }),
    }
}
