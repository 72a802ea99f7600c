//! `hmz rerun`: the same once more, as a run of its own.

use crate::cli;
use crate::client::Client;
use crate::verbs::{apply, name};
use crate::{edge, show};
use hmz_api::rest::{Applied, ApplyRequest};
use hmz_api::{AnyResource, Error, ErrorKind, Metadata, Resource, Run};
use std::process::ExitCode;

/// The longest beginning of a name that is made.
const LONGEST: usize = 50;

/// Runs it.
///
/// # Errors
/// When the run is not there, or the new one is refused.
pub async fn run(client: Client, args: cli::Rerun) -> Result<ExitCode, Error> {
    let name = name::of_kind("Run", &args.run)?;
    if let Some(new) = &args.name {
        // an apply would make the one that is there what this one is
        match client.get("Run", new).await {
            Err(e) if e.kind == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(_) => return Err(is_there(&name::shown("Run", new))),
        }
    }
    let run = again(client.get_as::<Run>(&name).await?, args.name);
    let resources = vec![AnyResource::Run(Box::new(run))];
    let request = ApplyRequest { resources, caller: edge::caller(), ..ApplyRequest::default() };
    let Some(result) = client.apply(request).await?.pop() else { return Err(Error::failed("the daemon did not answer")) };
    let shown = name::shown("Run", &result.name);
    let applied = result.outcome.map_err(|e| Error { message: format!("{shown}: {}", e.message), ..e })?;
    if applied != Applied::Created {
        return Err(is_there(&shown));
    }
    show::print(&format!("{shown} created\n"));
    apply::verdict(&client, "Run", &result.name, applied, apply::VERDICT)
        .await
        .map_err(|e| Error { message: format!("{shown}: {}", e.message), ..e })?;
    Ok(ExitCode::SUCCESS)
}

fn is_there(shown: &str) -> Error {
    Error::refused(format!("{shown} is there already")).hint("give another name, or none")
}

/// The same run, of another name.
fn again(run: Resource<Run>, name: Option<String>) -> Resource<Run> {
    let old = run.metadata;
    // the one after it begins as this one did
    let prefix = old.generate_name.clone().unwrap_or_else(|| format!("{}-", old.name));
    let prefix: String = prefix.chars().take(LONGEST).collect();
    let metadata = Metadata {
        generate_name: name.is_none().then_some(prefix),
        name: name.unwrap_or_default(),
        labels: old.labels,
        annotations: old.annotations,
        ..Metadata::default()
    };
    Resource { metadata, spec: run.spec, status: Default::default() }
}
