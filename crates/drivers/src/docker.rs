//! Docker: a box is a container on a daemon reached over a Unix socket.
//!
//! Nothing is remembered between calls but which API version an endpoint speaks, what machine it is on, and what was heard of
//! how boxes ended: the truth is what the daemon lists.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod api;
pub(crate) mod arguments;
mod attached;
pub(crate) mod capacity;
mod carry;
pub(crate) mod container;
mod context;
mod credentials;
mod empty_image;
mod ending;
mod endpoint;
mod gpus;
pub(crate) mod holder;
mod image;
mod kernel_log;
pub(crate) mod labels;
pub(crate) mod life;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod programs;
mod road;
pub(crate) mod session;
pub(crate) mod site;
mod tls;
mod trouble;
mod tunnel;
pub(crate) mod usage;
mod watch;
pub(crate) mod way;
mod weigh;

pub use carry::carry;
pub use endpoint::{config_dir, resolve_local};
pub use way::{NoHosts, SavedHosts};

use crate::driver::{BoxEvents, Driver, ProgressSink, Scales, ask_for_gpus};
use crate::error::DriverError;
use crate::gpus::GpuAnswers;
use crate::types::{
    Admitted, BoxKey, BoxSpec, BoxState, Ending, Facts, ObservedBox, Promised, RemoveOutcome, Started, Target, Want,
};
use api::Api;
use async_trait::async_trait;
use hmz_api::clock::SharedClock;
use hmz_api::rest::Usage;
use road::Road;
use session::{Common, Machine, Session};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use way::Way;

/// Whether somebody at an endpoint, as `unix:///var/run/docker.sock`, speaks docker's API within that time. One that is no
/// socket here is not asked, and taken for one that does.
pub async fn answers(endpoint: &str, within: Duration) -> bool {
    let Some(socket) = endpoint.strip_prefix("unix://") else { return true };
    let road = Arc::new(Road::Unix(PathBuf::from(socket)));
    Api::new(road, endpoint.to_owned(), within).negotiate().await.is_ok()
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
    /// A directory of this user's alone, with a short path, for the sockets of daemons that are reached over ssh.
    pub sockets: PathBuf,
    /// The guest's binary here, for what has to be taken out of a container by it.
    pub guest: PathBuf,
    /// Hosts saved as ssh runtimes, which endpoints name.
    pub hosts: Arc<dyn SavedHosts>,
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
    /// How long podman says the same of one box's start before that is taken for an answer. Another daemon's trouble is more often
    /// its own: of it, twelve times that.
    pub same_words: Duration,
    /// How long a GPU that is asked whether it answers is waited for.
    pub gpu_answers: Duration,
    /// How long what it said is good for.
    pub gpus_known: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lock_stale: Duration::from_secs(10),
            hold_age: Duration::from_secs(60),
            call: Duration::from_secs(60),
            same_words: Duration::from_secs(5),
            gpu_answers: Duration::from_secs(15),
            gpus_known: Duration::from_secs(300),
        }
    }
}

/// The driver for docker.
pub struct DockerDriver {
    who: DockerIdentity,
    limits: Limits,
    spoken: Mutex<HashMap<Way, Spoken>>,
    /// The first road of each way, which holds the sockets here: their paths are the way's own.
    first: Mutex<HashMap<Way, Arc<Road>>>,
    endings: ending::Endings,
}

/// A daemon that was spoken to.
#[derive(Clone)]
struct Spoken {
    api: Api,
    /// What it said last of its machine.
    machine: Arc<Mutex<Option<Machine>>>,
    shared: Arc<Common>,
}

impl DockerDriver {
    /// A driver with the usual ages and deadlines.
    pub fn new(who: DockerIdentity) -> Self {
        Self::with_limits(who, Limits::default())
    }

    /// A driver with ages and deadlines of its own.
    pub fn with_limits(who: DockerIdentity, limits: Limits) -> Self {
        Self { who, limits, spoken: Mutex::default(), first: Mutex::default(), endings: ending::Endings::default() }
    }

