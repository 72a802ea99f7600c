//! Where each node of a text is written, to the byte: what an edit cuts and where it puts something in.

use crate::tree::{Broken, MAX_DEPTH};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, StructureStyle};
use std::ops::Range;

/// One node as it is written. Anchors and tags before it are not in its range.
#[derive(Debug)]
pub(super) struct Spot {
    /// Its bytes. Of a collection in block style: from its first node to the end of its last.
    pub at: Range<usize>,
    pub shape: Shape,
}

/// How it is written.
#[derive(Debug)]
pub(super) enum Shape {
    /// Nothing is written.
    Empty,
    /// On the key's line or over several; quoted or plain.
    Scalar,
    /// `|` or `>` and the lines below; the range is that of the lines.
    Lines,
    Alias,
    Seq {
        flow: bool,
    },
    Map {
        flow: bool,
        pairs: Vec<Pair>,
    },
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Pair {
    pub key: String,
    pub key_at: Range<usize>,
    /// The column of the key, in characters.
    pub indent: usize,
    pub value: Spot,
}

impl Pair {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.key_at.end.max(self.value.at.end)
    }
}

/// The root node of a text of one document; `None` when there is none. The text is one that [`crate::tree::parse`] takes.
pub(super) fn layout(text: &str) -> Result<Option<Spot>, Broken> {
    let mut reader = Reader { text, parser: Parser::new_from_str(text) };
    while let Some((event, _)) = reader.next()? {
        if let Event::DocumentStart(..) = event {
            let Some((event, span)) = reader.next()? else { break };
            return reader.node(event, &span, 0).map(Some);
        }
    }
    Ok(None)
}

struct Reader<'a> {
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
}

fn range(span: &Span) -> Range<usize> {
    let start = span.start.byte_offset().unwrap_or_default();
    start..span.end.byte_offset().unwrap_or(start).max(start)
}

fn lost(span: Option<&Span>, message: &str) -> Broken {
    let at = span.map(|s| crate::report::At { line: s.start.line(), column: s.start.col() + 1 });
    Broken { at: at.unwrap_or_default(), message: message.to_owned() }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Broken> {
        loop {
            return match self.parser.next_event() {
                None => Ok(None),
                Some(Ok((Event::Comment(..), _))) => continue,
                Some(Ok((event, span))) => Ok(Some((event, span))),
                Some(Err(e)) => {
                    let mark = e.marker();
                    let at = crate::report::At { line: mark.line(), column: mark.col() + 1 };
                    Err(Broken { at, message: e.info() })
                }
            };
        }
    }

    fn must(&mut self) -> Result<(Event<'a>, Span), Broken> {
        self.next()?.ok_or_else(|| lost(None, "the text ends in the middle of this"))
    }

    fn node(&mut self, event: Event<'a>, span: &Span, level: usize) -> Result<Spot, Broken> {
        if level >= MAX_DEPTH {
            return Err(lost(Some(span), "nested too deep"));
        }
        let at = range(span);
        Ok(match event {
            Event::Alias(_) => Spot { at, shape: Shape::Alias },
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                // the span reaches to the next node; what is between is not of this one
                let written = self.text.get(at.clone()).unwrap_or_default().trim_end();
                Spot { at: at.start..at.start + written.len(), shape: Shape::Lines }
            }
            Event::Scalar(..) => {
                let shape = if at.is_empty() { Shape::Empty } else { Shape::Scalar };
                Spot { at, shape }
            }
            Event::SequenceStart(style, ..) => {
                let mut end = at.end;
                let stop = loop {
                    match self.must()? {
                        (Event::SequenceEnd, span) => break range(&span).end,
                        (event, span) => end = end.max(self.node(event, &span, level + 1)?.at.end),
                    }
                };
                let flow = style == StructureStyle::Flow;
                Spot { at: at.start..if flow { stop } else { end }, shape: Shape::Seq { flow } }
            }
            Event::MappingStart(style, ..) => {
                let (mut end, mut pairs) = (at.end, Vec::new());
                let stop = loop {
                    let (event, span) = match self.must()? {
                        (Event::MappingEnd, span) => break range(&span).end,
                        other => other,
                    };
                    let key = match &event {
                        Event::Scalar(text, ..) => text.to_string(),
                        _ => String::new(),
                    };
                    let indent = span.start.col();
                    let key_at = self.node(event, &span, level + 1)?.at;
                    let (event, span) = self.must()?;
                    let mut value = self.node(event, &span, level + 1)?;
                    if matches!(value.shape, Shape::Empty) {
                        // behind the colon, not before it
                        let colon = after_colon(self.text, key_at.end);
                        value.at = colon..colon;
                    }
                    end = end.max(value.at.end).max(key_at.end);
                    pairs.push(Pair { key, key_at, indent, value });
                };
                let flow = style == StructureStyle::Flow;
                Spot { at: at.start..if flow { stop } else { end }, shape: Shape::Map { flow, pairs } }
            }
            _ => return Err(lost(Some(span), "a value is missing here")),
        })
    }
}

/// The byte behind the colon that follows a key, or `from` when none does (a key of a flow mapping by itself).
pub(super) fn after_colon(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let blank = rest.len() - rest.trim_start().len();
    if rest[blank..].starts_with(':') { from + blank + 1 } else { from }
}
