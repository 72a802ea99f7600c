//! A swarm of three: boxes are placed by what they ask for, reached on whichever node they are, and removed; what cannot be placed is
//! refused in the scheduler's words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // of tests only, which clippy does not see here

mod common;
#[path = "../../../tests/support/swarm.rs"]
mod nodes;

use common::{Corner, Hosts, until, want};
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::reference::{Backend, RuntimeRef};
use hmz_api::way::Way;
use hmz_api::{Cpus, Memory, labels};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, Limits};
use hmz_drivers::swarm::SwarmDriver;
use hmz_drivers::{Admitted, BoxKey, BoxSpec, BoxState, Driver, DriverError, Promised, Purpose, RemoveOutcome, Started, Want};
use nodes::Nodes;
use rustix::fs::FlockOperation;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The swarm of the testbed, and a corner of this test's own there.
struct Swarm {
    nodes: Nodes,
    corner: Corner,
}

impl Swarm {
    fn new(set: impl FnOnce(&mut RuntimeSpec)) -> Self {
        Self::with(FlockOperation::LockShared, set)
    }

    fn with(turn: FlockOperation, set: impl FnOnce(&mut RuntimeSpec)) -> Self {
        let nodes = Nodes::get(turn);
        let mut spec =
            RuntimeSpec { endpoint: format!("unix://{}", nodes.place["manager"]).parse().unwrap(), ..RuntimeSpec::default() };
        // each node is reached as a host that is saved by its name
        spec.nodes = ["w1", "w2"].map(|n| (n.to_owned(), n.to_owned())).into();
        set(&mut spec);
        let mut corner = Corner::new(spec);
        corner.target.runtime = RuntimeRef::named(Backend::Swarm, corner.target.runtime.name.clone().unwrap());
        corner.target.local_endpoint = None;
        // a node's files are this machine's
        std::os::unix::fs::chown(corner.work(), Some(1234), Some(2345)).unwrap();
        for path in [corner.dir.path(), corner.work()] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        Self { nodes, corner }
    }

    fn driver_with(&self, limits: Limits) -> SwarmDriver {
        let config = self.nodes.place["ssh_config"].clone();
        let host = |name: &str| {
            let mut spec = RuntimeSpec { alias: Some(name.into()), ..RuntimeSpec::default() };
            spec.config = Some(config.clone());
            (name.to_owned(), spec)
        };
        let hosts = Arc::new(Hosts::all(vec![host("w1"), host("w2")]));
        let who = DockerIdentity { hosts, ..self.corner.identity() };
        SwarmDriver::new(Arc::new(DockerDriver::with_limits(who, limits)))
    }

    fn driver(&self) -> SwarmDriver {
        self.driver_with(Limits::default())
    }

    fn docker_on(&self, node: &str, args: &[&str]) -> String {
        self.nodes.docker(node, args)
    }

    fn docker(&self, args: &[&str]) -> String {
        self.docker_on("manager", args)
    }

    /// A box that asks for nothing and is limited to nothing.
    fn spec(&self, key: &BoxKey) -> BoxSpec {
        BoxSpec { limit: Share::default(), lease: Some(Duration::from_secs(77)), ..self.corner.spec(key) }
    }

    /// Admits and starts a box that asks for that.
    async fn up(&self, driver: &SwarmDriver, spec: &mut BoxSpec, want: Want) -> Result<Started, DriverError> {
        let admitted = driver.admit(&self.corner.target, std::slice::from_ref(&want)).await?;
        let Admitted::Held(shares) = admitted else { panic!("{admitted:?}") };
        spec.share = shares[0].clone();
        spec.limit = Share { cpus: spec.share.cpus, memory: spec.share.memory, ..spec.limit.clone() };
        driver.place(&self.corner.target, spec, Arc::new(|_| {})).await?;
        driver.start(&self.corner.target, spec).await
    }

    /// What this corner has on the swarm.
    fn left(&self) -> Vec<String> {
        let label = format!("label=hmz.instance={}", self.corner.instance);
        self.docker(&["service", "ls", "-q", "--filter", &label]).lines().map(str::to_owned).collect()
    }

