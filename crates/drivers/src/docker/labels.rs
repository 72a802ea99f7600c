//! Labels written on a container, and containers as a listing shows them.

use super::DockerIdentity;
use super::capacity::Held;
use super::holder::Holder;
use super::names;
use crate::labels::{Labels, are_ours, text};
use crate::types::{BoxKey, Purpose};
use hmz_api::kinds::Share;
use hmz_api::labels;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// Who is in the critical section: a random word, so that a holder knows its own lock.
pub const HOLDER: &str = "hmz.holder";
/// Of the mark of an environment in a container that is not ours: that container's id.
pub const ATTACHED: &str = "hmz.attached";
/// The directories in it that are ours, a line each.
pub const ATTACHED_DIRS: &str = "hmz.attached.dirs";
/// The GPU that a container asks.
pub const ASKS: &str = "hmz.asks";
/// Which process that is; see [`Holder`].
pub const PROCESS: &str = "hmz.holder.process";

/// Labels of a box or of its hold.
pub fn write(
    who: &DockerIdentity,
    provider: &str,
    name_prefix: Option<&str>,
    key: &BoxKey,
    run: Option<Uuid>,
    share: &Share,
    purpose: &str,
) -> Map<String, Value> {
    let mut map = common(who, purpose);
    if let Some(prefix) = name_prefix {
        map.insert(labels::PREFIX.to_owned(), prefix.into());
    }
    let mut put = |name: &str, value: String| map.insert(name.to_owned(), Value::String(value));
    put(labels::PROVIDER, provider.to_owned());
    put(labels::ROLE, key.role.clone());
    put(labels::INSTANCE, key.instance.clone());
    put(labels::ENV_UID, key.uid.to_string());
    put(labels::INCARNATION, key.incarnation.to_string());
    if let Some(cpus) = share.cpus {
        put(labels::CPUS, cpus.to_string());
    }
    if let Some(memory) = share.memory {
        put(labels::MEMORY, memory.bytes().to_string());
    }
    if !share.gpus.is_empty() {
        put(labels::GPUS, share.gpus.join(","));
    }
    if let Some(run) = run {
        put(labels::RUN, run.to_string());
    }
    map
}

/// Labels of the admission lock.
pub fn write_lock(who: &DockerIdentity, holder: &str) -> Map<String, Value> {
    let mut map = common(who, "lock");
    map.insert(HOLDER.to_owned(), holder.into());
    map.insert(labels::INSTANCE.to_owned(), who.instance.clone().into());
    put_process(&mut map);
    map
}

/// Labels of a container that asks a GPU whether it answers. As of the lock, none names a runtime: whoever counts a runtime's boxes
/// by that counts it not.
pub fn write_probe(who: &DockerIdentity, gpu: &str) -> Map<String, Value> {
    let mut map = common(who, "probe");
    map.insert(labels::INSTANCE.to_owned(), who.instance.clone().into());
    map.insert(ASKS.to_owned(), gpu.into());
    put_process(&mut map);
    map
}

/// The process that makes it, where the system says which that is.
fn put_process(map: &mut Map<String, Value>) {
    if let Some(process) = Holder::own() {
        map.insert(PROCESS.to_owned(), process.to_string().into());
    }
}

fn common(who: &DockerIdentity, purpose: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert(labels::UID.to_owned(), who.uid.to_string().into());
    map.insert(labels::HOST.to_owned(), who.hostname.clone().into());
    map.insert(labels::PURPOSE.to_owned(), purpose.into());
    map
}

/// A container as a listing shows it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its name, without the slash.
    pub name: String,
    /// `created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`.
    pub state: String,
    /// When it was made, by the daemon's clock, to a second.
    pub created: Option<Timestamp>,
    /// What its labels say.
    pub labels: Labels,
    /// The generation of a hold.
    pub generation: u64,
    /// The process that made it, of the lock and of one that asks a GPU.
    pub holder: Option<Holder>,
    /// The container it stands for, when it is the mark of an environment in one that is not ours.
    pub attached: Option<String>,
    /// The directories in that one which are ours.
    pub attached_dirs: Vec<String>,
    /// The GPU that it asks.
    pub asks: Option<String>,
    /// What is mounted as the guest's binary.
    pub program: Option<PathBuf>,
    /// Whether labels of ours are on it at all.
    labelled_by_us: bool,
}

