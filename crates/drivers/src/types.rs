//! What controllers and drivers tell each other.

use crate::gpus::GpuAnswers;
use crate::labels::Labels;
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::reference::RuntimeRef;
use hmz_api::way::Reach;
use hmz_api::{Cpus, Memory};
use jiff::Timestamp;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// A runtime to work on.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its name, as refusals say it.
    pub runtime: RuntimeRef,
    /// What was saved.
    pub spec: RuntimeSpec,
    /// What endpoint `local` means to whoever asked, such as `unix:///var/run/docker.sock`; `None`: the driver finds out itself.
    pub local_endpoint: Option<String>,
}

/// Which box: names derive from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoxKey {
    /// The random id of this HMZ_HOME.
    pub instance: String,
    /// The environment's uid.
    pub uid: Uuid,
    /// The incarnation, from 1.
    pub incarnation: u64,
    /// The environment role, or the environment's name when it stands alone.
    pub role: String,
}

/// Whether two keys mean the same box: by uid and incarnation, of one instance.
pub fn is_same_box(a: &BoxKey, b: &BoxKey) -> bool {
    a.uid == b.uid && a.incarnation == b.incarnation && a.instance == b.instance
}

/// One box of a gang that wants to be admitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Want {
    /// Which box.
    pub key: BoxKey,
    /// The run's uid, when one owns it.
    pub run: Option<Uuid>,
    /// CPUs asked for; `None` asks for nothing.
    pub cpus: Option<Cpus>,
    /// Memory asked for.
    pub memory: Option<Memory>,
    /// GPUs asked for.
    pub gpus: Option<u32>,
    /// Memory each of them is to have at least.
    pub gpu_memory: Option<Memory>,
    /// The image its box will be of, with which GPUs are asked whether they answer; `None`: they are not.
    pub image: Option<String>,
}

/// Why there is no room. `Display` is the seed's sentence: `docker@gpubox has 4 of 4 CPUs free, and 'box' asks for 8`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Shortage {
    /// The sentence.
    pub message: String,
    /// Whether it could be admitted once others end (false: it asks for more than the runtime hands out in all).
    pub could_fit: bool,
}

/// The answer to an admission.
#[derive(Debug, Clone, PartialEq)]
pub enum Admitted {
    /// A hold stands for each box, with its share in the order asked.
    Held(Vec<Share>),
    /// None does.
    Short(Shortage),
}

/// A share that is not held yet, and is to be counted as if it were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promised {
    /// Which box it is for.
    pub key: BoxKey,
    /// Whose it is, as a refusal names its holder.
    pub name: String,
    /// The runtime it is promised through, as its label says.
    pub provider: String,
    /// The share.
    pub share: Share,
}

/// The files a box is given of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFiles {
    /// The guest's binary here, mounted read-only at [`hmz_wire::GUEST_PROGRAM`].
    pub program: PathBuf,
    /// The directory of its socket here, mounted at [`hmz_wire::GUEST_SOCKET_DIR`]. Made before, 0700, owned by the box's user.
    pub socket_dir: PathBuf,
    /// The scratch directory, mounted at the same path.
    pub scratch: PathBuf,
}

/// A box to make.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxSpec {
    /// Which box.
    pub key: BoxKey,
    /// The run's uid, when one owns it.
    pub run: Option<Uuid>,
    /// The image.
    pub image: String,
    /// The workdir, absolute, mounted at its own path.
    pub workdir: PathBuf,
    /// The share that was admitted.
    pub share: Share,
    /// CPUs and memory it is limited to: the share, or the runtime's allowance when it asked for nothing.
    pub limit: Share,
    /// How long it lives without an owner; `None`: until it is removed.
    pub lease: Option<Duration>,
    /// The files it is given of ours.
    pub guest: GuestFiles,
    /// Programs that have to be on its PATH; without one of them it is not started.
    pub programs: Vec<String>,
    /// The trace it is started in, a `traceparent`.
    pub trace: Option<String>,
}

/// A box that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The container's id.
    pub id: String,
    /// The container's name.
    pub name: String,
    /// Its pid 1 as its daemon's machine sees it.
    pub pid: i32,
    /// Of a swarm: the name of the node it is on.
    pub node: Option<String>,
    /// How its guest is reached, when that is not by the socket in the directory it was given.
    pub reach: Option<Reach>,
}

/// What a container of ours is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is the box.
    Box,
    /// It holds a share for a box that is not there yet.
    Hold,
    /// It is the admission lock.
    Lock,
    /// It asks a GPU whether it answers, and is gone soon.
    Probe,
    /// It was made by something else that writes the same labels.
    Foreign,
}

/// How a box ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit status; `None`: the daemon does not know.
    pub code: Option<i64>,
    /// Whether the kernel killed it for memory.
    pub oom: bool,
    /// When, if the daemon knows.
    pub at: Option<Timestamp>,
}

/// What a daemon remembers of how a box ended, beside its exit status. It forgets: nothing known is no fault.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ending {
    /// The exit status.
    pub code: Option<i64>,
    /// Whether the kernel killed something in it for memory just before.
    pub oom: bool,
    /// Whether somebody asked the daemon to stop it, which asks the first process to end and kills it when it does not.
    pub stopped: bool,
    /// Whether somebody asked the daemon to kill it, as a forced removal does.
    pub killed: bool,
    /// Whether one that was killed is gone, or was soon after.
    pub removed: bool,
    /// Why, where its backend says more than all that, in one sentence.
    pub why: Option<String>,
}

/// Whether a box runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxState {
    /// Made and not started.
    Created,
    /// Runs, with this pid 1 here.
    Running(i32),
    /// Ended.
    Exited(Exit),
}

/// A container with our labels, as the daemon lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedBox {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What its labels say, which reads as its own.
    pub labels: Labels,
    /// Whether it runs.
    pub state: BoxState,
    /// When it was made, by the daemon's clock.
    pub created: Option<Timestamp>,
    /// The guest's binary here that it was given, as the daemon tells it.
    pub program: Option<PathBuf>,
}

impl Deref for ObservedBox {
    type Target = Labels;

    fn deref(&self) -> &Labels {
        &self.labels
    }
}

/// What a daemon has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// CPUs it may hand out.
    pub cpus: Cpus,
    /// Memory it may hand out.
    pub memory: Memory,
    /// Whether it is rootless.
    pub rootless: bool,
    /// OCI runtimes it knows: the one it takes by itself first, then by name.
    pub runtimes: Vec<String>,
    /// Its GPUs by id; `None` when it may have some and does not say which.
    pub gpus: Option<Vec<String>>,
    /// Every id a GPU is listed by: a number, a uuid.
    pub gpu_names: Vec<String>,
    /// What they said last, as far as they were asked.
    pub gpu_answers: GpuAnswers,
    /// The address it was reached at.
    pub endpoint: String,
    /// Its clock.
    pub now: Option<Timestamp>,
    /// Of a swarm: the names of the nodes that may take its tasks. `None` of anything else.
    pub nodes: Option<Vec<String>>,
    /// Of a swarm: the kinds of generic resources they advertise.
    pub generic: Vec<String>,
    /// Of a container that is named: why nobody can work in it now.
    pub container: Option<String>,
    /// Of an ssh host: the home directory of whom it is worked as there.
    pub home: Option<String>,
    /// Of an ssh host: the memory that each of its GPUs has at least.
    pub gpu_memory: Option<Memory>,
}

/// What a removal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// Something was there and is gone.
    Removed,
    /// Nothing was there.
    Absent,
}
