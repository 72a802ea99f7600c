//! The shape of a journal: what happened when and for how long, and how much was said, but nothing of what was said.

use hmz_api::journal::{Event, Record};
use std::fmt::Write as _;
use std::path::Path;

/// How many records are told, the last ones.
const MOST: usize = 2000;

/// A line a record. One that cannot be read says so.
pub fn shape(journal: &Path) -> String {
    let records: Vec<Record> = match hmz_flows::journal::read(journal) {
        Ok(records) => records.collect(),
        Err(e) => return format!("it cannot be read: {e}\n"),
    };
    let mut out = String::new();
    let left = records.len().saturating_sub(MOST);
    if left > 0 {
        let _ = writeln!(out, "({left} before these)");
    }
    for record in records.into_iter().skip(left) {
        let Record { at, agent, cli, event, .. } = record;
        let _ = write!(out, "{at:.3}");
        if !agent.is_empty() {
            let _ = write!(out, " {agent} ({cli})");
        }
        let _ = writeln!(out, " {}", told(&event));
    }
    out
}

fn told(event: &Event) -> String {
    let n = |text: &str| text.chars().count();
    match event {
        Event::Began { used, .. } => {
            let used: Vec<String> = used.iter().map(|(role, runtime)| format!("{role}={runtime}")).collect();
            format!("began {}", used.join(" "))
        }
        Event::Placed { text } => format!("placed: {} characters", n(text)),
        Event::Begins => "begins".into(),
        Event::Text { text } => format!("text: {} characters", n(text)),
        Event::Reasoning { text } => format!("reasoning: {} characters", n(text)),
        Event::Tool { name, about } => format!("tool {}: {} characters", word(name), n(about)),
        Event::ToolResult { is_error, text } => format!("tool-result, error {is_error}: {} characters", n(text)),
        Event::Exec { environment, command, status, stdout, stderr } => format!(
            "exec in {environment} of {} characters, status {status}: {} and {} characters",
            n(command),
            n(stdout),
            n(stderr)
        ),
        Event::Notice { text } => format!("notice: {} characters", n(text)),
        Event::Failed { text } => format!("failed: {} characters", n(text)),
        Event::Result { spent, cost } => format!("result {spent:?} {cost:?}"),
        Event::Ends { seconds, answer } => format!("ends after {seconds:.3} s: {} characters", n(answer)),
        Event::Ended { outcome, message } => format!("ended {}: {} characters", outcome.reason(), n(message)),
        Event::Unknown => "of a newer version".into(),
    }
}

/// A tool's name, when it looks like one.
fn word(name: &str) -> &str {
    let is_word = name.len() <= 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if is_word { name } else { "?" }
}
