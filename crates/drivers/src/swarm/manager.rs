//! A swarm's manager as one runtime sees it: the requests that several pieces share.

use super::nodes::Node;
use super::seen::Service;
use super::service::Maker;
use super::task::Task;
use crate::docker::DockerDriver;
use crate::docker::api::{Fault, encoded};
use crate::docker::session::Session;
use crate::error::DriverError;
use crate::types::{BoxKey, Target};
use hmz_api::labels;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// A manager, spoken to for one target.
pub struct Manager<'a> {
    /// The daemon.
    pub session: Session<'a>,
    /// What it said of itself.
    pub info: Arc<Value>,
    /// Whether it is this machine.
    pub is_here: bool,
    /// Makes services.
    pub maker: Maker<'a>,
}

impl<'a> Manager<'a> {
    /// The manager of a target.
    ///
    /// # Errors
    /// The daemon does not answer, or manages no swarm.
    pub async fn of(docker: &'a DockerDriver, target: &'a Target) -> Result<Self, DriverError> {
        Self::from(docker.session(target).await?).await
    }

    /// The same; the daemon is asked anew what it speaks.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub async fn anew(docker: &'a DockerDriver, target: &'a Target) -> Result<Self, DriverError> {
        Self::from(docker.session_at(target, true).await?).await
    }

    async fn from(session: Session<'a>) -> Result<Self, DriverError> {
        let machine = session.machine().await?;
        let at = session.at();
        let swarm = |name: &str| machine.info.pointer(&format!("/Swarm/{name}"));
        let state = swarm("LocalNodeState").and_then(Value::as_str).filter(|s| !s.is_empty()).unwrap_or("inactive");
        if state != "active" {
            return Err(DriverError::Refused(format!("{at} is in no active swarm: its swarm is {state}")));
        }
        if !swarm("ControlAvailable").and_then(Value::as_bool).unwrap_or(false) {
            let text = format!("{at} is a worker of its swarm, and only a manager can be asked");
            return Err(DriverError::Refused(text));
        }
        let maker = Maker { who: session.who, target: session.target };
        Ok(Self { info: Arc::clone(&machine.info), is_here: machine.here, session, maker })
    }

    /// The runtime as refusals say it.
    pub fn at(&self) -> String {
        self.session.at()
    }

    /// The id of the node it is itself.
    pub fn node(&self) -> &str {
        self.info.pointer("/Swarm/NodeID").and_then(Value::as_str).unwrap_or_default()
    }

    /// Every service with the labels of the contract, and also those given (`name` or `name=value`), with its tasks.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn services(&self, also: &[String]) -> Result<(Vec<Service>, Option<Timestamp>), DriverError> {
        self.listed(also).await.map_err(|f| self.session.fault(f))
    }

    /// The same, and what the manager says when it does not.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn listed(&self, also: &[String]) -> Result<(Vec<Service>, Option<Timestamp>), Fault> {
        let mut filter = vec![labels::UID.to_owned()];
        filter.extend_from_slice(also);
        let filters = encoded(&json!({"label": filter}).to_string());
        let answer = self.session.api.get(&format!("/services?filters={filters}")).await?;
        let entries = answer.json.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut services: Vec<Service> = entries.iter().filter_map(Service::of).collect();
        if services.iter().any(Service::may_have_tasks) {
            let tasks = self.tasks(&filters).await?;
            for service in &mut services {
                service.tasks = tasks.iter().filter(|t| t.service == service.id).cloned().collect();
            }
        }
        Ok((services, answer.now))
    }

    /// The tasks that a filter, encoded, lets through.
    ///
    /// # Errors
    /// The manager does not answer.
    async fn tasks(&self, filters: &str) -> Result<Vec<Task>, Fault> {
        let answer = self.session.api.get(&format!("/tasks?filters={filters}")).await?;
        Ok(answer.json.as_array().into_iter().flatten().filter_map(Task::of).collect())
    }

    /// The tasks that the swarm wants to run, whoever's they are.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn wanted_tasks(&self) -> Result<Vec<Task>, DriverError> {
        let wanted = encoded(&json!({"desired-state": ["running"]}).to_string());
        self.tasks(&wanted).await.map_err(|f| self.session.fault(f))
    }

    /// The tasks of a key, those of a service that is gone too.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn tasks_of(&self, key: &BoxKey) -> Result<Vec<Task>, DriverError> {
        let labels = [
            format!("{}={}", labels::INSTANCE, key.instance),
            format!("{}={}", labels::ENV_UID, key.uid),
            format!("{}={}", labels::INCARNATION, key.incarnation),
        ];
        self.tasks(&encoded(&json!({"label": labels}).to_string())).await.map_err(|f| self.session.fault(f))
    }

    /// The services of a key.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn of_key(&self, key: &BoxKey) -> Result<(Vec<Service>, Option<Timestamp>), DriverError> {
        let (mut services, now) = self.services(&[format!("{}={}", labels::ENV_UID, key.uid)]).await?;
        services.retain(|s| s.is_of(key));
        Ok((services, now))
    }

    /// The service of a name or id, without its tasks; `None` when there is none.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn service(&self, name: &str) -> Result<Option<(Service, Option<Timestamp>)>, DriverError> {
        match self.session.api.get(&format!("/services/{}", encoded(name))).await {
            Ok(answer) => Ok(Service::of(&answer.json).map(|s| (s, answer.now))),
            Err(fault) if fault.status() == Some(404) => Ok(None),
            Err(fault) => Err(self.session.fault(fault)),
        }
    }

    /// Its nodes.
    ///
    /// # Errors
    /// The manager does not answer.
    pub async fn nodes(&self) -> Result<Vec<Node>, DriverError> {
        let answer = self.session.api.get("/nodes").await.map_err(|f| self.session.fault(f))?;
        Ok(answer.json.as_array().into_iter().flatten().filter_map(Node::of).collect())
    }

    /// Makes a service; its id.
    ///
    /// # Errors
    /// What the manager says of it.
    pub async fn create(&self, body: &Value) -> Result<String, Fault> {
        let answer = self.session.api.post("/services/create", Some(body)).await?;
        let id = answer.json.get("ID").and_then(Value::as_str).filter(|id| !id.is_empty());
        id.map(str::to_owned).ok_or_else(|| Fault::Silent("its answer has no service id".into()))
    }

    /// Makes a service something else, if it is still of that version.
    ///
    /// # Errors
    /// What the manager says of it.
    pub async fn update(&self, service: &Service, body: &Value) -> Result<(), Fault> {
        let path = format!("/services/{}/update?version={}", encoded(&service.id), service.version);
        self.session.api.post(&path, Some(body)).await.map(drop)
    }

    /// What a hold has become by an update, if it still counted until then: others may have been granted its share since it was
    /// looked at. One that did not is removed.
    ///
    /// # Errors
    /// It had aged out or is gone, or the manager does not answer.
    pub async fn kept(&self, hold: &Service, key: &BoxKey) -> Result<Service, DriverError> {
        match self.service(&hold.id).await? {
            Some((now, _)) if hold.counted_until(&now, self.session.limits.hold_age) => Ok(now),
            Some((now, _)) => {
                self.remove_id(&now.id).await?;
                Err(self.aged_out(key))
            }
            None => Err(self.aged_out(key)),
        }
    }

    /// Removes a service by its id; gone already is fine.
    ///
    /// # Errors
    /// The manager does not answer or cannot remove it.
    pub async fn remove_id(&self, id: &str) -> Result<(), DriverError> {
        match self.session.api.delete(&format!("/services/{}", encoded(id))).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.status() == Some(404) => Ok(()),
            Err(fault) => Err(self.session.fault(fault)),
        }
    }

    /// A service of that name is there and is not ours.
    pub fn foreign(&self, name: &str) -> DriverError {
        DriverError::Foreign(format!("{}: a service named {name} is there already, and is not one of hmz's", self.at()))
    }

    /// The share of a box is no longer held.
    pub fn aged_out(&self, key: &BoxKey) -> DriverError {
        DriverError::Transient(format!("{} no longer holds the share of '{}'", self.at(), key.role))
    }
}

/// Whether somebody else changed the service first.
pub fn is_outdated(fault: &Fault) -> bool {
    matches!(fault, Fault::Said(_, words) if words.contains("out of sequence"))
}