    /// The name of the node a service's task is on.
    fn node_of(&self, service: &str) -> String {
        self.docker(&["service", "ps", "--format", "{{.Node}}", service])
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        for id in self.left() {
            let host = format!("unix://{}", self.nodes.place["manager"]);
            let _ = Command::new("docker").args(["-H", &host, "service", "rm", &id]).output();
        }
    }
}

/// A service of somebody else's; it goes with the value.
struct Other(String, String);

impl Other {
    fn new(swarm: &Swarm, args: &[&str]) -> Self {
        let name = format!("other-{}", &swarm.corner.instance[5..13]);
        let other = Self(name.clone(), format!("unix://{}", swarm.nodes.place["manager"]));
        swarm.docker(&[&["service", "create", "-d", "-q", "--name", &name][..], args, &["busybox", "sleep", "1000"]].concat());
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["-H", &self.1, "service", "rm", &self.0]).output();
    }
}

fn cpus(key: &BoxKey, n: u64) -> Want {
    Want { cpus: Some(Cpus::whole(n)), ..want(key) }
}

/// From admission to removal, on one node.
async fn a_life(node: &str, daemon: &str) {
    let swarm = Swarm::new(|spec| spec.constraints = vec![format!("node.hostname=={node}")]);
    let driver = swarm.driver();
    let target = &swarm.corner.target;
    let facts = driver.probe(target).await.unwrap();
    assert_eq!(facts.nodes, Some(vec![node.to_owned()]));
    let key = swarm.corner.key("box");
    let mut spec = swarm.spec(&key);
    std::fs::write(swarm.corner.work().join("tell"), "").unwrap();
    let memory = Some(Memory::from_bytes(64 << 20));
    let want = Want { cpus: Some(Cpus::from_millis(250)), memory, ..want(&key) };
    let started = swarm.up(&driver, &mut spec, want).await.unwrap();
    assert_eq!(swarm.node_of(&started.name), node);
    assert_eq!(started.node.as_deref(), Some(node));
    // the socket it is reached at leads to the node's daemon
    let reach = started.reach.clone().expect("a node's daemon");
    let at = match (&reach.near, &reach.way) {
        (Some(near), _) => near.clone(),
        (None, Way::Unix(socket)) => socket.clone(),
        other => panic!("{other:?}"),
    };
    let at = format!("unix://{}", at.display());
    let id = started.id.clone();
    let ask = move || Command::new("docker").args(["-H", &at, "inspect", "--format", "{{.Id}}", &id]).output();
    let out = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), started.id, "{out:?}");
    let told = swarm.corner.work().join("told");
    until("the first process has told", async || told.exists()).await;
    let text = std::fs::read_to_string(&told).unwrap();
    for line in ["arg /.hmz/hmz", "arg guest", "arg --channel", "arg 77", "arg 1234:2345", "pid 1", "env USER=hmz"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    // what it reserves is what it is limited to
    let resources = swarm.docker(&["service", "inspect", "--format", "{{json .Spec.TaskTemplate.Resources}}", &started.name]);
    for part in ["\"NanoCPUs\":250000000", "\"MemoryBytes\":67108864"] {
        assert_eq!(resources.matches(part).count(), 2, "{resources}");
    }
    let of = |format: &str| swarm.docker_on(daemon, &["inspect", "--format", format, &started.id]);
    // a newer engine makes a quota of it
    let limits = of("{{.HostConfig.NanoCpus}} {{.HostConfig.CpuQuota}} {{.HostConfig.Memory}}");
    assert!(matches!(limits.as_str(), "250000000 0 67108864" | "0 25000 67108864"), "{limits}");
    let listed = driver.list(target).await.unwrap();
    let mine: Vec<_> = listed.iter().filter(|b| b.key.as_ref() == Some(&key)).collect();
    assert!(matches!(mine.as_slice(), [one] if one.state == BoxState::Running(started.pid) && one.id == started.id), "{mine:?}");
    assert_eq!(driver.start(target, &spec).await.unwrap(), started, "started again, it is adopted");
    assert_eq!(driver.remove(target, &key).await.unwrap(), RemoveOutcome::Removed);
    assert_eq!(swarm.left(), Vec::<String>::new());
    let label = format!("label=com.docker.swarm.service.name={}", started.name);
    assert_eq!(swarm.docker_on(daemon, &["ps", "-q", "--filter", &label]), "", "its container has ended with it");
    until("its node has forgotten it", async || swarm.docker_on(daemon, &["ps", "-aq", "--filter", &label]).is_empty()).await;
    assert_eq!(driver.remove(target, &key).await.unwrap(), RemoveOutcome::Absent);
}

