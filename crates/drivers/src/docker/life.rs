//! Start and removal of a box. Each may be cancelled anywhere and repeated: what is there is looked at, not remembered.

use super::api::{Fault, encoded};
use super::capacity::Held;
use super::labels::{self, Listed};
use super::listing::Listing;
use super::session::Session;
use super::site::{self, Site};
use super::way::Way;
use super::{account, admission, attached, container, gpus, image, names, programs};
use crate::error::DriverError;
use crate::gpus::in_words;
use crate::types::{BoxKey, BoxSpec, BoxState, Exit, ObservedBox, Purpose, RemoveOutcome, Started, is_same_box};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use hmz_api::failpoint;
use hmz_api::way::{Exec, Reach};
use serde_json::Value;

/// How often the name may turn out to be taken by something that is then gone.
const TRIES: usize = 4;
/// How many containers are looked at together.
const TOGETHER: usize = 8;

/// Makes and starts a box, or adopts the one that is there.
///
/// # Errors
/// It cannot be had as declared, its share is no longer held, a stranger has its name, or the daemon does not answer.
pub async fn start(session: &Session<'_>, spec: &BoxSpec) -> Result<Started, DriverError> {
    if session.target.spec.container.is_some() {
        return attached::start(session, spec).await;
    }
    let mut adopted = false;
    match started(session, spec, &mut adopted).await {
        Ok(started) => {
            session.shared.troubles.over(&spec.key);
            forget(session, &spec.key, |l| l.purpose == Purpose::Hold).await?;
            failpoint::pass("docker.unheld");
            Ok(started)
        }
        Err(e) => {
            // neither box nor hold is left; when the daemon does not answer there is nothing to be done about it now
            // (and one that ran before is not this start's to remove)
            if !adopted && !matches!(e, DriverError::Unreachable { .. }) {
                let _ = forget(session, &spec.key, |_| true).await;
            }
            Err(e)
        }
    }
}

async fn started(session: &Session<'_>, spec: &BoxSpec, adopted: &mut bool) -> Result<Started, DriverError> {
    let name = names::of_box(&session.prefix(), &spec.key);
    // one incarnation has one box, even when it was made through another name of the same daemon
    forget(session, &spec.key, |l| l.purpose == Purpose::Box && l.name != name).await?;
    for _ in 0..TRIES {
        if let Some(there) = session.inspect(&name).await? {
            let ours = there.purpose == Purpose::Box && there.key.as_ref() == Some(&spec.key);
            if !ours {
                return Err(session.foreign(&name));
            }
            match there.state.as_str() {
                _ if there.runs() => *adopted = true,
                "created" => {
                    if !was_held(session, spec, &there).await? {
                        return Err(admission::aged_out(session, &spec.key));
                    }
                    let site = site::find(session, spec).await?;
                    has_programs(session, spec, &there.id).await?;
                    account::write(session, &there.id, site.user).await?;
                    run(session, spec, &there.id).await?;
                }
                _ => {
                    session.remove_id(&there.id).await?;
                    continue;
                }
            }
            if let Some(started) = running(session, &there.id, &name).await? {
                return Ok(started);
            }
            return Err(ended_at_once(session, spec));
        }
        gpus_answer(session, spec).await?;
        let site = site::find(session, spec).await?;
        let Some(id) = create(session, spec, &site, &name).await? else { continue };
        failpoint::pass("docker.created");
        let (held, written, has) =
            tokio::join!(session.of_key(&spec.key), account::write(session, &id, site.user), has_programs(session, spec, &id));
        // from here on the box itself counts; before, its hold has to have counted
        let (listed, now) = held?;
        if !listed.iter().any(|l| l.purpose == Purpose::Hold && l.counts(now, session.limits.hold_age)) {
            return Err(admission::aged_out(session, &spec.key));
        }
        has?;
        written?;
        // it counts by itself now, so its hold goes while it starts; one that stays is removed once it has
        let (began, _) = tokio::join!(run(session, spec, &id), forget(session, &spec.key, |l| l.purpose == Purpose::Hold));
        began?;
        failpoint::pass("docker.started");
        return running(session, &id, &name).await?.ok_or_else(|| ended_at_once(session, spec));
    }
    Err(DriverError::Transient(format!("{}: the name {name} is taken and free by turns", session.at())))
}

