//! Flows: found by name, checked before anything starts, run step by step by a runner, and told in a journal.
#![forbid(unsafe_code)]

mod boxes;
mod check;
mod engine;
mod exec;
mod find;
pub mod journal;
pub mod runner;
mod template;
mod warm;

pub use check::{boxed, check, check_agents, is_here, roles};
pub use find::{Found, Listing, find, list};
