//! Spans that are told once they are over: of work that several looks do, or that was done where no collector is reached. Without a
//! collector they cost the question whether there is one.

use crate::TraceContext;
use hmz_api::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Whether spans of this process are sent to a collector.
pub fn collects() -> bool {
    #[cfg(feature = "otel")]
    return crate::otel::OUTBOX.get().is_some();
    #[cfg(not(feature = "otel"))]
    false
}

/// One of them.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// What was done.
    pub name: &'static str,
    /// Where in a trace it is.
    pub context: TraceContext,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// The process it was in, when that is not this one.
    pub process: Option<&'static str>,
    /// Why it came to nothing, if so.
    pub failure: Option<String>,
    /// What else is said of it.
    pub attributes: Vec<(&'static str, Value)>,
}

impl Ended {
    /// The span of that context.
    pub fn new(name: &'static str, context: TraceContext, began: Timestamp, ended: Timestamp) -> Self {
        Self { name, context, began, ended, process: None, failure: None, attributes: Vec::new() }
    }

    /// The same of what ended just now, and took so long.
    pub fn just_now(name: &'static str, context: TraceContext, took: Duration) -> Self {
        let ended = SystemClock.now();
        Self::new(name, context, ended.checked_sub(took).unwrap_or(ended), ended)
    }

    /// It was in a process of that name, and not in this one.
    pub fn of(mut self, process: &'static str) -> Self {
        self.process = Some(process);
        self
    }

    /// Says something of it.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// It came to nothing, and why.
    pub fn failed(mut self, why: impl Into<String>) -> Self {
        self.failure = Some(why.into());
        self
    }

    /// Tells it to the collector, if there is one.
    pub fn tell(self) {
        #[cfg(feature = "otel")]
        if let Some(outbox) = crate::otel::OUTBOX.get() {
            self.put(outbox);
        }
    }

    #[cfg(any(test, feature = "otel"))]
    pub(crate) fn put(self, outbox: &std::sync::Arc<crate::outbox::Outbox>) {
        use crate::outbox::{attribute, nanos};
        let mut span = serde_json::json!({
            "traceId": self.context.trace_id(),
            "spanId": self.context.span_id(),
            "parentSpanId": self.context.parent_id().unwrap_or_default(),
            "name": self.name,
            "kind": 1,
            "startTimeUnixNano": nanos(self.began),
            // a clock may have been set back meanwhile
            "endTimeUnixNano": nanos(self.ended.max(self.began)),
            "attributes": self.attributes.iter().map(|(name, value)| attribute(name, value)).collect::<Vec<_>>(),
        });
        if let Some(why) = self.failure {
            span["status"] = serde_json::json!({"code": 2, "message": why});
        }
        let _ = outbox.put(self.process, span);
    }
}
