//! Quantities: CPUs, memory and durations, read the same in settings, manifests, flags and forms.

mod cpus;
mod memory;
mod span;

pub use cpus::Cpus;
pub use memory::Memory;
pub use span::Span;

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(pub String);
