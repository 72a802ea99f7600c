//! `hmz describe`: one resource, whole, for people.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use hmz_api::Error;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the named thing is not there.
pub async fn run(client: Client, args: cli::Named) -> Result<ExitCode, Error> {
    if matches!(args.what.as_str(), "settings" | "settings.yaml") && args.name.is_none() {
        show::print(&show::settings_at_length(&client.settings().await?));
        return Ok(ExitCode::SUCCESS);
    }
    let (kind, name) = name::one(&args.what, args.name.as_deref())?;
    let found = client.get(kind, &name).await?;
    let events = client.events(Some((kind, &name))).await?;
    // of one of the same name that was there before it is nothing to be told here
    let events: Vec<_> = events.into_iter().filter(|event| found.metadata().uid == Some(event.uid)).collect();
    show::print(&show::describe(&found, &events));
    Ok(ExitCode::SUCCESS)
}
