//! The real Claude Code, unmodified, with a provider on loopback that asks for commands.
//!
//! The CLI is the one `HMZ_TEST_CLAUDE` names, else `claude` on PATH. One that cannot be had is a failure.

use crate::world::{Session, World};
use crate::{Test, agent};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub const TESTS: &[Test] = &[("claude_works_in_the_box", claude_works_in_the_box)];

/// What the provider has the agent do, one command a step.
const COMMANDS: [&str; 3] =
    ["hostname; mkdir -p deep; cd deep", "pwd; env; echo made >made; ls /proc/self/fd", "git --version || echo no git; exit 7"];

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{}{data}}}\n\n", if data.is_empty() { "" } else { "," })
}

/// An answer as the Messages API streams it.
fn answer(step: usize) -> String {
    let usage = r#""usage":{"input_tokens":10,"output_tokens":5}"#;
    let (block, delta, stop) = match COMMANDS.get(step) {
        Some(command) => {
            let input = serde_json::json!({"command": command, "description": "work"}).to_string();
            (
                format!(r#"{{"type":"tool_use","id":"toolu_{step}","name":"Bash","input":{{}}}}"#),
                serde_json::json!({"type": "input_json_delta", "partial_json": input}).to_string(),
                "tool_use",
            )
        }
        None => (r#"{"type":"text","text":""}"#.to_owned(), r#"{"type":"text_delta","text":"all done"}"#.to_owned(), "end_turn"),
    };
    let message = format!(
        r#""message":{{"id":"msg_{step}","type":"message","role":"assistant","model":"scripted-1","content":[],"stop_reason":null,"stop_sequence":null,{usage}}}"#
    );
    [
        event("message_start", &message),
        event("content_block_start", &format!(r#""index":0,"content_block":{block}"#)),
        event("content_block_delta", &format!(r#""index":0,"delta":{delta}"#)),
        event("content_block_stop", r#""index":0"#),
        event("message_delta", &format!(r#""delta":{{"stop_reason":"{stop}","stop_sequence":null}},{usage}"#)),
        event("message_stop", ""),
    ]
    .concat()
}

/// Answers one request; its body when it was one for a message.
fn serve(stream: TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut request = String::new();
    reader.read_line(&mut request).ok()?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let is_message = request.starts_with("POST") && request.contains("/v1/messages") && !request.contains("count_tokens");
    let (status, text) =
        if is_message { ("200 OK", answer(body.matches("\"tool_result\"").count())) } else { ("404 Not Found", String::new()) };
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes())).ok()?;
    is_message.then_some(body)
}

fn claude_works_in_the_box(world: &World) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&bodies);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || {
                if let Some(body) = serve(stream) {
                    heard.lock().expect("a lock").push(body);
                }
            });
        }
    });
    let program = std::fs::canonicalize(agent::claude()).expect("a program");
    let args = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "scripted-1",
        "--setting-sources",
        "",
        "--strict-mcp-config",
    ];
    let args = [&args[..], &["--dangerously-skip-permissions", "do the work"]].concat();
    let mut config = world.config(program.to_str().expect("text"), &args);
    let home = world.path("claude-home");
    let state = home.join(".claude");
    let scratch = format!("{}/claude", world.place.scratch);
    std::fs::create_dir_all(&state).expect("a directory");
    for (name, value) in [
        ("HOME", home.to_str().expect("text")),
        ("IS_SANDBOX", "1"),
        ("SHELL", "/bin/bash"),
        ("USER", "root"),
        ("TMPDIR", &scratch),
        ("CLAUDE_CODE_TMPDIR", &scratch),
    ] {
        config.env.insert(name.into(), value.into());
    }
    config.env.extend(agent::variables(&url).into_iter().map(|(name, value)| (name.to_owned(), value)));
    config.fence.write.push(state);
    config.policy.own.push(program);
    let ended = Session::start(&config).end(b"");
    assert!(ended.status.success() && ended.out.contains("all done"), "{ended:?}");
    let bodies = bodies.lock().expect("a lock").clone();
    let last = bodies.iter().max_by_key(|b| b.matches("\"tool_result\"").count()).expect("a request");
    assert!(last.contains("thebox"), "the first command was not in the box: {last}");
    // the directory of one command is that of the next
    assert!(last.contains(&format!("{}/deep", world.place.workdir)) && world.work("deep/made").exists(), "{last}");
    assert!(last.contains("Exit code 7"), "{last}");
    assert!(!last.contains(agent::API_KEY) && last.contains("BOX_OWN=1"), "{last}");
    let left: Vec<_> = std::fs::read_dir(&home).expect("a directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, [".claude"], "the agent wrote outside its fence");
}
