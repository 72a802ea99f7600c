//! `hmz`: one program that is command line, daemon, runner, supervisor and (unless a smaller one is
//! embedded) guest.
#![forbid(unsafe_code)]

mod bundle;
mod cli;
mod client;
mod complete;
mod daemon;
mod edge;
mod guest;
mod output;
mod show;
mod signals;
mod verbs;
mod watch;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // the roles below run before anything else does: they fork, and some have no runtime at all
    let mut args = std::env::args_os().skip(1);
    if let Some(role) = args.next() {
        match role.to_str() {
            // of a second box: any other is given the smaller one, where there is one
            Some("guest") => return hmz_guest::main(args),
            Some("supervisor") => return hmz_anchor::main(),
            Some("proxy") => return hmz_anchor::proxy::main(),
            Some("script-agent") => return hmz_agents::script::main(args),
            Some("relay") => return hmz_anchor::relay::main(),
            Some("agent-here") => return hmz_agents::second::main(args),
            Some("runner") => return daemon::runner(),
            Some("carry") => return hmz_drivers::docker::carry(),
            _ => {}
        }
    }
    complete::answer();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // clap prints help to stdout and errors to stderr itself; a closed stdout is no error
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    verbs::run(cli)
}
