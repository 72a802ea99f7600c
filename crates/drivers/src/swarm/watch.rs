//! That something happened to some box. A swarm tells of its services and nodes, and of no task: they are looked at, and it is told
//! when they are not what they were.

use super::manager::Manager;
use super::seen::Service;
use crate::docker::DockerDriver;
use crate::driver::{BoxEvent, BoxEvents};
use crate::error::DriverError;
use crate::types::Target;
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;

/// How often they are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is of interest of one service: which it is, as of when, and each task's state, what is wanted of it, and where it is.
type Shown = (String, u64, Vec<(String, String, String, String)>);

fn shown(services: &[Service]) -> Vec<Shown> {
    let mut all: Vec<Shown> = services
        .iter()
        .filter(|s| s.purpose != crate::types::Purpose::Lock)
        .map(|s| {
            let mut tasks: Vec<_> = s
                .tasks
                .iter()
                .map(|t| (t.id.clone(), t.state.clone(), t.desired.clone(), t.container.clone().unwrap_or_default()))
                .collect();
            tasks.sort();
            (s.id.clone(), s.version, tasks)
        })
        .collect();
    all.sort();
    all
}

/// Events until the manager does not answer, which is the stream's last item.
///
/// # Errors
/// The manager does not answer.
pub async fn events(docker: &Arc<DockerDriver>, target: &Target) -> Result<BoxEvents, DriverError> {
    let first = look(docker, target).await?;
    let (docker, target) = (Arc::clone(docker), target.clone());
    let stream = futures::stream::unfold(Some(first), move |before| {
        let (docker, target) = (Arc::clone(&docker), target.clone());
        async move {
            let before = before?;
            loop {
                tokio::time::sleep(LOOK).await;
                match look(&docker, &target).await {
                    Ok(now) if now == before => {}
                    Ok(now) => return Some((Ok(BoxEvent::Any), Some(now))),
                    Err(error) => return Some((Err(error), None)),
                }
            }
        }
    });
    Ok(stream.boxed())
}

async fn look(docker: &DockerDriver, target: &Target) -> Result<Vec<Shown>, DriverError> {
    let manager = Manager::of(docker, target).await?;
    Ok(shown(&manager.services(&[]).await?.0))
}
