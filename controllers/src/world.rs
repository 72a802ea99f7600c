//! Everything the controllers are given. They reach nothing else: no file, no process, no clock of the machine.

use crate::environment::address::Carrier;
use async_trait::async_trait;
use hmz_api::clock::SharedClock;
use hmz_api::grammar::AgentSpec;
use hmz_api::journal::Outcome;
use hmz_api::kinds::{BoxedAgent, FlowSpec, Run, RunSpec, RuntimeSpec};
use hmz_api::launch::{BoxAddress, CallerContext, RunLaunch, Told};
use hmz_api::{Backend, Error, Resource, RuntimeRef};
use hmz_drivers::{BoxKey, Driver, GuestFiles};
use hmz_store::Store;
use hmz_telemetry::Ended;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// What the controllers work on and with.
#[derive(Clone)]
pub struct World {
    /// The resources; the controllers write statuses, owned environments and runtimes of settings.yaml.
    pub store: Store,
    /// How each backend is driven. A backend that is absent is refused as not supported yet.
    pub drivers: BTreeMap<Backend, Arc<dyn Driver>>,
    /// What time it is. Delays are measured with `tokio::time`; the two have to run at the same pace.
    pub clock: SharedClock,
    /// The random id of this HMZ_HOME, which every box of ours carries.
    pub instance: String,
    /// What it knows of the ways to its boxes.
    pub carrier: Carrier,
    /// Where the jitter of delays begins; anything, and the same one in a simulation that is replayed.
    pub seed: u64,
    /// Runner processes.
    pub runners: Arc<dyn Runners>,
    /// Files a box is given.
    pub files: Arc<dyn BoxFiles>,
    /// Whether a guest answers.
    pub probe: Arc<dyn GuestProbe>,
    /// What verbs passed along.
    pub callers: Arc<dyn Callers>,
    /// Flows that are no resources: on disk and built in.
    pub flows: Arc<dyn Flows>,
    /// Journals.
    pub epics: Arc<dyn Epics>,
    /// settings.yaml, as it was last read.
    pub settings: watch::Receiver<SettingsSnapshot>,
    /// Who hears, in spans, of what is done; `None`: nobody does.
    pub spans: Option<Arc<dyn Fn(Ended) + Send + Sync>>,
}

/// What a runner is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerState {
    /// It is at work.
    Alive,
    /// Its journal ends with `Ended`: how, and one sentence. Holds whether or not the process is still there.
    Ended(Outcome, String),
    /// There is no such process, and its journal has no end.
    Died,
}

/// Runner processes, one a run. They outlive the daemon.
#[async_trait]
pub trait Runners: Send + Sync + 'static {
    /// Whether the run could do its flow's steps at all (texts that name what there is, agents that are known, and installed
    /// where their role is in `here`); asked before anything starts. A refusal is the run's.
    async fn check(&self, run: &RunSpec, flow: &FlowSpec, caller: &CallerContext, here: &BTreeSet<String>) -> Result<(), Error> {
        let _ = (run, flow, caller, here);
        Ok(())
    }

    /// Whether the CLI of one agent is installed here. A refusal is the run's.
    async fn is_here(&self, agent: &AgentSpec, caller: &CallerContext) -> Result<(), Error> {
        let _ = (agent, caller);
        Ok(())
    }

    /// What a box needs of an agent to run its CLI there; `None` when every box has it.
    fn boxed(&self, agent: &AgentSpec) -> Option<BoxedAgent> {
        let _ = agent;
        None
    }

    /// The runner that was started for the directory `epic` before (alive, ended or dead), if any: a daemon may have died
    /// between a start and its note of it. A runner says who it is in its directory, and holds it, before it does anything.
    async fn find(&self, epic: &str) -> Option<String>;

    /// Starts the runner of a run and says which it is, as `PID:STARTTIME`. Asked only when [`Runners::find`] found none; of
    /// two for one directory the second ends at once. `Refused` and `Usage` refuse the run, `Failed` and `NotFound` fail
    /// it, anything else is tried again.
    async fn start(&self, launch: RunLaunch) -> Result<String, Error>;

    /// What it is doing: from /proc, and from the journal in the directory `epic`.
    async fn observe(&self, runner: &str, epic: &str) -> RunnerState;

    /// Asks it to end (its journal then says `Cancelled`). Repeated until it did; nothing when it is gone.
    async fn cancel(&self, runner: &str);

    /// Ends it at once. Nothing when it is gone; never a process of another start time.
    async fn kill(&self, runner: &str);
}

