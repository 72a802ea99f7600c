//! `hmz apply`: declares what manifests say.

use crate::cli;
use crate::client::Client;
use crate::verbs::name;
use crate::{edge, show};
use futures::StreamExt;
use hmz_api::kinds::condition;
use hmz_api::rest::{Applied, ApplyRequest, WatchLine};
use hmz_api::{AnyResource, Condition, Conditions, Error};
use std::process::ExitCode;
use std::time::Duration;

/// How long a verdict on what was applied is waited for. The controllers give it at once unless a daemon hangs; then the
/// resource's conditions go on telling.
const VERDICT: Duration = Duration::from_secs(15);

/// Runs it.
///
/// # Errors
/// When a manifest is wrong, or anything in it was refused.
pub async fn run(client: Client, args: cli::Apply) -> Result<ExitCode, Error> {
    let resources = show::manifests(&args.filename)?;
    if resources.is_empty() {
        return Err(Error::usage("the manifests declare nothing"));
    }
    let results = client.apply(ApplyRequest { resources, caller: edge::caller(), attached: false }).await?;
    let mut worst = 0;
    for result in results {
        let shown = name::shown(&result.kind, &result.name);
        let verdict = match result.outcome {
            Ok(applied) => {
                show::print(&if args.output == Some(cli::Output::Name) {
                    format!("{shown}\n")
                } else {
                    format!("{shown} {}\n", applied.word())
                });
                let verdict = verdict(&client, &result.kind, &result.name).await;
                match applied {
                    // what was refused before stays refused, whatever was mended since
                    Applied::Unchanged if result.kind == "Run" => {
                        verdict.map_err(|e| e.hint(format!("to try again, delete it first: hmz delete {shown}")))
                    }
                    _ => verdict,
                }
            }
            Err(e) => Err(e),
        };
        if let Err(e) = verdict {
            let told = Error { message: format!("{shown}: {}", e.message), ..e };
            worst = worst.max(told.exit_code());
            show::error("apply", &told);
        }
    }
    Ok(ExitCode::from(worst))
}

/// Waits until the controllers have said whether they take it: a refusal ends the verb with 2, anything else is watched by
/// `get`, `logs` and `wait`.
async fn verdict(client: &Client, kind: &str, name: &str) -> Result<(), Error> {
    if !matches!(kind, "Run" | "Environment") {
        return Ok(());
    }
    let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
    let looked = async {
        while let Some(line) = lines.next().await {
            match line? {
                WatchLine::Modified(resource) => {
                    if let Some(verdict) = verdict_of(&resource) {
                        return verdict;
                    }
                }
                WatchLine::Deleted(_) => return Err(Error::failed("it was deleted")),
                WatchLine::Bookmark => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(VERDICT, looked).await.unwrap_or(Ok(()))
}

fn verdict_of(resource: &AnyResource) -> Option<Result<(), Error>> {
    let refused = |conditions: &Conditions, kind: &str| {
        let refused = |c: &&Condition| matches!(c.reason.as_str(), "Refused" | "RuntimeMissing");
        conditions.get(kind).filter(refused).map(|c| Err(show::refusal(&c.message)))
    };
    match resource {
        AnyResource::Run(run) => {
            let conditions = &run.status.conditions;
            refused(conditions, condition::COMPLETE).or_else(|| {
                (conditions.get(condition::ENVIRONMENTS_READY).is_some() || run.status.is_complete()).then_some(Ok(()))
            })
        }
        AnyResource::Environment(environment) => {
            let conditions = &environment.status.conditions;
            refused(conditions, condition::SCHEDULED)
                .or_else(|| refused(conditions, condition::READY))
                .or_else(|| conditions.get(condition::SCHEDULED).is_some().then_some(Ok(())))
        }
        _ => Some(Ok(())),
    }
}
