//! What is seen of what goes on: what boxes use, the metrics, the logs of one run, what a bundle for a report holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

#[path = "observe/bundle.rs"]
mod bundle;
#[path = "observe/exposition.rs"]
mod exposition;
#[path = "observe/logs.rs"]
mod logs;
#[path = "observe/metrics.rs"]
mod metrics;
#[path = "observe/top.rs"]
mod top;
