//! Quantities: CPUs, memory and durations, read the same in settings, manifests, flags and forms.

mod cpus;
mod memory;
mod span;

pub use cpus::Cpus;
pub use memory::Memory;
pub use span::Span;

/// What a quantity asks a deserializer for, by name. One that knows how a number was written answers with the text where it is
/// not plain digits (`1e3`, `0x10`), so that a file takes no quantity that the command line would not.
pub const QUANTITY: &str = "Quantity";

/// Whether a text is digits, with a point and digits after it or not: what may stand before a unit.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    digits(whole) && fraction.is_none_or(digits)
}

/// A quantity that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QuantityError(pub String);
