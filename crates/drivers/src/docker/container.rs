//! What a box is as the daemon is told: user, mounts, limits, and as few rights as it can work with.

use super::labels::HOLDER;
use super::session::Machine;
use super::site::Site;
use super::{DockerIdentity, arguments, gpus, labels};
use crate::types::BoxSpec;
use hmz_api::kinds::RuntimeSpec;
use hmz_api::{Cpus, labels as contract};
use hmz_wire::{GUEST_PROGRAM, GUEST_SOCKET_DIR, SOCKET_NAME};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The directory of what is ours in a box.
const GUEST_DIR: &str = "/.hmz";

/// The period CPU quotas are counted in, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// The smallest quota the kernel takes, in microseconds.
const MIN_QUOTA: u64 = 1000;
/// Processes and threads in a box: enough for a parallel build, not for a fork bomb.
const PIDS: u32 = 4096;
/// What root in a box keeps of its capabilities: what package installers and services that drop privileges need. Nothing
/// that reaches the kernel's configuration, devices, raw packets, other processes' memory or file capabilities.
pub const ROOT_KEEPS: [&str; 8] =
    ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"];

/// Where and as whom a box is made.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Who makes it.
    pub who: &'a DockerIdentity,
    /// The provider label.
    pub provider: &'a str,
    /// What was saved of the runtime.
    pub runtime: &'a RuntimeSpec,
    /// Where it is made.
    pub site: &'a Site,
    /// The daemon's machine.
    pub machine: &'a Machine,
}

/// Whom a box runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's id.
    pub uid: u32,
    /// The group's.
    pub gid: u32,
}

impl User {
    /// The user a runtime says its commands run as; `UID` alone is its own group too.
    pub fn said(runtime: &RuntimeSpec) -> Option<Self> {
        let (uid, gid) = {
            let text = runtime.exec_user.as_deref()?;
            text.split_once(':').unwrap_or((text, text))
        };
        Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    }
}

/// What the guest of a box is told of the trace it is started in.
pub fn traced(spec: &BoxSpec) -> Vec<String> {
    spec.trace.iter().flat_map(|trace| ["--trace".to_owned(), trace.clone()]).collect()
}

/// The body of the create request. `image_labels` are those baked into the image.
///
/// # Errors
/// An argument of `run_args` that is refused, in one sentence.
pub fn body(place: Place<'_>, spec: &BoxSpec, image_labels: &Value) -> Result<Value, String> {
    let User { uid, gid } = place.site.user;
    let workdir = &place.site.workdir;
    let user = match uid {
        0 => "root".to_owned(),
        uid if uid == place.who.uid => place.who.user_name.clone(),
        // the name it has in the box's own list of users
        _ => super::account::SPARE.to_owned(),
    };
    let mut entrypoint =
        vec![GUEST_PROGRAM.to_owned(), "guest".to_owned(), "--socket".to_owned(), format!("{GUEST_SOCKET_DIR}/{SOCKET_NAME}")];
    if place.site.volume.is_some() {
        // its peers come by an exec, and so from inside
        entrypoint.push("--channel".to_owned());
    }
    if let Some(lease) = spec.lease {
        entrypoint.extend(["--lease".to_owned(), lease.as_secs().max(1).to_string()]);
    }
    entrypoint.extend(traced(spec));
    let mut mounts = vec![bind(workdir, &spec.workdir, false)];
    let mut tmpfs = Map::new();
    match &place.site.volume {
        None => mounts.extend([
            bind(&spec.guest.program, Path::new(GUEST_PROGRAM), true),
            bind(&spec.guest.socket_dir, Path::new(GUEST_SOCKET_DIR), false),
            bind(&spec.guest.scratch, &spec.guest.scratch, false),
        ]),
        // nothing of this machine is there: the guest is in a volume, the rest is the box's own
        Some(volume) => {
            let options = json!({"NoCopy": true});
            mounts.push(
                json!({"Type": "volume", "Source": volume, "Target": GUEST_DIR, "ReadOnly": true, "VolumeOptions": options}),
            );
            // podman takes no ids; its own word for them is the box's user's
            let own = if place.machine.podman { "U,mode=0700".into() } else { format!("uid={uid},gid={gid},mode=0700") };
            tmpfs.insert(GUEST_SOCKET_DIR.into(), own.clone().into());
            tmpfs.insert(spec.guest.scratch.to_string_lossy().into_owned(), format!("{own},exec").into());
        }
    }
    // a process here that stands in the workdir is where its links lead, and so are the commands it starts
    if *workdir != spec.workdir {
        mounts.push(bind(workdir, workdir, false));
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
    let requests = gpus::requests(&spec.share.gpus, &place.machine.info);
    // what an image says it wants of GPUs is nothing to a daemon whose default runtime would give it them all
    let void = gpus::void(&requests);
    if let Some(host) = host.as_object_mut() {
        if requests != json!([]) {
            host.insert("DeviceRequests".into(), requests);
        }
        if !tmpfs.is_empty() {
            host.insert("Tmpfs".into(), tmpfs.into());
        }
        // ids in the box are those outside: the work has to be its owner's
        if place.machine.remapped {
            host.insert("UsernsMode".into(), "host".into());
        }
        // the user's directory is not relabelled for a box: whoever else has a use for it would lose it
        if place.machine.selinux
            && let Some(options) = host.get_mut("SecurityOpt").and_then(Value::as_array_mut)
        {
            options.push("label=disable".into());
        }
        if let Some(runtime) = &place.runtime.runtime {
            host.insert("Runtime".into(), runtime.clone().into());
        }
    }
    let mut env = vec!["HOME=/tmp".to_owned(), format!("USER={user}"), format!("LOGNAME={user}")];
    env.extend(void);
    if !place.runtime.exec_wrapper.is_empty() {
        env.push(format!("{}={}", hmz_wire::WRAPPER, place.runtime.exec_wrapper.join("\n")));
    }
    let name_prefix = place.runtime.name_prefix.as_deref();
    let written = labels::write(place.who, place.provider, name_prefix, &spec.key, spec.run, &spec.share, "box");
    let mut body = json!({
        "Image": spec.image,
        "User": format!("{uid}:{gid}"),
        "WorkingDir": spec.workdir,
        "Entrypoint": entrypoint,
        "Cmd": [],
        "Env": env,
        "Tty": false,
        "OpenStdin": false,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": over(written, image_labels),
        "HostConfig": host,
    });
    let ours: [&Path; 4] = [&spec.workdir, workdir, &spec.guest.scratch, Path::new(GUEST_DIR)];
    arguments::put(&mut body, &place.runtime.run_args, &ours)?;
    if let Some(all) = body.pointer_mut("/Env").and_then(Value::as_array_mut) {
        all.extend(place.runtime.exec_env.iter().map(|v| v.clone().into()));
    }
    Ok(body)
}

/// The quota of a share, in microseconds a period; a thousandth of a CPU is exactly 100.
fn quota(cpus: Cpus) -> u64 {
    cpus.millis().saturating_mul(CPU_PERIOD / 1000).max(MIN_QUOTA)
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Value {
    json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only})
}

