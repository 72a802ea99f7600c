//! `hmz events`: what happened to whom.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::Error;
use hmz_api::rest::SET_KIND;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the daemon cannot be had.
pub async fn run(client: Client, args: cli::Events) -> Result<ExitCode, Error> {
    let of = args.of.as_deref().map(named).transpose()?;
    let of = of.as_ref().map(|(kind, name)| (*kind, name.as_str()));
    let json = args.output == Some(cli::CheckOutput::Json);
    if !args.watch {
        let events = client.events(of).await?;
        if json {
            show::print(&show::json_line(&events)?);
        } else if events.is_empty() {
            show::aside("no events found");
        } else {
            show::print(&show::events(&events));
        }
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        done = watch(&client, of, json) => done,
        gone = show::unread() => Ok(gone),
    }
}

async fn watch(client: &Client, of: Option<(&str, &str)>, json: bool) -> Result<ExitCode, Error> {
    let mut lines = Box::pin(client.watch_events(of).await?);
    let mut table = show::EventRows::default();
    while let Some(event) = lines.next().await {
        let event = event?;
        show::print(&if json { format!("{}\n", serde_json::json!(event)) } else { table.next(&event) });
    }
    Err(Error::failed("the daemon ended").hint("hmz events -w"))
}

/// What is typed: a resource, or a set.
fn named(typed: &str) -> Result<(&'static str, String), Error> {
    match name::set(typed, None) {
        Some(set) => Ok((SET_KIND, set)),
        None => name::one(typed, None),
    }
}
