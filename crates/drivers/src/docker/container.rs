//! What a box is as the daemon is told: user, mounts, limits, and as few rights as it can work with.

use super::labels::HOLDER;
use super::{DockerIdentity, labels};
use crate::types::BoxSpec;
use hmz_api::{Cpus, labels as contract};
use hmz_wire::{GUEST_PROGRAM, GUEST_SOCKET_DIR, SOCKET_NAME};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The period CPU quotas are counted in, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// The smallest quota the kernel takes, in microseconds.
const MIN_QUOTA: u64 = 1000;
/// Processes and threads in a box: enough for a parallel build, not for a fork bomb.
const PIDS: u32 = 4096;
/// What root in a box keeps of its capabilities: what package installers and services that drop privileges need. Nothing
/// that reaches the kernel's configuration, devices, raw packets, other processes' memory or file capabilities.
const ROOT_KEEPS: [&str; 8] =
    ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"];

/// Where and as whom a box is made.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Who makes it.
    pub who: &'a DockerIdentity,
    /// The provider label.
    pub provider: &'a str,
    /// Whether the daemon is rootless: root in its containers is then the user here.
    pub rootless: bool,
    /// The workdir with the links of its path followed.
    pub workdir: &'a Path,
}

/// The body of the create request. `image_labels` are those baked into the image.
pub fn body(place: Place<'_>, spec: &BoxSpec, image_labels: &Value) -> Value {
    let (uid, gid) = if place.rootless { (0, 0) } else { (place.who.uid, place.who.gid) };
    let user = if uid == 0 { "root" } else { place.who.user_name.as_str() };
    let mut entrypoint =
        vec![GUEST_PROGRAM.to_owned(), "guest".to_owned(), "--socket".to_owned(), format!("{GUEST_SOCKET_DIR}/{SOCKET_NAME}")];
    if let Some(lease) = spec.lease {
        entrypoint.extend(["--lease".to_owned(), lease.as_secs().max(1).to_string()]);
    }
    let mut mounts = vec![
        bind(place.workdir, &spec.workdir, false),
        bind(&spec.guest.program, Path::new(GUEST_PROGRAM), true),
        bind(&spec.guest.socket_dir, Path::new(GUEST_SOCKET_DIR), false),
        bind(&spec.guest.scratch, &spec.guest.scratch, false),
    ];
    // a process here that stands in the workdir is where its links lead, and so are the commands it starts
    if place.workdir != spec.workdir {
        mounts.push(bind(place.workdir, place.workdir, false));
    }
    let mut host = json!({
        "Mounts": mounts,
        "PidsLimit": PIDS,
        "CapDrop": ["ALL"],
        "CapAdd": if uid == 0 { ROOT_KEEPS.to_vec() } else { Vec::new() },
        "SecurityOpt": ["no-new-privileges"],
        "AutoRemove": spec.lease.is_some(),
        "RestartPolicy": {"Name": "no"},
        // a daemon's own init would take pid 1 from the guest
        "Init": false,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
    });
    if let Some(host) = host.as_object_mut() {
        if let Some(cpus) = spec.limit.cpus {
            host.insert("CpuPeriod".into(), CPU_PERIOD.into());
            host.insert("CpuQuota".into(), quota(cpus).into());
        }
        if let Some(memory) = spec.limit.memory {
            host.insert("Memory".into(), memory.bytes().into());
            host.insert("MemorySwap".into(), memory.bytes().into());
        }
    }
    let written = labels::write(place.who, place.provider, &spec.key, spec.run, &spec.share, "box");
    json!({
        "Image": spec.image,
        "User": format!("{uid}:{gid}"),
        "WorkingDir": spec.workdir,
        "Entrypoint": entrypoint,
        "Cmd": [],
        "Env": ["HOME=/tmp", format!("USER={user}"), format!("LOGNAME={user}"), "NVIDIA_VISIBLE_DEVICES=void"],
        "Tty": false,
        "OpenStdin": false,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": over(written, image_labels),
        "HostConfig": host,
    })
}

/// The quota of a share, in microseconds a period; a thousandth of a CPU is exactly 100.
fn quota(cpus: Cpus) -> u64 {
    cpus.millis().saturating_mul(CPU_PERIOD / 1000).max(MIN_QUOTA)
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Value {
    json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only})
}