impl Deref for Listed {
    type Target = Labels;

    fn deref(&self) -> &Labels {
        &self.labels
    }
}

/// What is read of an entry of `/containers/json`. Most of what a daemon says there is of no interest, and takes the most time.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Entry {
    id: Value,
    names: Value,
    state: Value,
    created: Value,
    labels: Value,
    mounts: Option<Vec<Mount>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Mount {
    destination: Value,
    source: Value,
}

impl Listed {
    /// Reads one entry of `/containers/json`; `None` when it has no id or name.
    pub fn of_entry(entry: &Entry) -> Option<Self> {
        let id = entry.id.as_str()?;
        let name = entry.names.as_array()?.iter().filter_map(Value::as_str).map(bare).find(|n| !n.contains('/'))?;
        let state = entry.state.as_str().unwrap_or_default().to_ascii_lowercase();
        let created = entry.created.as_i64().and_then(|s| Timestamp::from_second(s).ok());
        let program = entry.mounts.iter().flatten().find(|m| m.destination.as_str() == Some(hmz_wire::GUEST_PROGRAM));
        let program = program.and_then(|mount| mount.source.as_str()).map(PathBuf::from);
        Some(Self { program, ..Self::new(id, name, &state, created, &entry.labels) })
    }

    /// Reads an answer of `/containers/NAME/json`; `None` when it has no id or name.
    pub fn of_inspect(entry: &Value) -> Option<Self> {
        let id = entry.get("Id")?.as_str()?;
        let name = bare(entry.get("Name")?.as_str()?);
        let state = entry.pointer("/State/Status").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        let created = entry.get("Created").and_then(Value::as_str).and_then(|t| t.parse().ok());
        let labels = entry.pointer("/Config/Labels").unwrap_or(&Value::Null);
        Some(Self { program: program(entry), ..Self::new(id, name, &state, created, labels) })
    }

    fn new(id: &str, name: &str, state: &str, created: Option<Timestamp>, map: &Value) -> Self {
        let mut generation = 0;
        let purpose = |word: &str, provider: &str, prefix: Option<&str>, key: Option<&BoxKey>| {
            let prefix = names::prefix(provider, prefix);
            match (word, key) {
                ("lock", _) if name == names::LOCK => Purpose::Lock,
                ("probe", _) if names::is_probe(name) => Purpose::Probe,
                ("box", Some(k)) if name == names::of_box(&prefix, k) => Purpose::Box,
                ("hold", Some(k)) => match names::generation(name, &prefix, k) {
                    Some(n) => {
                        generation = n;
                        Purpose::Hold
                    }
                    None => Purpose::Foreign,
                },
                _ => Purpose::Foreign,
            }
        };
        let labels = Labels::read(map, purpose, |gpus| gpus.split(',').map(str::to_owned).collect());
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            state: state.to_owned(),
            created,
            labels,
            generation,
            holder: text(map, PROCESS).and_then(|t| t.parse().ok()),
            attached: text(map, ATTACHED).map(str::to_owned),
            attached_dirs: text(map, ATTACHED_DIRS).map(|t| t.lines().map(str::to_owned).collect()).unwrap_or_default(),
            asks: text(map, ASKS).map(str::to_owned),
            program: None,
            labelled_by_us: are_ours(map),
        }
    }

    /// Whether its first process runs.
    pub fn runs(&self) -> bool {
        matches!(self.state.as_str(), "running" | "paused" | "restarting")
    }

    /// How long ago it was made, by the daemon's clock; zero when one of the two is not known.
    pub fn age(&self, now: Option<Timestamp>) -> Duration {
        match (now, self.created) {
            (Some(now), Some(created)) => now.duration_since(created).try_into().unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Whether its share counts: a box that runs or is about to, a hold that has not aged out, and a running box of the
    /// other implementation. A copy of our labels under another name holds nothing.
    pub fn counts(&self, now: Option<Timestamp>, hold_age: Duration) -> bool {
        match self.purpose {
            // it holds nothing of the daemon's
            Purpose::Box if self.attached.is_some() => false,
            Purpose::Box => self.runs() || self.state == "created",
            Purpose::Hold => self.age(now) < hold_age,
            Purpose::Lock | Purpose::Probe => false,
            Purpose::Foreign => !self.labelled_by_us && self.runs() && !self.provider.is_empty(),
        }
    }
}

/// The shares that count, a box and its holds once, without those of `except`.
pub fn held<'a>(
    listed: &[Listed],
    now: Option<Timestamp>,
    hold_age: Duration,
    provider: &str,
    except: impl IntoIterator<Item = &'a BoxKey>,
) -> Vec<Held> {
    let except: HashSet<(Uuid, u64, &str)> = except.into_iter().map(whose).collect();
    let mut keyed: HashMap<(Uuid, u64, &str), usize> = HashMap::new();
    let mut out: Vec<Held> = Vec::new();
    // boxes first, so that a refusal names the box rather than its hold
    let (boxes, rest): (Vec<_>, Vec<_>) = listed.iter().partition(|l| l.purpose == Purpose::Box);
    for one in boxes.into_iter().chain(rest).filter(|l| l.counts(now, hold_age)) {
        let (cpus, memory) = (one.share.cpus.unwrap_or_default(), one.share.memory.unwrap_or_default());
        if let Some(key) = &one.key {
            let whose = whose(key);
            if except.contains(&whose) {
                continue;
            }
            if let Some(held) = keyed.get(&whose).and_then(|at| out.get_mut(*at)) {
                // a hold and what replaces it say the same; should they not, the larger counts
                held.cpus = held.cpus.max(cpus);
                held.memory = held.memory.max(memory);
                let more: Vec<String> = one.share.gpus.iter().filter(|id| !held.gpus.contains(id)).cloned().collect();
                held.gpus.extend(more);
                continue;
            }
            keyed.insert(whose, out.len());
        }
        let (gpus, own) = (one.share.gpus.clone(), one.provider == provider);
        out.push(Held { name: one.name.clone(), host: one.host.clone(), cpus, memory, gpus, own });
    }
    out
}

