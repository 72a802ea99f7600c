//! A fault in a text, where it is, and what was probably meant.

use hmz_api::Error;
use std::fmt;
use unicode_width::UnicodeWidthStr;

/// One fault of a manifest or of settings.yaml.
///
/// Displays as `run.yaml:7:5: unknown field 'runtme', did you mean 'runtime'?` followed by the line and a caret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Report {
    /// The file as it was named, or `-` for standard input.
    pub origin: String,
    /// The line, from 1; 0 when the fault has no place (a file that cannot be read).
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line of the text and a caret below the place, without a last newline; empty when there is no place.
    pub snippet: String,
    /// What was probably meant, such as `did you mean 'runtime'?`.
    pub suggestion: Option<String>,
}

impl Report {
    /// A fault without a place in a text.
    pub fn without_place(origin: impl Into<String>, message: impl Into<String>) -> Self {
        Self { origin: origin.into(), line: 0, column: 0, message: message.into(), snippet: String::new(), suggestion: None }
    }

    /// The place and what is wrong, on one line and without the snippet.
    pub fn headline(&self) -> String {
        let mut text = match self.line {
            0 => format!("{}: {}", self.origin, self.message),
            line => format!("{}:{line}:{}: {}", self.origin, self.column, self.message),
        };
        if let Some(suggestion) = &self.suggestion {
            text.push_str(", ");
            text.push_str(suggestion);
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        if !self.snippet.is_empty() {
            write!(f, "\n{}", self.snippet)?;
        }
        Ok(())
    }
}

impl From<Report> for Error {
    fn from(report: Report) -> Self {
        Self::usage(report.to_string())
    }
}

/// All reports as one usage error, each below the other.
pub fn into_error(reports: Vec<Report>) -> Error {
    let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
    Error::usage(texts.join("\n"))
}

/// A text without the lines that snippets of reports in it are: what somebody wrote there may be a secret.
pub fn without_snippets(text: &str) -> String {
    let is_snippet = |line: &&str| {
        let rest = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
        rest == "|" || rest.starts_with("| ")
    };
    text.lines().filter(|line| !is_snippet(line)).collect::<Vec<_>>().join("\n")
}

/// A place in a text: line and column in characters, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct At {
    pub line: usize,
    pub column: usize,
}

/// The lines of a text as YAML counts them: a carriage return alone ends one too.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text).filter(|t| !t.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\r', '\n']) else {
            rest = None;
            return Some(text);
        };
        let after = &text[end..];
        let next = after.strip_prefix("\r\n").unwrap_or(&after[1..]);
        rest = Some(next).filter(|t| !t.is_empty());
        Some(&text[..end])
    })
}

/// How much of a long line a snippet shows.
const SNIPPET_WIDTH: usize = 160;

/// The line at `at` and a caret under the column.
pub(crate) fn snippet(text: &str, at: At) -> String {
    let Some(line) = lines(text).nth(at.line.saturating_sub(1)) else { return String::new() };
    let start = at.column.saturating_sub(SNIPPET_WIDTH * 3 / 4);
    let shown: String = line.chars().skip(start).take(SNIPPET_WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let number = at.line.to_string();
    let gutter = " ".repeat(number.len());
    let dots = if start > 0 { "…" } else { "" };
    // a terminal gives some characters two cells, and some none
    let before: String = shown.chars().take(at.column.saturating_sub(1).saturating_sub(start)).collect();
    let beyond = at.column.saturating_sub(1).saturating_sub(start + before.chars().count());
    let indent = " ".repeat(before.width() + beyond + usize::from(start > 0));
    format!("{gutter} |\n{number} | {dots}{}\n{gutter} | {indent}^", shown.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_without_its_snippets() {
        let text = "a: 1\nb: [secret\n";
        let fault = |line, column| Report {
            origin: "f.yaml".into(),
            line,
            column,
            message: "unclosed".into(),
            snippet: snippet(text, At { line, column }),
            suggestion: None,
        };
        let error = into_error(vec![fault(2, 4), fault(1, 1)]);
        assert!(error.message.contains("2 | b: [secret\n"), "{error}");
        let told = without_snippets(&format!("commit 1: {}\ncommit 0 stays declared", error.message));
        assert_eq!(told, "commit 1: f.yaml:2:4: unclosed\nf.yaml:1:1: unclosed\ncommit 0 stays declared");
    }
}
