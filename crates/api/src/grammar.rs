//! The grammars of the command line: `-a`, `-e`, `-p`.

mod agent;
mod environment;
mod param;
pub mod run_args;
mod split;

pub use agent::{AgentArg, AgentSpec};
pub use environment::{EnvArg, EnvSpec};
pub use param::ParamArg;