/// What makes a box the same, whatever it is called: see [`crate::is_same_box`].
fn whose(key: &BoxKey) -> (Uuid, u64, &str) {
    (key.uid, key.incarnation, &key.instance)
}

/// What a container has mounted as the guest's binary.
fn program(entry: &Value) -> Option<PathBuf> {
    let mounts = entry.get("Mounts")?.as_array()?;
    let mount = mounts.iter().find(|m| m.get("Destination").and_then(Value::as_str) == Some(hmz_wire::GUEST_PROGRAM))?;
    mount.get("Source")?.as_str().map(PathBuf::from)
}

fn bare(name: &str) -> &str {
    name.strip_prefix('/').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::{Cpus, Memory};
    use serde_json::json;
    use std::sync::Arc;

    fn identity() -> DockerIdentity {
        DockerIdentity {
            instance: "inst".into(),
            uid: 7,
            gid: 7,
            user_name: "me".into(),
            hostname: "vm".into(),
            docker_config_dir: "/nowhere".into(),
            sockets: "/nowhere".into(),
            guest: "/nowhere".into(),
            hosts: Arc::new(crate::docker::NoHosts),
            clock: Arc::new(hmz_api::clock::SystemClock),
        }
    }

    fn key(incarnation: u64) -> BoxKey {
        BoxKey { instance: "inst".into(), uid: Uuid::from_u128(3), incarnation, role: "box".into() }
    }

    fn entry(name: &str, state: &str, created: i64, labels: Map<String, Value>) -> Listed {
        let entry = json!({"Id": "1", "Names": [format!("/{name}")], "State": state, "Created": created, "Labels": labels});
        Listed::of_entry(&serde_json::from_value(entry).unwrap()).unwrap()
    }

    #[test]
    fn of_an_entry_only_what_is_needed_is_read_and_what_is_odd_is_none() {
        let read = |entry: Value| Listed::of_entry(&serde_json::from_value(entry).unwrap());
        let mounts = json!([{"Type": "bind"}, {"Source": "/s/hmz", "Destination": hmz_wire::GUEST_PROGRAM, "RW": false}]);
        let one = json!({"Id": "1", "Names": ["/a/b", "/b"], "State": "Running", "Created": 7, "Labels": null, "Mounts": mounts,
            "Ports": [{"IP": "::", "PrivatePort": 1}], "NetworkSettings": {"Networks": {}}, "Status": "Up"});
        let one = read(one).unwrap();
        assert_eq!((one.id.as_str(), one.name.as_str(), one.program), ("1", "b", Some("/s/hmz".into())));
        for odd in [json!({}), json!({"Id": 1, "Names": ["/b"]}), json!({"Id": "1", "Names": null, "Mounts": null})] {
            assert!(read(odd).is_none());
        }
    }

    fn share() -> Share {
        Share { cpus: Some(Cpus::from_millis(1500)), memory: Some(Memory::from_bytes(5 << 20)), gpus: Vec::new() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let run = Some(Uuid::from_u128(9));
        let map = write(&identity(), "here", None, &key(1), run, &share(), "box");
        assert_eq!(map[labels::UID], "7");
        assert_eq!(map[labels::CPUS], "1.5");
        assert!(!map.contains_key("humanize.pid"));
        let read = entry(&names::of_box("humanize-here", &key(1)), "running", 0, map);
        let read = read.labels;
        assert_eq!((read.purpose, read.key, read.run), (Purpose::Box, Some(key(1)), run));
        assert_eq!((read.share, read.provider.as_str(), read.host.as_str()), (share(), "here", "vm"));
    }

    #[test]
    fn what_asks_a_gpu_is_no_box_of_a_runtime() {
        let map = write_probe(&identity(), "GPU-a");
        assert!(!map.contains_key(labels::PROVIDER) && !map.contains_key(labels::GPUS));
        let probe = entry(&names::of_probe(), "running", 0, map);
        assert_eq!((probe.purpose, probe.asks.as_deref()), (Purpose::Probe, Some("GPU-a")));
        assert!(!probe.counts(None, Duration::from_secs(60)));
    }

    #[test]
    fn copied_labels_under_another_name_are_a_strangers_and_hold_nothing() {
        let map = write(&identity(), "here", None, &key(1), None, &share(), "box");
        let copy = entry("something", "running", 0, map);
        assert_eq!((copy.purpose, copy.key.clone()), (Purpose::Foreign, None));
        assert!(!copy.counts(None, Duration::from_secs(60)));
    }

    #[test]
    fn a_box_and_its_hold_count_once_and_an_aged_hold_not_at_all() {
        let now = Timestamp::from_second(1000).ok();
        let age = Duration::from_secs(60);
        let hold = |key: &BoxKey, generation, created| {
            let map = write(&identity(), "here", None, key, None, &share(), "hold");
            entry(&names::of_hold("humanize-here", key, generation), "created", created, map)
        };
        let running = entry(
            &names::of_box("humanize-here", &key(1)),
            "running",
            1,
            write(&identity(), "here", None, &key(1), None, &share(), "box"),
        );
        let all = [hold(&key(1), 1, 990), running, hold(&key(2), 1, 930), hold(&key(3), 1, 950), hold(&key(3), 2, 951)];
        let names = |except: &[&BoxKey]| {
            held(&all, now, age, "here", except.iter().copied()).into_iter().map(|h| h.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), [names::of_box("humanize-here", &key(1)), names::of_hold("humanize-here", &key(3), 1)]);
        assert_eq!(names(&[&key(1), &key(3)]), Vec::<String>::new());
    }

    #[test]
    fn a_box_of_the_other_implementation_counts_while_it_runs() {
        let map = || {
            let map = json!({"humanize": "1", "humanize.provider": "here", "humanize.cpus": "2", "humanize.gpus": "0,1",
                             "humanize.pid": "4"});
            map.as_object().unwrap().clone()
        };
        let listed = [entry("humanize-here-box-1", "running", 0, map()), entry("humanize-here-box-2", "exited", 0, map())];
        let held = held(&listed, None, Duration::from_secs(60), "here", []);
        assert_eq!(held.iter().map(|h| (h.cpus, h.own)).collect::<Vec<_>>(), [(Cpus::whole(2), true)]);
        assert_eq!(held[0].gpus, ["0", "1"]);
    }
}
