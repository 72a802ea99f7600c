//! A value as it is put into a file: on one line, as it was typed where that is possible.

use crate::de::{Plain, meaning};
use crate::tree::{Node, Value};

/// How a text is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Only when it has to be.
    Needed,
    Single,
    Double,
}

/// A value on one line. It is good in block and in flow style.
pub(super) fn inline(node: &Node, quotes: Quotes) -> String {
    match &node.value {
        Value::Scalar { text: _, plain: true } if node.is_null() => "null".to_owned(),
        Value::Scalar { text, plain: true } if !matches!(meaning(text), Plain::Text(_)) => text.clone(),
        Value::Scalar { text, .. } => match quotes {
            Quotes::Needed if is_safe(text) => text.clone(),
            Quotes::Single if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', "''")),
            _ => quoted(text),
        },
        Value::Seq(items) => {
            let items: Vec<String> = items.iter().map(|item| inline(item, Quotes::Needed)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let pairs: Vec<String> =
                map.entries.iter().map(|e| format!("{}: {}", key(&e.key), inline(&e.value, Quotes::Needed))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// A key.
pub(super) fn key(text: &str) -> String {
    // a number is a good key: keys are texts
    let number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if number || is_safe(text) { text.to_owned() } else { quoted(text) }
}

/// As JSON has it, which YAML reads too.
fn quoted(text: &str) -> String {
    // what JSON leaves as it is and YAML does not read, or ends a line at
    let odd = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let json = serde_json::Value::String(text.to_owned()).to_string();
    json.chars().map(|c| if odd(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect()
}

/// Whether a text is that text without quotes, to this reader and to those that go by YAML 1.1.
fn is_safe(text: &str) -> bool {
    let first = text.chars().next();
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '@' | '~' | '+' | '-' | '=' | ' ' | ':' | '$' | '<');
    let begins = first.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '$') || (c == '~' && text.len() > 1));
    let colons = text.match_indices(':').all(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_alphanumeric() || c == '/'));
    begins
        && text.chars().all(plain)
        && colons
        && !text.ends_with(' ')
        && matches!(meaning(text), Plain::Text(_))
        && !is_old(text)
}

/// What YAML 1.1 takes for a boolean, a number or a time: others read this file too.
fn is_old(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let word = matches!(lower.as_str(), "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | ".inf" | ".nan");
    let number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))
        && lower
            .bytes()
            .all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'_' | b'+' | b'-' | b'x' | b'o' | b't' | b'z' | b' '));
    word || number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::At;

    #[test]
    fn texts_are_quoted_where_they_would_be_something_else() {
        for (text, said) in [
            ("local", "local"),
            ("unix:///run/docker.sock", "unix:///run/docker.sock"),
            ("python:3.12-slim", "python:3.12-slim"),
            ("~/w", "~/w"),
            ("8G", "8G"),
            ("~", "\"~\""),
            ("1000:10", "\"1000:10\""),
            ("3.12", "\"3.12\""),
            ("no", "\"no\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("x, y", "\"x, y\""),
            ("- a", "\"- a\""),
            ("-v", "\"-v\""),
            ("a:", "\"a:\""),
            ("two\nlines\u{85}", "\"two\\nlines\\u0085\""),
            ("*x", "\"*x\""),
        ] {
            let node = Node::of(At::default(), Value::Scalar { text: text.into(), plain: false });
            assert_eq!(inline(&node, Quotes::Needed), said);
        }
    }
}
