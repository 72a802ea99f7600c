//! `hmz top`: what boxes use, beside what they hold. The daemon looks; rates are made here of two looks.

use crate::cli::{Of, Top, TopOrder, TopOutput};
use crate::client::Client;
use crate::output::top::{self, Row};
use crate::show;
use crate::verbs::name;
use hmz_api::rest::{EnvironmentUsage, UsageRequest};
use hmz_api::{AnyResource, Environment, Error, Kind, Resource, Runtime};
use std::io::IsTerminal;
use std::process::ExitCode;

/// Moves to the first line of a terminal and clears what is below.
const AFRESH: &str = "\x1b[H\x1b[J";

/// Runs it.
///
/// # Errors
/// When the daemon cannot be had, or something named is not there.
pub async fn run(client: Client, args: Top) -> Result<ExitCode, Error> {
    if args.interval.duration().is_zero() {
        return Err(Error::usage("--interval 0: a rate takes some time"));
    }
    tokio::select! {
        done = look(&client, &args) => done,
        gone = show::unread() => Ok(gone),
    }
}

async fn look(client: &Client, args: &Top) -> Result<ExitCode, Error> {
    let terminal = std::io::stdout().is_terminal() && args.output != Some(TopOutput::Json);
    let streams = !args.no_stream && (args.watch || terminal);
    let mut before = usage(client, args).await?.0;
    loop {
        tokio::time::sleep(args.interval.duration()).await;
        let (after, runtimes) = usage(client, args).await?;
        let text = printed(args, &before, &after, &runtimes, streams)?;
        show::print(&if streams && terminal { format!("{AFRESH}{text}") } else { text });
        if !streams {
            return Ok(ExitCode::SUCCESS);
        }
        before = after;
    }
}

/// One look at the boxes of what is meant, and the runtimes where those are.
async fn usage(client: &Client, args: &Top) -> Result<(Vec<EnvironmentUsage>, Vec<Resource<Runtime>>), Error> {
    let kind = if args.what == Of::Environments { Environment::KIND } else { Runtime::KIND };
    let selection = args.which.selection(&[kind])?;
    let mut found = Vec::new();
    if args.names.is_empty() {
        found = client.list(kind).await?;
    }
    for typed in &args.names {
        let named = if kind == Runtime::KIND { name::stored(kind, typed)? } else { name::of_kind(kind, typed)? };
        found.push(client.get(kind, &named).await?);
    }
    found.retain(|one| selection.matches(one));
    if args.what == Of::Environments {
        let names = found.iter().map(|one| one.metadata().name.clone()).collect();
        return Ok((client.usage(&UsageRequest { names: Some(names) }).await?, Vec::new()));
    }
    let runtimes = found.into_iter().filter_map(|one| match one {
        AnyResource::Runtime(runtime) => Some(*runtime),
        _ => None,
    });
    Ok((client.usage(&UsageRequest::default()).await?, runtimes.collect()))
}

fn printed(
    args: &Top,
    before: &[EnvironmentUsage],
    after: &[EnvironmentUsage],
    runtimes: &[Resource<Runtime>],
    streams: bool,
) -> Result<String, Error> {
    let wide = args.output == Some(TopOutput::Wide);
    let mut rows: Vec<Row> = top::rows(before, after);
    if args.what == Of::Runtimes {
        let mut rows = top::runtimes(runtimes, &rows);
        match args.sort_by {
            TopOrder::Cpu => top::most(&mut rows, |row| row.cpus),
            TopOrder::Memory => top::most(&mut rows, |row| row.memory.map(|n| n as f64)),
            TopOrder::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        return match args.output {
            Some(TopOutput::Json) => document(&rows, streams),
            _ => Ok(show::table(&top::runtime_table(&rows, wide))),
        };
    }
    match args.sort_by {
        TopOrder::Cpu => top::most(&mut rows, |row| row.cpus),
        TopOrder::Memory => top::most(&mut rows, |row| row.memory.map(|n| n as f64)),
        TopOrder::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    match args.output {
        Some(TopOutput::Json) => document(&rows, streams),
        _ if rows.is_empty() && !streams => {
            show::aside("no environments found");
            Ok(String::new())
        }
        _ => Ok(show::table(&top::table(&rows, wide))),
    }
}

/// One document; on one line where others follow.
fn document(rows: &impl serde::Serialize, streams: bool) -> Result<String, Error> {
    let whole = serde_json::json!({"items": rows});
    if streams { Ok(format!("{whole}\n")) } else { show::json_line(&whole) }
}
