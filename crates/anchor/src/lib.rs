//! The supervisor: runs an unmodified agent CLI here while every command it starts lands in a box.

mod collect;
mod config;
mod error;
pub mod exec;
pub mod launch;
pub mod tty;

pub use config::{CliFence, ExecPolicy, SupervisorConfig};
pub use error::AnchorError;

/// The hidden verb `hmz supervisor`: must be called before the process has a second thread. Reads its configuration's
/// frame from descriptor 0, whose rest is the CLI's standard input; descriptor 3 is the lifeline.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::FAILURE
}
