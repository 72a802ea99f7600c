//! What the controllers are given of this machine: docker, runner processes, files, flows, settings.

use crate::callers::Callers;
use crate::epics;
use crate::files::Files;
use crate::guarded::Guarded;
use crate::paths::Paths;
use crate::runners::RunnerProcesses;
use crate::serve::Config;
use crate::settings::SettingsFile;
use async_trait::async_trait;
use hmz_api::clock::SharedClock;
use hmz_api::grammar::AgentSpec;
use hmz_api::kinds::{BoxedAgent, FlowSpec, Run, RunSpec, Runtime, RuntimeSpec};
use hmz_api::launch::{BoxAddress, CallerContext, RunLaunch, Told};
use hmz_api::{Backend, Error, Resource, RuntimeRef};
use hmz_controllers::{Carrier, InUse, RunnerState, SettingsSnapshot, World};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, SavedHosts, config_dir};
use hmz_drivers::swarm::SwarmDriver;
use hmz_drivers::{BoxKey, Driver, GuestFiles};
use hmz_store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

/// The world of one daemon, its runner processes, and the names of runs whose runner ended.
///
/// # Errors
/// When the state directory cannot be used.
pub(crate) fn build(
    config: &Config,
    store: &Store,
    callers: &Arc<Callers>,
    clock: SharedClock,
    instance: &str,
    settings: watch::Receiver<SettingsSnapshot>,
) -> Result<(World, Arc<RunnerProcesses>, mpsc::UnboundedReceiver<String>), Error> {
    let paths = &config.paths;
    let instance = instance.to_owned();
    let hosts = Arc::new(Hosts(store.clone()));
    let files = Files::new(paths, &instance, config.guest)?;
    let guest = files.guest().to_owned();
    let who = identity(&instance, &config.env, paths.runtime.join("d"), guest, hosts, Arc::clone(&clock));
    let docker = Arc::new(DockerDriver::new(who));
    let swarm: Arc<dyn Driver> = Arc::new(SwarmDriver::new(Arc::clone(&docker)));
    let docker: Arc<dyn Driver> = docker;
    // the copy: a runner and its supervisors outlive an upgrade that replaces or removes the binary this daemon was started from
    let executable = files.program().to_owned();
    let (runners, ended) = RunnerProcesses::new(executable.clone());
    let runners = Arc::new(runners);
    let world = World {
        store: store.clone(),
        drivers: BTreeMap::from([(Backend::Docker, docker), (Backend::Swarm, swarm)]),
        clock: Arc::clone(&clock),
        seed: Uuid::new_v4().as_u64_pair().0,
        carrier: Carrier::new(crate::secret::secret(paths)?, &config.env),
        instance,
        runners: Arc::new(Runners { processes: Arc::clone(&runners), executable }),
        files: Arc::new(BoxFiles { files, guarded: Guarded::new(paths, config.env.get("HOME").map(PathBuf::from)), clock }),
        probe: Arc::new(GuestProbe),
        callers: Arc::clone(callers) as Arc<dyn hmz_controllers::Callers>,
        flows: Arc::new(Flows { home: paths.home.clone() }),
        epics: Arc::new(Epics(paths.clone())),
        settings,
        spans: hmz_telemetry::collects().then(|| Arc::new(hmz_telemetry::Ended::tell) as _),
    };
    Ok((world, runners, ended))
}

/// Who makes containers from here. `sockets` is for those of daemons over ssh, `guest` is its program, `hosts` says what endpoints `ssh:NAME` are.
pub(crate) fn identity(
    instance: &str,
    env: &BTreeMap<String, String>,
    sockets: PathBuf,
    guest: PathBuf,
    hosts: Arc<dyn SavedHosts>,
    clock: SharedClock,
) -> DockerIdentity {
    let uid = rustix::process::getuid().as_raw();
    DockerIdentity {
        instance: instance.to_owned(),
        uid,
        gid: rustix::process::getgid().as_raw(),
        user_name: user_name(uid, env),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        docker_config_dir: config_dir(env).unwrap_or_default(),
        sockets,
        guest,
        hosts,
        clock,
    }
}

/// settings.yaml of a home.
pub(crate) fn settings_file(paths: &Paths, env: &BTreeMap<String, String>) -> SettingsFile {
    let home = env.get("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let context = hmz_manifest::Context { base: paths.home.clone(), home: Some(home) };
    SettingsFile { path: paths.settings(), context }
}

/// The user's name: /etc/passwd says it (no other source: a lookup would load libraries), else USER, else the number.
fn user_name(uid: u32, env: &BTreeMap<String, String>) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    passwd.lines().find_map(of).or_else(|| env.get("USER").cloned()).unwrap_or_else(|| uid.to_string())
}

