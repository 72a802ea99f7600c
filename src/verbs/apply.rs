//! `hmz apply`: declares what manifests say, or says what that would do.

use crate::cli;
use crate::client::Client;
use crate::output::summary::{self, Line};
use crate::signals::{self, Signals};
use crate::verbs::{delete, name, wait};
use crate::{edge, show};
use futures::StreamExt;
use hmz_api::kinds::condition;
use hmz_api::rest::{Applied, ApplyRequest, ApplyResult, Planned, WatchLine};
use hmz_api::verdict::{self, Verdict};
use hmz_api::{ConditionStatus, Error};
use std::cell::Cell;
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
        return dry_run(&client, &args).await;
    }
    let begun = Instant::now();
    let mut report = Report::default();
    let mut cut_off = None;
    let done = match request(&args.what) {
        Err(e) => Err(e),
        Ok(request) => {
            // a signal ends a verb at once where nothing is to be told at its end
            let tells = !args.summary.is_empty() || args.output == Some(cli::AppliedOutput::Json);
            let mut signals = if tells { Some(Signals::new()?) } else { None };
            let signalled = async {
                match &mut signals {
                    Some(signals) => signals.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                done = carry_out(&client, &args, request, begun, &mut report) => done,
                number = signalled => {
                    cut_off = Some(Error::failed("interrupted"));
                    Ok(signals::status(number))
                }
            }
        }
    };
    let lines = report.lines(done.as_ref().err().or(cut_off.as_ref()), begun.elapsed());
    if args.output == Some(cli::AppliedOutput::Json) {
        show::print(&summary::json(&lines));
    }
    match (summarise(&args, &lines), done) {
        (Ok(()), done) => done.map(ExitCode::from),
        (Err(e), Ok(_)) => Err(e),
        // what was applied is applied, and what is wrong with that is said before
        (Err(e), Err(done)) => {
            tell("apply", "", e);
            Err(done)
        }
    }
}

/// Says what would be done, and does nothing.
async fn dry_run(client: &Client, args: &cli::Apply) -> Result<ExitCode, Error> {
    let begun = Instant::now();
    let told = plan(client, "apply", &args.what, args.output).await;
    let lines = match &told {
        Ok(told) => {
            let line = |one: &Planned| {
                let (action, error) = (one.outcome.as_ref().ok().copied(), one.outcome.as_ref().err());
                Line::of(name::shown(&one.kind, &one.name), action, error, begun.elapsed())
            };
            told.planned.iter().map(line).collect()
        }
        Err(e) => Report::default().lines(Some(e), begun.elapsed()),
    };
    summarise(args, &lines)?;
    Ok(ExitCode::from(told?.worst.map_or(0, |worst| worst.exit_code())))
}

/// Writes the summaries that are asked for.
fn summarise(args: &cli::Apply, lines: &[Line]) -> Result<(), Error> {
    for summary in &args.summary {
        let suite = args.what.set.as_deref().unwrap_or("hmz apply");
        let (file, text) = match summary {
            cli::Summary::Junit(file) => (file, summary::junit(lines, suite)),
            cli::Summary::Json(file) => (file, summary::json(lines)),
        };
        std::fs::write(file, text).map_err(|e| edge::io(&file.display().to_string(), &e))?;
    }
    Ok(())
}

/// What has become of each resource, as far as it is known by now, in the order they were answered in.
#[derive(Debug, Default)]
struct Report(Vec<(ApplyResult, Option<Line>)>);

