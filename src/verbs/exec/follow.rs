//! Following a run to its end: progress while it starts, its transcript, and the proof that nothing of it is left.

use crate::client::Client;
use crate::output;
use futures::StreamExt;
use hmz_api::journal::{Event, Record};
use hmz_api::kinds::condition;
use hmz_api::rest::WatchLine;
use hmz_api::{AnyResource, Environment, Error, Resource, Run};
use std::collections::BTreeSet;
use uuid::Uuid;

/// How often a daemon that went away is looked for again in a row.
const LOST: u32 = 5;

/// How a run ended.
pub enum End {
    /// With this exit status.
    Status(u8),
    /// Refused, with this sentence.
    Refused(String),
}

/// Follows the run; survives a daemon that is killed and started again.
///
/// # Errors
/// When no daemon can be had any more.
pub async fn to_the_end(client: Client, run: String, json: bool) -> Result<End, Error> {
    let mut transcript = output::Transcript::of_exec(json);
    let mut progress = output::Progress::new("starting");
    let mut seen = 0;
    let mut lost = 0;
    let uid = client.get_as::<Run>(&run).await?.metadata.uid;
    let mut environments = Box::pin(environments(client.clone(), uid, &mut progress));
    // what a run says while it starts, until its journal begins
    let first = Box::pin(client.journal(&run, 0, true, true));
    let mut records = Some(Box::pin(tokio::select! {
        records = first => records?,
        e = &mut environments => return Err(e.err().unwrap_or_else(|| Error::failed("the daemon ended"))),
    }));
    loop {
        let Some(stream) = &mut records else {
            match client.journal(&run, seen, true, true).await {
                Ok(stream) => records = Some(Box::pin(stream)),
                Err(e) if lost >= LOST => return Err(e),
                Err(_) => lost += 1,
            }
            continue;
        };
        let next = if seen == 0 {
            tokio::select! {
                next = stream.next() => next,
                // the watch of environments ends with the daemon; the journal's stream does too
                _ = &mut environments => continue,
            }
        } else {
            stream.next().await
        };
        match next {
            Some(Ok(record)) => {
                seen += 1;
                lost = 0;
                show(&mut transcript, &record);
                if matches!(record.event, Event::Ended { .. }) {
                    break;
                }
            }
            // a run that was refused has no journal
            None if complete(&client, &run).await?.is_some() => break,
            Some(Err(_)) | None => records = None,
        }
    }
    drop(environments);
    drop(progress);
    gone(&client, &run, uid).await
}

fn show(transcript: &mut output::Transcript, record: &Record) {
    transcript.show(record);
}

/// The run, when it is complete.
async fn complete(client: &Client, run: &str) -> Result<Option<Resource<Run>>, Error> {
    let found = client.get_as::<Run>(run).await?;
    Ok(found.status.is_complete().then_some(found))
}

/// Shows what the run's environments wait for; ends only when the daemon does.
async fn environments(client: Client, run: Option<Uuid>, progress: &mut output::Progress) -> Result<(), Error> {
    let mut lines = Box::pin(client.watch("Environment", None).await?);
    while let Some(line) = lines.next().await {
        if let WatchLine::Modified(AnyResource::Environment(environment)) = line?
            && owned_by(&environment, run)
            && let Some(text) = waits_for(&environment)
        {
            progress.say(&text);
        }
    }
    Ok(())
}

fn owned_by(environment: &Resource<Environment>, run: Option<Uuid>) -> bool {
    run.is_some_and(|uid| environment.metadata.owner_references.iter().any(|owner| owner.uid == uid))
}

/// The first condition that does not hold yet and has something to say.
fn waits_for(environment: &Resource<Environment>) -> Option<String> {
    let conditions = &environment.status.conditions;
    [condition::SCHEDULED, condition::IMAGE_READY, condition::CREATED, condition::GUEST_READY]
        .into_iter()
        .filter_map(|kind| conditions.get(kind))
        .find(|c| c.status != hmz_api::ConditionStatus::True && !c.message.is_empty())
        .map(|c| format!("{}: {}", environment.name(), c.message))
}

/// Waits until the run is complete and none of its environments is left.
async fn gone(client: &Client, run: &str, uid: Option<Uuid>) -> Result<End, Error> {
    let mut left = BTreeSet::new();
    let mut lines = Box::pin(client.watch("Environment", None).await?);
    let mut listed = false;
    while let Some(line) = lines.next().await {
        match line? {
            WatchLine::Modified(AnyResource::Environment(e)) if owned_by(&e, uid) => {
                left.insert(e.name().to_owned());
            }
            WatchLine::Deleted(resource) => {
                left.remove(&resource.metadata().name);
            }
            WatchLine::Bookmark => listed = true,
            WatchLine::Modified(_) => {}
        }
        if listed && left.is_empty() {
            break;
        }
    }
    drop(lines);
    let mut lines = Box::pin(client.watch("Run", Some(run)).await?);
    while let Some(line) = lines.next().await {
        if let WatchLine::Modified(AnyResource::Run(found)) = line?
            && let Some(end) = found.status.conditions.get(condition::COMPLETE).filter(|_| found.status.is_complete())
        {
            return Ok(match end.reason.as_str() {
                "Succeeded" | "BudgetExceeded" => End::Status(0),
                "Refused" => End::Refused(end.message.clone()),
                _ => End::Status(1),
            });
        }
    }
    Err(Error::failed("the daemon ended"))
}
