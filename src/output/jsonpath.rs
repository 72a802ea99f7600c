//! JSONPath templates, as kubectl has them: `{.metadata.name}`, `{range .items[*]}{.metadata.name}{"\n"}{end}`.
//!
//! What is read: fields (`.a`, `['a']`, `['a','b']`, `.a\.b`), elements (`[0]`, `[-1]`, `[1:3]`, `[0:5:2]`, `[*]`), all of a
//! name below (`..name`), filters (`[?(@.a=="b")]`, with `==`, `!=`, `<`, `<=`, `>`, `>=`, or the field alone), texts in
//! quotes, `range` and `end`. Anything else is refused with its column. A field that is not there is nothing.

mod parse;

use hmz_api::Error;
use serde_json::Value;
use std::cmp::Ordering;

/// A template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template(Vec<Piece>);

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Path(Path),
    Range(Path, Vec<Piece>),
}

/// A path into a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Whether it begins at the document though it stands in a range or a filter.
    absolute: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Fields(Vec<String>),
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    All,
    /// Everything below and including it.
    Descend,
    Filter(Operand, Option<(Op, Operand)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

impl Template {
    /// Reads a template. One without braces is one path.
    ///
    /// # Errors
    /// A usage error with the column of what is wrong.
    pub fn read(text: &str) -> Result<Self, Error> {
        parse::template(text).map(Self)
    }

    /// What it makes of a document.
    pub fn render(&self, document: &Value) -> String {
        let mut out = String::new();
        pieces(&self.0, document, document, &mut out);
        out
    }
}

impl Path {
    /// Reads one path, with braces or without: `.spec.cpus`, `{.spec.cpus}`.
    ///
    /// # Errors
    /// A usage error with the column of what is wrong.
    pub fn read(text: &str) -> Result<Self, Error> {
        parse::path(text)
    }

    /// The values at it, in order; none when there is nothing.
    pub fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        self.at(document, document)
    }

    /// Whether its first steps are those fields.
    pub fn begins_with(&self, fields: &[&str]) -> bool {
        let is = |(step, name): (&Step, &&str)| matches!(step, Step::Fields(names) if names.iter().any(|first| first == name));
        self.steps.len() >= fields.len() && self.steps.iter().zip(fields).all(is)
    }

    /// The names on its way, as far as they can be told before there is a document: several where a step has several.
    pub fn names(&self) -> Vec<Vec<&str>> {
        let mut ways: Vec<Vec<&str>> = vec![Vec::new()];
        for step in self.steps.iter().take_while(|step| !matches!(step, Step::Descend)) {
            let Step::Fields(names) = step else { continue };
            let mut longer = Vec::new();
            for way in &ways {
                longer.extend(names.iter().map(|name| [way.as_slice(), &[name.as_str()]].concat()));
            }
            ways = longer;
        }
        ways
    }

    fn at<'a>(&self, root: &'a Value, here: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![if self.absolute { root } else { here }];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| next(step, root, value)).collect();
        }
        found
    }
}

fn pieces(all: &[Piece], root: &Value, here: &Value, out: &mut String) {
    for piece in all {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Path(path) => {
                let found: Vec<String> = path.at(root, here).into_iter().map(text).collect();
                out.push_str(&found.join(" "));
            }
            Piece::Range(path, body) => path.at(root, here).into_iter().for_each(|value| pieces(body, root, value, out)),
        }
    }
}

/// A value as it is printed: a text as it is, nothing as nothing, anything else as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn next<'a>(step: &Step, root: &'a Value, value: &'a Value) -> Vec<&'a Value> {
    match step {
        Step::Fields(names) => names.iter().filter_map(|name| value.get(name)).collect(),
        Step::All => below(value),
        Step::Descend => descend(value),
        Step::Index(at) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            place(*at, items.len()).and_then(|at| items.get(at)).into_iter().collect()
        }
        Step::Slice(from, to, by) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let bound = |at: Option<i64>, otherwise: usize| match at {
                None => otherwise,
                Some(at) if at < 0 => items.len().saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
                Some(at) => usize::try_from(at).unwrap_or(usize::MAX).min(items.len()),
            };
            let (from, to) = (bound(*from, 0), bound(*to, items.len()));
            let by = usize::try_from(*by).unwrap_or(1).max(1);
            items.get(from..to.max(from)).unwrap_or_default().iter().step_by(by).collect()
        }
        Step::Filter(left, compared) => {
            below(value).into_iter().filter(|item| holds(left, compared.as_ref(), root, item)).collect()
        }
    }
}

fn place(at: i64, length: usize) -> Option<usize> {
    let from_end = || length.checked_sub(usize::try_from(at.unsigned_abs()).ok()?);
    if at < 0 { from_end() } else { usize::try_from(at).ok() }
}

