//! The Messages API: what a request says of the session it belongs to, and an answer as the stream of events it is.

use super::http::Connection;
use super::script::{Action, Call, Step};
use serde_json::{Value, json};
use std::io;
use uuid::Uuid;

/// What came of a tool call, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The tool.
    pub tool: String,
    /// Its text.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// What a request says.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The script its prompt names last.
    pub script: Option<String>,
    /// How many rounds of tool calls there were since that prompt.
    pub round: usize,
    /// The session's directory, as far as the request says.
    pub cwd: String,
    /// Every result since that prompt, in order.
    pub results: Vec<ToolResult>,
    /// Whether it offers tools; one that does not is about something beside the session, such as a title.
    pub has_tools: bool,
}

fn blocks(message: &Value) -> Vec<Value> {
    match message.get("content") {
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        Some(Value::Array(blocks)) => blocks.clone(),
        _ => Vec::new(),
    }
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.iter().filter_map(|b| b.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn script_of(text: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once("[[script:")?;
    rest.split_once("]]").map(|(name, _)| name.to_owned())
}

fn cwd_of(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("orking directory: ")?;
    rest.split(|c: char| c.is_whitespace()).next().filter(|path| path.starts_with('/'))
}

impl Asked {
    /// Reads a request.
    pub fn of(request: &Value) -> Self {
        let mut asked = Self {
            has_tools: request.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()),
            cwd: cwd_of(&text_of(request.get("system"))).unwrap_or_default().to_owned(),
            ..Self::default()
        };
        let mut tools: Vec<(String, String)> = Vec::new();
        let mut in_results = false;
        for message in request.get("messages").and_then(Value::as_array).into_iter().flatten() {
            let mut has_results = false;
            let mut said = String::new();
            for block in blocks(message) {
                let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                match block.get("type").and_then(Value::as_str) {
                    Some("tool_use") => tools.push((field("id"), field("name"))),
                    Some("tool_result") => {
                        has_results = true;
                        let id = field("tool_use_id");
                        asked.results.push(ToolResult {
                            tool: tools.iter().find(|(used, _)| *used == id).map(|(_, name)| name.clone()).unwrap_or_default(),
                            text: without_reminder(&text_of(block.get("content"))),
                            is_error: block.get("is_error").and_then(Value::as_bool).unwrap_or(false),
                        });
                    }
                    Some("text") => said.push_str(&field("text")),
                    _ => {}
                }
            }
            if asked.cwd.is_empty() {
                asked.cwd = cwd_of(&said).unwrap_or_default().to_owned();
            }
            // results that come in several messages are one round
            if has_results && !in_results {
                asked.round += 1;
            }
            in_results = has_results;
            if message.get("role").and_then(Value::as_str) == Some("user")
                && let Some(script) = script_of(&said)
            {
                // what came before belongs to an earlier prompt, even in the very message that holds this one
                asked.script = Some(script);
                asked.round = 0;
                asked.results.clear();
                in_results = false;
            }
        }
        asked
    }
}

/// The body of an error of that status.
pub fn error_body(status: u16) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": format!("scripted {status}")}, "request_id": "req_scripted"})
}

fn id(prefix: &str) -> String {
    format!("{prefix}_{}", &Uuid::new_v4().simple().to_string()[..22])
}

/// What the tool said, without the reminder that the CLI may put behind it.
fn without_reminder(text: &str) -> String {
    text.split_once("\n\n<system-reminder>").map_or(text, |(said, _)| said).to_owned()
}

/// A text in pieces of at most `size` characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(size).map(|piece| piece.iter().collect()).collect()
}

fn content(text: Option<&str>, calls: &[Call], cwd: &str) -> Vec<Value> {
    let said = text.map(|text| json!({"type": "text", "text": text}));
    let used = calls.iter().map(|call| {
        let (name, input) = call.written_out(cwd);
        json!({"type": "tool_use", "id": id("toolu"), "name": name, "input": input})
    });
    said.into_iter().chain(used).collect()
}

/// Plays the answer or the stall of a step. `wait` returns false when the provider is closing.
pub fn answer(
    connection: &mut Connection,
    request: &Value,
    asked: &Asked,
    step: &Step,
    mut wait: impl FnMut() -> bool,
) -> io::Result<()> {
    let usage = |output: u64| {
        json!({
            "input_tokens": step.usage.input, "cache_creation_input_tokens": step.usage.cache_write,
            "cache_read_input_tokens": step.usage.cache_read, "output_tokens": output, "service_tier": "standard",
        })
    };
    let mut message = json!({
        "id": id("msg"), "type": "message", "role": "assistant", "model": request.get("model"), "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(1),
    });
    let (blocks, stop) = match &step.action {
        Action::Answer { text, calls } => {
            (content(text.as_deref(), calls, &asked.cwd), if calls.is_empty() { "end_turn" } else { "tool_use" })
        }
        Action::Error { .. } | Action::Stall => (Vec::new(), "end_turn"),
    };
    if request.get("stream").and_then(Value::as_bool) != Some(true) {
        message["content"] = Value::Array(blocks);
        message["stop_reason"] = json!(stop);
        message["usage"] = usage(step.usage.output);
        return connection.json(200, &[], &message);
    }
    connection.begin_events()?;
    connection.event(&json!({"type": "message_start", "message": message}))?;
    if matches!(step.action, Action::Stall) {
        while wait() && !connection.is_closed() {
            connection.event(&json!({"type": "ping"}))?;
        }
        connection.cut();
        return Ok(());
    }
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = match block.get("text").and_then(Value::as_str) {
            Some(text) => (
                json!({"type": "text", "text": ""}),
                pieces(text, 20).into_iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect::<Vec<_>>(),
            ),
            None => {
                let mut start = block.clone();
                start["input"] = json!({});
                let input = block["input"].to_string();
                let deltas = pieces(&input, 40).into_iter();
                (start, deltas.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect())
            }
        };
        connection.event(&json!({"type": "content_block_start", "index": index, "content_block": start}))?;
        for delta in deltas {
            connection.event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))?;
        }
        connection.event(&json!({"type": "content_block_stop", "index": index}))?;
    }
    if step.cut {
        connection.cut();
        return Ok(());
    }
    connection.event(&json!({
        "type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage(step.usage.output),
    }))?;
    connection.event(&json!({"type": "message_stop"}))?;
    connection.end_events()
}
