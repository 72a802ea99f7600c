//! Following a run to its end: progress while it starts, its transcript, and the proof that nothing of it is left.

use crate::client::Client;
use crate::show;
use futures::StreamExt;
use hmz_api::clock::{Clock, SystemClock};
use hmz_api::journal::{Event, Outcome, Record};
use hmz_api::kinds::condition;
use hmz_api::rest::WatchLine;
use hmz_api::{AnyResource, Environment, Error, Resource, Run};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// How often a daemon that went away is looked for again in a row.
const LOST: u32 = 5;

/// How often the seconds of the progress line are brought up to date.
const TICK: Duration = Duration::from_millis(250);
/// How long a guest may take before it is said that it does not answer.
const GUEST: SignedDuration = SignedDuration::from_secs(2);

/// How long is waited for what the daemon says of a run that failed. It looks for the reason a little longer where a box went away
/// and its daemon says nothing.
const REASON: Duration = Duration::from_secs(20);

/// How a run ended.
pub enum End {
    /// With this exit status.
    Status(u8),
    /// Refused, with this sentence.
    Refused(String),
    /// Not well, as this sentence says; its journal does not.
    Untold(String),
}

/// Follows the run; survives a daemon that is killed and started again.
///
/// # Errors
/// When no daemon can be had any more.
pub async fn to_the_end(client: Client, run: String, json: bool) -> Result<End, Error> {
    let mut transcript = show::Transcript::of_exec(json);
    let mut progress = show::Progress::default();
    let uid = client.get_as::<Run>(&run).await?.metadata.uid;
    let mut environments = client.watch("Environment", None).await?.boxed();
    let mut records = client.journal(&run, 0, true, true).await?.boxed();
    let mut ticks = tokio::time::interval(TICK);
    let (mut seen, mut lost) = (0, 0);
    // its runner may be there before its boxes are
    let mut at_work = false;
    let mut moved = BTreeSet::new();
    loop {
        // each branch may be dropped at its await: the streams keep what they have read
        let next = tokio::select! {
            next = records.next() => next,
            Some(line) = environments.next(), if !at_work => {
                if let Ok(WatchLine::Modified(AnyResource::Environment(environment))) = line
                    && owned_by(&environment, uid)
                {
                    tell_moved(&environment, &mut moved, &progress);
                    if let Some((stage, detail)) = waits_for(&environment, SystemClock.now()) {
                        progress.say(&stage, &detail);
                    }
                }
                continue;
            }
            _ = ticks.tick() => {
                progress.tick();
                continue;
            }
        };
        match next {
            Some(Ok(record)) => {
                if seen == 0 {
                    // the journal may be heard of before the last changes of its environments
                    for one in client.list("Environment").await? {
                        if let AnyResource::Environment(environment) = one
                            && owned_by(&environment, uid)
                        {
                            tell_moved(&environment, &mut moved, &progress);
                        }
                    }
                }
                (seen, lost) = (seen + 1, 0);
                at_work |= matches!(record.event, Event::Placed { .. } | Event::Begins | Event::Exec { .. });
                progress.note(&record);
                let record = in_full(&client, &run, record).await;
                // what was refused before that is told once, as what refuses it
                if at_work || !matches!(record.event, Event::Ended { outcome: Outcome::Refused, .. }) {
                    transcript.show(&record, Some(&progress));
                }
                if matches!(record.event, Event::Ended { .. }) {
                    drop(progress);
                    return gone(&client, &run, uid, true).await;
                }
            }
            // a run that was refused has no journal, and one whose runner was killed has one without an end; of any other the
            // rest is there, when the stream that ended was that of a daemon that did
            None if is_complete(&client, &run).await? => {
                let mut rest = client.journal(&run, seen, false, false).await?.boxed();
                let mut told = false;
                while let Some(record) = rest.next().await {
                    let record = in_full(&client, &run, record?).await;
                    transcript.show(&record, Some(&progress));
                    told |= matches!(record.event, Event::Ended { .. });
                }
                drop(progress);
                return gone(&client, &run, uid, told).await;
            }
            Some(Err(_)) | None => {
                lost += 1;
                match client.journal(&run, seen, true, true).await {
                    Ok(again) => records = again.boxed(),
                    Err(e) if lost >= LOST => return Err(e),
                    Err(_) => {}
                }
            }
        }
    }
}