#[tokio::test]
async fn a_life_on_the_manager() {
    a_life("mgr", "manager").await;
}

#[tokio::test]
async fn a_life_on_a_worker_that_is_reached_over_ssh() {
    a_life("w1", "w1").await;
}

#[tokio::test]
async fn a_node_that_is_reached_as_another_is_refused_and_nothing_is_left() {
    let swarm = Swarm::new(|spec| {
        spec.constraints = vec!["node.hostname==w1".into()];
        spec.nodes.insert("w1".into(), "w2".into());
    });
    let driver = swarm.driver();
    let why = refused(&swarm, &driver, want(&swarm.corner.key("box"))).await;
    let at = swarm.corner.target.runtime.at();
    assert_eq!(
        why,
        format!(
            "{at}: the daemon reached as the node w1, where its task landed, is not that node's; say how in the runtime's nodes"
        )
    );
}

/// Why a box cannot be had, once it was admitted; nothing of it is left then.
async fn refused(swarm: &Swarm, driver: &SwarmDriver, want: Want) -> String {
    let mut spec = swarm.spec(&want.key);
    let error = swarm.up(driver, &mut spec, want).await.unwrap_err();
    assert!(matches!(error, DriverError::Refused(_)), "{error:?}");
    assert_eq!(swarm.left(), Vec::<String>::new());
    error.to_string()
}

#[tokio::test]
async fn constraints_say_where_a_box_lands_and_generic_resources_too() {
    let by_label = Swarm::new(|spec| spec.constraints = vec!["node.labels.zone == c".into(), "node.role!=manager".into()]);
    let driver = by_label.driver();
    let key = by_label.corner.key("box");
    let started = by_label.up(&driver, &mut by_label.spec(&key), want(&key)).await.unwrap();
    assert_eq!(by_label.node_of(&started.name), "w2");
    driver.remove(&by_label.corner.target, &key).await.unwrap();

    let gpus = Swarm::new(|spec| spec.gpu_resource = Some("NVIDIA-GPU".into()));
    let driver = gpus.driver();
    let (one, two) = (gpus.corner.key("one"), gpus.corner.key("two"));
    let asks = |key: &BoxKey, n| Want { gpus: Some(n), ..want(key) };
    let mut spec = gpus.spec(&one);
    let started = gpus.up(&driver, &mut spec, asks(&one, 2)).await.unwrap();
    assert_eq!((gpus.node_of(&started.name).as_str(), spec.share.gpus.len()), ("w1", 2));
    let label = gpus.docker(&["service", "inspect", "--format", "{{index .Spec.Labels \"humanize.gpus\"}}", &started.name]);
    assert_eq!(label, "NVIDIA-GPU=2");
    // none has three, whoever has ended
    let why = gpus.up(&driver, &mut gpus.spec(&two), asks(&two, 3)).await.unwrap_err().to_string();
    let at = gpus.corner.target.runtime.at();
    assert!(why.starts_with(&format!("{at}: no node of the swarm has 3 NVIDIA-GPU: the most any of its 3 nodes ")), "{why}");
    assert!(why.contains(" and 2 NVIDIA-GPU"), "{why}");
    assert!(why.ends_with(" (no suitable node (insufficient resources on 3 nodes))"), "{why}");
    driver.remove(&gpus.corner.target, &one).await.unwrap();
    assert_eq!(gpus.left(), Vec::<String>::new());
}

#[tokio::test]
async fn a_box_lands_where_its_cpus_are_free() {
    // alone: a node's CPUs are all taken
    let mut swarm = Swarm::with(FlockOperation::LockExclusive, |_| ());
    let driver = swarm.driver();
    let on = |swarm: &mut Swarm, constraint: &str| swarm.corner.target.spec.constraints = vec![constraint.into()];
    on(&mut swarm, "node.hostname==w2");
    // the scheduler prefers the node with less on it
    for role in ["one", "two", "three"] {
        let key = swarm.corner.key(role);
        swarm.up(&driver, &mut swarm.spec(&key), want(&key)).await.unwrap();
    }
    on(&mut swarm, "node.hostname==w1");
    let all = driver.probe(&swarm.corner.target).await.unwrap().cpus;
    let full = swarm.corner.key("full");
    swarm.up(&driver, &mut swarm.spec(&full), Want { cpus: Some(all), ..want(&full) }).await.unwrap();
    on(&mut swarm, "node.role==worker");
    for (role, wanted, node) in [("none", None, "w1"), ("some", Some(Cpus::whole(1)), "w2")] {
        let key = swarm.corner.key(role);
        let started = swarm.up(&driver, &mut swarm.spec(&key), Want { cpus: wanted, ..want(&key) }).await.unwrap();
        assert_eq!(swarm.node_of(&started.name), node, "{role}");
    }
}

