//! Finding a box its place: its hold becomes a service of one task, and the scheduler puts that on a node.
//!
//! A task that no node has room for waits. It is refused at once when no node could ever hold it, and after [`PATIENCE`] since the
//! scheduler said so otherwise; with the scheduler's own words, and its service removed.

use super::manager::{Manager, is_outdated};
use super::nodes::{self, Amounts};
use super::seen::{HELD, Service};
use super::task::{Task, end_of};
use crate::docker::api::Fault;
use crate::docker::container::User;
use crate::docker::site::is_missing;
use crate::driver::{Progress, ProgressSink};
use crate::error::DriverError;
use crate::types::{BoxSpec, BoxState, Purpose};
use hmz_api::failpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long a task may wait for a node that has room.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take until it runs, beside its image's pull, which takes what it takes.
const STARTING: Duration = Duration::from_secs(600);
/// How often it is looked at: the swarm tells of no task's state by itself.
const LOOK: Duration = Duration::from_millis(200);
/// How often a hold may be changed by somebody else while it is taken.
const TRIES: usize = 4;

/// How long a task has been on its way, without what it was prepared for.
struct Starting {
    since: Instant,
}

impl Starting {
    /// Whether a task in that state is on its way for too long. `preparing` is when its node pulls the image; what comes after that
    /// has all its time again.
    fn takes_too_long(&mut self, state: &str, now: Instant) -> bool {
        if state == "preparing" {
            self.since = now;
        }
        now.saturating_duration_since(self.since) > STARTING
    }
}

/// A box that runs somewhere.
pub struct Placed {
    /// Its service.
    pub service: Service,
    /// Its task, with a container.
    pub task: Task,
}

/// Brings a box's task up, or finds it.
///
/// # Errors
/// No node takes it, it cannot be had as declared, its share is no longer held, a stranger has its name: then neither box nor hold is
/// left; or the manager does not answer.
pub async fn place(manager: &Manager<'_>, spec: &BoxSpec, progress: &ProgressSink) -> Result<Placed, DriverError> {
    let placed = async {
        let service = made(manager, spec, &manager.maker.name(&spec.key)).await?;
        waited(manager, spec, service, progress).await
    };
    match placed.await {
        Ok(placed) => Ok(placed),
        // the next look goes on from what is there
        Err(error @ DriverError::Unreachable { .. }) => Err(error),
        Err(error) => {
            super::life::forget(manager, &spec.key).await?;
            Err(error)
        }
    }
}

/// The service of the box, which its hold has become.
async fn made(manager: &Manager<'_>, spec: &BoxSpec, name: &str) -> Result<Service, DriverError> {
    for _ in 0..TRIES {
        let (services, now) = manager.of_key(&spec.key).await?;
        let there = services.into_iter().find(|s| s.name == name);
        let Some(there) = there else {
            return Err(match manager.service(name).await? {
                Some(_) => manager.foreign(name),
                None => manager.aged_out(&spec.key),
            });
        };
        if there.purpose == Purpose::Box {
            // whoever made it of its hold may have died before it was looked at
            if there.became_too_late(manager.session.limits.hold_age) {
                return Err(manager.aged_out(&spec.key));
            }
            return Ok(there);
        }
        if !there.counts(now, manager.session.limits.hold_age) {
            return Err(manager.aged_out(&spec.key));
        }
        let user = manager.is_here.then_some(User { uid: manager.session.who.uid, gid: manager.session.who.gid });
        let limited = limited(manager, spec).await?;
        let mut body =
            manager.maker.boxed(&limited, user).map_err(|why| DriverError::Refused(format!("{}: {why}", manager.at())))?;
        if let (Some(held), Some(labels)) = (there.updated.or(there.created), body["Labels"].as_object_mut()) {
            labels.insert(HELD.into(), held.to_string().into());
        }
        match manager.update(&there, &body).await {
            Ok(()) => {
                failpoint::pass("swarm.created");
                return manager.kept(&there, &spec.key).await;
            }
            Err(fault) if is_outdated(&fault) || fault.status() == Some(404) => {}
            Err(Fault::Said(400..500, words)) => return Err(could_not(manager, spec, &words)),
            Err(fault) => return Err(manager.session.fault(fault)),
        }
    }
    Err(DriverError::Transient(format!("{}: the hold of '{}' changes all the time", manager.at(), spec.key.role)))
}

/// The box with a limit that every node it may land on takes: an engine refuses one above its own CPUs. That is the allowance of one
/// that asks for none; what one reserves its node has.
async fn limited(manager: &Manager<'_>, spec: &BoxSpec) -> Result<BoxSpec, DriverError> {
    let mut spec = spec.clone();
    if let (None, Some(allowed)) = (spec.share.cpus, spec.limit.cpus) {
        let constraints = &manager.session.target.spec.constraints;
        let nodes = manager.nodes().await?;
        let open = nodes.iter().filter(|n| n.may_take_tasks() && constraints.iter().all(|c| n.answers(c)));
        spec.limit.cpus = open.map(|n| n.has.cpus()).min().map(|least| least.min(allowed)).or(Some(allowed));
    }
    Ok(spec)
}

fn could_not(manager: &Manager<'_>, spec: &BoxSpec, words: &str) -> DriverError {
    let (at, image, address) = (manager.at(), &spec.image, manager.session.api.address());
    DriverError::Refused(format!("{at}: could not start a container of {image} on {address}: {}", words.trim()))
}

