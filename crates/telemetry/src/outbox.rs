//! Spans on their way to a collector: OTLP over HTTP, as JSON, sent by a thread that is there once there is one to send. A collector
//! that does not answer costs spans and nothing else: so many wait at most, and the end of the process waits so long at most.

use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long spans are gathered, how many at most, and how long a collector may take.
const GATHERED: Duration = Duration::from_secs(1);
const MOST: usize = 512;
const ANSWER: Duration = Duration::from_secs(5);

/// How many spans wait to be gathered; what is more is lost.
const WAITING: usize = 4096;
/// How long the end waits until all was sent.
const AT_THE_END: Duration = Duration::from_secs(2);

/// Where spans go.
pub(crate) struct Outbox {
    collector: Collector,
    process: &'static str,
    state: Mutex<State>,
}

/// A span, and the process it was in.
type OfProcess = (&'static str, Value);

#[derive(Default)]
struct State {
    tell: Option<SyncSender<OfProcess>>,
    /// Ends with the thread.
    thread: Option<Receiver<Infallible>>,
}

/// Waits until all was sent when it is dropped, but for no collector that takes its time.
pub(crate) struct Sender(pub Arc<Outbox>);

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
            // it has nothing to say; one that is still at it ends with the process
            let _ = thread.recv_timeout(AT_THE_END);
        }
    }
}

/// A collector's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    host: String,
    path: String,
}

impl Collector {
    pub(crate) fn read(url: &str) -> Option<Self> {
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
    /// Of a process of that name.
    pub(crate) fn new(collector: Collector, process: &'static str) -> Arc<Self> {
        Arc::new(Self { collector, process, state: Mutex::default() })
    }

    /// Sends a span soon; `process`: where it was, unless it was here. Whether there was room for it: nobody waits for any.
    pub(crate) fn put(self: &Arc<Self>, process: Option<&'static str>, span: Value) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.tell.is_none() {
            let (tell, told) = mpsc::sync_channel(WAITING);
            let (at_work, thread) = mpsc::channel();
            let this = Arc::clone(self);
            let work = move || {
                let _at_work: mpsc::Sender<Infallible> = at_work;
                this.work(&told);
            };
            // without a thread nothing is sent
            if std::thread::Builder::new().name("spans".into()).spawn(work).is_err() {
                return false;
            }
            (state.tell, state.thread) = (Some(tell), Some(thread));
        }
        state.tell.as_ref().is_some_and(|tell| tell.try_send((process.unwrap_or(self.process), span)).is_ok())
    }

    fn work(&self, told: &Receiver<OfProcess>) {
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
            let _ = self.collector.send(&self.body(spans).to_string());
            if ended {
                return;
            }
        }
    }

    fn body(&self, spans: Vec<OfProcess>) -> Value {
        let mut of_processes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (process, span) in spans {
            of_processes.entry(process).or_default().push(span);
        }
        let told = of_processes.into_iter().map(|(process, spans)| {
            let mut resource = vec![
                attribute("service.name", &"hmz".into()),
                attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
                attribute("hmz.process", &process.into()),
            ];
            if process == self.process {
                resource.push(attribute("process.pid", &std::process::id().into()));
            }
            json!({"resource": {"attributes": resource}, "scopeSpans": [{"scope": {"name": "hmz"}, "spans": spans}]})
        });
        json!({"resourceSpans": told.collect::<Vec<_>>()})
    }
}

/// An attribute, as OTLP writes it.
pub(crate) fn attribute(name: &str, value: &Value) -> Value {
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

/// A time, as OTLP writes it.
pub(crate) fn nanos(at: Timestamp) -> String {
    at.as_nanosecond().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_collector_that_never_answers_costs_spans_and_nothing_else() {
        // whoever connects is let in by the kernel and hears nothing
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let outbox = Outbox::new(Collector::read(&url).unwrap(), "runner");
        let sender = Sender(Arc::clone(&outbox));
        let all = 4 * WAITING;
        let taken = (0..all).filter(|n| outbox.put(None, json!({"name": n.to_string()}))).count();
        assert!((WAITING..all).contains(&taken), "{taken} of {all}");
        let (tell, told) = mpsc::channel();
        let ending = std::thread::spawn(move || {
            drop(sender);
            tell.send(())
        });
        // against hanging; one batch after the other would take its time for each
        told.recv_timeout(Duration::from_secs(30)).unwrap();
        ending.join().unwrap().unwrap();
        drop(listener);
    }
}