fn below(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend(value: &Value) -> Vec<&Value> {
    let mut all = vec![value];
    for inner in below(value) {
        all.extend(descend(inner));
    }
    all
}

fn holds(left: &Operand, compared: Option<&(Op, Operand)>, root: &Value, item: &Value) -> bool {
    let values = |operand: &Operand| -> Vec<Value> {
        match operand {
            Operand::Literal(value) => vec![value.clone()],
            Operand::Path(path) => path.at(root, item).into_iter().cloned().collect(),
        }
    };
    let left = values(left);
    let Some((op, right)) = compared else { return !left.is_empty() };
    let (Some(left), Some(right)) = (left.first().cloned(), values(right).first().cloned()) else {
        // what is not there is another than anything that is
        return *op == Op::Unequal;
    };
    let order = compare(&left, &right);
    match op {
        Op::Equal => order == Ordering::Equal,
        Op::Unequal => order != Ordering::Equal,
        Op::Less => order == Ordering::Less,
        Op::LessOrEqual => order != Ordering::Greater,
        Op::More => order == Ordering::Greater,
        Op::MoreOrEqual => order != Ordering::Less,
    }
}

/// The order of two values: numbers and quantities (`512M`, `8G`) by how much they are, everything else by its text.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    let amount = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse::<hmz_api::Memory>().ok().map(|memory| memory.bytes() as f64),
        _ => None,
    };
    match (amount(a), amount(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => text(a).cmp(&text(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"x.y/z": "1"}}, "spec": {"cpus": 2, "memory": "512M"}, "status": {"c": [{"type": "Ready", "status": "True"}]}},
            {"metadata": {"name": "b"}, "spec": {"cpus": 10, "memory": "8G"}, "status": {"c": [{"type": "Ready", "status": "False"}]}},
            {"metadata": {"name": "c"}, "spec": {"memory": "1G"}}
        ]})
    }

    #[test]
    fn what_kubectl_prints_of_it() {
        for (template, printed) in [
            ("{.kind}", "List"),
            (".kind", "List"),
            ("{$.kind}", "List"),
            ("{.items[*].metadata.name}", "a b c"),
            ("{.items[0].metadata.name},{.items[-1].metadata.name}", "a,c"),
            ("{.items[0:2].metadata.name}", "a b"),
            ("{.items[::2].metadata.name}", "a c"),
            ("{.items[9].metadata.name}{.nothing}", ""),
            ("{.items[0].metadata['name']}", "a"),
            ("{.items[0]['metadata','spec']}", "{\"name\":\"a\",\"labels\":{\"x.y/z\":\"1\"}} {\"cpus\":2,\"memory\":\"512M\"}"),
            ("{.items[0].metadata.labels.x\\.y/z}", "1"),
            ("{.items[0].metadata.labels['x.y/z']}", "1"),
            ("{..name}", "a b c"),
            ("{.items[?(@.spec.cpus>2)].metadata.name}", "b"),
            ("{.items[?(@.spec.cpus)].metadata.name}", "a b"),
            ("{.items[?(@.metadata.name=='b')].spec.memory}", "8G"),
            ("{.items[?(@.metadata.name != \"b\")].spec.memory}", "512M 1G"),
            ("{.items[*].status.c[?(@.type==\"Ready\")].status}", "True False"),
            ("{range .items[*]}{.metadata.name}{\"\\t\"}{.spec.memory}{'\\n'}{end}", "a\t512M\nb\t8G\nc\t1G\n"),
            ("{range .items[*]}{$.kind}{end}", "ListListList"),
            ("name: {.kind} ", "name: List "),
        ] {
            let read = Template::read(template).unwrap_or_else(|e| panic!("{template}: {e}"));
            assert_eq!(read.render(&document()), printed, "{template}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_where_it_is() {
        for (template, said) in [
            ("{.a", "'{.a': column 4: a '}' is missing"),
            ("{.a[}", "'{.a[}': column 5: expected an index, '*', a name in quotes or a filter"),
            ("{.a[?(@.b=~\"x\")]}", "'{.a[?(@.b=~\"x\")]}': column 10: expected ==, !=, <, <=, >, >= or )"),
            ("{range .a}", "'{range .a}': column 11: an {end} is missing"),
            ("{end}", "'{end}': column 2: there is no {range} for this {end}"),
            ("{foo}", "'{foo}': column 2: a path begins with a dot, such as .metadata.name"),
            ("name", "'name': column 1: a path begins with a dot, such as .metadata.name"),
            ("{.a b}", "'{.a b}': column 5: expected '.', '[' or '}'"),
            ("{.}", "'{.}': column 3: a name is missing"),
            ("{\"a}", "'{\"a}': column 5: the quote is not closed"),
        ] {
            assert_eq!(Template::read(template).unwrap_err().message, said);
        }
        assert!(Path::read("{.a}{.b}").is_err() && Path::read("{.a}").is_ok());
    }

    #[test]
    fn amounts_are_in_their_order() {
        let order = |a, b| compare(&a, &b);
        assert_eq!(order(json!(2), json!(10)), Ordering::Less);
        assert_eq!(order(json!("512M"), json!("8G")), Ordering::Less);
        assert_eq!(order(json!("b"), json!("a")), Ordering::Greater);
    }
}
