//! What a report of a fault is accompanied by: a bundle of what this home is and did, without what anybody said to an agent and
//! without secrets. It is made of what is known to be harmless, never of everything but what is known to be secret; and every
//! text is gone over once more for values that were left out of it elsewhere and for what looks like a key.

mod archive;
mod facts;
mod journal;
mod redact;
mod scrub;

pub use archive::Archive;
pub use facts::facts;
pub use journal::shape;
pub use redact::{event, resource, settings, unread};
pub use scrub::Scrub;