/// Whether the hold of a box counted when its container was made: from then on that counts by itself. Who made it looks after
/// that, unless it died or never heard that it was made.
async fn was_held(session: &Session<'_>, spec: &BoxSpec, there: &Listed) -> Result<bool, DriverError> {
    let (listed, _) = session.of_key(&spec.key).await?;
    Ok(listed.iter().any(|l| l.purpose == Purpose::Hold && l.counts(there.created, session.limits.hold_age)))
}

/// Creates the container; `None` when the name was taken at this moment.
async fn create(session: &Session<'_>, spec: &BoxSpec, site: &Site, name: &str) -> Result<Option<String>, DriverError> {
    let (image_labels, machine) = tokio::try_join!(image::labels(session, &spec.image), session.machine())?;
    let place = container::Place {
        who: session.who,
        provider: session.provider(),
        runtime: &session.target.spec,
        site,
        machine: &machine,
    };
    let body =
        container::body(place, spec, &image_labels).map_err(|why| DriverError::Refused(format!("{}: {why}", session.at())))?;
    match session.api.post(&format!("/containers/create?name={}", encoded(name)), Some(&body)).await {
        Ok(answer) => {
            let id = session.id_of(&answer.json)?;
            if spec.share.gpus.is_empty() || has_gpus(session, &id).await? {
                return Ok(Some(id));
            }
            session.remove_id(&id).await?;
            Err(image::could_not_start(&session.api, &spec.image, "it gives its containers no GPUs"))
        }
        Err(fault) if fault.status() == Some(409) => Ok(None),
        Err(fault) => Err(could_not_start(session, spec, fault)),
    }
}

/// Sees that no GPU of a share is known not to answer, or is another's by its other name: when it was granted, its image may not have
/// been there to ask with, or that was long ago.
///
/// # Errors
/// One is, which its admission anew will know, its share is no longer held, or the daemon does not answer.
async fn gpus_answer(session: &Session<'_>, spec: &BoxSpec) -> Result<(), DriverError> {
    if spec.share.gpus.is_empty() {
        return Ok(());
    }
    let others = |all: &Listing| labels::held(&all.boxes, all.now, session.limits.hold_age, session.provider(), [&spec.key]);
    let (machine, all) = (session.machine().await?, session.all().await?);
    let held = others(&all);
    let ids = gpus::number_again(&spec.share.gpus, held.iter().flat_map(|h| &h.gpus), &machine.info);
    let answers = kept_young(session, &spec.key, gpus::ask::of_ids(session, &ids, &spec.image)).await?;
    let silent: Vec<&str> = spec.share.gpus.iter().map(String::as_str).filter(|id| answers.is_silent(id)).collect();
    if let Some(words) = in_words(&silent) {
        return Err(DriverError::Transient(format!("{}: {words}", session.at())));
    }
    // those who came while they were asked go by what is known now, or see this one's hold in their turn
    for other in others(&*session.all().await?) {
        let is_twin = |id: &&String| other.gpus.iter().any(|theirs| answers.same(theirs) == answers.same(id));
        if let Some(id) = spec.share.gpus.iter().find(is_twin) {
            let (at, Held { name, host, .. }) = (session.at(), &other);
            return Err(DriverError::Transient(format!("{at}: GPU {id} is held by {name} on {host}")));
        }
    }
    Ok(())
}

/// Does something that may take long while the hold of a box is kept from ageing out.
///
/// # Errors
/// What that fails with, or that the hold has aged out.
async fn kept_young<T>(
    session: &Session<'_>,
    key: &BoxKey,
    work: impl Future<Output = Result<T, DriverError>>,
) -> Result<T, DriverError> {
    let mut work = std::pin::pin!(work);
    loop {
        let renewed = async {
            tokio::time::sleep(session.limits.hold_age / 3).await;
            admission::renew(session, std::slice::from_ref(key)).await
        };
        tokio::select! {
            biased;
            done = &mut work => return done,
            // a daemon that does not answer now may do so before it ages out
            renewed = renewed => if let Err(e @ DriverError::Transient(_)) = renewed {
                return Err(e);
            },
        }
    }
}