/// What is in use of the files here, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InUse {
    /// Every box and hold on the daemon that was asked, whoever's it is.
    pub boxes: Vec<BoxKey>,
    /// The programs that boxes of this home were given; `None` when there may be others, or a runner of another one.
    pub programs: Option<Vec<PathBuf>>,
}

/// The files here that belong to a box.
#[async_trait]
pub trait BoxFiles: Send + Sync + 'static {
    /// Makes the socket's directory and the scratch directory; those that are there are kept.
    async fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error>;

    /// The same for the second box of `serves`: it has that one's scratch directory, which is made too, and a program that can
    /// supervise a CLI there.
    async fn prepare_second(&self, key: &BoxKey, serves: &BoxKey) -> Result<GuestFiles, Error> {
        let scratch = self.prepare(serves).await?.scratch;
        Ok(GuestFiles { scratch, ..self.prepare(key).await? })
    }

    /// Removes them; gone already is no error.
    async fn remove(&self, key: &BoxKey) -> Result<(), Error>;

    /// Removes what nobody will use or remove any more: directories of boxes of homes that are gone, copies of earlier
    /// programs. What may be in use stays.
    async fn sweep(&self, used: &InUse) -> Result<(), Error> {
        let _ = used;
        Ok(())
    }

    /// Why a box may not be given that directory of this machine, in one sentence; `None` when it may. Asked before
    /// anything starts.
    async fn refusal(&self, workdir: &str, caller: &CallerContext) -> Option<String> {
        let _ = (workdir, caller);
        None
    }
}

/// Whether the guest in a box answers.
#[async_trait]
pub trait GuestProbe: Send + Sync + 'static {
    /// Connects as an owner, which renews the lease, proves the peer and disconnects. Bounded by a few seconds. The error is
    /// one sentence.
    async fn check(&self, address: &BoxAddress) -> Result<(), String>;
}

/// What verbs passed along, in memory only; gone after a restart.
pub trait Callers: Send + Sync + 'static {
    /// Of a run's or an environment's uid.
    fn get(&self, uid: Uuid) -> Option<CallerContext>;

    /// Of whoever called last; says which daemon `local` is for runtimes nobody uses yet.
    fn latest(&self) -> Option<CallerContext> {
        None
    }
}

/// Flows on disk and built in. A stored Flow is looked up by the controllers first.
#[async_trait]
pub trait Flows: Send + Sync + 'static {
    /// The flow of that name for a caller in `cwd` (empty when unknown), and where it comes from. The error's message is the
    /// run's refusal.
    async fn find(&self, name: &str, cwd: &str) -> Result<(FlowSpec, String), Error>;
}

/// Journals' directories.
#[async_trait]
pub trait Epics: Send + Sync + 'static {
    /// Makes the directory of a run's journal and returns it. Idempotent by the run's uid.
    async fn open(&self, run: &Resource<Run>, cwd: &str) -> Result<String, Error>;

    /// Writes what became of a run's boxes beside its journal, whole or not at all. Again is no error.
    async fn tell(&self, epic: &str, told: &Told) -> Result<(), Error>;
}

/// settings.yaml, as far as controllers care.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SettingsSnapshot {
    /// The file's path, as refusals name it.
    pub path: String,
    /// Each runtime it names: its spec, or why the entry cannot be read (one sentence).
    pub runtimes: Vec<(RuntimeRef, Result<RuntimeSpec, String>)>,
    /// Why the file cannot be read at all; then `runtimes` says nothing and the last good state stays.
    pub problem: Option<String>,
    /// What is wrong beside the entries, such as a backend that is none; those entries are not in `runtimes`.
    pub faults: Vec<String>,
    /// Whether it has said so for a moment; what it does not name is gone only then.
    pub settled: bool,
}
