//! What claude's events mean. One JSON object a line; unknown ones mean nothing.

use hmz_api::journal::Event;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};

use super::permissions::Question;
use hmz_script::{cut, first_line};

/// How much of a tool's answer is told, in bytes.
const LONGEST_RESULT: usize = 4 << 10;

/// Key of a tool's input → what people expect to read about it, the first one that is there.
const ABOUT: &[&str] =
    &["command", "file_path", "notebook_path", "pattern", "path", "url", "query", "description", "subject", "prompt", "skill"];

/// What a line says beyond events.
#[derive(Debug)]
pub(super) enum Heard {
    /// Nothing to do.
    Nothing,
    /// It asks for a permission.
    Asks(String, Question),
    /// It asks for something we have not.
    AsksOther(String),
    /// The provider did not accept its sign-in; it tries again.
    Unauthorized,
    /// The turn is over.
    Ended(Outcome),
}

/// A turn's end, as claude says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered(String),
    Failed(String),
}

/// Reads a session's lines; keeps what is cumulative.
#[derive(Debug, Default)]
pub(super) struct Translator {
    /// US dollars of the session up to its last turn.
    cost: f64,
    /// Tool uses we denied ourselves.
    denied: HashSet<String>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    subtype: String,
    #[serde(default)]
    message: Value,
    #[serde(default)]
    parent_tool_use_id: Option<String>,
    #[serde(default)]
    request_id: String,
    #[serde(default)]
    request: Value,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Translator {
    /// Remembers that the denial of this tool use has been told.
    pub(super) fn denied(&mut self, tool_use: &str) {
        self.denied.insert(tool_use.to_owned());
    }

    /// Reads one line and tells `sink` what happened.
    pub(super) fn hear(&mut self, line: &[u8], sink: &mut dyn FnMut(Event)) -> Heard {
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return Heard::Nothing };
        match (line.kind.as_str(), line.subtype.as_str()) {
            ("assistant", _) => assistant(&line, sink),
            ("user", _) => user(&line, sink),
            ("system", "api_retry") => return retry(&line, sink),
            ("system", "permission_denied") if !self.denied.contains(text(&line.rest, "tool_use_id")) => {
                let (tool, why) = (text(&line.rest, "tool_name"), text(&line.rest, "message"));
                sink(Event::Notice { text: format!("claude may not use {tool}: {why}") });
            }
            ("control_request", _) => {
                return match serde_json::from_value::<Question>(line.request.clone()) {
                    Ok(question) if line.request.get("subtype").and_then(Value::as_str) == Some("can_use_tool") => {
                        Heard::Asks(line.request_id, question)
                    }
                    _ => Heard::AsksOther(line.request_id),
                };
            }
            ("result", _) => return Heard::Ended(self.result(&line, sink)),
            _ => {}
        }
        Heard::Nothing
    }

