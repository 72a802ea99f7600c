//! The controllers: one a kind, each driving what is observed towards what is declared.
//!
//! - Level-driven: a controller looks at what is declared and what is there now. Events only say "look again".
//! - `observe → plan → execute`: `plan` is a pure function; `execute` has no choices left.
//! - Any of this may end at any await and goes on from the store.
//!
//! No backend is named here but as data; daemons are reached through [`hmz_drivers::Driver`].
#![forbid(unsafe_code)]

mod busy;
pub mod core;
pub mod declare;
pub mod environment;
mod events;
mod index;
pub mod placement;
mod router;
pub mod run;
pub mod runtime;
pub mod settings;
mod spans;
mod start;
pub mod sweep;
pub mod target;
mod trace;
mod usage;
pub mod world;

pub use environment::address::{Carrier, address_of};
pub use index::tally::{Sort, Tally};
pub use start::{Counts, Meters, Running, start};
pub use usage::usage;
pub use world::{BoxFiles, Callers, Epics, Flows, GuestProbe, InUse, RunnerState, Runners, SettingsSnapshot, World};

/// Annotation of a Run: asks for its end; the value is the time of the asking (RFC 3339), from which the grace counts.
pub const CANCEL: &str = "hmz/cancel";

/// Annotation of a resource that is being deleted: what it left on a daemon that is gone for good is given up. With any value.
pub const ABANDON: &str = "hmz/abandon";
