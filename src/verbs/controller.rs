//! `hmz controller`: the daemon, in the foreground or (started by a verb) in the background.

use crate::cli;
use crate::{edge, guest};
use hmz_api::Error;
use std::io::Write;
use std::process::ExitCode;

/// Runs it until a signal, or (in the background) until there is nothing to do.
pub fn run(args: &cli::Controller, verbose: u8) -> ExitCode {
    match serve(args, verbose) {
        Ok(code) => code,
        Err(e) => edge::fail("controller", &e),
    }
}

fn serve(args: &cli::Controller, verbose: u8) -> Result<ExitCode, Error> {
    let paths = edge::paths()?;
    if args.background {
        // a fresh child leads no group, so this cannot fail; if it does, the daemon merely ends with its terminal
        let _ = rustix::process::setsid();
    }
    let level = if verbose > 1 { "debug" } else { "info" };
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("HMZ_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let ansi = !args.background && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| edge::io("could not start", &e))?;
    let config = hmz_server::Config { paths, env: edge::environment(), guest: guest::program(), ends_when_idle: args.background };
    let background = args.background;
    let done = runtime.block_on(hmz_server::serve(config, move |state| {
        if background {
            say(state);
        }
    }));
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

/// Tells whoever started us, once, and lets go of the pipe.
fn say(state: hmz_server::State) {
    let word = match state {
        hmz_server::State::Listening => "listening",
        hmz_server::State::AnotherRuns => "running",
    };
    // whoever started us may be gone already
    let _ = writeln!(std::io::stdout(), "{word}");
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
