//! `--json`: one object a line for each event, every key in every object.

use hmz_api::journal::{Event, Record};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Line<'a> {
    at: f64,
    agent: &'a str,
    cli: &'a str,
    model: &'a str,
    session: &'a str,
    kind: &'a str,
    text: String,
    /// The id of the subagent it is of; none are told apart yet.
    whose: &'a str,
    /// Model → tokens of the turn.
    tokens: BTreeMap<&'a str, u64>,
    /// Kind → tokens of the turn.
    spent: BTreeMap<&'a str, u64>,
}

/// One record as one line with a newline, or nothing for an event of a newer version.
///
/// Kinds: `began` (text: the flow), `notice`, `begins`, `text`, `reasoning`, `tool` (text: the tool and what it is used on),
/// `tool-result`, `exec` (text: the command), `failed`, `result`, `ends` (text: the answer), `ended` (text: the outcome).
/// Money is left out: it is in the journal.
pub fn json(record: &Record) -> Option<String> {
    let none = BTreeMap::new();
    let mut spent = none.clone();
    let mut tokens = none;
    let (kind, text) = match &record.event {
        Event::Began { flow, .. } => ("began", flow.clone()),
        Event::Placed { text } | Event::Notice { text } => ("notice", text.clone()),
        Event::Begins => ("begins", String::new()),
        Event::Text { text } => ("text", text.clone()),
        Event::Reasoning { text } => ("reasoning", text.clone()),
        Event::Tool { name, about } => ("tool", format!("{name} {about}").trim_end().to_owned()),
        Event::ToolResult { text, .. } => ("tool-result", text.clone()),
        Event::Exec { command, .. } => ("exec", command.clone()),
        Event::Failed { text } => ("failed", text.clone()),
        Event::Result { spent: by_kind, .. } => {
            spent = by_kind.iter().map(|(k, n)| (k.as_str(), *n)).collect();
            if !record.model.is_empty() {
                tokens.insert(record.model.as_str(), by_kind.values().fold(0, |a: u64, b| a.saturating_add(*b)));
            }
            ("result", String::new())
        }
        Event::Ends { answer, .. } => ("ends", answer.clone()),
        Event::Ended { outcome, message } if message.is_empty() => ("ended", outcome.reason().to_owned()),
        Event::Ended { outcome, message } => ("ended", format!("{}: {message}", outcome.reason())),
        Event::Unknown => return None,
    };
    let line = Line {
        at: record.at,
        agent: &record.agent,
        cli: &record.cli,
        model: &record.model,
        session: &record.session,
        kind,
        text,
        whose: "",
        tokens,
        spent,
    };
    let value = serde_json::to_value(line).unwrap_or(Value::Null);
    Some(format!("{value}\n"))
}
