//! The ways in which one field can be changed in a text. Which of them changes nothing else is found out by reading the
//! outcome, so a way may be tried that is wrong for an odd way of writing.

use super::layout::{Pair, Shape, Spot, after_colon};
use super::words::{Quotes, inline, key};
use crate::tree::{Map, Node, Value};
use std::ops::Range;

/// Ranges of a text and what they become, in order and apart from each other.
pub(super) type Splice = Vec<(Range<usize>, String)>;

/// Why there is no way at all: what is at the first so many keys of the path has no fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    pub depth: usize,
    pub what: &'static str,
}

/// A text after a splice.
pub(super) fn apply(text: &str, splice: &Splice) -> String {
    let (mut new, mut done) = (String::with_capacity(text.len() + 64), 0);
    for (range, with) in splice {
        new.push_str(text.get(done..range.start).unwrap_or_default());
        new.push_str(with);
        done = range.end;
    }
    new.push_str(text.get(done..).unwrap_or_default());
    new
}

/// The ways to give the field at `path` a value, the best first.
pub(super) fn set(text: &str, root: Option<&Spot>, path: &[String], value: &Node) -> Result<Vec<Splice>, Closed> {
    let page = Page { text, step: root.and_then(step).unwrap_or(2) };
    let Some(mut spot) = root else { return Ok(vec![page.append(path, value)]) };
    let (mut owner, mut in_flow): (Option<&Pair>, bool) = (None, false);
    for (depth, name) in path.iter().enumerate() {
        match &spot.shape {
            Shape::Map { flow, pairs } => {
                in_flow |= flow;
                let Some(pair) = pairs.iter().find(|p| p.key == *name) else {
                    return Ok(page.insert(spot, pairs, in_flow, &path[depth..], value));
                };
                if depth + 1 == path.len() {
                    return Ok(page.replace(pair, value));
                }
                owner = Some(pair);
                spot = &pair.value;
            }
            Shape::Empty => return Ok(page.fill(owner, spot, in_flow, &path[depth..], value)),
            // a null that is written out; any other scalar is found out by who reads the outcome
            Shape::Scalar => return Ok(vec![vec![(spot.at.clone(), braces(&path[depth..], value))]]),
            Shape::Alias => {
                return Err(Closed { depth, what: "an alias of something written elsewhere; write it out here first" });
            }
            Shape::Seq { .. } => return Err(Closed { depth, what: "a list, which is set as a whole" }),
            Shape::Lines => return Err(Closed { depth, what: "a text" }),
        }
    }
    Ok(Vec::new())
}

/// The ways to take the field at `path` out.
pub(super) fn unset(text: &str, root: &Spot, path: &[String]) -> Result<Vec<Splice>, Closed> {
    let page = Page { text, step: 2 };
    let (mut spot, mut owner): (&Spot, Option<&Pair>) = (root, None);
    for (depth, name) in path.iter().enumerate() {
        let Shape::Map { flow, pairs } = &spot.shape else {
            let what = if matches!(spot.shape, Shape::Alias) {
                "an alias of something written elsewhere; write it out here first"
            } else {
                "a list, which is set as a whole"
            };
            return Err(Closed { depth, what });
        };
        let Some(index) = pairs.iter().position(|p| p.key == *name) else {
            return Err(Closed { depth, what: "a mapping that has this from another one by <<; take it out there" });
        };
        let pair = &pairs[index];
        if depth + 1 < path.len() {
            owner = Some(pair);
            spot = &pair.value;
            continue;
        }
        return Ok(match (*flow, pairs.len()) {
            (true, 1) => vec![vec![(spot.at.start + 1..spot.at.end.saturating_sub(1), String::new())]],
            (true, _) => page.out_of_flow(pairs, index),
            (false, 1) => {
                let nothing = Node::of(Default::default(), Value::Map(Map::default()));
                match owner {
                    Some(owner) => page.replace(owner, &nothing),
                    None => vec![vec![(spot.at.start..page.line_end(spot.at.end), "{}".to_owned())]],
                }
            }
            (false, _) => page.out_of_block(pairs, index),
        });
    }
    Ok(Vec::new())
}

/// How far a mapping in a mapping is indented, where there is one.
fn step(spot: &Spot) -> Option<usize> {
    let Shape::Map { flow: false, pairs } = &spot.shape else { return None };
    pairs.iter().find_map(|pair| {
        let Shape::Map { flow: false, pairs: inner } = &pair.value.shape else { return None };
        inner.first().and_then(|first| first.indent.checked_sub(pair.indent)).filter(|n| (1..=16).contains(n))
    })
}

