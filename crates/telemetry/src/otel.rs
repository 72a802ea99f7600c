//! Spans on their way to a collector: OTLP over HTTP, as JSON. A span is sent when it has ended and is of a trace, by a thread that
//! is there once there is one to send. A collector that does not answer costs spans and nothing else.

use crate::context::span_id;
use crate::visit::Fields;
use hmz_api::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// How long spans are gathered, how many at most, and how long a collector may take.
const GATHERED: Duration = Duration::from_secs(1);
const MOST: usize = 512;
const ANSWER: Duration = Duration::from_secs(5);

/// A span that has begun.
struct Begun {
    fields: Fields,
    id: String,
    at: Timestamp,
}

/// Takes note of spans.
pub(crate) struct Spans(Arc<Outbox>);

/// Where spans go.
struct Outbox {
    collector: Collector,
    process: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tell: Option<mpsc::Sender<Value>>,
    thread: Option<JoinHandle<()>>,
}

/// Waits until all was sent when it is dropped.
pub(crate) struct Sender(Arc<Outbox>);

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tell = None;
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            // it has nothing to say
            let _ = thread.join();
        }
    }
}

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collector {
    host: String,
    path: String,
}

type OfInterest<S> = Filtered<Spans, FilterFn, S>;

/// The layer, when a collector is named.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(process: &'static str) -> (Option<OfInterest<S>>, Option<Sender>) {
    let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let traces = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let Some(url) =
        traces.or_else(|| said("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}/v1/traces", url.trim_end_matches('/'))))
    else {
        return (None, None);
    };
    let Some(collector) = Collector::read(&url) else {
        eprintln!("hmz: no traces are sent: {url} is no http:// address");
        return (None, None);
    };
    let outbox = Arc::new(Outbox { collector, process, state: Mutex::default() });
    let of_interest = FilterFn::new((|metadata| *metadata.level() <= Level::INFO) as fn(&tracing::Metadata<'_>) -> bool);
    (Some(Spans(Arc::clone(&outbox)).with_filter(of_interest)), Some(Sender(outbox)))
}

impl Collector {
    fn read(url: &str) -> Option<Self> {
        let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
        let host = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            host.into()
        } else {
            format!("{host}:80")
        };
        Some(Self { host, path: format!("/{path}") })
    }

    fn send(&self, body: &str) -> std::io::Result<()> {
        let address = self.host.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let Self { host, path } = self;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        // that it was taken; what is said of it changes nothing
        stream.read(&mut [0; 64]).map(drop)
    }
}

impl Outbox {
    fn put(self: &Arc<Self>, span: Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.tell.is_none() {
            let (tell, told) = mpsc::channel();
            let this = Arc::clone(self);
            // without a thread nothing is sent
            let Ok(thread) = std::thread::Builder::new().name("spans".into()).spawn(move || this.work(&told)) else { return };
            (state.tell, state.thread) = (Some(tell), Some(thread));
        }
        if let Some(tell) = &state.tell {
            let _ = tell.send(span);
        }
    }

    fn work(&self, told: &Receiver<Value>) {
        while let Ok(first) = told.recv() {
            let mut spans = vec![first];
            let ended = loop {
                match told.recv_timeout(GATHERED) {
                    Ok(span) => spans.push(span),
                    Err(RecvTimeoutError::Timeout) => break false,
                    Err(RecvTimeoutError::Disconnected) => break true,
                }
                if spans.len() >= MOST {
                    break false;
                }
            };
            let _ = self.collector.send(&self.body(&spans).to_string());
            if ended {
                return;
            }
        }
    }

    fn body(&self, spans: &[Value]) -> Value {
        let resource = json!([
            attribute("service.name", &"hmz".into()),
            attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
            attribute("hmz.process", &self.process.into()),
            attribute("process.pid", &std::process::id().into()),
        ]);
        json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": {"name": "hmz"}, "spans": spans}]}]})
    }
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(b) => json!({"boolValue": b}),
        // whole numbers are texts in OTLP's JSON
        Value::Number(n) if n.is_f64() => json!({"doubleValue": n}),
        Value::Number(n) => json!({"intValue": n.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": name, "value": value})
}

fn nanos(at: Timestamp) -> String {
    at.as_nanosecond().to_string()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let id = fields.0.get("span_id").and_then(Value::as_str).map_or_else(span_id, str::to_owned);
        span.extensions_mut().insert(Begun { fields, id, at: SystemClock.now() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(begun) = span.extensions_mut().get_mut::<Begun>() {
            values.record(&mut begun.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(begun) = span.extensions_mut().remove::<Begun>() else { return };
        let said = |fields: &Fields, name: &str| fields.0.get(name).and_then(Value::as_str).map(str::to_owned);
        let (mut trace, mut parent) = (said(&begun.fields, "trace_id"), said(&begun.fields, "parent_id"));
        for above in span.scope().skip(1) {
            if let Some(above) = above.extensions().get::<Begun>() {
                parent = parent.or_else(|| Some(above.id.clone()));
                trace = trace.or_else(|| said(&above.fields, "trace_id"));
            }
        }
        let Some(trace) = trace else { return };
        let attributes = begun.fields.0.iter().filter(|(name, _)| !matches!(name.as_str(), "trace_id" | "span_id" | "parent_id"));
        let attributes: Vec<Value> = attributes.map(|(name, value)| attribute(name, value)).collect();
        self.0.put(json!({
            "traceId": trace,
            "spanId": begun.id,
            "parentSpanId": parent.unwrap_or_default(),
            "name": span.name(),
            "kind": 1,
            "startTimeUnixNano": nanos(begun.at),
            "endTimeUnixNano": nanos(SystemClock.now()),
            "attributes": attributes,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn a_collector_is_told_of_spans_of_a_trace_and_of_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let outbox = Arc::new(Outbox { collector: Collector::read(&url).unwrap(), process: "runner", state: Mutex::default() });
        let context = crate::TraceContext::below(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        let sender = Sender(Arc::clone(&outbox));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Spans(outbox)), || {
            drop(tracing::info_span!("of no trace"));
            let outer = crate::span!("run", context, run = "r");
            let _outer = outer.enter();
            drop(tracing::info_span!("turn", n = 2));
        });
        let told = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = String::new();
            let mut buffer = [0; 1024];
            let whole = |text: &str| {
                let (head, body) = text.split_once("\r\n\r\n")?;
                let length: usize = head.lines().find_map(|l| l.strip_prefix("Content-Length: "))?.parse().ok()?;
                (body.len() >= length).then(|| body.to_owned())
            };
            loop {
                let n = stream.read(&mut buffer).unwrap();
                text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
                if let Some(body) = whole(&text) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                    return (text.lines().next().unwrap().to_owned(), serde_json::from_str::<Value>(&body).unwrap());
                }
            }
        });
        drop(sender);
        let (line, body) = told.join().unwrap();
        assert_eq!(line, "POST /v1/traces HTTP/1.1");
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let told: Vec<_> = spans.iter().map(|s| (s["name"].as_str().unwrap(), s["parentSpanId"].as_str().unwrap())).collect();
        assert_eq!(told, [("turn", context.span_id()), ("run", "00f067aa0ba902b7")]);
        assert!(spans.iter().all(|s| s["traceId"] == context.trace_id()), "{body}");
        assert_eq!(spans[0]["attributes"], json!([{"key": "n", "value": {"intValue": "2"}}]));
    }
}
