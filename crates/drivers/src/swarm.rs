//! A docker swarm: a box is a service of one task, which the swarm's scheduler puts on a node.
//!
//! The task reserves its share of its node and is limited to it. Nothing is remembered between calls but what is of any daemon that
//! is spoken to: the truth is what the manager lists.

mod admission;
mod arguments;
mod life;
mod manager;
mod names;
mod nodes;
mod place;
mod reach;
mod seen;
mod service;
mod task;
mod watch;
mod weigh;

use crate::docker::DockerDriver;
use crate::driver::{BoxEvents, Driver, ProgressSink};
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, BoxSpec, Ending, Facts, ObservedBox, Promised, RemoveOutcome, Started, Target, Want};
use admission::Askers;
use async_trait::async_trait;
use hmz_api::rest::Usage;
use hmz_api::way::Way;
use manager::Manager;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The driver for swarms. It speaks to managers and nodes as the driver for docker does to daemons.
pub struct SwarmDriver {
    docker: Arc<DockerDriver>,
    asking: Mutex<HashMap<Way, Arc<Askers>>>,
}

impl SwarmDriver {
    /// A driver that shares its connections with that one.
    pub fn new(docker: Arc<DockerDriver>) -> Self {
        Self { docker, asking: Mutex::default() }
    }

    /// Those who ask the swarm of a manager that is reached in that way.
    fn askers(&self, way: &Way) -> Arc<Askers> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(asking.entry(way.clone()).or_default())
    }

    async fn manager<'a>(&'a self, target: &'a Target) -> Result<Manager<'a>, DriverError> {
        Manager::of(&self.docker, target).await
    }
}

#[async_trait]
impl Driver for SwarmDriver {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        let manager = Manager::anew(&self.docker, target).await?;
        let nodes = manager.nodes().await?;
        Ok(nodes::facts(manager.session.facts().await?, &nodes, &target.spec.constraints))
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        let manager = self.manager(target).await?;
        admission::admit(&manager, &self.askers(&manager.session.way), wants).await
    }

    async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        gone: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        weigh::weigh(&self.manager(target).await?, wants, promised, gone).await
    }

    async fn renew(&self, target: &Target, keys: &[BoxKey]) -> Result<(), DriverError> {
        admission::renew(&self.manager(target).await?, keys).await
    }

    async fn ensure_image(&self, target: &Target, _image: &str, _progress: ProgressSink) -> Result<(), DriverError> {
        // the node that takes the task pulls it, and which one that is the scheduler says
        self.manager(target).await.map(drop)
    }

    async fn place(&self, target: &Target, spec: &BoxSpec, progress: ProgressSink) -> Result<(), DriverError> {
        place::place(&self.manager(target).await?, spec, &progress).await.map(drop)
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        let silent: ProgressSink = Arc::new(|_| {});
        life::start(&self.manager(target).await?, &self.docker, spec, &silent).await
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        life::list(&self.manager(target).await?).await
    }

    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
        life::remove(&self.manager(target).await?, key).await
    }

    async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        life::ending(&self.manager(target).await?, id).await
    }

    async fn usage(&self, target: &Target, id: &str, node: Option<&str>) -> Result<Usage, DriverError> {
        reach::usage(&self.manager(target).await?, &self.docker, id, node).await
    }

    async fn events(&self, target: &Target) -> Result<BoxEvents, DriverError> {
        watch::events(&self.docker, target).await
    }
}
