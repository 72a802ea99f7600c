//! `hmz apply`: declares what manifests say, or says what that would do.

use crate::cli;
use crate::client::Client;
use crate::output::summary::{self, Line};
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
pub(super) const VERDICT: Duration = Duration::from_secs(15);

/// Runs it.
///
/// # Errors
/// When a manifest is wrong, or the request is refused as a whole.
pub async fn run(client: Client, args: cli::Apply) -> Result<ExitCode, Error> {
    if args.dry_run {
        let told = plan(&client, "apply", &args.what, false).await?;
        return Ok(ExitCode::from(told.worst.map_or(0, |worst| worst.exit_code())));
    }
    let mut lines = Vec::new();
    let done = carry_out(&client, &args, &mut lines).await;
    if let Err(e) = &done {
        lines.push(Line::of("manifests".into(), None, Some(e), Duration::ZERO));
    }
    if args.output == Some(cli::AppliedOutput::Json) {
        show::print(&summary::json(&lines));
    }
    for summary in &args.summary {
        let suite = args.what.set.as_deref().unwrap_or("hmz apply");
        let (file, text) = match summary {
            cli::Summary::Junit(file) => (file, summary::junit(&lines, suite)),
            cli::Summary::Json(file) => (file, summary::json(&lines)),
        };
        if let Err(e) = std::fs::write(file, text) {
            // what was applied is applied, and what is wrong with that is said before
            let e = edge::io(&file.display().to_string(), &e);
            match &done {
                Err(_) => drop(tell("apply", "", e)),
                Ok(_) => return Err(e),
            }
        }
    }
    done.map(ExitCode::from)
}

/// Applies, waits when that is asked for, and says what becomes of each; the exit status.
async fn carry_out(client: &Client, args: &cli::Apply, lines: &mut Vec<Line>) -> Result<u8, Error> {
    let begun = Instant::now();
    let results = client.apply(request(&args.what)?).await?;
    let until = args.timeout.map(|limit| Instant::now() + limit.duration());
    let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
    let mut worst = 0;
    let mut taken = Vec::new();
    for result in results {
        let shown = name::shown(&result.kind, &result.name);
        let verdict = match &result.outcome {
            Ok(applied) => {
                match args.output {
                    None => show::print(&format!("{shown} {}\n", applied.word())),
                    Some(cli::AppliedOutput::Name) => show::print(&format!("{shown}\n")),
                    Some(cli::AppliedOutput::Json) => {}
                }
                match applied {
                    applied if applied.goes() => Ok(()),
                    applied => {
                        let limit = left().map_or(VERDICT, |left| left.min(VERDICT));
                        verdict(client, &result.kind, &result.name, *applied, limit).await
                    }
                }
            }
            Err(e) => Err(e.clone()),
        };
        let action = result.outcome.as_ref().ok().copied();
        match verdict {
            Ok(()) if args.wait => taken.push((result, action)),
            Ok(()) => lines.push(Line::of(shown, action, None, begun.elapsed())),
            Err(e) => {
                lines.push(Line::of(shown.clone(), action, Some(&e), begun.elapsed()));
                worst = worst.max(tell("apply", &shown, e));
            }
        }
    }
    for (result, action) in taken {
        let shown = name::shown(&result.kind, &result.name);
        let patience = wait::Patience { limit: left(), typed: args.timeout, ends_when_hopeless: true };
        let done = settled(client, &result, patience).await;
        lines.push(Line::of(shown.clone(), action, done.as_ref().err(), begun.elapsed()));
        if let Err(e) = done {
            worst = worst.max(tell("apply", &shown, e));
        }
    }
    Ok(worst)
}

/// Prints what went wrong with a resource; the exit status it ends the verb with.
fn tell(verb: &str, shown: &str, error: Error) -> u8 {
    let named = shown.is_empty() || error.message.starts_with(shown);
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
    let declared = show::declared(&what.files, what.prune)?;
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

/// Waits, so long at most, until the controllers have said whether they take it: a refusal ends the verb with 2, anything else is watched by
/// `get`, `logs` and `wait`.
pub(super) async fn verdict(client: &Client, kind: &str, name: &str, applied: Applied, limit: Duration) -> Result<(), Error> {
    if !matches!(kind, "Run" | "Environment") {
        return Ok(());
    }
    let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
    let looked = async {
        while let Some(line) = lines.next().await {
            match line? {
                WatchLine::Modified(resource) => match verdict::of(&resource) {
                    // what was refused before stays refused, whatever was mended since
                    Some(Verdict::Refused(error)) if applied == Applied::Unchanged && verdict::is_final(&resource) => {
                        let shown = name::shown(kind, name);
                        return Err(error.hint(format!("to try again, delete it first: hmz delete {shown}")));
                    }
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
    tokio::time::timeout(limit, looked).await.unwrap_or(Ok(()))
}

/// Waits until a resource is what it was applied for: an environment is ready, a run has ended well, what was pruned or was going is gone.
async fn settled(client: &Client, result: &ApplyResult, patience: wait::Patience) -> Result<(), Error> {
    let (kind, name) = (result.kind.as_str(), result.name.as_str());
    if result.outcome.as_ref().is_ok_and(|applied| applied.goes()) {
        return match patience.limit.zip(patience.typed) {
            None => delete::gone(client, kind, name).await,
            Some((left, typed)) => wait::gone(client, kind, name, left, typed).await,
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
