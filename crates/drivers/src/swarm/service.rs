//! What a service is as the manager is told: a hold, which has no task, or a box, which has one. Pure.
//!
//! A box's first process is a shell of its image's that waits until its guest was put beside it: which node it is to be put on is
//! known only when the task is there. It is nobody's for as long as a box's lease at most.

use super::arguments;
use super::names;
use super::seen::gpu_label;
use crate::docker::container::{ROOT_KEEPS, User, traced};
use crate::docker::{DockerIdentity, labels, names as docker_names};
use crate::types::{BoxKey, BoxSpec, Target};
use hmz_api::kinds::Share;
use hmz_api::labels as contract;
use hmz_wire::{GUEST_PROGRAM, GUEST_SOCKET_DIR, SOCKET_NAME};
use serde_json::{Map, Value, json};
use std::path::Path;
use uuid::Uuid;

/// The directory of what is ours in a box.
pub const OURS: &str = "/.hmz";
/// The file of it that is written last.
pub const WHOLE: &str = "/.hmz/whole";
/// The file that says whom the guest is to be, `UID:GID NAME`, where that is known on the node only.
pub const AS: &str = "/.hmz/as";
/// Processes and threads in a box, as docker's boxes have them.
const PIDS: u32 = 4096;
/// How long a task that is told to end may take, in nanoseconds.
const GRACE: u64 = 2_000_000_000;

/// Waits for the guest and becomes it; ends when nobody brings one in so many tenths of a second (`$1`, 0: never). A first process
/// without a handler is not told to end.
const WAITS: &str = "trap 'exit 0' TERM INT; n=0
while [ ! -e /.hmz/whole ]; do
  n=$((n + 1)); [ \"$1\" = 0 ] || [ \"$n\" -le \"$1\" ] || exit 0
  sleep 0.1 2>/dev/null || sleep 1 || exit 70
done
shift
as=; USER=; read -r as USER </.hmz/as; export USER LOGNAME=\"$USER\"
exec \"$@\" --user \"$as\"";

/// Whose services these are.
#[derive(Clone, Copy)]
pub struct Maker<'a> {
    /// Who makes them.
    pub who: &'a DockerIdentity,
    /// The runtime.
    pub target: &'a Target,
}

