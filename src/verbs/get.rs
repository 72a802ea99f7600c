//! `hmz get`: finds resources and lists them.

use crate::cli::{self, Form, Output};
use crate::client::Client;
use crate::output::select::{self, Selection};
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::rest::{SetState, WatchLine};
use hmz_api::{AnyResource, Error, ErrorKind};
use hmz_manifest::nearest;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// How often sets are looked at.
const BETWEEN: Duration = Duration::from_secs(1);

/// How often in a row a watch may break before it has told anything.
const LOST: u32 = 5;

/// The kinds of `get all`.
const ALL: [&str; 4] = ["Runtime", "Flow", "Environment", "Run"];

/// Runs it.
///
/// # Errors
/// When the daemon cannot be had, or something named is not there.
pub async fn run(client: Client, args: cli::Get) -> Result<ExitCode, Error> {
    if matches!(args.what.as_str(), "settings" | "settings.yaml") && args.names.is_empty() {
        let Some(form) = usual(args.output.as_ref()) else {
            return Err(Error::usage("settings are printed as a table, wide, yaml, json or name"));
        };
        if args.watch {
            return tokio::select! {
                done = watch_settings(&client, form) => done,
                gone = show::unread() => Ok(gone),
            };
        }
        show::print(&show::settings(&client.settings().await?, form)?);
        return Ok(ExitCode::SUCCESS);
    }
    if name::is_set(args.what.split('/').next().unwrap_or_default()) {
        return sets(&client, &args).await;
    }
    let kinds = kinds(&args)?;
    let selection = args.which.selection(&kinds)?;
    if let Some(path) = &args.sort_by {
        select::check_path("--sort-by", &kinds, path)?;
    }
    if args.watch {
        return tokio::select! {
            done = watch(&client, &args, &selection) => done,
            gone = show::unread() => Ok(gone),
        };
    }
    if let Some(text) = everything(&client, &args, &selection).await? {
        show::print(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let Found { items: mut found, is_single: single, missing } = find(&client, &args).await?;
    if let ([], [only]) = (found.as_slice(), missing.as_slice()) {
        return Err(only.clone());
    }
    found.retain(|one| selection.matches(one));
    if let Some(path) = &args.sort_by {
        select::sort(&mut found, path);
    }
    let is_table = matches!(args.output, None | Some(Form::Usual(Output::Wide)));
    if let ([], [], Ok(kind), true) = (found.as_slice(), missing.as_slice(), name::kind(&args.what), is_table) {
        nothing(kind);
    }
    if !found.is_empty() || missing.is_empty() {
        show::print(&match found.as_slice() {
            [one] if single => show::single(one, args.output.as_ref())?,
            several => show::listing(several, args.output.as_ref())?,
        });
    }
    missing.iter().for_each(|e| show::error("get", e));
    Ok(ExitCode::from(missing.iter().map(Error::exit_code).max().unwrap_or(0)))
}

/// The kinds that are asked for.
fn kinds(args: &cli::Get) -> Result<Vec<&'static str>, Error> {
    if args.what == "all" {
        return Ok(ALL.to_vec());
    }
    let named = args.names.iter().filter(|name| name.contains('/') && args.what.contains('/'));
    std::iter::once(&args.what).chain(named).map(|typed| name::kind(typed.split('/').next().unwrap_or_default())).collect()
}

/// Everything of one kind as a table or as names, for which no resource has to be read; `None` where more is asked.
async fn everything(client: &Client, args: &cli::Get, selection: &Selection) -> Result<Option<String>, Error> {
    let (Ok(kind), true) = (name::kind(&args.what), args.names.is_empty() && args.sort_by.is_none() && selection.is_all()) else {
        return Ok(None);
    };
    let wide = match args.output {
        None => false,
        Some(Form::Usual(Output::Wide)) => true,
        Some(Form::Usual(Output::Name)) => return Ok(Some(show::names(kind, &client.names(kind).await?))),
        Some(_) => return Ok(None),
    };
    let text = show::table_of(&client.listing(kind, wide).await?, wide);
    if text.is_empty() {
        nothing(kind);
    }
    Ok(Some(text))
}

/// Says that there is none.
fn nothing(kind: &str) {
    show::aside(&format!("no {} found", show::plural(kind)));
}

/// Lists sets, which are no resources.
async fn sets(client: &Client, args: &cli::Get) -> Result<ExitCode, Error> {
    let (Some(form), None, false) = (usual(args.output.as_ref()), &args.sort_by, args.which.is_said()) else {
        return Err(Error::usage("sets are printed as a table, wide, yaml, json or name"));
    };
    let first = args.what.split_once('/').map(|(_, name)| name.to_owned());
    let names: Vec<String> = first.into_iter().chain(args.names.iter().cloned()).collect();
    if args.watch {
        return tokio::select! {
            done = watch_sets(client, &names, form) => done,
            gone = show::unread() => Ok(gone),
        };
    }
    let mut found = client.sets(true).await?;
    for name in &names {
        if !found.iter().any(|set| set.name == *name) {
            let near = nearest(name, found.iter().map(|set| set.name.as_str()));
            let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
            return Err(Error::not_found(format!("there is no set '{name}'{near}")));
        }
    }
    found.retain(|set| names.is_empty() || names.contains(&set.name));
    if found.is_empty() && matches!(form, None | Some(Output::Wide)) {
        show::aside("no sets found");
    }
    show::print(&show::sets(&found, form, names.len() == 1)?);
    Ok(ExitCode::SUCCESS)
}

/// Prints what is there of sets, then each that changes and each that is no more. They are looked at, since nothing tells of them.
async fn watch_sets(client: &Client, names: &[String], form: Option<Output>) -> Result<ExitCode, Error> {
    let (mut rows, mut lost, mut before) = (show::Rows::new(form), 0, Vec::<SetState>::new());
    loop {
        match client.sets(true).await {
            Ok(mut found) => {
                lost = 0;
                found.retain(|set| names.is_empty() || names.contains(&set.name));
                for gone in before.iter().filter(|set| !found.iter().any(|one| one.name == set.name)) {
                    show::print(&rows.gone(gone)?);
                }
                show::print(&rows.there(&found)?);
                before = found;
            }
            // the daemon is replaced by the next
            Err(_) if lost < LOST => lost += 1,
            Err(e) => return Err(e),
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Prints what the daemon makes of settings.yaml each time that changes. It outlives the daemon.
async fn watch_settings(client: &Client, form: Option<Output>) -> Result<ExitCode, Error> {
    let (mut rows, mut lost, mut last) = (show::SettingsRows::new(form), 0, None);
    loop {
        let mut answers = Box::pin(client.watch_settings().await?);
        while let Some(Ok(answer)) = answers.next().await {
            lost = 0;
            if last.as_ref() != Some(&answer) {
                show::print(&rows.next(&answer)?);
                last = Some(answer);
            }
        }
        lost += 1;
        if lost >= LOST {
            return Err(Error::failed("the daemon ended"));
        }
    }
}

/// What is named, as far as it is there.
#[derive(Debug, Default)]
struct Found {
    items: Vec<AnyResource>,
    /// Whether it is one that is named.
    is_single: bool,
    /// Of each that is not there, that it is not.
    missing: Vec<Error>,
}

async fn find(client: &Client, args: &cli::Get) -> Result<Found, Error> {
    let mut found = Found::default();
    if args.what == "all" {
        for kind in ALL {
            found.items.extend(client.list(kind).await?);
        }
        return Ok(found);
    }
    // get env/a run/b
    let named = if args.what.contains('/') && !args.names.is_empty() {
        std::iter::once(&args.what).chain(&args.names).map(|typed| name::one(typed, None)).collect::<Result<Vec<_>, _>>()?
    } else {
        let (kind, names) = kind_and_names(args)?;
        if names.is_empty() {
            found.items = client.list(kind).await?;
            return Ok(found);
        }
        names.into_iter().map(|name| (kind, name)).collect()
    };
    found.is_single = named.len() == 1;
    for (kind, name) in named {
        match client.get(kind, &name).await {
            Ok(one) => found.items.push(one),
            Err(e) if e.kind == ErrorKind::NotFound => found.missing.push(e),
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

fn kind_and_names(args: &cli::Get) -> Result<(&'static str, Vec<String>), Error> {
    let (kind, names) = match args.what.split_once('/') {
        Some((word, first)) => (name::kind(word)?, vec![first.to_owned()]),
        None => (name::kind(&args.what)?, args.names.clone()),
    };
    Ok((kind, names.iter().map(|n| name::stored(kind, n)).collect::<Result<_, _>>()?))
}

/// The form, when it is one of those that everything has.
fn usual(form: Option<&Form>) -> Option<Option<Output>> {
    match form {
        None => Some(None),
        Some(Form::Usual(form)) => Some(Some(*form)),
        Some(_) => None,
    }
}

/// Prints what is there, then each change and each removal, until the reader or the daemon ends. One that is not selected any
/// more is told of as gone.
async fn watch(client: &Client, args: &cli::Get, selection: &Selection) -> Result<ExitCode, Error> {
    if args.what == "all" {
        return Err(Error::usage("get all cannot be watched; watch one kind, such as hmz get runs -w"));
    }
    if args.what.contains('/') && !args.names.is_empty() {
        return Err(Error::usage("one resource or one kind can be watched, such as hmz get runs -w"));
    }
    let (None, Some(form)) = (&args.sort_by, usual(args.output.as_ref())) else {
        return Err(Error::usage("a watch is printed as it comes, as a table, wide, yaml, json or name"));
    };
    let (kind, names) = kind_and_names(args)?;
    let mut lines = Box::pin(client.watch(kind, names.first().filter(|_| names.len() == 1).map(String::as_str)).await?);
    let mut rows = show::Rows::new(form);
    let mut first: Option<Vec<AnyResource>> = Some(Vec::new());
    let mut meant = BTreeSet::new();
    let named = |r: &AnyResource| names.is_empty() || names.contains(&r.metadata().name);
    while let Some(line) = lines.next().await {
        let line = match line? {
            WatchLine::Modified(one) if named(&one) && !selection.matches(&one) => {
                if !meant.remove(&one.metadata().name) {
                    continue;
                }
                WatchLine::Deleted(one)
            }
            WatchLine::Modified(one) => {
                meant.insert(one.metadata().name.clone());
                WatchLine::Modified(one)
            }
            other => other,
        };
        match line {
            WatchLine::Modified(resource) if named(&resource) => match &mut first {
                Some(held) => held.push(resource),
                None => show::print(&rows.there(&[resource])?),
            },
            WatchLine::Bookmark => {
                if let Some(held) = first.take() {
                    show::print(&rows.there(&held)?);
                }
            }
            WatchLine::Deleted(resource) if named(&resource) => match &mut first {
                Some(held) => held.retain(|there| there.metadata().name != resource.metadata().name),
                None => show::print(&rows.gone(&resource)?),
            },
            WatchLine::Modified(_) | WatchLine::Deleted(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}
