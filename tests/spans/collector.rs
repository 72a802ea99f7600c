//! A collector on loopback, as far as it is asked: it takes what is posted, and keeps the spans.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a span says.
#[derive(Debug, Clone)]
pub struct Span {
    /// The process it was in.
    pub process: String,
    /// What was done.
    pub name: String,
    /// Its trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// What it is below.
    pub parent: String,
    /// When it began, in nanoseconds.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    attributes: Value,
}

impl Span {
    fn of(process: &str, span: &Value) -> Self {
        let text = |name: &str| span[name].as_str().unwrap_or_else(|| panic!("{name} in {span}")).to_owned();
        let nanos = |name: &str| text(name).parse().unwrap();
        Self {
            process: process.to_owned(),
            name: text("name"),
            trace: text("traceId"),
            id: text("spanId"),
            parent: text("parentSpanId"),
            began: nanos("startTimeUnixNano"),
            ended: nanos("endTimeUnixNano"),
            attributes: span["attributes"].clone(),
        }
    }

    fn value(&self, name: &str, kind: &str) -> Option<&str> {
        attribute(&self.attributes, name)?[kind].as_str()
    }

    /// An attribute that is a whole number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.value(name, "intValue")?.parse().ok()
    }

    /// One that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name, "stringValue")
    }
}

fn attribute<'a>(all: &'a Value, name: &str) -> Option<&'a Value> {
    all.as_array()?.iter().find(|one| one["key"] == name).map(|one| &one["value"])
}

/// The collector; it is there until the test's process ends.
#[derive(Debug)]
pub struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// One on a port of its own.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (url, spans) = (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mutex<Vec<_>>>::default());
        let kept = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                take(stream.unwrap(), &kept);
            }
        });
        Self { url, spans }
    }

    /// What the others are told.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All that was told so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

/// Takes one request.
fn take(stream: TcpStream, spans: &Mutex<Vec<Span>>) {
    let mut reader = BufReader::new(&stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(line(), "POST /v1/traces HTTP/1.1");
    let heads: Vec<String> = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty())).collect();
    let length = heads.iter().find_map(|head| head.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    for told in body["resourceSpans"].as_array().unwrap() {
        let process = attribute(&told["resource"]["attributes"], "hmz.process").unwrap()["stringValue"].as_str().unwrap();
        let all = told["scopeSpans"][0]["spans"].as_array().unwrap();
        spans.lock().unwrap().extend(all.iter().map(|span| Span::of(process, span)));
    }
    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
}
