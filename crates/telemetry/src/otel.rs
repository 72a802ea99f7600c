//! The spans of this process, told to a collector when they have ended and are of a trace.

use crate::context::span_id;
use crate::outbox::{Collector, Outbox, Sender, attribute, nanos};
use crate::visit::Fields;
use hmz_api::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Where the spans of this process go, when a collector is named.
pub(crate) static OUTBOX: OnceLock<Arc<Outbox>> = OnceLock::new();

/// A span that has begun.
struct Begun {
    fields: Fields,
    id: String,
    at: Timestamp,
}

/// Takes note of spans.
pub(crate) struct Spans(Arc<Outbox>);

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
    let outbox = Arc::clone(OUTBOX.get_or_init(|| Outbox::new(collector, process)));
    let of_interest = FilterFn::new(is_of_interest as fn(&tracing::Metadata<'_>) -> bool);
    (Some(Spans(Arc::clone(&outbox)).with_filter(of_interest)), Some(Sender(outbox)))
}

/// Not what is there for the sake of log lines: a look of a controller mostly finds nothing to do.
fn is_of_interest(metadata: &tracing::Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && metadata.name() != crate::LOOK
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
        let span = json!({
            "traceId": trace,
            "spanId": begun.id,
            "parentSpanId": parent.unwrap_or_default(),
            "name": span.name(),
            "kind": 1,
            "startTimeUnixNano": nanos(begun.at),
            "endTimeUnixNano": nanos(SystemClock.now()),
            "attributes": attributes,
        });
        let _ = self.0.put(None, span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn a_collector_is_told_of_spans_of_a_trace_and_of_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let outbox = Outbox::new(Collector::read(&url).unwrap(), "runner");
        let context = crate::TraceContext::below(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        let sender = Sender(Arc::clone(&outbox));
        let before: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let past = crate::Ended::new("command", context.at_span(7), before, before + jiff::SignedDuration::from_millis(2));
        past.of("guest").with("exit_status", 3).failed("no").put(&outbox);
        let layer = Spans(outbox).with_filter(FilterFn::new(is_of_interest as fn(&tracing::Metadata<'_>) -> bool));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            drop(tracing::info_span!("of no trace"));
            drop(crate::span!("reconcile", context));
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
        let of_process = |at: usize, name: &str| {
            let resource = &body["resourceSpans"][at];
            let says = resource["resource"]["attributes"].as_array().unwrap();
            assert!(says.contains(&attribute("hmz.process", &name.into())), "{resource}");
            resource["scopeSpans"][0]["spans"].as_array().unwrap()
        };
        let spans = of_process(1, "runner");
        let told: Vec<_> = spans.iter().map(|s| (s["name"].as_str().unwrap(), s["parentSpanId"].as_str().unwrap())).collect();
        assert_eq!(told, [("turn", context.span_id()), ("run", "00f067aa0ba902b7")]);
        assert_eq!(spans[0]["attributes"], json!([{"key": "n", "value": {"intValue": "2"}}]));
        let past = of_process(0, "guest");
        assert!(spans.iter().chain(past).all(|s| s["traceId"] == context.trace_id()), "{body}");
        let took = |name: &str| past[0][name].as_str().unwrap().parse::<u64>().unwrap();
        assert_eq!(took("endTimeUnixNano") - took("startTimeUnixNano"), 2_000_000);
        assert_eq!((&past[0]["parentSpanId"], &past[0]["spanId"]), (&json!(context.span_id()), &json!("0000000000000007")));
        assert_eq!(past[0]["attributes"], json!([{"key": "exit_status", "value": {"intValue": "3"}}]));
        assert_eq!((past.len(), &past[0]["status"]), (1, &json!({"code": 2, "message": "no"})));
    }
}