    fn spoken(&self) -> MutexGuard<'_, HashMap<Way, Spoken>> {
        self.spoken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A road of a way. Of two that want one at once both have the same sockets here.
    fn road(&self, way: &Way) -> Result<Arc<Road>, String> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = first.get(way) {
            return there.again(way);
        }
        let made = Arc::new(Road::new(way, &self.who.sockets)?);
        first.insert(way.clone(), Arc::clone(&made));
        Ok(made)
    }

    /// The daemon of a target.
    pub(crate) async fn session<'a>(&'a self, target: &'a Target) -> Result<Session<'a>, DriverError> {
        self.session_at(target, false).await
    }

    /// As [`Self::session`]; `anew`: the daemon is asked again what it speaks, and TLS material is read again. One that
    /// answers as it did keeps what is known of it.
    pub(crate) async fn session_at<'a>(&'a self, target: &'a Target, anew: bool) -> Result<Session<'a>, DriverError> {
        let at = target.runtime.at();
        let (way, address) = way::resolve(target, &self.who).await?;
        let known = self.spoken().get(&way).cloned();
        let Spoken { api, machine, shared } = match known {
            Some(spoken) if !anew => spoken,
            known => {
                let road = self.road(&way).map_err(|why| DriverError::Refused(format!("could not connect to {at}: {why}")))?;
                let api = Api::new(road, address, self.limits.call);
                let api = match api.clone().negotiate().await {
                    Ok(api) => api,
                    Err(fault) => {
                        if let Some(known) = &known {
                            known.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
                        }
                        return Err(session::unreachable(&at, &api, &fault.to_string()));
                    }
                };
                let (machine, shared) = match known {
                    Some(known) if known.api.speaks_as(&api) => (known.machine, known.shared),
                    // of another daemon nothing is known yet
                    Some(known) => {
                        known.shared.gpus.forget();
                        (Arc::default(), known.shared)
                    }
                    None => Default::default(),
                };
                let spoken = Spoken { api, machine, shared };
                self.spoken().insert(way.clone(), spoken.clone());
                spoken
            }
        };
        Ok(Session { api, way, machine, shared, target, who: &self.who, limits: &self.limits })
    }
}

#[async_trait]
impl Driver for DockerDriver {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        // a daemon that was upgraded or downgraded meanwhile is asked anew what it speaks, and each time whether it answers
        let session = self.session_at(target, true).await?;
        let container = match &target.spec.container {
            Some(container) => attached::lacks(&session, container).await?,
            None => None,
        };
        Ok(Facts { container, ..session.facts().await? })
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        let session = self.session(target).await?;
        match &target.spec.container {
            Some(container) => attached::admit(&session, container, wants).await,
            None => admission::admit(&session, wants).await,
        }
    }

    async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        gone: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        let session = self.session(target).await?;
        match &target.spec.container {
            Some(container) => attached::admit(&session, container, wants).await.map(Some),
            None => Ok(Some(weigh::look(&session, ask_for_gpus(wants)).await?.weigh(wants, promised, gone))),
        }
    }

    async fn scales(&self, target: &Target, gpus: bool) -> Result<Option<Box<dyn Scales>>, DriverError> {
        if target.spec.container.is_some() {
            return Ok(None); // whoever runs in it is asked for each time
        }
        Ok(Some(Box::new(weigh::look(&self.session(target).await?, gpus).await?)))
    }

    async fn gpus(&self, target: &Target, image: &str) -> Result<GpuAnswers, DriverError> {
        let session = self.session(target).await?;
        if target.spec.container.is_some() {
            return Ok(GpuAnswers::default());
        }
        let ids = session.total(true).await?.gpus.ids;
        gpus::ask::of_ids(&session, &ids, image).await
    }

    async fn tidy(&self, target: &Target) -> Result<(), DriverError> {
        gpus::ask::tidy(&self.session(target).await?).await
    }

    async fn renew(&self, target: &Target, keys: &[BoxKey]) -> Result<(), DriverError> {
        if target.spec.container.is_some() {
            return Ok(()); // nothing is held
        }
        admission::renew(&self.session(target).await?, keys).await
    }

    async fn has_image(&self, target: &Target, image: &str) -> Result<Option<bool>, DriverError> {
        let session = self.session(target).await?;
        match &target.spec.container {
            Some(_) => session.facts().await.map(|_| Some(true)), // it has its own
            None => image::labels_if_there(&session, image).await.map(|found| Some(found.is_some())),
        }
    }

    async fn ensure_image(&self, target: &Target, image: &str, progress: ProgressSink) -> Result<(), DriverError> {
        if target.spec.container.is_some() {
            return Ok(()); // it has its own
        }
        image::ensure(&self.session(target).await?, image, &progress).await
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        life::start(&self.session(target).await?, spec).await
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        life::list(&self.session(target).await?).await
    }

    async fn find(&self, target: &Target, key: &BoxKey, id: &str) -> Result<Option<BoxState>, DriverError> {
        life::find(&self.session(target).await?, key, id).await
    }

    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
        life::remove(&self.session(target).await?, key).await
    }

    async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        ending::ending(&self.session(target).await?, &self.endings, id).await
    }

    async fn usage(&self, target: &Target, id: &str, _node: Option<&str>) -> Result<Usage, DriverError> {
        usage::usage(&self.session(target).await?, id).await
    }

    async fn events(&self, target: &Target) -> Result<BoxEvents, DriverError> {
        watch::events(&self.session(target).await?, &self.endings).await
    }
}
