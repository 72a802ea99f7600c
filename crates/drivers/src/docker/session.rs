//! One daemon as one runtime sees it: the requests that several pieces share, and the words of their failures.

use super::api::{Api, Fault, encoded};
use super::capacity::{Gpus, Total};
use super::gpus::answers::Known;
use super::labels::{Entry, Listed};
use super::listing::{Listing, Shared};
use super::road::Road;
use super::trouble::Troubles;
use super::way::Way;
use super::{DockerIdentity, Limits, gpus, names};
use crate::error::DriverError;
use crate::types::{BoxKey, Facts, Target, is_same_box};
use hmz_api::{Cpus, Memory};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long what a daemon said of its machine is good for. `/info` is by far its slowest answer: it starts other programs to
/// ask them for their versions. Several pieces of one start need it, and every event of a container has the runtime looked at.
const FRESH: Duration = Duration::from_secs(5);

/// How many times longer the same words of another daemon than podman are taken for trouble of its own.
const ELSEWHERE: u32 = 12;

/// How often a listing is asked for at most, where containers go away while it is made.
const LOOKS: usize = 50;

/// What a daemon said of itself that no container changes.
#[derive(Debug, Clone)]
pub struct Machine {
    facts: Facts,
    /// Whether it runs without root.
    pub rootless: bool,
    /// Whether it gives ids in its containers other users outside.
    pub remapped: bool,
    /// Whether it labels what its containers may reach.
    pub selinux: bool,
    /// Whether it is podman, in whose archives everything is the container's user's.
    pub podman: bool,
    /// Whether it is this machine: its paths are the ones here, and its processes too.
    pub here: bool,
    /// All of it.
    pub info: Arc<Value>,
    learned: Instant,
}

impl Machine {
    /// Reads what it says, reached at `endpoint`. `socket`: that is a socket here, which may still lead elsewhere.
    pub fn of(info: &Value, endpoint: String, socket: bool) -> Self {
        let text = |name: &str| info.get(name).and_then(Value::as_str).unwrap_or_default();
        let options = info.get("SecurityOptions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let has = |name: &str| {
            options.iter().filter_map(Value::as_str).any(|o| o.split(',').any(|part| part.strip_prefix("name=") == Some(name)))
        };
        let own = rustix::system::uname();
        let name = info.get("Name").and_then(Value::as_str).filter(|n| !n.is_empty());
        let here = socket && name.is_none_or(|name| own.nodename().to_bytes() == name.as_bytes());
        let (cpus, memory) = machine(info);
        let runtimes = info.get("Runtimes").and_then(Value::as_object);
        let mut runtimes: Vec<String> = runtimes.into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let default = text("DefaultRuntime");
        runtimes.sort_by_key(|name| (name.as_str() != default, name.clone()));
        let rootless = has("rootless");
        let (version, now) = (text("ServerVersion").to_owned(), text("SystemTime").parse().ok());
        let (gpus, gpu_names) = (gpus::listed(info), gpus::names(info));
        let facts = Facts { version, cpus, memory, rootless, runtimes, gpus, gpu_names, endpoint, now, ..Facts::default() };
        Self {
            facts,
            rootless,
            remapped: has("userns"),
            selinux: has("selinux"),
            podman: info.get("BuildahVersion").is_some(),
            here,
            info: Arc::new(info.clone()),
            learned: Instant::now(),
        }
    }

    /// The facts, with the daemon's clock gone on since, and what its GPUs said.
    fn now(mut self, known: &Known) -> Facts {
        self.facts.gpu_answers = known.answers();
        self.facts.now = self.facts.now.and_then(|then| then.checked_add(self.learned.elapsed()).ok());
        self.facts
    }
}

/// What all who speak to one daemon have in common.
#[derive(Debug, Default)]
pub struct Common {
    /// Held by whoever brings it a guest.
    pub bringing: tokio::sync::Mutex<()>,
    /// Held by whoever of this process asks it for shares.
    pub admitting: tokio::sync::Mutex<()>,
    /// Whether the last of them found no room.
    pub is_full: AtomicBool,
    /// What it says again and again of what it cannot start.
    pub troubles: Troubles,
    /// What its GPUs said.
    pub gpus: Known,
    /// The listing of all its containers.
    pub all: Shared<Listing, Fault>,
}