/// Whether the daemon has taken note of the GPUs it was asked for: podman passes over them without a word.
async fn has_gpus(session: &Session<'_>, id: &str) -> Result<bool, DriverError> {
    let raw = session.inspect_raw(id).await?;
    let requests = raw.as_ref().and_then(|raw| raw.pointer("/HostConfig/DeviceRequests")).and_then(Value::as_array);
    Ok(requests.is_some_and(|requests| !requests.is_empty()))
}

/// Sees that the programs that were asked for are there, before anything runs.
///
/// # Errors
/// One is not, or the daemon does not answer.
pub async fn has_programs(session: &Session<'_>, spec: &BoxSpec, id: &str) -> Result<(), DriverError> {
    match programs::missing(session, id, &spec.programs).await? {
        None => Ok(()),
        Some(program) => Err(DriverError::NoProgram { program, image: spec.image.clone() }),
    }
}

async fn run(session: &Session<'_>, spec: &BoxSpec, id: &str) -> Result<(), DriverError> {
    match session.api.post(&format!("/containers/{id}/start"), None).await {
        Ok(_) => Ok(()),
        Err(fault) => Err(could_not_start(session, spec, fault)),
    }
}

async fn running(session: &Session<'_>, id: &str, name: &str) -> Result<Option<Started>, DriverError> {
    let Some(raw) = session.inspect_raw(id).await? else { return Ok(None) };
    match state(&raw) {
        BoxState::Running(pid) if pid > 0 => {
            let reach =
                if session.is_here().await? { None } else { Some(reach(session, Exec::of(hmz_wire::relay_argv())).await?) };
            Ok(Some(Started { id: id.to_owned(), name: name.to_owned(), pid, node: None, reach }))
        }
        _ => Ok(None),
    }
}

/// How a box on the daemon is reached by an exec.
///
/// # Errors
/// There is no way to the daemon.
pub async fn reach(session: &Session<'_>, exec: Exec) -> Result<Reach, DriverError> {
    let near = match &session.way {
        Way::Unix(_) => None,
        _ => Some(session.api.road().socket().await.map_err(|why| session.fault(Fault::Silent(why)))?),
    };
    Ok(Reach { way: session.way.clone(), near, exec })
}

fn could_not_start(session: &Session<'_>, spec: &BoxSpec, fault: Fault) -> DriverError {
    match fault {
        // that it has no such GPU, or no way to give it, is said as if it were in trouble
        Fault::Said(_, words) if !spec.share.gpus.is_empty() && gpus::cannot_give(&words) => {
            image::could_not_start(&session.api, &spec.image, &words)
        }
        // nor does it tell what a runtime's arguments ask for from its own trouble
        Fault::Said(500.., words) if words.contains("error gathering device information") => {
            image::could_not_start(&session.api, &spec.image, &words)
        }
        // a daemon in trouble may do better later; what it says of the request itself stays so
        Fault::Said(500.., words) if !session.shared.troubles.stays(&spec.key, &words, session.same_words()) => {
            DriverError::Transient(image::could_not_start(&session.api, &spec.image, &words).to_string())
        }
        Fault::Said(_, words) => image::could_not_start(&session.api, &spec.image, &words),
        silent @ Fault::Silent(_) => session.fault(silent),
    }
}

fn ended_at_once(session: &Session<'_>, spec: &BoxSpec) -> DriverError {
    image::could_not_start(&session.api, &spec.image, "its first process ended at once")
}

/// Removes what belongs to a key.
///
/// # Errors
/// The daemon does not answer or cannot remove it.
pub async fn remove(session: &Session<'_>, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
    let n = forget(session, key, |_| true).await?;
    failpoint::pass("docker.removed");
    Ok(if n > 0 { RemoveOutcome::Removed } else { RemoveOutcome::Absent })
}

