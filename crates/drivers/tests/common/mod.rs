//! A test's own corner of the shared daemon: an instance and a runtime name nobody else has, and their removal.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // of tests only, which clippy does not see here

use hmz_api::clock::SystemClock;
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::reference::{Backend, RuntimeRef};
use hmz_api::{Cpus, Memory};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, Limits};
use hmz_drivers::{Admitted, BoxKey, BoxSpec, BoxState, Driver, GuestFiles, Purpose, Target, Want};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The image tests run; it has to be on the daemon.
pub const IMAGE: &str = "busybox:latest";

/// How long anything may take before the test is taken to hang.
pub const HANG: Duration = Duration::from_secs(120);

pub struct Corner {
    pub instance: String,
    pub dir: tempfile::TempDir,
    pub target: Target,
}

impl Corner {
    pub fn new(spec: RuntimeSpec) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        let runtime = RuntimeRef::named(Backend::Docker, format!("t{}", &id[..8]));
        let local_endpoint = Some("unix:///var/run/docker.sock".to_owned());
        let dir = tempfile::tempdir().unwrap();
        for sub in ["work", "sock", "scratch"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
        }
        Self { instance: format!("test-{id}"), dir, target: Target { runtime, spec, local_endpoint } }
    }

    pub fn identity(&self) -> DockerIdentity {
        DockerIdentity {
            instance: self.instance.clone(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            user_name: "tester".into(),
            hostname: "testhost".into(),
            docker_config_dir: self.dir.path().join("docker-config"),
            sockets: self.dir.path().join("d"),
            guest: env!("CARGO_BIN_EXE_hmz-test-pid1").into(),
            hosts: Arc::new(hmz_drivers::docker::NoHosts),
            clock: Arc::new(SystemClock),
        }
    }

    pub fn driver(&self) -> DockerDriver {
        DockerDriver::new(self.identity())
    }

    pub fn with_limits(&self, limits: Limits) -> DockerDriver {
        DockerDriver::with_limits(self.identity(), limits)
    }

    pub fn key(&self, role: &str) -> BoxKey {
        BoxKey { instance: self.instance.clone(), uid: Uuid::new_v4(), incarnation: 1, role: role.into() }
    }

    pub fn work(&self) -> &Path {
        Box::leak(self.dir.path().join("work").into_boxed_path())
    }

    /// A box of this corner with 64 MiB and no share.
    pub fn spec(&self, key: &BoxKey) -> BoxSpec {
        BoxSpec {
            key: key.clone(),
            run: Some(Uuid::new_v4()),
            image: IMAGE.into(),
            workdir: self.work().to_owned(),
            share: Share::default(),
            limit: Share { cpus: Some(Cpus::from_millis(500)), memory: Some(Memory::from_bytes(64 << 20)), gpus: Vec::new() },
            lease: None,
            guest: GuestFiles {
                program: env!("CARGO_BIN_EXE_hmz-test-pid1").into(),
                socket_dir: self.dir.path().join("sock"),
                scratch: self.dir.path().join("scratch"),
            },
            programs: Vec::new(),
            trace: None,
        }
    }

    /// Ids of everything this corner has on the daemon.
    pub fn left(&self) -> Vec<String> {
        let label = format!("label=hmz.instance={}", self.instance);
        docker(&["ps", "-aq", "--no-trunc", "--filter", &label]).lines().map(str::to_owned).collect()
    }
}

/// Saved ssh hosts.
pub struct Hosts(Vec<(String, RuntimeSpec)>);

impl Hosts {
    /// Some.
    pub fn all(hosts: Vec<(String, RuntimeSpec)>) -> Self {
        Self(hosts)
    }

    /// One.
    pub fn of(name: &str, set: impl FnOnce(&mut RuntimeSpec)) -> Arc<Self> {
        let mut spec = RuntimeSpec::default();
        set(&mut spec);
        Arc::new(Self(vec![(name.to_owned(), spec)]))
    }
}

#[async_trait::async_trait]
impl hmz_drivers::docker::SavedHosts for Hosts {
    async fn find(&self, name: &str) -> Option<RuntimeSpec> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, spec)| spec.clone())
    }
}

impl Drop for Corner {
    fn drop(&mut self) {
        for id in self.left() {
            let _ = Command::new("docker").args(["rm", "-fv", &id]).output();
        }
    }
}

pub fn want(key: &BoxKey) -> Want {
    Want { key: key.clone(), run: None, cpus: None, memory: None, gpus: None, gpu_memory: None, image: None }
}

pub fn want_millis(key: &BoxKey, millis: u64) -> Want {
    Want { cpus: Some(Cpus::from_millis(millis)), ..want(key) }
}