#[tokio::test]
async fn gpus_without_the_name_of_a_resource_are_refused_before_anything_is_made() {
    let swarm = Swarm::new(|_| ());
    let key = swarm.corner.key("box");
    let admitted = swarm.driver().admit(&swarm.corner.target, &[Want { gpus: Some(1), ..want(&key) }]).await.unwrap();
    let Admitted::Short(short) = admitted else { panic!("{admitted:?}") };
    let at = swarm.corner.target.runtime.at();
    let says = "say which generic resource its nodes advertise them as in the runtime's gpu_resource";
    assert_eq!(short.message, format!("{at} hands out no GPUs, and 'box' asks for 1: {says}"));
    assert!(!short.could_fit);
    assert_eq!(swarm.left(), Vec::<String>::new());
}

#[tokio::test]
async fn what_no_node_could_ever_hold_is_refused_at_once() {
    let swarm = Swarm::new(|_| ());
    let (driver, key, at) = (swarm.driver(), swarm.corner.key("box"), swarm.corner.target.runtime.at());
    let why = refused(&swarm, &driver, cpus(&key, 1000)).await;
    assert!(
        why.starts_with(&format!("{at}: no node of the swarm has 1000 CPUs: the most any of its 3 nodes that may take a task")),
        "{why}"
    );
    assert!(why.ends_with("(no suitable node (insufficient resources on 3 nodes))"), "{why}");
    let nowhere = Swarm::new(|spec| spec.constraints = vec!["node.labels.zone==x".into()]);
    let why = refused(&nowhere, &nowhere.driver(), want(&nowhere.corner.key("box"))).await;
    let words =
        "no node of the swarm has node.labels.zone==x (no suitable node (scheduling constraints not satisfied on 3 nodes))";
    assert_eq!(why, format!("{}: {words}", nowhere.corner.target.runtime.at()));
}

#[tokio::test]
async fn what_others_reserve_for_good_is_not_waited_for() {
    let swarm = Swarm::new(|spec| spec.constraints = vec!["node.hostname==w2".into()]);
    let facts = swarm.driver().probe(&swarm.corner.target).await.unwrap();
    let all = facts.memory.bytes().to_string();
    let other = Other::new(&swarm, &["--constraint", "node.hostname==w2", "--reserve-memory", &all]);
    until("it runs", async || swarm.docker(&["service", "ps", "--format", "{{.CurrentState}}", &other.0]).contains("Running"))
        .await;
    let why =
        refused(&swarm, &swarm.driver(), Want { memory: Some(Memory::from_bytes(8 << 20)), ..want(&swarm.corner.key("box")) })
            .await;
    drop(other);
    assert!(why.contains(": no node of the swarm has 8 MiB: its 1 node that may take the task has "), "{why}");
    assert!(why.contains(" CPUs and 0 bytes beside"), "{why}");
    assert!(why.contains(" beside what other services reserve (no suitable node ("), "{why}");
}

