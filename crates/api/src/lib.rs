//! The words everything else speaks: kinds, conditions, quantities, names, grammars. This crate does no I/O.
#![forbid(unsafe_code)]

pub mod clock;
pub mod columns;
pub mod condition;
pub mod error;
pub mod failpoint;
pub mod grammar;
pub mod journal;
pub mod kinds;
pub mod labels;
pub mod launch;
pub mod link;
pub mod meta;
pub mod name;
pub mod quantity;
pub mod reference;
pub mod resource;
pub mod rest;
pub mod verdict;
pub mod way;

pub use condition::{Condition, ConditionStatus, Conditions};
pub use error::{Error, ErrorKind};
pub use kinds::{AnyResource, Environment, Flow, Run, Runtime};
pub use meta::{Metadata, OwnerReference};
pub use quantity::{Cpus, Memory, Span};
pub use reference::{Backend, RuntimeRef};
pub use resource::{API_VERSION, Kind, Resource};