async fn forget(session: &Session<'_>, key: &BoxKey, which: impl Fn(&Listed) -> bool) -> Result<usize, DriverError> {
    let (listed, _) = session.of_key(key).await?;
    let mut n = 0;
    // the box before its holds, so that a share is not free while its box still runs
    let (boxes, holds): (Vec<_>, Vec<_>) = listed.iter().filter(|l| which(l)).partition(|l| l.purpose == Purpose::Box);
    for one in boxes.into_iter().chain(holds) {
        attached::leave(session, one).await?;
        session.remove_id(&one.id).await?;
        n += 1;
    }
    Ok(n)
}

/// The state of the box of a key, whose container is `id` unless somebody made another. `None`: there is none.
///
/// # Errors
/// The daemon does not answer.
pub async fn find(session: &Session<'_>, key: &BoxKey, id: &str) -> Result<Option<BoxState>, DriverError> {
    let is_it = |l: &Listed| l.purpose == Purpose::Box && l.key.as_ref().is_some_and(|k| is_same_box(k, key));
    if let Some(raw) = session.inspect_raw(id).await?
        && Listed::of_inspect(&raw).is_some_and(|l| is_it(&l) && l.attached.is_none())
    {
        return Ok(Some(state(&raw)));
    }
    // another container, or what stands for the box in one that is not ours
    let (listed, _) = session.of_key(key).await?;
    match listed.iter().find(|l| is_it(l)) {
        Some(one) => state_of(session, one).await,
        None => Ok(None),
    }
}

/// The state of a listed container; `None`: it went away meanwhile.
async fn state_of(session: &Session<'_>, one: &Listed) -> Result<Option<BoxState>, DriverError> {
    if one.state == "created" && one.attached.is_none() {
        return Ok(Some(BoxState::Created));
    }
    let raw = session.inspect_raw(one.attached.as_ref().unwrap_or(&one.id)).await?;
    Ok(raw.as_ref().map(state))
}

/// Every container with our labels. One that goes away meanwhile is left out.
///
/// # Errors
/// The daemon does not answer.
pub async fn list(session: &Session<'_>) -> Result<Vec<ObservedBox>, DriverError> {
    let all = session.all().await?;
    let looked = futures::stream::iter(all.boxes.iter().cloned()).map(|one| async move {
        let Some(state) = state_of(session, &one).await? else { return Ok(None) };
        Ok(Some(ObservedBox {
            id: one.id,
            name: one.name,
            labels: one.labels,
            state,
            created: one.created,
            program: one.program,
        }))
    });
    looked.buffered(TOGETHER).try_filter_map(|one| async { Ok(one) }).try_collect().await
}

/// Reads the state of an inspected container. That the kernel killed it for memory is as the daemon has it: on cgroup v1
/// some daemons hear of the end first and then never say so.
pub fn state(raw: &Value) -> BoxState {
    let at = |name: &str| raw.pointer(&format!("/State/{name}"));
    if at("Running").and_then(Value::as_bool).unwrap_or(false) {
        let pid = at("Pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        return BoxState::Running(pid);
    }
    if at("Status").and_then(Value::as_str) == Some("created") {
        return BoxState::Created;
    }
    BoxState::Exited(Exit {
        code: at("ExitCode").and_then(Value::as_i64),
        oom: at("OOMKilled").and_then(Value::as_bool).unwrap_or(false),
        // a daemon that does not know says the year 1
        at: at("FinishedAt").and_then(Value::as_str).filter(|t| !t.starts_with("0001-")).and_then(|t| t.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_read() {
        let running = json!({"State": {"Status": "running", "Running": true, "Pid": 12}});
        assert_eq!(state(&running), BoxState::Running(12));
        let oom = json!({"State": {"Status": "exited", "Running": false, "ExitCode": 137, "OOMKilled": true,
            "FinishedAt": "2026-11-30T00:00:00.5Z"}});
        let at = "2026-11-30T00:00:00.5Z".parse().ok();
        assert_eq!(state(&oom), BoxState::Exited(Exit { code: Some(137), oom: true, at }));
        let unknown = json!({"State": {"Status": "dead", "ExitCode": null, "FinishedAt": "0001-01-01T00:00:00Z"}});
        assert_eq!(state(&unknown), BoxState::Exited(Exit { code: None, oom: false, at: None }));
        assert_eq!(state(&json!({"State": {"Status": "created"}})), BoxState::Created);
    }
}
