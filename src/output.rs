//! What a person or a program reads: tables, descriptions, the transcript, progress, errors.
//!
//! Everything here is a function from values to text, without a clock and without a terminal: whoever calls says what
//! the time is, how wide the terminal is and whether it takes colours. Text that comes from an agent, a container or a
//! daemon is neutralised before it is shown: it cannot move the cursor, set the title or clear the screen.

pub mod changes;
pub mod checked;
pub mod clean;
pub mod describe;
pub mod error;
pub mod events;
pub mod explain;
pub mod fold;
pub mod jsonpath;
pub mod number;
pub mod progress;
pub mod record;
pub mod rows;
pub mod select;
pub mod sets;
pub mod settings;
pub mod sink;
pub mod style;
pub mod summary;
pub mod table;
pub mod top;
pub mod transcript;
pub mod working;

#[cfg(test)]
mod tests;
