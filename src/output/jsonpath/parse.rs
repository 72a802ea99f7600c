//! Reading a JSONPath template.

use super::{Op, Operand, Path, Piece, Step};
use hmz_api::Error;
use serde_json::Value;

/// Reads a template.
///
/// # Errors
/// A usage error with the column.
pub(super) fn template(text: &str) -> Result<Vec<Piece>, Error> {
    let mut reader = Reader::of(text);
    if !text.contains('{') {
        return Ok(vec![Piece::Path(reader.whole_path(None)?)]);
    }
    let mut open: Vec<(Path, Vec<Piece>)> = Vec::new();
    let mut pieces = Vec::new();
    while let Some(c) = reader.peek() {
        if c != '{' {
            let text = reader.take_while(|c| c != '{');
            pieces.push(Piece::Text(text));
            continue;
        }
        reader.at += 1;
        reader.spaces();
        let before = reader.at;
        let word = if reader.peek().is_some_and(|c| c.is_alphabetic()) {
            reader.take_while(char::is_alphanumeric)
        } else {
            String::new()
        };
        match word.as_str() {
            "range" => {
                reader.spaces();
                let path = reader.path()?;
                open.push((path, std::mem::take(&mut pieces)));
            }
            "end" => {
                let Some((path, outer)) = open.pop() else {
                    return Err(reader.fault(before, "there is no {range} for this {end}"));
                };
                let body = std::mem::replace(&mut pieces, outer);
                pieces.push(Piece::Range(path, body));
            }
            "" if matches!(reader.peek(), Some('"' | '\'')) => pieces.push(Piece::Text(reader.quoted()?)),
            "" => pieces.push(Piece::Path(reader.path()?)),
            _ => return Err(reader.fault(before, BEGINS)),
        }
        reader.spaces();
        match reader.peek() {
            Some('}') => reader.at += 1,
            None => return Err(reader.fault(reader.at, "a '}' is missing")),
            Some(_) => return Err(reader.fault(reader.at, "expected '.', '[' or '}'")),
        }
    }
    if open.is_empty() { Ok(pieces) } else { Err(reader.fault(reader.at, "an {end} is missing")) }
}

/// Reads one path, with braces or without.
///
/// # Errors
/// A usage error with the column.
pub(super) fn path(text: &str) -> Result<Path, Error> {
    let mut reader = Reader::of(text);
    let braced = reader.peek() == Some('{');
    reader.at += usize::from(braced);
    reader.whole_path(braced.then_some('}'))
}

const BEGINS: &str = "a path begins with a dot, such as .metadata.name";

struct Reader {
    text: String,
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn of(text: &str) -> Self {
        Self { text: text.to_owned(), chars: text.chars().collect(), at: 0 }
    }

