//! Resources with revisions, optimistic concurrency and watch.
//!
//! What this crate promises:
//! - every change of any resource gets its own revision, larger than all before it, also across restarts;
//! - a writer that read something older than what is stored gets [`StoreError::Conflict`] and changes nothing;
//! - a write that would change nothing writes nothing and keeps the revision;
//! - a watcher sees every change after the revision it began at, in order, or is told [`StoreError::Expired`];
//! - a process killed at any moment leaves either all of a change or none of it.
#![forbid(unsafe_code)]

mod backend;
pub mod backup;
mod error;
mod graft;
mod history;
mod ids;
mod layer;
mod memory;
mod schema;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;

pub use backend::{Backend, Change, Expect, Kept, Note, WatchEvent, Write, Written};
pub use error::StoreError;
pub use history::Watch;
pub use ids::{Ids, RandomIds};
pub use layer::Layer;
pub use memory::Memory;
pub use sqlite::Sqlite;
pub use store::{Listed, Store};
