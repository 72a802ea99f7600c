//! What a process says of itself while it works: log lines with level, target and what they are about, and the trace they belong
//! to, which goes from a verb through the daemon and a run's runner to its agents' supervisors and guests.
//!
//! `HMZ_LOG` filters as `RUST_LOG` does elsewhere (`debug`, `hmz_drivers=debug,info`); `HMZ_LOG_FORMAT=json` makes each line a JSON
//! object. With the feature `otel`, spans go to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names.
#![forbid(unsafe_code)]

mod context;
mod ended;
mod json;
#[cfg(any(test, feature = "otel"))]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "it is tested without the feature too"))]
mod otel;
#[cfg(any(test, feature = "otel"))]
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "it is tested without the feature too"))]
mod outbox;
mod visit;

pub use context::TraceContext;
pub use ended::{Ended, collects};
/// For whoever makes a span by [`span!`].
#[doc(hidden)]
pub use tracing;

use std::fs::File;
use std::sync::Mutex;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Variables that a process hands on to those it starts, so that they log as it does.
pub const PASSED: [&str; 4] = ["HMZ_LOG", "HMZ_LOG_FORMAT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// The variable in which a trace is handed on, as other programs do it.
pub const TRACEPARENT: &str = "TRACEPARENT";

/// The name of the span of a controller's look at a resource: its lines tell what it is about, and it is told to no collector.
pub const LOOK: &str = "reconcile";

/// Who logs, and how.
#[derive(Debug)]
pub struct Process<'a> {
    /// What it is: `verb`, `daemon`, `runner`, `supervisor`.
    pub name: &'static str,
    /// The filter, unless `HMZ_LOG` says otherwise.
    pub filter: &'a str,
    /// Whether lines of text have colours.
    pub ansi: bool,
    /// Whether lines of text say where in the program they come from.
    pub target: bool,
    /// The file; absent: standard error.
    pub file: Option<File>,
}

/// Sends what is left when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Guard {
    #[cfg(feature = "otel")]
    _sender: Option<outbox::Sender>,
}

/// Begins to log. What a process said before is lost; one that logs already goes on as it does.
pub fn start(process: Process<'_>) -> Guard {
    let filter = || EnvFilter::try_from_env("HMZ_LOG").unwrap_or_else(|_| EnvFilter::new(process.filter));
    let writer = match process.file {
        Some(file) => BoxMakeWriter::new(Mutex::new(file)),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let is_json = std::env::var("HMZ_LOG_FORMAT").is_ok_and(|format| format.eq_ignore_ascii_case("json"));
    let (mut json, mut text) = (None, None);
    if is_json {
        json = Some(json::Json::new(process.name, writer).with_filter(filter()));
    } else {
        let lines = fmt::layer().with_writer(writer).with_ansi(process.ansi).with_target(process.target);
        text = Some(lines.with_filter(filter()));
    }
    let registry = tracing_subscriber::registry().with(json).with(text);
    #[cfg(feature = "otel")]
    {
        let (layer, sender) = otel::layer(process.name);
        // set already only when a test did
        let _ = registry.with(layer).try_init();
        Guard { _sender: sender }
    }
    #[cfg(not(feature = "otel"))]
    {
        let _ = registry.try_init();
        Guard {}
    }
}

/// A span that begins this process's part of a trace: its name, the trace, and what it is about. It is there whatever the filter
/// says, so that each line tells its trace.
#[macro_export]
macro_rules! span {
    ($name:literal, $context:expr $(, $($field:tt)*)?) => {
        $crate::tracing::error_span!(
            $name,
            $($($field)*,)?
            trace_id = %$context.trace_id(),
            span_id = %$context.span_id(),
            parent_id = $context.parent_id(),
        )
    };
}