/// The end of a run that failed, with all that its condition says of it: its runner sees that a box is gone, and the daemon knows why.
/// Every other record as it is.
async fn in_full(client: &Client, run: &str, mut record: Record) -> Record {
    let Event::Ended { outcome: Outcome::Failed, message } = &mut record.event else { return record };
    if let Ok(Some(full)) = tokio::time::timeout(REASON, why_it_failed(client, run)).await
        && full.starts_with(message.as_str())
    {
        *message = full;
    }
    record
}

/// What the condition of a run that failed says, once it is there.
async fn why_it_failed(client: &Client, run: &str) -> Option<String> {
    let mut lines = Box::pin(client.watch("Run", Some(run)).await.ok()?);
    while let Some(Ok(line)) = lines.next().await {
        if let WatchLine::Modified(AnyResource::Run(found)) = line
            && let Some(end) = found.status.conditions.get(condition::COMPLETE).filter(|_| found.status.is_complete())
        {
            return Some(end.message.clone());
        }
    }
    None
}

async fn is_complete(client: &Client, run: &str) -> Result<bool, Error> {
    Ok(client.get_as::<Run>(run).await?.status.is_complete())
}

fn owned_by(environment: &Resource<Environment>, run: Option<Uuid>) -> bool {
    run.is_some_and(|uid| environment.metadata.owner_references.iter().any(|owner| owner.uid == uid))
}

/// Says, once, that an environment is on another runtime than the one that was named, and why.
fn tell_moved(environment: &Resource<Environment>, moved: &mut BTreeSet<String>, progress: &show::Progress) {
    let scheduled = environment.status.conditions.get(condition::SCHEDULED).filter(|c| c.reason == condition::FELL_BACK);
    if let Some(scheduled) = scheduled
        && moved.insert(scheduled.message.clone())
    {
        progress.note_aside("exec", &scheduled.message);
    }
}

/// The first condition that does not hold yet and has something to say.
fn waits_for(environment: &Resource<Environment>, now: Timestamp) -> Option<(String, String)> {
    let conditions = &environment.status.conditions;
    let created = conditions.get(condition::CREATED).map_or(now, |c| c.last_transition_time);
    let starts = now.duration_since(created);
    [condition::SCHEDULED, condition::IMAGE_READY, condition::CREATED, condition::GUEST_READY]
        .into_iter()
        .filter_map(|kind| conditions.get(kind))
        .find(|c| c.status != hmz_api::ConditionStatus::True && !c.message.is_empty())
        // a refusal is told once, at the end
        .filter(|c| !matches!(c.reason.as_str(), "Refused" | "Insufficient" | condition::NO_HARNESS))
        // a guest is asked before it can answer
        .filter(|c| c.kind != condition::GUEST_READY || starts > GUEST)
        .map(|c| (environment.name().to_owned(), c.message.clone()))
}

/// Waits until the run is complete and none of its environments is left. How it ended is `told` where its journal has it.
async fn gone(client: &Client, run: &str, uid: Option<Uuid>, told: bool) -> Result<End, Error> {
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
                _ if !told => End::Untold(format!("{run}: {}", end.message)),
                _ => End::Status(1),
            });
        }
    }
    Err(Error::failed("the daemon ended"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by it")]
    use super::*;
    use hmz_api::ConditionStatus::{False, True};
    use hmz_api::kinds::EnvironmentSpec;

    #[test]
    fn a_guest_is_said_to_be_silent_only_when_it_has_been() {
        let spec: EnvironmentSpec = serde_json::from_str(r#"{"runtime": "docker:here"}"#).unwrap();
        let mut environment = Resource::<Environment>::new("box", spec);
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        environment.status.conditions.set(condition::GUEST_READY, False, "Pending", "", 1, at(0));
        environment.status.conditions.set(condition::CREATED, True, "Started", "box-1", 1, at(300));
        environment.status.conditions.set(condition::GUEST_READY, False, "NotAnswering", "no such file", 1, at(300));
        assert_eq!(waits_for(&environment, at(301)), None);
        assert_eq!(waits_for(&environment, at(310)), Some(("box".into(), "no such file".into())));
    }
}
