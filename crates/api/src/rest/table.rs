//! A listing as cells, for whoever only shows it: a line with the names of the columns, then a line a resource, tabs between
//! the cells. It is asked for by [`MEDIA_TYPE`] in `accept`, and `wide=true` for all columns; whoever does not know it answers with
//! resources as JSON.
//!
//! A tab, an end of a line and a backslash in a cell are `\t`, `\n`, `\r` and `\\`. Ages are as of the answer.

use crate::AnyResource;
use crate::columns::align::align;
use crate::columns::{self, Cell, age};
use jiff::Timestamp;
use std::borrow::Cow;

/// What it is on the wire.
pub const MEDIA_TYPE: &str = "text/tab-separated-values";

/// A resource's line as it is kept by whoever is asked for it again and again: what does not grow older is written already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its cells, the one of its age empty.
    text: Box<str>,
    /// Where those end that are wanted where not all are.
    narrow: u32,
    /// Where its age belongs, if it has one, and since when it is.
    age: Option<(u32, Option<Timestamp>)>,
}

impl Row {
    /// The row of a resource.
    pub fn of(item: &AnyResource) -> Self {
        let narrow_columns = columns::headers(item.kind(), false).len();
        let (mut text, mut narrow, mut age) = (String::new(), 0, None);
        for (at, cell) in columns::cells(item, true).into_iter().enumerate() {
            if at == narrow_columns {
                narrow = text.len();
            }
            if at > 0 {
                text.push('\t');
            }
            match cell {
                Cell::Text(cell) => escape(&cell, &mut text),
                Cell::Age(then) => age = Some((offset(text.len()), then)),
            }
        }
        if narrow == 0 {
            narrow = text.len();
        }
        Self { text: text.into(), narrow: offset(narrow), age }
    }

    /// Writes its line as it is at that time.
    pub fn write(&self, wide: bool, now: Timestamp, out: &mut String) {
        let text = if wide { &*self.text } else { self.text.get(..self.narrow as usize).unwrap_or(&self.text) };
        match self.age.and_then(|(at, then)| Some((text.split_at_checked(at as usize)?, then))) {
            Some(((before, after), then)) => {
                out.push_str(before);
                age::write(then, now, out);
                out.push_str(after);
            }
            None => out.push_str(text),
        }
        out.push('\n');
    }
}

/// A place in a line. Names, images and directories are bounded, so none is as long as that.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Writes the line that a listing of a kind begins with.
pub fn write_headers(kind: &str, wide: bool, out: &mut String) {
    out.push_str(&columns::headers(kind, wide).join("\t"));
    out.push('\n');
}

/// The lines of a listing, the columns' names first.
pub fn lines(listing: &str) -> impl Iterator<Item = &str> + Clone {
    listing.split_terminator('\n')
}

/// The cells of a line as they are written.
pub fn cells(line: &str) -> Cells<'_> {
    Cells(Some(line))
}

/// What is left of a line. Cells are short: each is gone through, which is quicker than a search is begun.
#[derive(Debug, Clone)]
pub struct Cells<'a>(Option<&'a str>);

impl<'a> Iterator for Cells<'a> {
    type Item = &'a str;
    fn next(&mut self) -> Option<&'a str> {
        let left = self.0?;
        let Some(end) = left.bytes().position(|byte| byte == b'\t') else { return self.0.take() };
        self.0 = left.get(end + 1..);
        left.get(..end)
    }
}

/// The cells below one another, as they are written. Nothing here is generic: it is made for many lines, whoever calls it.
pub fn aligned(listing: &str, width: Option<usize>) -> String {
    align(lines(listing).map(cells), &mut Vec::new(), width)
}

/// Whether cells are shown as they are written: nothing in them is escaped, and nothing would do anything to a terminal.
pub fn is_plain(listing: &str) -> bool {
    // without an end before the last byte, which is quicker: nearly all are
    listing.bytes().fold(true, |plain, byte| plain & matches!(byte, b'\t' | b'\n' | b' '..=b'[' | b']'..=b'~'))
}

fn escape(cell: &str, out: &mut String) {
    if !cell.contains(['\t', '\n', '\r', '\\']) {
        out.push_str(cell);
        return;
    }
    for c in cell.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
}

/// What a cell says.
pub fn unescaped(cell: &str) -> Cow<'_, str> {
    if !cell.contains('\\') {
        return Cow::Borrowed(cell);
    }
    let mut out = String::with_capacity(cell.len());
    let mut chars = cell.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// One of each kind, with whatever may be in a name or a text of others.
    fn odd() -> Vec<AnyResource> {
        let evil = "a\tb\nc\rd\\t\\e \u{1b}[2J é";
        [
            ("Environment", serde_json::json!({"runtime": "docker:here", "workdir": evil, "image": evil})),
            ("Run", serde_json::json!({"flow": evil})),
            ("Runtime", serde_json::json!({"cpus": 2})),
            ("Flow", serde_json::json!({"description": evil, "steps": []})),
        ]
        .map(|(kind, spec)| {
            let metadata = serde_json::json!({"name": evil, "creationTimestamp": at(0).to_string()});
            let whole = serde_json::json!({"apiVersion": "hmz/v1", "kind": kind, "metadata": metadata, "spec": spec});
            serde_json::from_value(whole).unwrap()
        })
        .into()
    }

    #[test]
    fn a_row_is_a_line_that_says_the_cells_of_the_resource() {
        for item in odd() {
            for wide in [false, true] {
                let mut listing = String::new();
                write_headers(item.kind(), wide, &mut listing);
                Row::of(&item).write(wide, at(330), &mut listing);
                let lines: Vec<Vec<_>> = lines(&listing).map(|line| cells(line).map(unescaped).collect()).collect();
                let meant: Vec<_> = columns::cells(&item, wide).into_iter().map(|cell| cell.text(at(330))).collect();
                assert_eq!(lines, [columns::headers(item.kind(), wide).iter().map(|h| Cow::from(*h)).collect(), meant]);
            }
        }
    }

    #[test]
    fn a_row_grows_older() {
        let row = Row::of(&odd()[1]);
        let (mut young, mut old) = (String::new(), String::new());
        row.write(false, at(5), &mut young);
        row.write(false, at(86_400), &mut old);
        assert!(young.ends_with("\t5s\n") && old.ends_with("\t24h\n"), "{young}{old}");
    }
}
