//! `hmz apply`: declares what manifests say, or says what that would do.

use crate::cli;
use crate::client::Client;
use crate::verbs::{delete, name, wait};
use crate::{edge, show};
use futures::StreamExt;
use hmz_api::kinds::condition;
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult, WatchLine};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{ConditionStatus, Error};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How long a verdict on what was applied is waited for. The controllers give it at once unless a daemon hangs; then the
/// resource's conditions go on telling.
const VERDICT: Duration = Duration::from_secs(15);

/// Runs it.
///
/// # Errors
/// When a manifest is wrong, or the request is refused as a whole.
pub async fn run(client: Client, args: cli::Apply) -> Result<ExitCode, Error> {
    if args.dry_run {
        let told = plan(&client, "apply", &args.what, false).await?;
        return Ok(ExitCode::from(told.worst.map_or(0, |worst| worst.exit_code())));
    }
    let results = client.apply(request(&args.what)?).await?;
    let mut worst = 0;
    let mut taken = Vec::new();
    for result in results {
        let shown = name::shown(&result.kind, &result.name);
        let verdict = match &result.outcome {
            Ok(applied) => {
                show::print(&if args.output == Some(cli::Output::Name) {
                    format!("{shown}\n")
                } else {
                    format!("{shown} {}\n", applied.word())
                });
                let verdict = match applied {
                    Applied::Pruned => Ok(()),
                    _ => verdict(&client, &result.kind, &result.name).await,
                };
                match applied {
                    // what was refused before stays refused, whatever was mended since
                    Applied::Unchanged if result.kind == "Run" => {
                        verdict.map_err(|e| e.hint(format!("to try again, delete it first: hmz delete {shown}")))
                    }
                    _ => verdict,
                }
            }
            Err(e) => Err(e.clone()),
        };
        match verdict {
            Ok(()) => taken.push(result),
            Err(e) => worst = worst.max(tell("apply", &shown, e)),
        }
    }
    if args.wait {
        let until = args.timeout.map(|limit| Instant::now() + limit.duration());
        for result in taken {
            let shown = name::shown(&result.kind, &result.name);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let patience = wait::Patience { limit: left, typed: args.timeout, ends_when_hopeless: true };
            if let Err(e) = settled(&client, &result, patience).await {
                worst = worst.max(tell("apply", &shown, e));
            }
        }
    }
    Ok(ExitCode::from(worst))
}

/// Prints what went wrong with a resource; the exit status it ends the verb with.
fn tell(verb: &str, shown: &str, error: Error) -> u8 {
    let named = error.message.starts_with(shown);
    let told = if named { error } else { Error { message: format!("{shown}: {}", error.message), ..error } };
    show::error(verb, &told);
    told.exit_code()
}

/// What a plan came to.
pub(super) struct Told {
    /// Whether anything would be another than it is.
    pub differs: bool,
    /// The worst of what would be refused.
    pub worst: Option<Error>,
}

/// Prints what an apply would do.
///
/// # Errors
/// When a manifest is wrong, or the request is refused as a whole.
pub(super) async fn plan(client: &Client, verb: &str, what: &cli::What, json: bool) -> Result<Told, Error> {
    let planned = client.plan(request(what)?).await?;
    show::print(&if json { show::json_line(&planned)? } else { show::changes(&planned) });
    let mut told = Told { differs: planned.iter().any(|one| one.differs()), worst: None };
    for one in planned {
        let Err(e) = one.outcome else { continue };
        tell(verb, &name::shown(&one.kind, &one.name), e.clone());
        if told.worst.as_ref().is_none_or(|worst| worst.exit_code() < e.exit_code()) {
            told.worst = Some(e);
        }
    }
    Ok(told)
}

/// The request that a command line means.
fn request(what: &cli::What) -> Result<ApplyRequest, Error> {
    let declared = show::declared(&what.filename, what.prune)?;
    let (resources, written) = declared.into_iter().map(|one| (one.resource, one.written)).unzip();
    Ok(ApplyRequest {
        resources,
        written,
        caller: edge::caller(),
        attached: false,
        replace: what.replace,
        set: what.set.clone(),
        prune: what.prune,
        allow_empty: what.allow_empty,
    })
}

/// Waits until the controllers have said whether they take it: a refusal ends the verb with 2, anything else is watched by
/// `get`, `logs` and `wait`.
pub(super) async fn verdict(client: &Client, kind: &str, name: &str) -> Result<(), Error> {
    if !matches!(kind, "Run" | "Environment") {
        return Ok(());
    }
    let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
    let looked = async {
        while let Some(line) = lines.next().await {
            match line? {
                WatchLine::Modified(resource) => match verdict::of(&resource) {
                    Some(Verdict::Refused(error)) => return Err(error),
                    Some(_) => return Ok(()),
                    None => {}
                },
                WatchLine::Deleted(_) => return Err(Error::failed("it was deleted")),
                WatchLine::Bookmark => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(VERDICT, looked).await.unwrap_or(Ok(()))
}

/// Waits until a resource is what it was applied for: an environment is ready, a run has ended well, what was pruned is gone.
async fn settled(client: &Client, result: &ApplyResult, patience: wait::Patience) -> Result<(), Error> {
    let (kind, name) = (result.kind.as_str(), result.name.as_str());
    if result.outcome == Ok(Applied::Pruned) {
        let gone = delete::gone(client, kind, name);
        return match patience.limit {
            None => gone.await,
            Some(left) => tokio::time::timeout(left, gone).await.unwrap_or_else(|_| Err(Error::failed("it is still there"))),
        };
    }
    let condition = match kind {
        "Run" => condition::COMPLETE,
        "Environment" => condition::READY,
        _ => return Ok(()),
    };
    let wish = wait::Wish::Condition { name: condition.into(), status: ConditionStatus::True };
    wait::until(client, kind, name, &wish, patience).await
}