impl Maker<'_> {
    /// What the names of the runtime's boxes begin with.
    pub fn prefix(&self) -> String {
        names::prefix(self.target.runtime.provider(), self.target.spec.name_prefix.as_deref())
    }

    /// The name of a box.
    pub fn name(&self, key: &BoxKey) -> String {
        names::of_box(&self.prefix(), key)
    }

    fn labels(&self, key: &BoxKey, run: Option<Uuid>, share: &Share, purpose: &str) -> Map<String, Value> {
        let prefix = self.target.spec.name_prefix.as_deref();
        let mut map = labels::write(self.who, self.target.runtime.provider(), prefix, key, run, share, purpose);
        if let Some(gpus) = gpu_label(&share.gpus) {
            map.insert(contract::GPUS.into(), gpus.into());
        }
        map
    }

    /// The hold of a box. `renewed` is another one each time, so that the swarm takes it for changed.
    pub fn hold(&self, key: &BoxKey, run: Option<Uuid>, share: &Share, renewed: u64) -> Value {
        let mut labels = self.labels(key, run, share, "hold");
        labels.insert("hmz.renewed".into(), renewed.to_string().into());
        empty(&self.name(key), labels)
    }

    /// The service of a box.
    ///
    /// # Errors
    /// An argument of `run_args` that is refused, in one sentence.
    pub fn boxed(&self, spec: &BoxSpec, user: Option<User>) -> Result<Value, String> {
        let runtime = &self.target.spec;
        let User { uid, gid } = user.unwrap_or(User { uid: 0, gid: 0 });
        let lease = spec.lease.map_or(0, |lease| lease.as_secs().max(1));
        let wait = lease.saturating_mul(10).to_string();
        let mut words = vec!["hmz".to_owned(), wait, GUEST_PROGRAM.into(), "guest".into()];
        words.extend(["--socket".to_owned(), format!("{GUEST_SOCKET_DIR}/{SOCKET_NAME}"), "--channel".into()]);
        words.extend(["--lease".to_owned(), lease.to_string()]);
        words.extend(traced(spec));
        // as whoever looks at a node's containers reads them, and counts them beside its own
        let mut outside = Map::new();
        for (name, value) in self.labels(&spec.key, spec.run, &spec.share, "box") {
            if name == contract::PROVIDER {
                outside.insert(name, self.target.runtime.at().into());
            } else if name == contract::UID || (name.starts_with("humanize.") && name != contract::GPUS) {
                outside.insert(name, value);
            }
        }
        let (share, limit) = (&spec.share, &spec.limit);
        let mut reserved = Map::new();
        let mut limited = Map::from_iter([("Pids".to_owned(), PIDS.into())]);
        let nano = |cpus: hmz_api::Cpus| Value::from(cpus.millis().saturating_mul(1_000_000));
        for (to, of) in [(&mut reserved, share), (&mut limited, limit)] {
            to.extend(of.cpus.map(|cpus| ("NanoCPUs".to_owned(), nano(cpus))));
            to.extend(of.memory.map(|memory| ("MemoryBytes".to_owned(), memory.bytes().into())));
        }
        if let Some(kind) = share.gpus.first() {
            let discrete = json!([{"DiscreteResourceSpec": {"Kind": kind, "Value": share.gpus.len()}}]);
            reserved.insert("GenericResources".into(), discrete);
        }
        let mut env = vec!["HOME=/tmp".to_owned()];
        env.extend(share.gpus.is_empty().then(|| "NVIDIA_VISIBLE_DEVICES=void".to_owned()));
        let keeps: &[&str] = if uid == 0 { &ROOT_KEEPS } else { &[] };
        let mut body = json!({
            "Name": self.name(&spec.key),
            "Labels": self.labels(&spec.key, spec.run, share, "box"),
            "TaskTemplate": {
                "ContainerSpec": {
                    "Image": spec.image,
                    "Labels": outside,
                    "Command": ["/bin/sh", "-c", WAITS],
                    "Args": words,
                    "Env": env,
                    "Dir": spec.workdir,
                    "User": format!("{uid}:{gid}"),
                    "Mounts": [{"Type": "bind", "Source": spec.workdir, "Target": spec.workdir}],
                    "StopGracePeriod": GRACE,
                    "Init": false,
                    "Healthcheck": {"Test": ["NONE"]},
                    "CapabilityDrop": ["ALL"],
                    "CapabilityAdd": keeps,
                    "Privileges": {"NoNewPrivileges": true},
                },
                "Resources": {"Reservations": reserved, "Limits": limited},
                // one that ended stays ended: a node without the directory would be tried for ever
                "RestartPolicy": {"Condition": "none"},
                "Placement": {"Constraints": runtime.constraints},
                "LogDriver": {"Name": "json-file", "Options": {"max-size": "1m", "max-file": "1"}},
            },
            "Mode": {"Replicated": {"Replicas": 1}},
        });
        let ours: [&Path; 3] = [&spec.workdir, &spec.guest.scratch, Path::new(OURS)];
        arguments::put(&mut body, &runtime.run_args, &ours)?;
        Ok(body)
    }

    /// The admission lock.
    pub fn lock(&self, holder: &str) -> Value {
        empty(names::LOCK, labels::write_lock(self.who, holder))
    }
}

/// A service without a task.
fn empty(name: &str, labels: Map<String, Value>) -> Value {
    json!({
        "Name": name,
        "Labels": labels,
        "TaskTemplate": {
            "ContainerSpec": {"Image": format!("{}:{}", docker_names::EMPTY_IMAGE, docker_names::EMPTY_TAG), "Command": ["/never-started"]},
            "RestartPolicy": {"Condition": "none"},
        },
        "Mode": {"Replicated": {"Replicas": 0}},
    })
}