/// CPUs and memory that others hold on the daemon.
pub async fn others(driver: &DockerDriver, target: &Target) -> Share {
    let mut shares = BTreeMap::new();
    for one in driver.list(target).await.unwrap() {
        let counts = match one.purpose {
            Purpose::Box => !matches!(one.state, BoxState::Exited(_)),
            Purpose::Hold => true,
            Purpose::Foreign => matches!(one.state, BoxState::Running(_)) && !one.provider.is_empty(),
            Purpose::Lock | Purpose::Probe => false,
        };
        if counts && one.provider != target.runtime.provider() {
            let id = one.key.as_ref().map_or_else(|| one.id.clone(), |k| format!("{}.{}", k.uid, k.incarnation));
            let (cpus, memory) = (one.share.cpus.unwrap_or_default().millis(), one.share.memory.unwrap_or_default().bytes());
            shares.insert(id, (cpus, memory));
        }
    }
    let (cpus, memory) = shares.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Share { cpus: Some(Cpus::from_millis(cpus)), memory: Some(Memory::from_bytes(memory)), gpus: Vec::new() }
}

/// The GPUs of each share that was granted.
pub fn granted(admitted: Admitted) -> Vec<Vec<String>> {
    match admitted {
        Admitted::Held(shares) => shares.into_iter().map(|s| s.gpus).collect(),
        Admitted::Short(short) => panic!("{short}"),
    }
}

/// What is said of the shares that were not.
pub fn short(admitted: Admitted) -> String {
    match admitted {
        Admitted::Short(short) => short.message,
        Admitted::Held(shares) => panic!("{shares:?}"),
    }
}

/// Admits and starts.
pub async fn up(driver: &DockerDriver, target: &Target, spec: &BoxSpec) -> hmz_drivers::Started {
    let wants = [want(&spec.key)];
    let mut admitted = driver.admit(target, &wants).await;
    // as a controller does: a daemon that says so may do it when it is asked again
    for _ in 0..5 {
        if !matches!(admitted, Err(hmz_drivers::DriverError::Transient(_))) {
            break;
        }
        admitted = driver.admit(target, &wants).await;
    }
    let admitted = admitted.unwrap();
    assert!(matches!(admitted, Admitted::Held(_)), "{admitted:?}");
    driver.start(target, spec).await.unwrap()
}

/// Runs the docker command line, which has to succeed.
pub fn docker(args: &[&str]) -> String {
    let out = Command::new("docker").args(args).output().expect("the docker command line is needed");
    assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
}

/// Runs a command in a box with the docker command line, as the box's own user; what it says, or how it ended.
pub fn exec(id: &str, command: &str) -> Result<String, String> {
    let out = Command::new("docker").args(["exec", id, "sh", "-c", command]).output().expect("the docker command line is needed");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if out.status.success() { Ok(said(&out.stdout)) } else { Err(format!("{} {}", said(&out.stdout), said(&out.stderr))) }
}

/// An image made by a Dockerfile; it goes with the value.
pub struct Image(pub String);

impl Image {
    pub fn new(dockerfile: &str) -> Self {
        use std::io::Write as _;
        let name = format!("hmz-test-{}:1", Uuid::new_v4().simple());
        let mut build = Command::new("docker")
            .args(["build", "-q", "-t", &name, "-"])
            .env("DOCKER_BUILDKIT", "0")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("the docker command line is needed");
        build.stdin.take().expect("it is piped").write_all(dockerfile.as_bytes()).unwrap();
        assert!(build.wait().unwrap().success(), "{dockerfile}");
        Self(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

/// What the lock of a process says of it.
pub fn mark(pid: u32) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().to_owned();
    format!("{}/{namespace}/{pid}:{start}", boot.trim())
}

/// One field of `docker inspect`.
pub fn inspect(name: &str, format: &str) -> String {
    docker(&["inspect", "--format", format, name])
}

/// Looks again and again until it is so; hangs no longer than [`HANG`].
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + HANG;
    while !so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Stands between a driver and the daemon: each request's line goes to `seen` before it is passed on. The socket's path.
pub fn between(c: &Corner, seen: impl Fn(&str) + Send + Sync + 'static) -> String {
    between_requests(c, move |request| seen(request.lines().next().unwrap_or_default()))
}

/// The same, and `seen` is given the first request of each connection whole.
pub fn between_requests(c: &Corner, seen: impl Fn(&str) + Send + Sync + 'static) -> String {
    between_at(c, "/var/run/docker.sock", seen)
}

/// The same, with the daemon at that socket.
pub fn between_at(c: &Corner, daemon: &str, seen: impl Fn(&str) + Send + Sync + 'static) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
    let path = c.dir.path().join("between.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let (seen, daemon) = (Arc::new(seen), daemon.to_owned());
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let (seen, daemon) = (Arc::clone(&seen), daemon.clone());
            tokio::spawn(async move {
                let (mut all, mut part) = (Vec::new(), vec![0; 65536]);
                while !is_whole(&all) {
                    let n = here.read(&mut part).await.unwrap();
                    if n == 0 {
                        break;
                    }
                    all.extend_from_slice(&part[..n]);
                }
                let text = String::from_utf8_lossy(&all).into_owned();
                tokio::task::spawn_blocking(move || seen(&text)).await.unwrap();
                let mut there = tokio::net::UnixStream::connect(&daemon).await.unwrap();
                there.write_all(&all).await.unwrap();
                let _ = copy_bidirectional(&mut here, &mut there).await;
            });
        }
    });
    path.display().to_string()
}

/// Whether a request's head is there, and as much of its body as the head says.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.strip_prefix("content-length:")).map_or(0, |n| n.trim().parse().unwrap_or(0));
    body.len() >= length
}