/// The rest of a path in flow style: `{a: {b: 1}}`.
fn braces(path: &[String], value: &Node) -> String {
    match path.split_first() {
        None => inline(value, Quotes::Needed),
        Some((name, rest)) => format!("{{{}: {}}}", key(name), braces(rest, value)),
    }
}

struct Page<'a> {
    text: &'a str,
    /// Columns a mapping is indented below its key.
    step: usize,
}

impl Page<'_> {
    fn line_end(&self, from: usize) -> usize {
        self.text[from..].find(['\r', '\n']).map_or(self.text.len(), |n| from + n)
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind(['\r', '\n']).map_or(0, |n| n + 1)
    }

    /// How many bytes the line break at `at` has; 0 at the end of the text.
    fn break_at(&self, at: usize) -> usize {
        let rest = &self.text[at..];
        if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with(['\r', '\n'])) }
    }

    /// The end of the line before the one at `at`.
    fn line_before(&self, at: usize) -> usize {
        let start = self.line_start(at);
        let before = &self.text[..start];
        before.strip_suffix("\r\n").or_else(|| before.strip_suffix(['\r', '\n'])).map_or(0, str::len)
    }

    /// The line break this text uses at `at`, or anywhere.
    fn line_break(&self, at: usize) -> &str {
        let of = |at: usize| &self.text[at..at + self.break_at(at)];
        let here = of(at);
        if !here.is_empty() {
            return here;
        }
        let first = of(self.line_end(0));
        if first.is_empty() { "\n" } else { first }
    }

    /// What indents a line like the one of a key.
    fn margin(&self, key_at: usize) -> String {
        let before = &self.text[self.line_start(key_at)..key_at];
        if before.chars().all(|c| c == ' ') { before.to_owned() } else { " ".repeat(before.chars().count()) }
    }

    /// The lines of a path that is new below `margin`, the first without a line break before it.
    fn lines(&self, margin: &str, path: &[String], value: &Node, line_break: &str) -> String {
        let mut out = String::new();
        let mut margin = margin.to_owned();
        for (depth, name) in path.iter().enumerate() {
            out.push_str(&margin);
            out.push_str(&key(name));
            out.push(':');
            if depth + 1 < path.len() {
                out.push_str(line_break);
                margin.push_str(&" ".repeat(self.step));
            } else {
                out.push(' ');
                out.push_str(&inline(value, Quotes::Needed));
            }
        }
        out
    }

    /// A text that says nothing yet.
    fn append(&self, path: &[String], value: &Node) -> Splice {
        let end = self.text.len();
        let line_break = self.line_break(end);
        let lines = self.lines("", path, value, line_break);
        let at_start = self.text.is_empty() || self.text.ends_with(['\r', '\n']);
        vec![(end..end, if at_start { format!("{lines}{line_break}") } else { format!("{line_break}{lines}") })]
    }

    fn insert(&self, map: &Spot, pairs: &[Pair], in_flow: bool, path: &[String], value: &Node) -> Vec<Splice> {
        let Some(first) = pairs.first() else {
            let pair = braces(path, value);
            let inner = pair.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or_default().to_owned();
            return vec![vec![(map.at.start + 1..map.at.start + 1, inner)]];
        };
        if in_flow {
            let pair = braces(path, value);
            let inner = pair.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or_default();
            return pairs.last().map(|last| vec![(last.end()..last.end(), format!(", {inner}"))]).into_iter().collect();
        }
        let margin = self.margin(first.key_at.start);
        let mut ways: Vec<Splice> = pairs
            .iter()
            .rev()
            .map(|pair| {
                let at = self.line_end(pair.end());
                let line_break = self.line_break(at);
                vec![(at..at, format!("{line_break}{}", self.lines(&margin, path, value, line_break)))]
            })
            .collect();
        let (at, line_break) = (first.key_at.start, self.line_break(self.line_end(first.key_at.start)));
        let lines = self.lines(&margin, path, value, line_break);
        ways.push(vec![(at..at, format!("{}{line_break}{margin}", lines.trim_start()))]);
        ways
    }

    /// Below a key that has nothing.
    fn fill(&self, owner: Option<&Pair>, spot: &Spot, in_flow: bool, path: &[String], value: &Node) -> Vec<Splice> {
        let Some(owner) = owner else { return vec![self.append(path, value)] };
        let mut ways = Vec::new();
        if !in_flow {
            let margin = self.margin(owner.key_at.start) + &" ".repeat(self.step);
            let at = self.line_end(spot.at.end);
            let line_break = self.line_break(at);
            ways.push(vec![(at..at, format!("{line_break}{}", self.lines(&margin, path, value, line_break)))]);
        }
        ways.extend(self.beside(spot.at.start, &braces(path, value)));
        ways
    }

    /// Right behind a key without a value; one of a flow mapping may lack its colon.
    fn beside(&self, at: usize, value: &str) -> [Splice; 2] {
        [vec![(at..at, format!(" {value}"))], vec![(at..at, format!(": {value}"))]]
    }

    /// Another value for a key that is there.
    fn replace(&self, pair: &Pair, value: &Node) -> Vec<Splice> {
        let at = pair.value.at.clone();
        let quotes = match self.text.as_bytes().get(at.start) {
            Some(b'\'') => Quotes::Single,
            Some(b'"') => Quotes::Double,
            _ => Quotes::Needed,
        };
        let colon = after_colon(self.text, pair.key_at.end);
        let new = inline(value, if matches!(pair.value.shape, Shape::Scalar) { quotes } else { Quotes::Needed });
        match pair.value.shape {
            Shape::Empty => self.beside(at.start, &new).into(),
            // with the anchor and the tag it has, else without them
            Shape::Scalar | Shape::Alias | Shape::Seq { flow: true } | Shape::Map { flow: true, .. } => {
                let bare = vec![(colon..at.end, format!(" {new}"))];
                let kept = vec![(at.clone(), new)];
                // a tag that says what the old value was may not fit the new one
                let tag = self.text.get(colon..at.start).is_some_and(|said| said.contains('!') && !said.contains("!!str "));
                if tag { vec![bare] } else { vec![kept, bare] }
            }
            Shape::Lines => {
                let head = &self.text[colon..at.start.max(colon)];
                let Some(mark) = head.find(['|', '>']).map(|n| colon + n) else { return Vec::new() };
                let rest = &self.text[mark + 1..];
                let mark_end = mark
                    + 1
                    + (rest.len() - rest.trim_start_matches(['+', '-', '1', '2', '3', '4', '5', '6', '7', '8', '9']).len());
                let below = self.line_end(mark_end)..self.line_end(at.end);
                vec![
                    vec![(mark..mark_end, new.clone()), (below.clone(), String::new())],
                    vec![(colon..mark_end, format!(" {new}")), (below, String::new())],
                ]
            }
            Shape::Seq { flow: false } | Shape::Map { flow: false, .. } => {
                let end = self.line_end(colon);
                // up to the comment on the key's line: an anchor and a tag go
                let said = &self.text[colon..end];
                let said = said.find(" #").map_or(said, |n| &said[..n]).trim_end();
                let below = self.line_before(at.start).max(end)..self.line_end(at.end);
                vec![vec![(colon..colon + said.len(), format!(" {new}")), (below, String::new())]]
            }
        }
    }

    fn out_of_flow(&self, pairs: &[Pair], index: usize) -> Vec<Splice> {
        let pair = &pairs[index];
        let mut ways = Vec::new();
        let (start, end) = (self.line_start(pair.key_at.start), self.line_end(pair.end()));
        let before = &self.text[start..pair.key_at.start];
        let after = self.text[pair.end()..end].trim_start().trim_start_matches(',').trim_start();
        if before.trim().is_empty() && (after.is_empty() || after.starts_with('#')) {
            // it has its lines for itself
            ways.push(vec![(start..end + self.break_at(end), String::new())]);
        }
        match (pairs.get(index + 1), index.checked_sub(1).and_then(|i| pairs.get(i))) {
            (Some(next), _) => ways.push(vec![(pair.key_at.start..next.key_at.start, String::new())]),
            (None, Some(last)) => ways.push(vec![(last.end()..pair.end(), String::new())]),
            (None, None) => {}
        }
        ways
    }

    fn out_of_block(&self, pairs: &[Pair], index: usize) -> Vec<Splice> {
        let pair = &pairs[index];
        let (start, end) = (self.line_start(pair.key_at.start), self.line_end(pair.end()));
        let mut ways = Vec::new();
        if self.text[start..pair.key_at.start].trim().is_empty() {
            let whole = match self.break_at(end) {
                // the last line has no end, and is to have none after this
                0 => self.line_before(start)..end,
                n => start..end + n,
            };
            ways.push(vec![(whole, String::new())]);
        }
        if let Some(next) = pairs.get(index + 1) {
            ways.push(vec![(pair.key_at.start..next.key_at.start, String::new())]);
        }
        ways
    }
}