/// Waits until the task runs.
async fn waited(manager: &Manager<'_>, spec: &BoxSpec, service: Service, progress: &ProgressSink) -> Result<Placed, DriverError> {
    let (at, mut starting) = (manager.at(), Starting { since: Instant::now() });
    let mut waiting: Option<Instant> = None;
    let mut told = String::new();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let (services, _) = manager.of_key(&spec.key).await?;
        let Some(service) = services.into_iter().find(|s| s.id == service.id) else {
            return Err(DriverError::Transient(format!("{at}: the service {} was removed meanwhile", service.name)));
        };
        let task = match service.tasks.as_slice() {
            [task] => task.clone(),
            [] => Task { state: "new".into(), ..Task::default() },
            several => {
                let why = end_of(&several.iter().collect::<Vec<_>>(), &[]).unwrap_or_default();
                return Err(DriverError::Transient(format!("{at}: {}: {why}", service.name)));
            }
        };
        if matches!(task.box_state(), BoxState::Running(_)) && task.container.is_some() {
            return Ok(Placed { service, task });
        }
        if task.is_over() || task.is_given_up() {
            return Err(ended(manager, spec, &service, &task).await?);
        }
        if !task.node.is_empty() && !names.contains_key(&task.node) {
            names = manager.nodes().await?.into_iter().map(|n| (n.id, n.hostname)).collect();
        }
        let on = names.get(&task.node).map(|n| format!(" on {n}")).unwrap_or_default();
        let text = match (task.waits(), task.state.as_str()) {
            (Some(words), _) => format!("waiting for a node: {words}"),
            (None, "preparing") => format!("pulling {}{on}", spec.image),
            (None, _) => format!("starting{on}"),
        };
        if text != told {
            progress(Progress { text: text.clone() });
            told = text;
        }
        match task.waits() {
            None => waiting = None,
            Some(words) => {
                let since = match waiting {
                    Some(since) => since,
                    None => {
                        if let Some(why) = impossible(manager, &task).await? {
                            return Err(DriverError::Refused(format!("{at}: {why} ({words})")));
                        }
                        *waiting.insert(Instant::now())
                    }
                };
                if since.elapsed() > PATIENCE {
                    return Err(DriverError::NoRoom(format!("{at}: no node took it within {}s: {words}", PATIENCE.as_secs())));
                }
            }
        }
        if starting.takes_too_long(&task.state, Instant::now()) {
            let (name, state, said) = (&service.name, &task.state, &task.said);
            let text = format!("{at}: the task of {name} was not running within {}s: it is {state}: {said}", STARTING.as_secs());
            return Err(DriverError::Refused(text));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why no node could ever hold a task; `None` when it only has to wait for others of hmz's to end.
async fn impossible(manager: &Manager<'_>, task: &Task) -> Result<Option<String>, DriverError> {
    let nodes = manager.nodes().await?;
    let (services, _) = manager.services(&[]).await?;
    // what is hmz's or of the other implementation ends some time
    let ends: BTreeSet<&str> = services.iter().map(|s| s.id.as_str()).collect();
    let mut staying: BTreeMap<String, Amounts> = BTreeMap::new();
    for other in manager.wanted_tasks().await?.iter().filter(|t| t.takes() && !ends.contains(t.service.as_str())) {
        staying.entry(other.node.clone()).or_default().add(&other.reserves);
    }
    Ok(nodes::impossible(&nodes, &staying, &manager.session.target.spec.constraints, &task.reserves))
}

/// Why a task that never ran has ended.
async fn ended(manager: &Manager<'_>, spec: &BoxSpec, service: &Service, task: &Task) -> Result<DriverError, DriverError> {
    let (at, dir) = (manager.at(), spec.workdir.display());
    let said = task.said.trim();
    if is_missing(said) && said.contains("bind source") {
        let text = format!("{at}: no directory to give the task on the node it landed on: {said}: {dir}");
        return Ok(DriverError::Refused(text));
    }
    let nodes = manager.nodes().await?;
    let node = nodes.iter().find(|n| n.id == task.node);
    let on = node.map(|n| format!(" on {}", n.hostname)).unwrap_or_default();
    if node.is_some_and(|n| n.state != "ready") || (task.is_given_up() && !task.is_over()) {
        let why = end_of(&[task], &nodes).unwrap_or_else(|| format!("its task is given up{on}"));
        return Ok(DriverError::Transient(format!("{at}: {}: {why}", service.name)));
    }
    if task.state == "rejected" {
        return Ok(DriverError::Refused(format!("{at}: could not start a container of {}{on}: {said}", spec.image)));
    }
    Ok(DriverError::Refused(format!("{at}: the task of {} is {}{on}: {said}", service.name, task.state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_takes_what_it_takes_and_what_comes_after_has_its_own_time() {
        let began = Instant::now();
        let at = |n: u64| began + Duration::from_secs(n);
        let mut starting = Starting { since: began };
        assert!(!starting.takes_too_long("assigned", at(599)));
        assert!(!starting.takes_too_long("preparing", at(601)));
        assert!(!starting.takes_too_long("preparing", at(7200)));
        assert!(!starting.takes_too_long("starting", at(7800)));
        assert!(starting.takes_too_long("starting", at(7801)));
        assert!(Starting { since: began }.takes_too_long("accepted", at(601)));
    }
}
