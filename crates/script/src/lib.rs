//! What plays the steps of the built-in agent `script`: a process that needs nothing but a shell, wherever it is started.
//! It is in `hmz`, for an agent that runs here, and in the guest, for one that runs in a box.
//!
//! It is told its steps and its prompts on its standard input ([`Ask`]) and tells what happens on its standard output
//! ([`Say`]), one JSON object a line.
#![forbid(unsafe_code)]

mod play;
mod protocol;
mod steps;
mod text;

pub use play::main;
pub use protocol::{Ask, Say};
pub use steps::{Step, Steps};
pub use text::{cut, first_line};

/// The hidden verb, of `hmz` and of the guest, that plays.
pub const VERB: &str = "script-agent";