    fn result(&mut self, line: &Line, sink: &mut dyn FnMut(Event)) -> Outcome {
        let tokens = |key: &str| line.rest.get("usage").and_then(|u| u.get(key)).and_then(Value::as_u64);
        let kinds = [
            ("input", "input_tokens"),
            ("output", "output_tokens"),
            ("cache_read", "cache_read_input_tokens"),
            ("cache_write", "cache_creation_input_tokens"),
        ];
        let spent: BTreeMap<String, u64> =
            kinds.into_iter().filter_map(|(kind, key)| Some((kind.to_owned(), tokens(key).filter(|n| *n > 0)?))).collect();
        // the usage is the turn's, the cost the whole session's
        let cost = line.rest.get("total_cost_usd").and_then(Value::as_f64).map(|total| {
            let turn = (total - self.cost).max(0.0);
            self.cost = total;
            turn
        });
        if !spent.is_empty() {
            sink(Event::Result { spent, cost });
        }
        let said = text(&line.rest, "result");
        // an error of the provider's ends as a success that is an error
        let failed = line.rest.get("is_error").and_then(Value::as_bool).unwrap_or(line.subtype != "success");
        if !failed {
            return Outcome::Answered(said.to_owned());
        }
        let errors = line.rest.get("errors").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let errors: Vec<&str> = errors.filter(|e| !e.is_empty()).collect();
        Outcome::Failed(match (said.is_empty(), errors.is_empty()) {
            (false, _) => cut(said, LONGEST_RESULT),
            (true, false) => cut(&errors.join("; "), LONGEST_RESULT),
            (true, true) => format!("claude ended its turn with {}", line.subtype),
        })
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn blocks(message: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    message.get("content").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

fn assistant(line: &Line, sink: &mut dyn FnMut(Event)) {
    // an error of the provider's comes as words of nobody; the turn's end says it again
    if line.message.get("model").and_then(Value::as_str) == Some("<synthetic>") {
        return;
    }
    let own = line.parent_tool_use_id.is_none();
    for block in blocks(&line.message) {
        match text(block, "type") {
            "text" if own && !text(block, "text").trim().is_empty() => sink(Event::Text { text: text(block, "text").to_owned() }),
            "thinking" if own && !text(block, "thinking").trim().is_empty() => {
                sink(Event::Reasoning { text: text(block, "thinking").to_owned() });
            }
            "tool_use" | "server_tool_use" => {
                sink(Event::Tool { name: text(block, "name").to_owned(), about: about(block.get("input")) });
            }
            _ => {}
        }
    }
}

fn user(line: &Line, sink: &mut dyn FnMut(Event)) {
    for block in blocks(&line.message).filter(|b| text(b, "type") == "tool_result") {
        let said = match block.get("content") {
            Some(Value::String(said)) => cut(said, LONGEST_RESULT),
            Some(Value::Array(parts)) => {
                let parts: Vec<&str> = parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect();
                cut(&parts.join("\n"), LONGEST_RESULT)
            }
            _ => String::new(),
        };
        sink(Event::ToolResult { is_error: block.get("is_error").and_then(Value::as_bool).unwrap_or(false), text: said });
    }
}

fn retry(line: &Line, sink: &mut dyn FnMut(Event)) -> Heard {
    let number = |key: &str| line.rest.get(key).and_then(Value::as_u64).unwrap_or_default();
    let status = line.rest.get("error_status").and_then(Value::as_u64);
    let why = match (status, text(&line.rest, "error")) {
        (Some(429), _) => "claude is rate-limited".to_owned(),
        (Some(401), _) => "claude's sign-in is not accepted".to_owned(),
        (Some(529), _) => "claude's provider is overloaded".to_owned(),
        (Some(status), _) => format!("claude's provider answers {status}"),
        (None, "") => "claude's provider cannot be reached".to_owned(),
        (None, error) => format!("claude's provider cannot be reached ({error})"),
    };
    let wait = number("retry_delay_ms") as f64 / 1000.0;
    let (attempt, of) = (number("attempt"), number("max_retries"));
    sink(Event::Notice { text: format!("{why}; trying again in {wait:.1}s ({attempt} of {of})") });
    if status == Some(401) { Heard::Unauthorized } else { Heard::Nothing }
}

/// What a tool is used on, in one line.
fn about(input: Option<&Value>) -> String {
    let Some(input) = input.and_then(Value::as_object) else { return String::new() };
    let said = ABOUT.iter().find_map(|key| input.get(*key).and_then(Value::as_str)).unwrap_or_default();
    first_line(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hear(translator: &mut Translator, line: &Value) -> (Heard, Vec<Event>) {
        let mut events = Vec::new();
        let heard = translator.hear(line.to_string().as_bytes(), &mut |event| events.push(event));
        (heard, events)
    }

    #[test]
    fn a_tool_use_says_what_it_is_used_on() {
        let line = json!({"type": "assistant", "message": {"model": "m", "content": [
            {"type": "tool_use", "name": "Bash", "input": {"command": "hostname && uname -a", "description": "d"}},
            {"type": "tool_use", "name": "Edit", "input": {"file_path": "/home/me/p/calc.py", "old_string": "a"}},
            {"type": "tool_use", "name": "Bash", "input": {"command": "cat <<EOT\nx\nEOT"}},
            {"type": "text", "text": "**Hostname:** x"},
            {"type": "something_new"},
        ]}, "parent_tool_use_id": null});
        insta::assert_debug_snapshot!(hear(&mut Translator::default(), &line).1);
    }

    #[test]
    fn a_turns_cost_is_what_the_session_cost_more() {
        let mut translator = Translator::default();
        let line = |total: f64| {
            json!({"duration_api_ms": 1, "type": "result", "subtype": "success", "is_error": false, "result": "done",
                "total_cost_usd": total, "usage": {"input_tokens": 122, "output_tokens": 2500, "cache_read_input_tokens": 0}})
        };
        let (heard, events) = hear(&mut translator, &line(0.25));
        assert!(matches!(heard, Heard::Ended(Outcome::Answered(text)) if text == "done"));
        let spent: BTreeMap<String, u64> = [("input".to_owned(), 122), ("output".to_owned(), 2500)].into();
        assert_eq!(events, [Event::Result { spent: spent.clone(), cost: Some(0.25) }]);
        assert_eq!(hear(&mut translator, &line(0.75)).1, [Event::Result { spent, cost: Some(0.5) }]);
    }

    #[test]
    fn a_success_that_is_an_error_is_a_failure() {
        let line = json!({"type": "result", "subtype": "success", "is_error": true, "result": "Failed to authenticate", "terminal_reason": "api_error"});
        let (heard, events) = hear(&mut Translator::default(), &line);
        assert!(matches!(heard, Heard::Ended(Outcome::Failed(text)) if text == "Failed to authenticate"));
        assert_eq!(events, []);
        let line =
            json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["No conversation found"]});
        assert!(
            matches!(hear(&mut Translator::default(), &line).0, Heard::Ended(Outcome::Failed(text)) if text == "No conversation found")
        );
    }

    #[test]
    fn retries_are_told_and_a_refused_sign_in_is_noticed() {
        let line = |status: u64| json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "retry_delay_ms": 546, "error_status": status, "error": "rate_limit"});
        let (heard, events) = hear(&mut Translator::default(), &line(429));
        assert!(matches!(heard, Heard::Nothing));
        assert_eq!(events, [Event::Notice { text: "claude is rate-limited; trying again in 0.5s (1 of 10)".into() }]);
        assert!(matches!(hear(&mut Translator::default(), &line(401)).0, Heard::Unauthorized));
    }

    #[test]
    fn a_permission_is_asked_and_other_requests_are_seen() {
        let line = json!({"type": "control_request", "request_id": "R", "request": {"subtype": "can_use_tool", "tool_name": "Write", "input": {"file_path": "/x"}, "tool_use_id": "t"}});
        assert!(
            matches!(hear(&mut Translator::default(), &line).0, Heard::Asks(id, q) if id == "R" && q.tool_name == "Write" && q.tool_use_id == "t")
        );
        let line = json!({"type": "control_request", "request_id": "S", "request": {"subtype": "hook_callback"}});
        assert!(matches!(hear(&mut Translator::default(), &line).0, Heard::AsksOther(id) if id == "S"));
    }

    #[test]
    fn what_is_not_understood_means_nothing() {
        for line in [&b"not json"[..], b"[1]", b"{\"type\":\"news\"}", b"{\"type\":5}", b"\xff"] {
            let mut events = 0;
            assert!(matches!(Translator::default().hear(line, &mut |_| events += 1), Heard::Nothing));
            assert_eq!(events, 0);
        }
    }
}
