//! The least of HTTP over a Unix socket: one request a connection, and streams of JSON lines.

use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

fn send(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap_or_else(|e| panic!("{}: {e}", socket.display()));
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("a request is sent");
    BufReader::new(stream)
}

/// Asks, and returns the body: JSON, or null when it is none.
///
/// # Panics
/// When the answer is no success.
pub fn ask(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Value {
    let mut answer = Vec::new();
    send(socket, method, path, body).read_to_end(&mut answer).expect("an answer");
    let text = String::from_utf8_lossy(&answer);
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {text}");
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return serde_json::from_str(&joined(rest)).unwrap_or_default();
    }
    serde_json::from_str(rest).unwrap_or_default()
}

/// The chunks of a body as one text.
fn joined(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

/// A stream of JSON lines.
pub struct Stream(Lines<BufReader<UnixStream>>);

/// Asks for a stream.
pub fn stream(socket: &Path, path: &str) -> Stream {
    Stream(send(socket, "GET", path, None).lines())
}

impl Stream {
    /// Passes over what was there before: from here on every line is a change.
    pub fn changes(mut self) -> Self {
        let bookmark = self.find(|line| line["type"] == "BOOKMARK");
        assert!(bookmark.is_some(), "a watch ended before its bookmark");
        self
    }
}

impl Iterator for Stream {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        // sizes of chunks and headers are lines too
        self.0
            .by_ref()
            .map_while(Result::ok)
            .filter(|line| line.starts_with('{'))
            .find_map(|line| serde_json::from_str(&line).ok())
    }
}
