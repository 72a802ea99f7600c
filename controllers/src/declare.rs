//! Declaring: what manifests ask for becomes what is stored, and what that would do is told before.
//!
//! [`apply()`] changes the store and nothing else: the controllers do the rest. [`plan()`] is the same apply on a copy of the
//! store, after which the same controllers go to work on that copy in a [`rehearsal`]: they see every daemon as it is, and
//! what they would start and end there is written down and not done. So what is told is what is done, unless somebody else
//! comes in between.

mod apply;
mod decide;
mod edit;
mod merge;
mod plan;
mod rehearsal;

pub use apply::{Applier, apply, refusals};
pub use decide::{ANEW, Asked, Decision, How, decide, spec};
pub use edit::edit;
pub use plan::plan;
