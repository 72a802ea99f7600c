//! `hmz delete`: removes resources and waits until what they started is gone.

use crate::cli;
use crate::client::Client;
use crate::show;
use crate::verbs::name;
use futures::StreamExt;
use hmz_api::rest::WatchLine;
use hmz_api::{AnyResource, Error, ErrorKind};
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When something named is not there, or the daemon cannot be had.
pub async fn run(client: Client, args: cli::Delete) -> Result<ExitCode, Error> {
    let mut wanted = Vec::new();
    let by_selection = args.all || args.which.is_said();
    if by_selection {
        let what = args.what.as_deref().unwrap_or_default();
        if what.contains('/') || !args.names.is_empty() {
            return Err(Error::usage("-l, --field-selector and --all are for one kind, without names"));
        }
        let kind = name::kind(what)?;
        let selection = args.which.selection(&[kind])?;
        let found = client.list(kind).await?;
        // a flow of a file is nobody's to delete here, and a runtime that settings.yaml declares is refused
        let meant = found.iter().filter(|one| selection.matches(one) && one.metadata().uid.is_some());
        wanted.extend(meant.map(|one| (kind, one.metadata().name.clone())));
        if wanted.is_empty() {
            show::aside(&format!("no {} found", show::plural(kind)));
        }
    }
    if let Some(what) = args.what.as_ref().filter(|_| !by_selection) {
        match what.split_once('/') {
            // delete run/a run/b
            Some(_) => {
                wanted.push(name::one(what, None)?);
                for more in &args.names {
                    wanted.push(name::one(more, None)?);
                }
            }
            None if args.names.is_empty() => wanted.push(name::one(what, None)?),
            None => {
                for more in &args.names {
                    wanted.push(name::one(what, Some(more))?);
                }
            }
        }
    }
    let from_files = !args.files.filename.is_empty();
    for resource in show::manifests(&args.files)?.iter().rev() {
        wanted.push(name::declared(resource)?);
    }
    let mut worst = 0;
    let mut asked = Vec::new();
    let mut left = Vec::new();
    if args.abandon {
        for (kind, name) in &wanted {
            left.extend(boxes(&client, kind, name).await?);
        }
    }
    for (kind, name) in wanted {
        match client.delete(kind, &name, args.abandon).await {
            Ok(()) => asked.push((kind, name)),
            // what a manifest declares and is gone already is as it should be
            Err(e) if from_files && e.kind == ErrorKind::NotFound => {}
            Err(e) => {
                worst = worst.max(e.exit_code());
                show::error("delete", &e);
            }
        }
    }
    for (kind, name) in asked {
        if !args.no_wait {
            gone(&client, kind, &name).await?;
        }
        show::print(&format!("{} deleted\n", name::shown(kind, &name)));
    }
    for container in left {
        show::note("delete", &format!("left behind: {container}"));
    }
    Ok(ExitCode::from(worst))
}

/// The containers of an environment, or of those a run owns, as somebody has to find them later.
async fn boxes(client: &Client, kind: &str, name: &str) -> Result<Vec<String>, Error> {
    let owner = match kind {
        "Run" => client.get(kind, name).await?.metadata().uid,
        _ => None,
    };
    let mut found = Vec::new();
    for resource in client.list("Environment").await? {
        let AnyResource::Environment(environment) = resource else { continue };
        let owned = environment.metadata.owner_references.iter().any(|o| Some(o.uid) == owner);
        let wanted = owned || (kind == "Environment" && environment.name() == name);
        if let (true, Some(container)) = (wanted, &environment.status.container_name) {
            let endpoint = environment.status.endpoint.as_deref().unwrap_or("the daemon");
            found.push(format!("container {container} on {endpoint}"));
        }
    }
    Ok(found)
}

/// Waits until it is gone, saying on the way what holds it up.
///
/// # Errors
/// When the daemon goes away.
pub async fn gone(client: &Client, kind: &str, name: &str) -> Result<(), Error> {
    let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
    let mut seen = false;
    while let Some(line) = lines.next().await {
        match line? {
            WatchLine::Modified(_) => seen = true,
            WatchLine::Deleted(_) => return Ok(()),
            WatchLine::Bookmark if !seen => return Ok(()),
            WatchLine::Bookmark => {}
        }
    }
    Err(Error::failed("the daemon ended before it was gone").hint(format!("hmz get {}", name::shown(kind, name))))
}
