//! `hmz describe`: one resource, whole, for people.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use hmz_api::Error;
use hmz_api::rest::SET_KIND;
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
    if let Some(set) = name::set(&args.what, args.name.as_deref()) {
        let found = client.sets(true).await?.into_iter().find(|found| found.name == set);
        let found = found.ok_or_else(|| Error::not_found(format!("there is no set '{set}'")))?;
        show::print(&show::set_at_length(&found, &client.events(Some((SET_KIND, &set))).await?));
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