impl Report {
    /// What became of each: of one that nothing is known of, what ended all of it.
    fn lines(self, ended: Option<&Error>, took: Duration) -> Vec<Line> {
        if let (true, Some(error)) = (self.0.is_empty(), ended) {
            return vec![Line::of("manifests".into(), None, Some(error), took)];
        }
        let line = |(result, line): (ApplyResult, Option<Line>)| {
            let unknown = || Line::of(name::shown(&result.kind, &result.name), result.outcome.ok(), ended, took);
            line.unwrap_or_else(unknown)
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Applies, waits when that is asked for, and says what becomes of each as it comes; the exit status.
async fn carry_out(
    client: &Client,
    args: &cli::Apply,
    request: ApplyRequest,
    begun: Instant,
    report: &mut Report,
) -> Result<u8, Error> {
    let results = client.apply(request).await?;
    for result in &results {
        let shown = name::shown(&result.kind, &result.name);
        match (args.output, &result.outcome) {
            (None, Ok(applied)) => show::print(&format!("{shown} {}\n", applied.word())),
            (Some(cli::AppliedOutput::Name), Ok(_)) => show::print(&format!("{shown}\n")),
            (Some(cli::AppliedOutput::Json), _) | (_, Err(_)) => {}
        }
    }
    report.0 = results.iter().map(|result| (result.clone(), None)).collect();
    let until = args.timeout.map(|limit| begun + limit.duration());
    // side by side: one that waits for room hides none that has failed
    let heard = &Cell::new(Instant::now());
    let each = results.iter().enumerate();
    let each = each.map(|(nth, result)| async move { (nth, result, became(client, args, result, heard, until).await) });
    let mut open = futures::stream::iter(each).buffer_unordered(wait::TOGETHER);
    let mut worst = 0;
    while let Some((nth, result, done)) = open.next().await {
        let (shown, action) = (name::shown(&result.kind, &result.name), result.outcome.as_ref().ok().copied());
        if let Some((_, line)) = report.0.get_mut(nth) {
            *line = Some(Line::of(shown.clone(), action, done.as_ref().err(), begun.elapsed()));
        }
        if let Err(e) = done {
            worst = worst.max(tell("apply", &shown, e));
        }
    }
    Ok(worst)
}

/// What became of one: what the controllers say of it, and how it ends where that is waited for.
async fn became(
    client: &Client,
    args: &cli::Apply,
    result: &ApplyResult,
    heard: &Cell<Instant>,
    until: Option<Instant>,
) -> Result<(), Error> {
    let applied = result.outcome.clone()?;
    if !applied.goes() {
        verdict_of_many(said(client, &result.kind, &result.name, applied), heard, until).await?;
    }
    if !args.wait {
        return Ok(());
    }
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let patience = wait::Patience { limit: left, typed: args.timeout, ends_when_hopeless: true };
    settled(client, result, patience).await
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
    /// Each.
    pub planned: Vec<Planned>,
}

/// Prints what an apply would do.
///
/// # Errors
/// When a manifest is wrong, or the request is refused as a whole.
pub(super) async fn plan(client: &Client, verb: &str, what: &cli::What, form: Option<cli::AppliedOutput>) -> Result<Told, Error> {
    let planned = client.plan(request(what)?).await?;
    show::print(&match form {
        None => show::changes(&planned),
        Some(cli::AppliedOutput::Json) => show::json_line(&planned)?,
        Some(cli::AppliedOutput::Name) => {
            let taken = planned.iter().filter(|one| one.outcome.is_ok());
            taken.map(|one| format!("{}\n", name::shown(&one.kind, &one.name))).collect()
        }
    });
    let mut told = Told { differs: planned.iter().any(Planned::differs), worst: None, planned };
    for one in &told.planned {
        let Err(e) = &one.outcome else { continue };
        tell(verb, &name::shown(&one.kind, &one.name), e.clone());
        if told.worst.as_ref().is_none_or(|worst| worst.exit_code() < e.exit_code()) {
            told.worst = Some(e.clone());
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

/// Waits, so long at most, until the controllers have said whether they take it: a refusal ends the verb with 2, anything else is
/// watched by `get`, `logs` and `wait`.
pub(super) async fn verdict(client: &Client, kind: &str, name: &str, applied: Applied, limit: Duration) -> Result<(), Error> {
    tokio::time::timeout(limit, said(client, kind, name, applied)).await.unwrap_or(Ok(()))
}

/// The same for one of many: they may be slow to come to it, so what is said of another goes on with the time. Until then at most.
async fn verdict_of_many(
    said: impl Future<Output = Result<(), Error>>,
    heard: &Cell<Instant>,
    until: Option<Instant>,
) -> Result<(), Error> {
    let (mut said, begun) = (std::pin::pin!(said), Instant::now());
    loop {
        let quiet = heard.get().max(begun) + VERDICT;
        let end = until.map_or(quiet, |until| until.min(quiet));
        match tokio::time::timeout_at(end, &mut said).await {
            Ok(done) => {
                heard.set(Instant::now());
                return done;
            }
            Err(_) if heard.get() + VERDICT > quiet && end == quiet => {}
            Err(_) => return Ok(()),
        }
    }
}

/// Waits until they have said so.
async fn said(client: &Client, kind: &str, name: &str, applied: Applied) -> Result<(), Error> {
    if !matches!(kind, "Run" | "Environment") {
        return Ok(());
    }
    let mut lines = Box::pin(client.watch(kind, Some(name)).await?);
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
}

/// Waits until a resource is what it was applied for: an environment is ready, a run has ended well, what was pruned or was going
/// is gone.
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
