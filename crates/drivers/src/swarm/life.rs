//! Start, listing and removal of a box. Each may be cancelled anywhere and repeated: what is there is looked at, not remembered.

use super::manager::Manager;
use super::place::{self, Placed};
use super::reach::reach;
use super::seen::Service;
use super::task::{Task, end_of};
use crate::docker::DockerDriver;
use crate::driver::ProgressSink;
use crate::error::DriverError;
use crate::types::{BoxKey, BoxSpec, BoxState, Ending, ObservedBox, Purpose, RemoveOutcome, Started};
use hmz_api::failpoint;
use std::time::Duration;
use tokio::time::Instant;

/// How long what a removed service left on its node is waited for. A node nobody hears of ends it when it is heard of again.
const GOING: Duration = Duration::from_secs(30);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Starts a box, or adopts the one that is there.
///
/// # Errors
/// It cannot be had as declared, its share is no longer held, a stranger has its name, or the manager does not answer.
pub async fn start(
    manager: &Manager<'_>,
    docker: &DockerDriver,
    spec: &BoxSpec,
    progress: &ProgressSink,
) -> Result<Started, DriverError> {
    let placed: Placed = place::place(manager, spec, progress).await?;
    failpoint::pass("swarm.placed");
    match reach(manager, docker, spec, &placed).await {
        Ok(started) => Ok(started),
        Err(error) => {
            if !matches!(error, DriverError::Unreachable { .. }) {
                let _ = forget(manager, &spec.key).await;
            }
            Err(error)
        }
    }
}

/// Removes what belongs to a key.
///
/// # Errors
/// The manager does not answer or cannot remove it.
pub async fn remove(manager: &Manager<'_>, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
    let n = forget(manager, key).await?;
    failpoint::pass("swarm.removed");
    Ok(if n > 0 { RemoveOutcome::Removed } else { RemoveOutcome::Absent })
}

/// Removes the service of a key, and waits until its task is gone where it can be.
pub async fn forget(manager: &Manager<'_>, key: &BoxKey) -> Result<usize, DriverError> {
    let (services, _) = manager.of_key(key).await?;
    // those of a service that was removed before are there until their nodes have ended them
    let mut n = services.len();
    for service in &services {
        manager.remove_id(&service.id).await?;
    }
    let deadline = Instant::now() + GOING;
    loop {
        let mut left = manager.tasks_of(key).await?;
        left.retain(Task::takes);
        if left.is_empty() {
            break;
        }
        n = n.max(1);
        let nodes = manager.nodes().await?;
        let heard_of = left.iter().any(|t| nodes.iter().any(|n| n.id == t.node && n.state == "ready"));
        if !heard_of || Instant::now() >= deadline {
            tracing::warn!("{}: the swarm has still to end a task of '{}' on its node", manager.at(), key.role);
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(n)
}

/// Every service with our labels.
///
/// # Errors
/// The manager does not answer.
pub async fn list(manager: &Manager<'_>) -> Result<Vec<ObservedBox>, DriverError> {
    let (services, _) = manager.services(&[]).await?;
    Ok(services.into_iter().map(observed).collect())
}

fn observed(service: Service) -> ObservedBox {
    let state = if service.purpose == Purpose::Hold { BoxState::Created } else { service.state() };
    let container = service.tasks.first().and_then(|t| t.container.clone());
    let given: Vec<String> = service.tasks.iter().flat_map(|t| t.given.iter().cloned()).collect();
    let mut labels = service.labels;
    let share = &mut labels.share;
    // of GPUs without ids, as many as there are, each told from another box's
    if given.is_empty() {
        share.gpus = (1..).zip(&share.gpus).map(|(n, kind)| format!("{kind} {n} of {}", service.name)).collect();
    } else {
        share.gpus = given;
    }
    ObservedBox {
        id: container.unwrap_or(service.id),
        name: service.name,
        labels,
        state,
        created: service.created,
        program: None,
    }
}

/// How the box of a container ended.
///
/// # Errors
/// The manager does not answer.
pub async fn ending(manager: &Manager<'_>, id: &str) -> Result<Option<Ending>, DriverError> {
    let (services, _) = manager.services(&[]).await?;
    let of_container = |s: &&Service| s.tasks.iter().any(|t| t.container.as_deref() == Some(id));
    let Some(service) = services.iter().find(of_container) else { return Ok(None) };
    let BoxState::Exited(exit) = service.state() else { return Ok(None) };
    let nodes = manager.nodes().await?;
    let tasks: Vec<_> = service.tasks.iter().collect();
    Ok(Some(Ending { code: exit.code, why: end_of(&tasks, &nodes), ..Ending::default() }))
}
