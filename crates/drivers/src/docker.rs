//! Docker: a box is a container on a daemon reached over a Unix socket.
//!
//! Nothing is remembered between calls but which API version an endpoint speaks and what machine it is on: the truth is
//! what the daemon lists.

mod account;
mod admission;
mod api;
mod capacity;
mod container;
mod credentials;
mod empty_image;
mod endpoint;
mod holder;
mod image;
mod labels;
mod life;
mod names;
mod session;
mod watch;

pub use endpoint::{config_dir, resolve_local};

use crate::driver::{BoxEvents, Driver, ProgressSink};
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, BoxSpec, Facts, ObservedBox, RemoveOutcome, Started, Target, Want};
use api::Api;
use async_trait::async_trait;
use hmz_api::clock::SharedClock;
use hmz_api::kinds::Endpoint;
use serde_json::Value;
use session::{Machine, Session};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether somebody at an endpoint, as `unix:///var/run/docker.sock`, speaks docker's API within that time.
pub async fn answers(endpoint: &str, within: Duration) -> bool {
    let Some(socket) = endpoint.strip_prefix("unix://") else { return false };
    Api::new(PathBuf::from(socket), within).negotiate().await.is_ok()
}

/// Who makes containers.
#[derive(Clone)]
pub struct DockerIdentity {
    /// The random id of this HMZ_HOME.
    pub instance: String,
    /// The user's id: what boxes run as, and what their `humanize` label says.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The user's name, as USER and LOGNAME in a box.
    pub user_name: String,
    /// This machine's name, as holders are named by in refusals.
    pub hostname: String,
    /// Docker's own configuration, for registry sign-ins; see [`config_dir`].
    pub docker_config_dir: PathBuf,
    /// Time here. Ages go by the daemon's clock and not by this one.
    pub clock: SharedClock,
}

/// Ages and deadlines.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How old an admission lock gets before its holder is taken for gone, by the daemon's clock (to a second).
    pub lock_stale: Duration,
    /// How old a hold gets before it no longer counts, by the daemon's clock (to a second).
    pub hold_age: Duration,
    /// How long one answer of the daemon is waited for; a pull is not bounded.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lock_stale: Duration::from_secs(10), hold_age: Duration::from_secs(60), call: Duration::from_secs(60) }
    }
}

/// The driver for docker.
pub struct DockerDriver {
    who: DockerIdentity,
    limits: Limits,
    spoken: Mutex<HashMap<PathBuf, Spoken>>,
}

/// A daemon that was spoken to.
#[derive(Clone)]
struct Spoken {
    api: Api,
    /// What it said last of its machine.
    machine: Arc<Mutex<Option<Machine>>>,
}

impl DockerDriver {
    /// A driver with the usual ages and deadlines.
    pub fn new(who: DockerIdentity) -> Self {
        Self::with_limits(who, Limits::default())
    }

    /// A driver with ages and deadlines of its own.
    pub fn with_limits(who: DockerIdentity, limits: Limits) -> Self {
        Self { who, limits, spoken: Mutex::default() }
    }

    fn spoken(&self) -> MutexGuard<'_, HashMap<PathBuf, Spoken>> {
        self.spoken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn negotiate(&self, target: &Target, socket: &Path) -> Result<Api, DriverError> {
        let api = Api::new(socket.to_path_buf(), self.limits.call);
        api.clone().negotiate().await.map_err(|f| session::unreachable(&target.runtime.at(), &api, &f.to_string()))
    }

    async fn session<'a>(&'a self, target: &'a Target) -> Result<Session<'a>, DriverError> {
        let socket = socket_of(target)?;
        let known = self.spoken().get(&socket).cloned();
        let Spoken { api, machine } = match known {
            Some(spoken) => spoken,
            None => {
                let api = self.negotiate(target, &socket).await?;
                let spoken = Spoken { api, machine: Arc::default() };
                self.spoken().insert(socket, spoken.clone());
                spoken
            }
        };
        Ok(Session { api, machine, target, who: &self.who, limits: &self.limits })
    }
}

/// The socket a target is reached at.
fn socket_of(target: &Target) -> Result<PathBuf, DriverError> {
    let at = target.runtime.at();
    let address = match &target.spec.endpoint {
        Endpoint::Unix(path) => return Ok(PathBuf::from(path)),
        Endpoint::Other(text) => {
            let text = format!("{at} is at '{text}': a daemon reached over tcp or ssh is not supported yet");
            return Err(DriverError::Refused(text));
        }
        Endpoint::Local => match &target.local_endpoint {
            Some(address) => address.clone(),
            None => {
                let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
                resolve_local(&env)?
            }
        },
    };
    match address.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => {
            let text = format!("{at} is at '{address}': a daemon reached over tcp or ssh is not supported yet");
            Err(DriverError::Refused(text))
        }
    }
}

/// Whether a daemon that says this of itself runs without root.
fn is_rootless(info: &Value) -> bool {
    let options = info.get("SecurityOptions").and_then(Value::as_array);
    options.into_iter().flatten().filter_map(Value::as_str).any(|o| o.split(',').any(|part| part == "name=rootless"))
}

#[async_trait]
impl Driver for DockerDriver {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        // a daemon that was upgraded or downgraded meanwhile is asked anew what it speaks, and each time whether it answers
        let socket = socket_of(target)?;
        let api = match self.negotiate(target, &socket).await {
            Ok(api) => api,
            Err(error) => {
                self.spoken().remove(&socket);
                return Err(error);
            }
        };
        if self.spoken().get(&socket).is_none_or(|known| known.api != api) {
            // of another one nothing is known yet
            self.spoken().insert(socket, Spoken { api, machine: Arc::default() });
        }
        let session = self.session(target).await?;
        session.facts().await
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        admission::admit(&self.session(target).await?, wants).await
    }

    async fn renew(&self, target: &Target, keys: &[BoxKey]) -> Result<(), DriverError> {
        admission::renew(&self.session(target).await?, keys).await
    }

    async fn ensure_image(&self, target: &Target, image: &str, progress: ProgressSink) -> Result<(), DriverError> {
        image::ensure(&self.session(target).await?, image, &progress).await
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        life::start(&self.session(target).await?, spec).await
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        life::list(&self.session(target).await?).await
    }

    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
        life::remove(&self.session(target).await?, key).await
    }

    async fn events(&self, target: &Target) -> Result<BoxEvents, DriverError> {
        watch::events(&self.session(target).await?).await
    }
}
