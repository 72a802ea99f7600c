//! Log lines as JSON objects: `timestamp`, `level`, `target`, `process`, `message`, and every field of the event and of the spans
//! it happened in, the inner ones before the outer.

use crate::visit::Fields;
use hmz_api::clock::{Clock as _, SystemClock};
use serde_json::{Map, Value};
use std::io::Write as _;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Writes them.
pub(crate) struct Json {
    process: &'static str,
    writer: BoxMakeWriter,
}

/// The fields of a span.
struct OfSpan(Fields);

impl Json {
    pub(crate) const fn new(process: &'static str, writer: BoxMakeWriter) -> Self {
        Self { process, writer }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Json {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(OfSpan(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(OfSpan(fields)) = span.extensions_mut().get_mut::<OfSpan>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".into(), SystemClock.now().to_string().into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("target".into(), metadata.target().into());
        line.insert("process".into(), self.process.into());
        let message = own.0.remove("message").unwrap_or(Value::Null);
        line.insert("message".into(), message);
        let mut add = |fields: Map<String, Value>| {
            for (name, value) in fields {
                line.entry(name).or_insert(value);
            }
        };
        add(own.0);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(OfSpan(fields)) = span.extensions().get::<OfSpan>() {
                add(fields.0.clone());
            }
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // a log that cannot be written can be told to nobody
        let _ = self.writer.make_writer().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::sync::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn a_line_has_what_its_spans_have_and_its_own_first() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let layer = Json::new("daemon", BoxMakeWriter::new(Mutex::new(writer)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let context = crate::TraceContext::below(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
            let outer = crate::span!("outer", context, run = "r", n = 1);
            let _outer = outer.enter();
            let inner = tracing::info_span!("inner", n = 2, env = tracing::field::Empty);
            inner.record("env", "box");
            let _inner = inner.enter();
            tracing::warn!(target: "t", good = true, n = 3, "say \"{}\"", "x\ny");
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let line = line.as_object_mut().unwrap();
        assert!(line.remove("timestamp").unwrap().as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        assert_eq!(line.remove("span_id").unwrap().as_str().unwrap().len(), 16);
        let rest = serde_json::json!({"level": "WARN", "target": "t", "process": "daemon", "message": "say \"x\ny\"", "good": true, "n": 3,
            "env": "box", "run": "r", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "parent_id": "00f067aa0ba902b7"});
        assert_eq!(Value::Object(line.clone()), rest);
    }
}
