//! The verbs, a file each.

mod apply;
mod backup;
mod cancel;
mod controller;
mod debug;
mod delete;
mod describe;
mod diff;
mod edit;
mod editor;
mod events;
mod exec;
mod explain;
mod get;
mod logs;
mod mark;
mod metrics;
pub mod name;
mod rerun;
mod restore;
mod runtime;
pub mod schema;
mod settings;
mod sh;
mod top;
mod version;
mod wait;

use crate::cli::{Cli, Verb};
use crate::client::Client;
use crate::edge;
use hmz_api::Error;
use std::future::Future;
use std::process::ExitCode;

/// Runs a verb to its exit status.
pub fn run(cli: Cli) -> ExitCode {
    let is_daemon = matches!(cli.verb, Verb::Controller(_));
    let _guard = (!is_daemon).then(|| log_to_stderr(cli.verbose));
    let verb = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let _span = (!is_daemon).then(|| hmz_telemetry::span!("verb", edge::trace(), verb).entered());
    match cli.verb {
        Verb::Apply(args) => with_client("apply", |client| apply::run(client, args)),
        Verb::Diff(args) => with_client("diff", |client| diff::run(client, args)),
        Verb::Get(args) => with_client("get", |client| get::run(client, args)),
        Verb::Label(args) => with_client("label", |client| mark::run(client, args, mark::What::Labels)),
        Verb::Annotate(args) => with_client("annotate", |client| mark::run(client, args, mark::What::Annotations)),
        Verb::Edit(args) => with_client("edit", |client| edit::run(client, args)),
        Verb::Rerun(args) => with_client("rerun", |client| rerun::run(client, args)),
        Verb::Cancel(args) => with_client("cancel", |client| cancel::run(client, args)),
        Verb::Events(args) => with_client("events", |client| events::run(client, args)),
        Verb::Top(args) => with_client("top", |client| top::run(client, args)),
        Verb::Metrics => with_client("metrics", metrics::run),
        Verb::Debug(args) => with_client("debug", |client| debug::run(client, args.action)),
        Verb::Explain(args) => explain::run(&args).unwrap_or_else(|e| edge::fail("explain", &e)),
        Verb::Schema(args) => schema::run(&args).unwrap_or_else(|e| edge::fail("schema", &e)),
        Verb::ApiResources(args) => explain::kinds(&args).unwrap_or_else(|e| edge::fail("api-resources", &e)),
        Verb::Describe(args) => with_client("describe", |client| describe::run(client, args)),
        Verb::Delete(args) => with_client("delete", |client| delete::run(client, args)),
        Verb::Logs(args) => with_client("logs", |client| logs::run(client, args)),
        Verb::Wait(args) => with_client("wait", |client| wait::run(client, args)),
        Verb::Exec(args) => with_client("exec", |client| exec::run(client, args)),
        Verb::Sh(args) => sh::run(&args),
        Verb::Controller(args) => controller::run(&args, cli.verbose),
        Verb::Backup(args) => with_client("backup", |client| backup::run(client, args)),
        Verb::Restore(args) => restore::run(&args).unwrap_or_else(|e| edge::fail("restore", &e)),
        Verb::Settings(args) => settings::run(args),
        Verb::Runtime(args) => runtime::run(args),
        Verb::Version => version::run(),
    }
}

/// Sets up a runtime and a client, and turns an error into its line and status.
fn with_client<F>(verb: &str, body: impl FnOnce(Client) -> F) -> ExitCode
where
    F: Future<Output = Result<ExitCode, Error>>,
{
    let done = edge::paths().and_then(|paths| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| edge::io("could not start", &e))?;
        let done = runtime.block_on(body(Client::new(paths)));
        // a task that blocks in the background must not hold the verb
        runtime.shutdown_background();
        done
    });
    done.unwrap_or_else(|e| edge::fail(verb, &e))
}

fn log_to_stderr(verbose: u8) -> hmz_telemetry::Guard {
    let filter = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    hmz_telemetry::start(hmz_telemetry::Process { name: "verb", filter, ansi, target: false, file: None })
}
