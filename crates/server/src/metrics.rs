//! Metrics, in the text format that Prometheus reads. They are collected when somebody asks: a daemon that nobody asks does
//! nothing for them, but that its controllers count what they do.

mod collect;
mod exposition;
mod journals;
mod own;
mod port;

pub(crate) use collect::Metrics;
pub(crate) use port::{Listening, Told, address, follow, told};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