#[tokio::test]
async fn what_others_of_hmz_hold_is_waited_for_and_then_refused() {
    let swarm = Swarm::new(|spec| spec.constraints = vec!["node.hostname==w2".into()]);
    let driver = swarm.driver();
    let facts = driver.probe(&swarm.corner.target).await.unwrap();
    let (first, second) = (swarm.corner.key("first"), swarm.corner.key("second"));
    let all = |key: &BoxKey| Want { cpus: Some(facts.cpus), ..want(key) };
    swarm.up(&driver, &mut swarm.spec(&first), all(&first)).await.unwrap();
    // which one node has it is not known before it is asked, but that there is room for it when the first is gone
    let weighed = async |gone: &[BoxKey]| driver.weigh(&swarm.corner.target, &[all(&second)], &[], gone).await.unwrap();
    assert_eq!(weighed(&[]).await, None);
    assert!(matches!(weighed(std::slice::from_ref(&first)).await, Some(Admitted::Held(_))));
    let why = swarm.up(&driver, &mut swarm.spec(&second), all(&second)).await.unwrap_err().to_string();
    let at = swarm.corner.target.runtime.at();
    let words = "no suitable node (scheduling constraints not satisfied on 2 nodes; insufficient resources on 1 node)";
    assert_eq!(why, format!("{at}: no node took it within 30s: {words}"));
    assert_eq!(swarm.left().len(), 1, "its service is removed");
    driver.remove(&swarm.corner.target, &first).await.unwrap();
}

#[tokio::test]
async fn a_node_without_the_directory_is_refused_once() {
    let swarm = Swarm::new(|spec| spec.constraints = vec!["node.hostname==w2".into()]);
    let driver = swarm.driver();
    let key = swarm.corner.key("box");
    let mut spec = BoxSpec { workdir: "/srv/only-w1".into(), ..swarm.spec(&key) };
    let error = swarm.up(&driver, &mut spec, want(&key)).await.unwrap_err();
    let words = "no directory to give the task on the node it landed on: invalid mount config for type \"bind\": bind source path does \
                 not exist: /srv/only-w1: /srv/only-w1";
    assert_eq!(error, DriverError::Refused(format!("{}: {words}", swarm.corner.target.runtime.at())));
    assert_eq!(swarm.left(), Vec::<String>::new());
    // where it is, it is given
    let there = Swarm::new(|spec| spec.constraints = vec!["node.labels.zone!=c".into(), "node.role==worker".into()]);
    let key = there.corner.key("box");
    let mut spec = BoxSpec { workdir: "/srv/only-w1".into(), ..there.spec(&key) };
    let started = there.up(&there.driver(), &mut spec, want(&key)).await.unwrap();
    assert_eq!(there.node_of(&started.name), "w1");
}

#[tokio::test]
async fn an_image_no_node_has_is_refused_in_dockers_words() {
    let swarm = Swarm::new(|spec| spec.constraints = vec!["node.hostname==mgr".into()]);
    let key = swarm.corner.key("box");
    let mut spec = BoxSpec { image: "127.0.0.1:9/none:1".into(), ..swarm.spec(&key) };
    let error = swarm.up(&swarm.driver(), &mut spec, want(&key)).await.unwrap_err().to_string();
    let begins = format!("{}: could not start a container of 127.0.0.1:9/none:1 on mgr: ", swarm.corner.target.runtime.at());
    assert!(error.starts_with(&begins) && error.contains("No such image"), "{error}");
    assert_eq!(swarm.left(), Vec::<String>::new());
}

#[tokio::test]
async fn a_daemon_that_manages_no_swarm_is_refused() {
    let mut swarm = Swarm::new(|_| ());
    let at = swarm.corner.target.runtime.at();
    swarm.corner.target.spec.endpoint = format!("unix://{}", swarm.nodes.place["w1"]).parse().unwrap();
    let error = swarm.driver().list(&swarm.corner.target).await.unwrap_err();
    assert_eq!(error, DriverError::Refused(format!("{at} is a worker of its swarm, and only a manager can be asked")));
    swarm.corner.target.spec.endpoint = "unix:///var/run/docker.sock".parse().unwrap();
    let error = swarm.driver().list(&swarm.corner.target).await.unwrap_err();
    assert_eq!(error, DriverError::Refused(format!("{at} is in no active swarm: its swarm is inactive")));
    swarm.corner.target.spec.endpoint = format!("unix://{}", swarm.nodes.place["manager"]).parse().unwrap();
}

