//! The supervisor: runs an unmodified agent CLI here while every command it starts lands in a box.

mod ahead;
mod arguments;
mod aside;
mod child;
mod collect;
mod config;
mod descriptors;
mod error;
pub mod exec;
mod fence;
mod filter;
mod guardian;
mod handed;
mod hello;
mod late;
pub mod launch;
pub mod log;
mod looker;
mod memory;
mod notify;
mod policy;
pub mod proxy;
mod pump;
pub mod relay;
mod session;
pub mod shared;
mod supervisor;
mod sys;
mod tree;
pub mod tty;
mod workers;

pub use config::{BoxedConfig, CliFence, ExecPolicy, Passage, RelayConfig, SupervisorConfig};
pub use error::AnchorError;
pub use supervisor::fenced;

/// The version of Landlock's interface this kernel has; none where it gives none.
pub fn landlock_abi() -> Option<i64> {
    sys::landlock_version().ok()
}

/// The hidden verb `hmz supervisor`: must be called before the process has a second thread. Reads its configuration's
/// frame from descriptor 0, whose rest is the CLI's standard input; descriptor 3 is the lifeline.
///
/// Ends as the CLI ended: with its status, or by its signal.
pub fn main() -> std::process::ExitCode {
    end_as("supervisor", guardian::run())
}

/// Ends as the CLI ended, or says why it was not started.
fn end_as(verb: &str, ended: Result<hmz_wire::Status, AnchorError>) -> std::process::ExitCode {
    match ended {
        Ok(hmz_wire::Status::Exited(status)) => std::process::ExitCode::from(status as u8),
        Ok(hmz_wire::Status::Signaled(signal)) => {
            sys::die_of(signal);
            std::process::ExitCode::from(128u8.wrapping_add(signal as u8))
        }
        Err(e) => {
            eprintln!("hmz {verb}: error: {e}");
            std::process::ExitCode::from(hmz_api::Error::from(e).exit_code())
        }
    }
}
