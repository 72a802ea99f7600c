//! Agent CLIs: one module a CLI. Each knows how its CLI is found here, what it is started with, what of its execs stays
//! here, what it may touch, how a turn is asked and how its events read. All of it is data or talk over pipes: the
//! processes themselves are supervised by `hmz-anchor`, or run in a box behind a proxy of its.
#![forbid(unsafe_code)]

mod agent;
mod boxed;
pub mod claude;
mod grace;
pub mod launcher;
mod lines;
mod path;
mod process;
pub mod script;
pub mod second;

pub use agent::{Agent, BoxProgram, Installed, Seat, Session, SessionStart, Sink, TurnEnd};
pub use grace::Grace;
pub use launcher::{Launch, Launcher, SessionLog, Started, Supervised};

use hmz_api::Error;

/// The agent of a CLI's word, such as `claude` or `script`; `exe` is the hmz binary, absolute and resolved.
///
/// # Errors
/// A refusal that names what is known.
pub fn of_cli(cli: &str, exe: &std::path::Path) -> Result<Box<dyn Agent>, Error> {
    match cli {
        "claude" => Ok(Box::new(claude::Claude)),
        "script" => Ok(Box::new(script::Script::new(exe))),
        other => Err(Error::refused(format!("'{other}' is no agent known here: claude, script"))
            .hint("name one as -a ROLE=claude/MODEL[:EFFORT] or -a ROLE=script/STEPS.yaml")),
    }
}