/// A daemon, spoken to for one target.
pub struct Session<'a> {
    /// The connection.
    pub api: Api,
    /// How it is made.
    pub way: Way,
    /// What the daemon said last of its machine.
    pub machine: Arc<Mutex<Option<Machine>>>,
    /// What those who speak to it have in common.
    pub shared: Arc<Common>,
    /// The runtime.
    pub target: &'a Target,
    /// Who asks.
    pub who: &'a DockerIdentity,
    /// Ages and deadlines.
    pub limits: &'a Limits,
}

impl Session<'_> {
    /// The runtime as refusals say it.
    pub fn at(&self) -> String {
        self.target.runtime.at()
    }

    /// The value of the provider label.
    pub fn provider(&self) -> &str {
        self.target.runtime.provider()
    }

    /// What the runtime says its boxes' names begin with.
    pub fn name_prefix(&self) -> Option<&str> {
        self.target.spec.name_prefix.as_deref()
    }

    /// What they begin with.
    pub fn prefix(&self) -> String {
        names::prefix(self.provider(), self.name_prefix())
    }

    /// No answer is "unreachable"; a no of the daemon's is worth another try unless the caller knows better.
    pub fn fault(&self, fault: Fault) -> DriverError {
        match fault {
            Fault::Silent(why) => unreachable(&self.at(), &self.api, &why),
            Fault::Said(_, words) => DriverError::Transient(format!("{}: {words}", self.at())),
        }
    }

    /// A container of that name is there and is not ours.
    pub fn foreign(&self, name: &str) -> DriverError {
        DriverError::Foreign(format!("{}: a container named {name} is there already, and is not one of hmz's", self.at()))
    }

    /// The id in an answer to a create.
    ///
    /// # Errors
    /// There is none.
    pub fn id_of(&self, answer: &Value) -> Result<String, DriverError> {
        let id = answer.get("Id").and_then(Value::as_str).filter(|id| !id.is_empty());
        id.map(str::to_owned).ok_or_else(|| self.fault(Fault::Silent("its answer has no container id".into())))
    }

    /// What `/info` says now.
    async fn info(&self) -> Result<Machine, DriverError> {
        let info = self.api.get("/info").await.map_err(|f| match f {
            Fault::Said(_, words) => unreachable(&self.at(), &self.api, &words),
            silent @ Fault::Silent(_) => self.fault(silent),
        })?;
        let errors = info.json.get("ServerErrors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if let Some(first) = errors.iter().find_map(Value::as_str) {
            return Err(unreachable(&self.at(), &self.api, first));
        }
        let learned = Machine::of(&info.json, self.api.address(), matches!(**self.api.road(), Road::Unix(_)));
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = Some(learned.clone());
        Ok(learned)
    }

    /// What it said of its machine a moment ago, or says now.
    ///
    /// # Errors
    /// The daemon does not answer or is itself in trouble.
    pub async fn machine(&self) -> Result<Machine, DriverError> {
        let known = self.machine.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known.filter(|machine| machine.learned.elapsed() < FRESH) {
            Some(known) => Ok(known),
            None => self.info().await,
        }
    }

    /// How long the daemon says the same of one box's start before that is taken for an answer. Podman says most of what it refuses
    /// as if it were in trouble; of any other, what it says so is more often trouble that passes, and a refusal is final.
    pub fn same_words(&self) -> Duration {
        let podman = self.machine.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|machine| machine.podman);
        if podman { self.limits.same_words } else { self.limits.same_words * ELSEWHERE }
    }

    /// What the daemon has, as of a moment ago at most.
    ///
    /// # Errors
    /// The daemon does not answer or is itself in trouble.
    pub async fn facts(&self) -> Result<Facts, DriverError> {
        Ok(self.machine().await?.now(&self.shared.gpus))
    }

    /// Whether the daemon is this machine, which does not change while it is spoken to.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn is_here(&self) -> Result<bool, DriverError> {
        let known = self.machine.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|machine| machine.here);
        match known {
            Some(here) => Ok(here),
            None => Ok(self.machine().await?.here),
        }
    }

    /// What the runtime hands out: what was saved, else what the daemon has. GPUs are only looked for when some are wanted, and
    /// none is asked.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn total(&self, with_gpus: bool) -> Result<Total, DriverError> {
        let spec = &self.target.spec;
        let containers = spec.max_containers.filter(|n| *n > 0);
        let saved = Gpus { ids: spec.gpus.clone(), answers: self.shared.gpus.answers(), memory: spec.gpu_memory };
        if let (Some(cpus), Some(memory), false) = (spec.cpus, spec.memory, with_gpus && spec.gpus.is_empty()) {
            return Ok(Total { cpus, memory, containers, unit: "containers", gpus: saved });
        }
        let Facts { cpus, memory, gpus, .. } = self.machine().await?.facts;
        let ids = if saved.ids.is_empty() { gpus.unwrap_or_default() } else { saved.ids.clone() };
        Ok(Total {
            cpus: spec.cpus.unwrap_or(cpus),
            memory: spec.memory.unwrap_or(memory),
            containers,
            unit: "containers",
            gpus: Gpus { ids, ..saved },
        })
    }

    /// Every container with the labels of the contract, as of after this call.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn all(&self) -> Result<Arc<Listing>, DriverError> {
        let listing = async {
            let (boxes, now) = self.listed(&[]).await?;
            Ok(Listing { boxes, now })
        };
        self.shared.all.get(listing).await.map_err(|f| self.fault(f))
    }

    /// The containers with the labels of the contract that also have those given (`name` or `name=value`).
    async fn listed(&self, also: &[String]) -> Result<(Vec<Listed>, Option<Timestamp>), Fault> {
        let mut filter = vec![hmz_api::labels::UID.to_owned()];
        filter.extend_from_slice(also);
        let filters = encoded(&json!({"label": filter}).to_string());
        let path = format!("/containers/json?all=1&filters={filters}");
        let mut tries = 0;
        let (entries, now) = loop {
            tries += 1;
            match self.api.list::<Entry>(&path).await {
                // podman lists nothing when one of them goes away meanwhile, and another look finds the others
                Err(fault) if fault.status() == Some(404) && tries < LOOKS => {}
                other => break other?,
            }
        };
        Ok((entries.iter().filter_map(Listed::of_entry).collect(), now))
    }

    /// The box and the holds of a key, made through this runtime; nothing that is not ours.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn of_key(&self, key: &BoxKey) -> Result<(Vec<Listed>, Option<Timestamp>), DriverError> {
        let also = [format!("{}={}", hmz_api::labels::ENV_UID, key.uid)];
        let (mut listed, now) = self.listed(&also).await.map_err(|f| self.fault(f))?;
        listed.retain(|l| l.key.as_ref().is_some_and(|k| is_same_box(k, key)));
        Ok((listed, now))
    }

    /// The container of a name or id; `None` when there is none.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn inspect(&self, name: &str) -> Result<Option<Listed>, DriverError> {
        Ok(self.inspect_raw(name).await?.as_ref().and_then(Listed::of_inspect))
    }

    /// As [`Self::inspect`], whole.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub async fn inspect_raw(&self, name: &str) -> Result<Option<Value>, DriverError> {
        match self.api.get(&format!("/containers/{}/json", encoded(name))).await {
            Ok(answer) => Ok(Some(answer.json)),
            Err(fault) if fault.status() == Some(404) => Ok(None),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    /// Removes a container by its id and waits until it is gone; gone already is fine.
    ///
    /// # Errors
    /// The daemon does not answer or cannot remove it.
    pub async fn remove_id(&self, id: &str) -> Result<(), DriverError> {
        match self.api.delete(&format!("/containers/{}?force=1&v=1", encoded(id))).await {
            Ok(_) => Ok(()),
            Err(fault) if fault.status() == Some(404) => Ok(()),
            // somebody removes it at this moment: wait until that is done
            Err(fault) if fault.status() == Some(409) => {
                match self.api.post(&format!("/containers/{}/wait?condition=removed", encoded(id)), None).await {
                    Ok(_) => Ok(()),
                    Err(fault) if fault.status() == Some(404) => Ok(()),
                    Err(fault) => Err(self.fault(fault)),
                }
            }
            Err(fault) => Err(self.fault(fault)),
        }
    }
}

/// CPUs and memory of the machine.
fn machine(info: &Value) -> (Cpus, Memory) {
    let number = |name: &str| info.get(name).and_then(Value::as_u64).unwrap_or(0);
    (Cpus::whole(number("NCPU")), Memory::from_bytes(number("MemTotal")))
}

/// Nothing is known of the daemon.
pub fn unreachable(at: &str, api: &Api, why: &str) -> DriverError {
    DriverError::Unreachable { at: at.to_owned(), why: format!("could not ask {} what it has: {why}", api.address()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn podman_is_known_by_what_it_alone_says() {
        let of = |info: Value| Machine::of(&info, "unix:///s".into(), true).podman;
        assert!(of(json!({"ServerVersion": "4.3.1", "BuildahVersion": "1.28.2"})) && !of(json!({"ServerVersion": "28.5.2"})));
    }
}