/// An image committed from a box has that box's labels, which a container of it inherits; those we do not set are emptied.
fn over(mut written: Map<String, Value>, image_labels: &Value) -> Map<String, Value> {
    let contract =
        |name: &str| name == contract::UID || name == HOLDER || name.starts_with("humanize.") || name.starts_with("hmz.");
    for name in image_labels.as_object().into_iter().flatten().map(|(name, _)| name).filter(|n| contract(n)) {
        written.entry(name.clone()).or_insert_with(|| "".into());
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BoxKey, GuestFiles};
    use hmz_api::Memory;
    use hmz_api::kinds::Share;
    use std::sync::Arc;
    use std::time::Duration;

    fn spec() -> BoxSpec {
        BoxSpec {
            key: BoxKey { instance: "i".into(), uid: uuid::Uuid::nil(), incarnation: 1, role: "box".into() },
            run: None,
            image: "busybox".into(),
            workdir: "/w, x".into(),
            share: Share::default(),
            limit: Share { cpus: Some(Cpus::from_millis(1250)), memory: Some(Memory::from_bytes(1 << 27)), gpus: Vec::new() },
            lease: Some(Duration::from_secs(120)),
            guest: GuestFiles { program: "/p".into(), socket_dir: "/s".into(), scratch: "/c".into() },
        }
    }

    fn who(uid: u32) -> DockerIdentity {
        DockerIdentity {
            instance: "i".into(),
            uid,
            gid: uid,
            user_name: "me".into(),
            hostname: "vm".into(),
            docker_config_dir: "/nowhere".into(),
            clock: Arc::new(hmz_api::clock::SystemClock),
        }
    }

    fn made(uid: u32, rootless: bool, image_labels: Value) -> Value {
        let who = who(uid);
        body(Place { who: &who, provider: "here", rootless, workdir: &spec().workdir }, &spec(), &image_labels)
    }

    #[test]
    fn limits_are_exact() {
        let made = made(1000, false, Value::Null);
        assert_eq!(made["HostConfig"]["CpuQuota"], 125_000);
        assert_eq!(made["HostConfig"]["CpuPeriod"], 100_000);
        assert_eq!(made["HostConfig"]["Memory"], 1 << 27);
        assert_eq!(made["HostConfig"]["MemorySwap"], 1 << 27);
        assert_eq!(quota(Cpus::from_millis(1)), 1000);
    }

    #[test]
    fn it_runs_as_the_user_without_capabilities() {
        let user = made(1000, false, Value::Null);
        assert_eq!(user["User"], "1000:1000");
        assert_eq!(user["HostConfig"]["CapAdd"], json!([]));
        assert_eq!(user["Env"], json!(["HOME=/tmp", "USER=me", "LOGNAME=me", "NVIDIA_VISIBLE_DEVICES=void"]));
        let rootless = made(1000, true, Value::Null);
        assert_eq!((&rootless["User"], &rootless["Env"][1]), (&json!("0:0"), &json!("USER=root")));
        assert_eq!(rootless["HostConfig"]["CapDrop"], json!(["ALL"]));
    }

    #[test]
    fn labels_baked_into_an_image_hold_nothing() {
        let baked = json!({"humanize.cpus": "9", "humanize.pid": "1", "hmz.run": "x", "maintainer": "m"});
        let labels = &made(1, false, baked)["Labels"];
        for name in ["humanize.cpus", "humanize.pid", "hmz.run"] {
            assert_eq!(labels[name], "", "{name}");
        }
        assert_eq!(labels.get("maintainer"), None);
        assert_eq!(labels["humanize.role"], "box");
    }

    #[test]
    fn a_lease_makes_it_remove_itself() {
        let leased = made(1, false, Value::Null);
        assert_eq!(leased["HostConfig"]["AutoRemove"], true);
        assert_eq!(leased["Entrypoint"], json!(["/.hmz/hmz", "guest", "--socket", "/.hmz/run/g.sock", "--lease", "120"]));
        let who = who(1);
        let at = spec().workdir;
        let place = Place { who: &who, provider: "here", rootless: false, workdir: &at };
        let stays = body(place, &BoxSpec { lease: None, ..spec() }, &Value::Null);
        assert_eq!(stays["HostConfig"]["AutoRemove"], false);
        assert_eq!(stays["Entrypoint"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_workdir_behind_a_link_is_at_both_its_paths() {
        let who = who(1);
        let place = Place { who: &who, provider: "here", rootless: false, workdir: Path::new("/real") };
        let made = body(place, &spec(), &Value::Null);
        let mounts = made["HostConfig"]["Mounts"].as_array().cloned().unwrap_or_default();
        let at = |target: &str| mounts.iter().find(|m| m["Target"] == target).map(|m| m["Source"].clone());
        assert_eq!((at("/w, x"), at("/real")), (Some(json!("/real")), Some(json!("/real"))));
        assert_eq!(made["WorkingDir"], "/w, x");
    }
}