/// Saved ssh hosts, which endpoints of docker runtimes name.
struct Hosts(Store);

#[async_trait]
impl SavedHosts for Hosts {
    async fn find(&self, name: &str) -> Option<RuntimeSpec> {
        let name = RuntimeRef::named(Backend::Ssh, name).resource_name();
        let found = self.0.get::<Runtime>(&name).await.ok().flatten()?;
        let readable =
            !found.status.conditions.is_false(hmz_api::kinds::condition::SETTINGS_VALID) && !found.metadata.is_deleting();
        readable.then_some(found.spec)
    }
}

struct Runners {
    processes: Arc<RunnerProcesses>,
    executable: PathBuf,
}

#[async_trait]
impl hmz_controllers::Runners for Runners {
    async fn check(&self, run: &RunSpec, flow: &FlowSpec, caller: &CallerContext, here: &BTreeSet<String>) -> Result<(), Error> {
        hmz_flows::check(&run.flow, flow, &run.task, &run.params)?;
        hmz_flows::check_agents(&run.agents, caller, here, &self.executable)
    }

    async fn is_here(&self, agent: &AgentSpec, caller: &CallerContext) -> Result<(), Error> {
        hmz_flows::is_here(agent, caller, &self.executable)
    }

    fn boxed(&self, agent: &AgentSpec) -> Option<BoxedAgent> {
        hmz_flows::boxed(agent, &self.executable)
    }

    async fn start(&self, launch: RunLaunch) -> Result<String, Error> {
        self.processes.start(&launch).await
    }

    async fn find(&self, epic: &str) -> Option<String> {
        self.processes.find(epic)
    }

    async fn observe(&self, runner: &str, epic: &str) -> RunnerState {
        self.processes.observe(runner, epic)
    }

    async fn cancel(&self, runner: &str) {
        self.processes.cancel(runner);
    }

    async fn kill(&self, runner: &str) {
        self.processes.kill(runner);
    }
}

struct BoxFiles {
    files: Files,
    guarded: Guarded,
    clock: SharedClock,
}

#[async_trait]
impl hmz_controllers::BoxFiles for BoxFiles {
    async fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error> {
        self.files.prepare(key)
    }

    async fn prepare_second(&self, key: &BoxKey, serves: &BoxKey) -> Result<GuestFiles, Error> {
        self.files.prepare_second(key, serves)
    }

    async fn remove(&self, key: &BoxKey) -> Result<(), Error> {
        self.files.remove(key)
    }

    async fn sweep(&self, used: &InUse) -> Result<(), Error> {
        let (files, used, clock) = (self.files.clone(), used.clone(), Arc::clone(&self.clock));
        // it reads directories, and what a box left may be a large tree
        let swept = tokio::task::spawn_blocking(move || {
            files.sweep(&used.boxes, &*clock);
            used.programs.map_or(Ok(()), |programs| files.keep_programs(&programs))
        });
        swept.await.unwrap_or_else(|e| Err(Error::failed(format!("the sweep: {e}"))))
    }

    async fn refusal(&self, workdir: &str, caller: &CallerContext) -> Option<String> {
        self.guarded.refusal(workdir, caller)
    }
}

struct GuestProbe;

#[async_trait]
impl hmz_controllers::GuestProbe for GuestProbe {
    async fn check(&self, address: &BoxAddress) -> Result<(), String> {
        let link = address.link.clone();
        // it blocks for as long as a guest may take to answer
        let asked = tokio::task::spawn_blocking(move || hmz_wire::Client::open(&link, true, None).map(drop));
        match asked.await {
            Ok(answer) => answer.map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl hmz_controllers::Callers for Callers {
    fn get(&self, uid: Uuid) -> Option<CallerContext> {
        Callers::get(self, uid)
    }

    fn latest(&self) -> Option<CallerContext> {
        Callers::latest(self)
    }
}

struct Flows {
    home: PathBuf,
}

#[async_trait]
impl hmz_controllers::Flows for Flows {
    async fn find(&self, name: &str, cwd: &str) -> Result<(FlowSpec, String), Error> {
        let found = hmz_flows::find(name, Path::new(if cwd.is_empty() { "/" } else { cwd }), &self.home)?;
        Ok((found.spec, found.source))
    }
}

struct Epics(Paths);

#[async_trait]
impl hmz_controllers::Epics for Epics {
    async fn open(&self, run: &Resource<Run>, _cwd: &str) -> Result<String, Error> {
        epics::open(&self.0, run)
    }

    async fn tell(&self, epic: &str, told: &Told) -> Result<(), Error> {
        epics::tell(Path::new(epic), told)
    }
}