#[tokio::test]
async fn tasks_and_quotas_are_counted_over_everybodys_boxes() {
    let swarm = Swarm::new(|spec| {
        spec.max_tasks = Some(2);
        spec.cpus = Some(Cpus::whole(3));
    });
    let (driver, target) = (swarm.driver(), &swarm.corner.target);
    let keys = ["a", "b", "c"].map(|role| swarm.corner.key(role));
    let wants: Vec<Want> = keys.iter().map(want).collect();
    let short = |admitted| match admitted {
        Admitted::Short(short) => short.to_string(),
        held => panic!("{held:?}"),
    };
    let at = target.runtime.at();
    // all of a gang or none
    let three = driver.admit(target, &wants).await.unwrap();
    assert_eq!(short(three), format!("{at} runs 0 of the 2 tasks it may, and 'a', 'b' and 'c' ask for 3"));
    assert_eq!(swarm.left(), Vec::<String>::new());
    assert!(matches!(driver.admit(target, &wants[..2]).await.unwrap(), Admitted::Held(_)));
    assert_eq!(swarm.left().len(), 2);
    // the same again is the same two
    assert!(matches!(driver.admit(target, &wants[..2]).await.unwrap(), Admitted::Held(_)));
    assert_eq!(swarm.left().len(), 2);
    assert_eq!(short(driver.admit(target, &wants[2..]).await.unwrap()), format!("{at} runs 2 of the 2 tasks it may"));
    let listed = driver.list(target).await.unwrap();
    assert_eq!(listed.iter().filter(|b| b.purpose == Purpose::Hold && b.key.as_ref() == Some(&keys[0])).count(), 1);
    driver.remove(target, &keys[0]).await.unwrap();
    let four = [cpus(&keys[2], 4)];
    // what other tests hold meanwhile counts too
    let said = short(driver.admit(target, &four).await.unwrap());
    assert!(said.contains(" of 3 CPUs free, and 'c' asks for 4"), "{said}");
    driver.renew(target, &keys[1..2]).await.unwrap();
    let gone = driver.renew(target, &keys[..1]).await.unwrap_err();
    assert_eq!(gone, DriverError::Transient(format!("{at} no longer holds the share of 'a'")));
    // what aged out counts no more, and starts nothing
    let hasty = swarm.driver_with(Limits { hold_age: Duration::ZERO, ..Limits::default() });
    let error = hasty.start(target, &swarm.spec(&keys[1])).await.unwrap_err();
    assert_eq!(error, DriverError::Transient(format!("{at} no longer holds the share of 'b'")));
}

#[tokio::test]
async fn what_is_weighed_is_what_would_be_admitted_and_nothing_is_made() {
    let swarm = Swarm::new(|spec| spec.max_tasks = Some(2));
    let (driver, target) = (swarm.driver(), &swarm.corner.target);
    let keys = ["a", "b", "c"].map(|role| swarm.corner.key(role));
    let wants: Vec<Want> = keys.iter().map(want).collect();
    let weighed = async |wants: &[Want], promised: &[Promised], gone: &[BoxKey]| {
        driver.weigh(target, wants, promised, gone).await.unwrap().expect("a node has room for it")
    };
    let held = |admitted| matches!(admitted, Admitted::Held(shares) if shares == [Share::default()]);
    let short = |admitted| match admitted {
        Admitted::Short(short) => short.to_string(),
        held => panic!("{held:?}"),
    };
    assert!(held(weighed(&wants[..1], &[], &[]).await));
    assert_eq!(short(weighed(&wants, &[], &[]).await), short(driver.admit(target, &wants).await.unwrap()));
    assert_eq!(swarm.left(), Vec::<String>::new());
    driver.admit(target, &wants[..1]).await.unwrap();
    // its own hold is no hindrance; what is promised counts as what is held, and what goes does not
    assert!(held(weighed(&wants[..1], &[], &[]).await));
    let provider = target.runtime.provider().to_owned();
    let promised = [Promised { key: keys[1].clone(), name: "'b'".into(), provider, share: Share::default() }];
    let full = format!("{} runs 2 of the 2 tasks it may", target.runtime.at());
    assert_eq!(short(weighed(&wants[2..], &promised, &[]).await), full);
    assert!(held(weighed(&wants[2..], &promised, &keys[..1]).await));
    assert_eq!(swarm.left().len(), 1);
    let never = driver.weigh(target, &[cpus(&keys[0], 1000)], &[], &[]).await.unwrap_err().to_string();
    assert!(never.starts_with(&format!("{}: no node of the swarm has 1000 CPUs: ", target.runtime.at())), "{never}");
    let nowhere = Swarm::new(|spec| spec.constraints = vec!["node.labels.zone==x".into()]);
    let (key, at) = (nowhere.corner.key("box"), nowhere.corner.target.runtime.at());
    let never = nowhere.driver().weigh(&nowhere.corner.target, &[want(&key)], &[], &[]).await.unwrap_err();
    assert_eq!(never, DriverError::Refused(format!("{at}: no node of the swarm has node.labels.zone==x")));
}

