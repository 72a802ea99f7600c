//! What an apply came to, as a file for a pipeline: JUnit's XML or JSON.

use hmz_api::ErrorKind;
use hmz_api::rest::Applied;
use serde::Serialize;
use std::time::Duration;

/// What became of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// `env/box`; of a failure before any resource was looked at, what was read.
    pub name: String,
    /// `created`, `configured`, `unchanged`, `replaced`, `pruned`, `going`; none of one that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Applied>,
    /// How it ended.
    pub result: Result,
    /// Why, when it is not well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How long it took to be so.
    pub seconds: f64,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Result {
    /// Well.
    Passed,
    /// It did not.
    Failed,
    /// It was never begun: it is refused, or what is written cannot be read.
    Refused,
}

impl Line {
    /// One that is well, or what is wrong with it.
    pub fn of(name: String, action: Option<Applied>, error: Option<&hmz_api::Error>, took: Duration) -> Self {
        let result = match error.map(|e| e.kind) {
            None => Result::Passed,
            Some(ErrorKind::Refused | ErrorKind::Usage) => Result::Refused,
            Some(_) => Result::Failed,
        };
        let said = |e: &hmz_api::Error| {
            let hints = e.hints.iter().map(|hint| format!("\n{hint}"));
            format!("{}{}", e.message, hints.collect::<String>())
        };
        Self { name, action, result, message: error.map(said).unwrap_or_default(), seconds: took.as_secs_f64() }
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    passed: usize,
    failed: usize,
    refused: usize,
    resources: &'a [Line],
}

fn count(lines: &[Line], result: Result) -> usize {
    lines.iter().filter(|line| line.result == result).count()
}

/// One JSON document: how many of each result, and the resources.
pub fn json(lines: &[Line]) -> String {
    let of = |result| count(lines, result);
    let whole = Whole { passed: of(Result::Passed), failed: of(Result::Failed), refused: of(Result::Refused), resources: lines };
    // numbers and texts only
    serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
}

/// A test suite of JUnit's: a case a resource, `failure` for what failed and `error` for what was refused.
pub fn junit(lines: &[Line], suite: &str) -> String {
    let seconds: f64 = lines.iter().map(|line| line.seconds).fold(0.0, f64::max);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\" time=\"{seconds:.3}\">\n",
        escape(suite),
        lines.len(),
        count(lines, Result::Failed),
        count(lines, Result::Refused)
    );
    for line in lines {
        let (kind, name) = line.name.split_once('/').unwrap_or(("manifests", &line.name));
        let head = format!("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"", escape(kind), escape(name), line.seconds);
        let word = match line.result {
            Result::Passed => {
                out.push_str(&format!("{head}/>\n"));
                continue;
            }
            Result::Failed => "failure",
            Result::Refused => "error",
        };
        let first = escape(line.message.lines().next().unwrap_or_default());
        out.push_str(&format!(
            "{head}>\n      <{word} message=\"{first}\">{}</{word}>\n    </testcase>\n",
            escape(&line.message)
        ));
    }
    out + "  </testsuite>\n</testsuites>\n"
}

/// Text as XML has it; what no XML may hold becomes a question mark.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c if c < ' ' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Error;

    #[test]
    fn a_pipeline_reads_what_became_of_each() {
        let took = Duration::from_millis(1500);
        let refused =
            Error::refused("docker@here has 2 of 4 CPUs free,\nand 'box' asks for <8> & \u{1b}more").hint("ask for less");
        let lines = [
            Line::of("env/box".into(), Some(Applied::Created), None, took),
            Line::of("run/fix".into(), Some(Applied::Created), Some(&Error::failed("it \"failed\"")), Duration::ZERO),
            Line::of("env/big".into(), None, Some(&refused), Duration::ZERO),
        ];
        insta::assert_snapshot!(format!("{}---\n{}", junit(&lines, "team & co"), json(&lines)));
    }
}
