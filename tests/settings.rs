//! settings.yaml, watched by a daemon and changed by `hmz settings`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "settings/edits.rs"]
mod edits;
#[path = "settings/limits.rs"]
mod limits;
#[path = "settings/saves.rs"]
mod saves;
#[path = "settings/state.rs"]
mod state;