    fn fault(&self, at: usize, why: &str) -> Error {
        Error::usage(format!("'{}': column {}: {why}", self.text, at + 1))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn is_next(&mut self, what: &str) -> bool {
        let is = what.chars().enumerate().all(|(n, c)| self.chars.get(self.at + n) == Some(&c));
        self.at += if is { what.chars().count() } else { 0 };
        is
    }

    fn spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, mut is: impl FnMut(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek().filter(|c| is(*c)) {
            taken.push(c);
            self.at += 1;
        }
        taken
    }

    /// A path, `end` after it, and nothing after that.
    fn whole_path(&mut self, end: Option<char>) -> Result<Path, Error> {
        let path = self.path()?;
        match (end, self.peek()) {
            (Some(end), Some(c)) if c == end => self.at += 1,
            (Some(_), None) => return Err(self.fault(self.at, "a '}' is missing")),
            _ => {}
        }
        if self.at < self.chars.len() {
            return Err(self.fault(self.at, "expected '.' or '['"));
        }
        Ok(path)
    }

    fn path(&mut self) -> Result<Path, Error> {
        let absolute = self.is_next("$");
        let begins = absolute || self.is_next("@");
        if !begins && !matches!(self.peek(), Some('.' | '[')) {
            return Err(self.fault(self.at, BEGINS));
        }
        let mut steps = Vec::new();
        loop {
            if self.is_next("..") {
                steps.push(Step::Descend);
                if self.peek() != Some('[') {
                    steps.push(self.name()?);
                }
            } else if self.is_next(".") {
                // kubectl takes .['a'] for ['a']
                if self.peek() != Some('[') {
                    steps.push(self.name()?);
                }
            } else if self.is_next("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(Path { absolute, steps });
            }
        }
    }

    fn name(&mut self) -> Result<Step, Error> {
        if self.is_next("*") {
            return Ok(Step::All);
        }
        let mut name = String::new();
        while let Some(c) = self.peek() {
            match c {
                '\\' => {
                    self.at += 1;
                    name.extend(self.peek());
                }
                '.' | '[' | ']' | '{' | '}' | '(' | ')' | '=' | '!' | '<' | '>' | ',' => break,
                c if c.is_whitespace() => break,
                c => name.push(c),
            }
            self.at += 1;
        }
        if name.is_empty() { Err(self.fault(self.at, "a name is missing")) } else { Ok(Step::Fields(vec![name])) }
    }

    fn bracket(&mut self) -> Result<Step, Error> {
        let step = if self.is_next("*") {
            Step::All
        } else if self.is_next("?(") {
            self.filter()?
        } else if matches!(self.peek(), Some('"' | '\'')) {
            let mut names = vec![self.quoted()?];
            while self.is_next(",") {
                self.spaces();
                names.push(self.quoted()?);
            }
            Step::Fields(names)
        } else {
            self.index()?
        };
        if self.is_next("]") { Ok(step) } else { Err(self.fault(self.at, "expected ']'")) }
    }

    fn index(&mut self) -> Result<Step, Error> {
        let first = self.number()?;
        if !self.is_next(":") {
            let what = "expected an index, '*', a name in quotes or a filter";
            return first.map(Step::Index).ok_or_else(|| self.fault(self.at, what));
        }
        let to = self.number()?;
        let by = if self.is_next(":") { self.number()? } else { None };
        if by.is_some_and(|by| by < 1) {
            return Err(self.fault(self.at, "a step is 1 or more"));
        }
        Ok(Step::Slice(first, to, by.unwrap_or(1)))
    }

    fn number(&mut self) -> Result<Option<i64>, Error> {
        let before = self.at;
        let mut text = String::from(if self.is_next("-") { "-" } else { "" });
        text.push_str(&self.take_while(|c| c.is_ascii_digit()));
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| self.fault(before, "that is not an index"))
    }

    fn filter(&mut self) -> Result<Step, Error> {
        self.spaces();
        let left = self.operand()?;
        self.spaces();
        let ops = [
            ("==", Op::Equal),
            ("!=", Op::Unequal),
            ("<=", Op::LessOrEqual),
            (">=", Op::MoreOrEqual),
            ("<", Op::Less),
            (">", Op::More),
        ];
        let op = ops.into_iter().find_map(|(word, op)| self.is_next(word).then_some(op));
        let compared = match op {
            None => None,
            Some(op) => {
                self.spaces();
                let right = self.operand()?;
                self.spaces();
                Some((op, right))
            }
        };
        if self.is_next(")") {
            Ok(Step::Filter(left, compared))
        } else {
            Err(self.fault(self.at, "expected ==, !=, <, <=, >, >= or )"))
        }
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        match self.peek() {
            Some('"' | '\'') => Ok(Operand::Literal(Value::from(self.quoted()?))),
            Some('@' | '$' | '.') => Ok(Operand::Path(self.path()?)),
            _ => {
                let before = self.at;
                let word = self.take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'));
                match serde_json::from_str::<Value>(&word) {
                    Ok(value) if !word.is_empty() => Ok(Operand::Literal(value)),
                    _ => Err(self.fault(before, "expected a path, a text in quotes, a number, true, false or null")),
                }
            }
        }
    }

    fn quoted(&mut self) -> Result<String, Error> {
        let Some(quote) = self.peek().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.fault(self.at, "expected a name in quotes"));
        };
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                c if c == quote => return Ok(text),
                '\\' => {
                    let escaped = self.peek();
                    self.at += 1;
                    match escaped {
                        Some('n') => text.push('\n'),
                        Some('t') => text.push('\t'),
                        Some('r') => text.push('\r'),
                        Some(other) => text.push(other),
                        None => break,
                    }
                }
                c => text.push(c),
            }
        }
        Err(self.fault(self.chars.len(), "the quote is not closed"))
    }
}