#[tokio::test]
async fn of_many_who_race_for_one_place_one_has_it() {
    let swarm = Swarm::new(|spec| spec.max_tasks = Some(1));
    let drivers: Vec<SwarmDriver> = (0..4).map(|_| swarm.driver()).collect();
    for _ in 0..5 {
        let keys: Vec<BoxKey> = (0..4).map(|_| swarm.corner.key("box")).collect();
        let tries = drivers.iter().zip(&keys).map(|(driver, key)| {
            let (want, target) = (want(key), &swarm.corner.target);
            async move { driver.admit(target, &[want]).await.unwrap() }
        });
        let answers = futures::future::join_all(tries).await;
        assert_eq!(answers.iter().filter(|a| matches!(a, Admitted::Held(_))).count(), 1, "{answers:?}");
        for key in &keys {
            drivers[0].remove(&swarm.corner.target, key).await.unwrap();
        }
        assert_eq!(swarm.left(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_lock_whose_holder_is_gone_is_taken_over() {
    let swarm = Swarm::new(|_| ());
    let mut child = Command::new("/bin/sleep").arg("600").spawn().unwrap();
    let mark = common::mark(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    let labels = [format!("hmz.holder.process={mark}"), "humanize=0".into(), "hmz.purpose=lock".into()];
    let labels: Vec<&str> = labels.iter().flat_map(|l| ["--label", l]).collect();
    // another test may be inside
    until("the lock is made", async || {
        let host = format!("unix://{}", swarm.nodes.place["manager"]);
        let made = Command::new("docker")
            .args(["-H", &host, "service", "create", "-d", "-q", "--replicas", "0", "--name", "hmz-admission-lock"])
            .args(&labels)
            .arg("hmz-empty:1")
            .output();
        made.unwrap().status.success()
    })
    .await;
    let admitted = swarm.driver().admit(&swarm.corner.target, &[want(&swarm.corner.key("box"))]).await.unwrap();
    assert!(matches!(admitted, Admitted::Held(_)));
}

#[tokio::test]
async fn a_task_that_somebody_starts_anew_is_another_box_and_said_so() {
    let swarm = Swarm::new(|spec| spec.constraints = vec!["node.hostname==mgr".into()]);
    let (driver, target) = (swarm.driver(), &swarm.corner.target);
    let key = swarm.corner.key("box");
    let started = swarm.up(&driver, &mut swarm.spec(&key), want(&key)).await.unwrap();
    swarm.docker(&["service", "update", "-d", "-q", "--force", &started.name]);
    let state = async || driver.list(target).await.unwrap().into_iter().find(|b| b.key.as_ref() == Some(&key)).unwrap().state;
    until("it is not the box it was", async || matches!(state().await, BoxState::Exited(_))).await;
    let ending = driver.ending(target, &started.id).await.unwrap().unwrap();
    assert_eq!(ending.why.as_deref(), Some("somebody had the swarm start its task anew, elsewhere or in another container"));
    driver.remove(target, &key).await.unwrap();
    assert_eq!(swarm.left(), Vec::<String>::new());
}

/// A node nobody hears of; it is mended with the value.
struct Cut(&'static str);

impl Cut {
    fn new(node: &'static str) -> Self {
        Self::testbed("cut", node);
        Self(node)
    }

    fn testbed(what: &str, node: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/testbed/swarm");
        let out = Command::new(script).args([what, node]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        Self::testbed("mend", self.0);
    }
}

#[tokio::test]
async fn a_box_on_a_node_that_is_cut_off_is_lost_and_its_removal_does_not_wait_for_the_node() {
    let swarm = Swarm::with(FlockOperation::LockExclusive, |spec| spec.constraints = vec!["node.hostname==w2".into()]);
    let (driver, target) = (swarm.driver(), &swarm.corner.target);
    let (key, next) = (swarm.corner.key("box"), swarm.corner.key("next"));
    let started = swarm.up(&driver, &mut swarm.spec(&key), want(&key)).await.unwrap();
    let cut = Cut::new("w2");
    let state = async || driver.list(target).await.unwrap().into_iter().find(|b| b.key.as_ref() == Some(&key)).unwrap().state;
    until("the swarm gives it up", async || matches!(state().await, BoxState::Exited(_))).await;
    let ending = driver.ending(target, &started.id).await.unwrap().unwrap();
    assert_eq!(ending.why.as_deref(), Some("the swarm does not hear of w2 any more, where it ran"));
    // the one node that could take another is not there
    let why = swarm.up(&driver, &mut swarm.spec(&next), want(&next)).await.unwrap_err().to_string();
    assert!(why.contains(": no node of the swarm has node.hostname==w2 (no suitable node ("), "{why}");
    assert_eq!(driver.remove(target, &key).await.unwrap(), RemoveOutcome::Removed);
    assert_eq!(swarm.left(), Vec::<String>::new());
    drop(cut);
    // it is heard of again, and what ran there ends
    until("the node is back", async || driver.probe(target).await.is_ok_and(|f| f.nodes == Some(vec!["w2".to_owned()]))).await;
    let label = format!("label=com.docker.swarm.service.name={}", started.name);
    until("its container is gone", async || swarm.docker_on("w2", &["ps", "-aq", "--filter", &label]).is_empty()).await;
}

#[tokio::test]
async fn a_drained_node_takes_its_boxes_away_and_that_is_said() {
    let swarm = Swarm::with(FlockOperation::LockExclusive, |spec| spec.constraints = vec!["node.role==worker".into()]);
    let (driver, target) = (swarm.driver(), &swarm.corner.target);
    let key = swarm.corner.key("box");
    let started = swarm.up(&driver, &mut swarm.spec(&key), want(&key)).await.unwrap();
    let node = swarm.node_of(&started.name);
    swarm.docker(&["node", "update", "--availability", "drain", &node]);
    let state = async || driver.list(target).await.unwrap().into_iter().find(|b| b.key.as_ref() == Some(&key)).unwrap().state;
    until("the swarm ends it", async || matches!(state().await, BoxState::Exited(_))).await;
    let ending = driver.ending(target, &started.id).await.unwrap().unwrap();
    swarm.docker(&["node", "update", "--availability", "active", &node]);
    let why = ending.why.unwrap();
    assert!(
        why.starts_with("the swarm end") && why.ends_with(&format!("its task on {node}, as it does when a node is drained")),
        "{why}"
    );
    driver.remove(target, &key).await.unwrap();
    assert_eq!(swarm.left(), Vec::<String>::new());
}

#[tokio::test]
async fn while_it_is_full_a_look_is_enough() {
    // alone: the lock is taken from everybody
    let swarm = Swarm::with(FlockOperation::LockExclusive, |spec| spec.max_tasks = Some(1));
    let target = &swarm.corner.target;
    let driver =
        swarm.driver_with(Limits { lock_stale: Duration::from_secs(600), call: Duration::from_secs(20), ..Limits::default() });
    let keys = ["one", "two"].map(|role| swarm.corner.key(role));
    let admit = async |key: &BoxKey| driver.admit(target, &[want(key)]).await;
    assert!(matches!(admit(&keys[0]).await, Ok(Admitted::Held(_))));
    assert!(matches!(admit(&keys[1]).await, Ok(Admitted::Short(_))));
    let labels = [labels::UID, labels::INSTANCE].map(|label| format!("{label}={}", swarm.corner.instance));
    let (ours, theirs) = (format!("--label={}", labels[1]), format!("--label={}", labels[0]));
    let purpose = format!("--label={}=lock", labels::PURPOSE);
    let lock = ["service", "create", "-q", "--replicas=0", "--name=hmz-admission-lock", &ours, &theirs, &purpose, "busybox"];
    let lock = swarm.docker(&lock);
    let asked = futures::future::join_all((0..30).map(|_| admit(&keys[1]))).await;
    swarm.docker(&["service", "rm", &lock]);
    assert!(asked.iter().all(|answer| matches!(answer, Ok(Admitted::Short(_)))), "{asked:?}");
    // and when there is room it is asked for
    driver.remove(target, &keys[0]).await.unwrap();
    assert!(matches!(admit(&keys[1]).await, Ok(Admitted::Held(_))));
    driver.remove(target, &keys[1]).await.unwrap();
}
