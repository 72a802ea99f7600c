//! `hmz cancel`: ends runs; what they did so far stays.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::kinds::condition;
use hmz_api::rest::WatchLine;
use hmz_api::{AnyResource, Error, Resource, Run};
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When a run is not there, or the daemon cannot be had.
pub async fn run(client: Client, args: cli::Cancel) -> Result<ExitCode, Error> {
    let mut worst = 0;
    for typed in &args.runs {
        if let Err(e) = one(&client, typed, args.no_wait).await {
            worst = worst.max(e.exit_code());
            show::error("cancel", &e);
        }
    }
    Ok(ExitCode::from(worst))
}

async fn one(client: &Client, typed: &str, no_wait: bool) -> Result<(), Error> {
    let name = name::of_kind("Run", typed)?;
    let shown = name::shown("Run", &name);
    if let Some(how) = how(&client.get_as::<Run>(&name).await?) {
        show::print(&format!("{shown} has ended already ({how})\n"));
        return Ok(());
    }
    client.cancel(&name).await?;
    let how = if no_wait { None } else { Some(end(client, &name).await?) };
    match how.as_deref() {
        None | Some("Cancelled") => show::print(&format!("{shown} cancelled\n")),
        // it was quicker
        Some(how) => show::print(&format!("{shown} has ended ({how})\n")),
    }
    Ok(())
}

/// How it has ended, once it has.
fn how(run: &Resource<Run>) -> Option<String> {
    let complete = run.status.conditions.get(condition::COMPLETE).filter(|_| run.status.is_complete());
    complete.map(|complete| complete.reason.clone())
}

/// Waits for its end.
async fn end(client: &Client, name: &str) -> Result<String, Error> {
    let mut lines = Box::pin(client.watch("Run", Some(name)).await?);
    while let Some(line) = lines.next().await {
        match line? {
            WatchLine::Modified(AnyResource::Run(run)) => {
                if let Some(how) = how(&run) {
                    return Ok(how);
                }
            }
            WatchLine::Deleted(_) => return Ok("deleted".into()),
            _ => {}
        }
    }
    Err(Error::failed("the daemon ended before the run had"))
}
