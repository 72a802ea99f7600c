//! `hmz get`: lists resources.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::rest::WatchLine;
use hmz_api::{AnyResource, Error};
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the daemon cannot be had, or something named is not there.
pub async fn run(client: Client, args: cli::Get) -> Result<ExitCode, Error> {
    if args.what == "all" {
        if args.watch {
            return Err(Error::usage("get all cannot be watched; watch one kind, such as hmz get runs -w"));
        }
        let mut found = Vec::new();
        for kind in ["Runtime", "Flow", "Environment", "Run"] {
            found.extend(client.list(kind).await?);
        }
        show::print(&show::listing(&found, args.output)?);
        return Ok(ExitCode::SUCCESS);
    }
    if matches!(args.what.as_str(), "settings" | "settings.yaml") && args.names.is_empty() {
        if args.watch {
            return Err(Error::usage("settings cannot be watched; the runtimes they declare can: hmz get runtimes -w"));
        }
        show::print(&show::settings(&client.settings().await?, args.output)?);
        return Ok(ExitCode::SUCCESS);
    }
    // get env/a run/b
    if args.what.contains('/') && !args.names.is_empty() {
        if args.watch {
            return Err(Error::usage("one resource or one kind can be watched, such as hmz get runs -w"));
        }
        let mut found = Vec::new();
        for typed in std::iter::once(&args.what).chain(&args.names) {
            let (kind, name) = name::one(typed, None)?;
            found.push(client.get(kind, &name).await?);
        }
        show::print(&show::listing(&found, args.output)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (kind, names) = match args.what.split_once('/') {
        Some((word, first)) => (name::kind(word)?, vec![first.to_owned()]),
        None => (name::kind(&args.what)?, args.names.clone()),
    };
    let names = names.iter().map(|n| name::stored(kind, n)).collect::<Result<Vec<_>, _>>()?;
    if args.watch {
        return watch(&client, kind, &names, args.output).await;
    }
    let mut found = Vec::new();
    if names.is_empty() {
        found = client.list(kind).await?;
        if found.is_empty() && !matches!(args.output, Some(cli::Output::Json | cli::Output::Yaml | cli::Output::Name)) {
            eprintln!("no {} found", show::plural(kind));
        }
    }
    for wanted in &names {
        found.push(client.get(kind, wanted).await?);
    }
    show::print(&match found.as_slice() {
        [one] if names.len() == 1 => show::single(one, args.output)?,
        several => show::listing(several, args.output)?,
    });
    Ok(ExitCode::SUCCESS)
}

/// Prints what is there, then each change and each removal, until the reader or the daemon ends.
async fn watch(client: &Client, kind: &'static str, names: &[String], how: Option<cli::Output>) -> Result<ExitCode, Error> {
    let mut lines = Box::pin(client.watch(kind, names.first().filter(|_| names.len() == 1).map(String::as_str)).await?);
    let mut rows = show::Rows::new(how);
    let mut first: Option<Vec<AnyResource>> = Some(Vec::new());
    let wanted = |r: &AnyResource| names.is_empty() || names.contains(&r.metadata().name);
    while let Some(line) = lines.next().await {
        match line? {
            WatchLine::Modified(resource) if wanted(&resource) => match &mut first {
                Some(held) => held.push(resource),
                None => show::print(&rows.there(&[resource])?),
            },
            WatchLine::Bookmark => {
                if let Some(held) = first.take() {
                    show::print(&rows.there(&held)?);
                }
            }
            WatchLine::Deleted(resource) if wanted(&resource) => match &mut first {
                Some(held) => held.retain(|there| there.metadata().name != resource.metadata().name),
                None => show::print(&rows.gone(&resource)?),
            },
            WatchLine::Modified(_) | WatchLine::Deleted(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}