/// An image committed from a box has that box's labels, which a container of it inherits; those we do not set are emptied.
pub fn over(mut written: Map<String, Value>, image_labels: &Value) -> Map<String, Value> {
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
            programs: Vec::new(),
            trace: None,
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
            sockets: "/nowhere".into(),
            guest: "/nowhere".into(),
            hosts: Arc::new(crate::docker::NoHosts),
            clock: Arc::new(hmz_api::clock::SystemClock),
        }
    }

    fn made(uid: u32, rootless: bool, image_labels: Value) -> Value {
        let id = if rootless { 0 } else { uid };
        of(uid, User { uid: id, gid: id }, &RuntimeSpec::default(), &spec(), &spec().workdir, &image_labels)
    }

    fn of(uid: u32, user: User, runtime: &RuntimeSpec, spec: &BoxSpec, workdir: &Path, image_labels: &Value) -> Value {
        at(uid, &Site { user, workdir: workdir.to_owned(), volume: None }, &Value::Null, runtime, spec, image_labels)
    }

    fn at(uid: u32, site: &Site, info: &Value, runtime: &RuntimeSpec, spec: &BoxSpec, image_labels: &Value) -> Value {
        let (who, machine) = (who(uid), Machine::of(info, String::new(), true));
        body(Place { who: &who, provider: "here", runtime, site, machine: &machine }, spec, image_labels).unwrap()
    }

    #[test]
    fn elsewhere_nothing_of_this_machine_is_mounted() {
        let site = Site { user: User { uid: 7, gid: 8 }, workdir: "/w, x".into(), volume: Some("v".into()) };
        let made = at(1000, &site, &Value::Null, &RuntimeSpec::default(), &spec(), &Value::Null);
        let mounts = made["HostConfig"]["Mounts"].as_array().cloned().unwrap_or_default();
        let bound = |m: &Value| format!("{} {} {}", m["Source"].as_str().unwrap(), m["Target"].as_str().unwrap(), m["ReadOnly"]);
        assert_eq!(mounts.iter().map(bound).collect::<Vec<_>>(), ["/w, x /w, x false", "v /.hmz true"]);
        let own = "uid=7,gid=8,mode=0700";
        assert_eq!(made["HostConfig"]["Tmpfs"], json!({"/.hmz/run": own, "/c": format!("{own},exec")}));
        assert_eq!((&made["User"], &made["Env"][1]), (&json!("7:8"), &json!("USER=hmz")));
        let podman = at(1000, &site, &json!({"BuildahVersion": "1"}), &RuntimeSpec::default(), &spec(), &Value::Null);
        assert_eq!(podman["HostConfig"]["Tmpfs"], json!({"/.hmz/run": "U,mode=0700", "/c": "U,mode=0700,exec"}));
    }

    #[test]
    fn a_daemon_that_remaps_users_or_labels_files_gives_the_work_to_its_owner() {
        let site = Site { user: User { uid: 7, gid: 8 }, workdir: "/w".into(), volume: None };
        let info = json!({"SecurityOptions": ["name=seccomp,profile=default", "name=userns", "name=selinux"]});
        let made = at(7, &site, &info, &RuntimeSpec::default(), &spec(), &Value::Null);
        assert_eq!(made["HostConfig"]["UsernsMode"], "host");
        assert_eq!(made["HostConfig"]["SecurityOpt"], json!(["no-new-privileges", "label=disable"]));
        let plain = at(7, &site, &json!({}), &RuntimeSpec::default(), &spec(), &Value::Null);
        assert_eq!(
            (plain["HostConfig"].get("UsernsMode"), &plain["HostConfig"]["SecurityOpt"]),
            (None, &json!(["no-new-privileges"]))
        );
    }

    #[test]
    fn what_the_runtime_says_of_its_boxes_is_in_them() {
        let runtime = RuntimeSpec {
            runtime: Some("runsc".into()),
            name_prefix: Some("team-a".into()),
            exec_user: Some("7:8".into()),
            exec_env: vec!["TMPDIR=/scratch".into(), "HOME=/h".into()],
            exec_wrapper: vec!["/limit".into(), "--nproc".into()],
            run_args: vec!["--shm-size=1k".into(), "-eHOME=/r".into()],
            ..RuntimeSpec::default()
        };
        let user = User::said(&runtime).unwrap();
        let gpus = Share { gpus: vec!["1".into()], ..Share::default() };
        let made = of(1000, user, &runtime, &BoxSpec { share: gpus, ..spec() }, Path::new("/w"), &Value::Null);
        assert_eq!((&made["User"], &made["HostConfig"]["Runtime"]), (&json!("7:8"), &json!("runsc")));
        assert_eq!((&made["HostConfig"]["ShmSize"], &made["Labels"]["hmz.prefix"]), (&json!(1024), &json!("team-a")));
        assert_eq!(made["HostConfig"]["DeviceRequests"], json!([{"DeviceIDs": ["1"], "Capabilities": [["gpu"]]}]));
        let env = ["USER=hmz", "LOGNAME=hmz", "HMZ_WRAPPER=/limit\n--nproc", "HOME=/r", "TMPDIR=/scratch", "HOME=/h"];
        assert_eq!(made["Env"], json!(env));
        assert_eq!(User::said(&RuntimeSpec { exec_user: Some("7".into()), ..runtime }), Some(User { uid: 7, gid: 7 }));
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
        let leaseless = BoxSpec { lease: None, ..spec() };
        let user = User { uid: 1, gid: 1 };
        let stays = of(1, user, &RuntimeSpec::default(), &leaseless, &leaseless.workdir, &Value::Null);
        assert_eq!(stays["HostConfig"]["AutoRemove"], false);
        assert_eq!(stays["Entrypoint"].as_array().map(Vec::len), Some(4));
        let traced = BoxSpec { trace: Some("00-a-b-01".into()), ..leaseless };
        let traced = of(1, user, &RuntimeSpec::default(), &traced, Path::new("/w"), &Value::Null);
        assert_eq!(
            traced["Entrypoint"].as_array().map(|words| words[4..].to_vec()),
            Some(vec![json!("--trace"), json!("00-a-b-01")])
        );
    }

    #[test]
    fn a_workdir_behind_a_link_is_at_both_its_paths() {
        let user = User { uid: 1, gid: 1 };
        let made = of(1, user, &RuntimeSpec::default(), &spec(), Path::new("/real"), &Value::Null);
        let mounts = made["HostConfig"]["Mounts"].as_array().cloned().unwrap_or_default();
        let at = |target: &str| mounts.iter().find(|m| m["Target"] == target).map(|m| m["Source"].clone());
        assert_eq!((at("/w, x"), at("/real")), (Some(json!("/real")), Some(json!("/real"))));
        assert_eq!(made["WorkingDir"], "/w, x");
    }
}
