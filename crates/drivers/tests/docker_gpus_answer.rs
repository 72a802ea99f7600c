//! Whether GPUs answer, on a real daemon that gives devices by the container device interface. There are none on the machine of
//! a test: each device is a program in place of NVIDIA's, which says what a GPU's would, and everything else is real.

#![allow(clippy::unwrap_used, clippy::panic)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, HANG, IMAGE, short, want};
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::rest::GpuUsage;
use hmz_api::{Cpus, Memory};
use hmz_drivers::docker::{DockerDriver, Limits};
use hmz_drivers::{Admitted, BoxKey, Driver, DriverError, Want, lacking, silent_gpus};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;

/// What a GPU's program says.
const ANSWERS: &str = "echo '0, $UUID'";
const DEAD: &str = "echo 'No devices were found'; exit 6";
const LOST: &str = "echo 'Unable to determine the device handle'; exit 15";
const NOT_ITS_FAULT: &str = "echo 'Failed to initialize NVML: Unknown Error'; exit 255";
const HANGS: &str = "sleep 1000";

/// A corner on the engine, with devices that only it has: their numbers, and what they are.
struct Machine {
    corner: Corner,
    endpoint: String,
    devices: PathBuf,
    programs: tempfile::TempDir,
    numbers: Vec<String>,
}

impl Machine {
    /// GPUs that say these.
    fn with(says: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/testbed/engines");
        let out = Command::new(script).arg("docker28").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let endpoint = String::from_utf8(out.stdout).unwrap().trim_end().replace("docker28=", "unix://");
        let id = Uuid::new_v4();
        let base = 1_000_000 + u32::from_be_bytes(id.as_bytes()[..4].try_into().unwrap()) % 1_000_000_000;
        let numbers: Vec<String> = (0..says.len() as u32).map(|n| (base + n).to_string()).collect();
        let (cpus, memory) = (Some(Cpus::whole(1 << 20)), Some(Memory::from_bytes(1 << 50)));
        let mut corner = Corner::new(RuntimeSpec { cpus, memory, gpus: numbers.clone(), ..RuntimeSpec::default() });
        corner.target.spec.endpoint = endpoint.parse().unwrap();
        corner.target.local_endpoint = None;
        let devices = PathBuf::from(format!("/etc/cdi/hmz-test-{}.json", id.simple()));
        let machine = Self { corner, endpoint, devices, programs: tempfile::tempdir().unwrap(), numbers };
        for (n, says) in says.iter().enumerate() {
            machine.says(n, says);
        }
        machine.list();
        machine
    }

    fn program(&self, n: usize) -> PathBuf {
        self.programs.path().join(n.to_string())
    }

    /// From now on this one says that. The file stays the same one: a container that has it mounted has the new one too.
    fn says(&self, n: usize, says: &str) {
        let says = says.replace("$UUID", &self.uuid(n));
        std::fs::write(self.program(n), format!("#!/bin/sh\n{says}\n")).unwrap();
        std::fs::set_permissions(self.program(n), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn uuid(&self, n: usize) -> String {
        format!("GPU-{}", self.numbers[n])
    }

    /// What lists them, each by its uuid and, where that is said, by its number.
    fn spec(&self, numbered: bool) -> String {
        let device = |n: usize, name: &str| {
            let mounts =
                json!([{"hostPath": self.program(n), "containerPath": "/usr/bin/nvidia-smi", "options": ["ro", "bind"]}]);
            json!({"name": name, "containerEdits": {"mounts": mounts}})
        };
        let numbers = self.numbers.iter().enumerate().filter(|_| numbered).map(|(n, number)| device(n, number));
        let devices: Vec<_> = (0..self.numbers.len()).map(|n| device(n, &self.uuid(n))).chain(numbers).collect();
        json!({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}).to_string()
    }

    /// Has the daemon list them, each by its number and its uuid.
    fn list(&self) {
        list(&self.devices, &self.spec(true));
    }

    fn driver(&self) -> DockerDriver {
        self.corner.driver()
    }

    fn limits(&self, limits: Limits) -> DockerDriver {
        self.corner.with_limits(limits)
    }

    /// Waits until the daemon lists them: it looks at the folder by itself.
    async fn listed(self) -> Self {
        let deadline = tokio::time::Instant::now() + HANG;
        loop {
            // a driver asks what a daemon has no more than every few seconds
            let there = self.driver().probe(&self.corner.target).await.unwrap().gpu_names;
            if self.numbers.iter().all(|n| there.contains(n)) {
                return self;
            }
            assert!(tokio::time::Instant::now() < deadline, "{there:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn wants(&self, key: &BoxKey, gpus: u32) -> Want {
        Want { gpus: Some(gpus), image: Some(IMAGE.into()), ..want(key) }
    }

    /// What this corner has there, by a format of `docker ps`.
    fn there(&self, format: &str) -> Vec<String> {
        let label = format!("label=hmz.instance={}", self.corner.instance);
        let out = common::docker(&["-H", &self.endpoint, "ps", "-a", "--no-trunc", "--filter", &label, "--format", format]);
        out.lines().map(str::to_owned).collect()
    }

    fn probes(&self) -> Vec<String> {
        self.there("{{.Names}}").into_iter().filter(|name| name.starts_with("humanize-gpus-")).collect()
    }
}

/// Has the daemon list what that says.
fn list(devices: &Path, spec: &str) {
    std::fs::create_dir_all("/etc/cdi").unwrap();
    std::fs::write(devices.with_extension("part"), spec).unwrap();
    std::fs::rename(devices.with_extension("part"), devices).unwrap();
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.devices);
        for id in self.there("{{.ID}}") {
            let _ = Command::new("docker").args(["-H", &self.endpoint, "rm", "-fv", &id]).output();
        }
    }
}

/// The GPUs of all shares that were granted.
fn granted(admitted: Admitted) -> Vec<String> {
    common::granted(admitted).concat()
}

#[tokio::test]
async fn one_that_does_not_answer_is_not_handed_out_and_that_is_said() {
    let m = Machine::with(&[DEAD, ANSWERS, LOST]).listed().await;
    let (driver, target, key) = (m.driver(), &m.corner.target, m.corner.key("box"));
    let words = short(driver.admit(target, &[m.wants(&key, 3)]).await.unwrap());
    let (at, n) = (target.runtime.at(), &m.numbers);
    assert_eq!(words, format!("{at} has 1 of 3 GPUs free, and 'box' asks for 3 (GPUs {}, {} do not answer)", n[0], n[2]));
    assert_eq!(granted(driver.admit(target, &[m.wants(&key, 1)]).await.unwrap()), [n[1].clone()]);
    // who looks at the runtime is told too
    let facts = driver.probe(target).await.unwrap();
    assert_eq!(silent_gpus(&target.spec, &facts), [n[0].clone(), n[2].clone()]);
    assert_eq!(lacking(&target.spec, &facts).last(), Some(&format!("GPUs {}, {} do not answer", n[0], n[2])));
    assert_eq!(m.probes(), [] as [&str; 0]);
    // the box has the one that answers
    let spec = hmz_drivers::BoxSpec { share: Share { gpus: vec![n[1].clone()], ..Share::default() }, ..m.corner.spec(&key) };
    let started = driver.start(target, &spec).await.unwrap();
    assert_eq!(common::docker(&["-H", &m.endpoint, "exec", &started.id, "nvidia-smi"]), format!("0, {}", m.uuid(1)));
    // and says what that does
    m.says(1, "[ \"$1\" = --query-gpu=utilization.gpu,memory.used,memory.total ] && echo '64, 1024, 16384'");
    let usage = driver.usage(target, &started.id, None).await.unwrap();
    let gib = |n: u64| Memory::from_bytes(n << 30);
    assert_eq!(usage.gpus, Some(GpuUsage { percent: 64, memory: gib(1), memory_limit: gib(16) }));
    m.says(1, DEAD);
    assert_eq!(driver.usage(target, &started.id, None).await.unwrap().gpus, None);
}

#[tokio::test]
async fn how_much_memory_one_has_it_says_itself() {
    let m = Machine::with(&["echo '0, $UUID, 16384'", "echo '0, $UUID, 24576'"]).listed().await;
    let (driver, key) = (m.driver(), m.corner.key("box"));
    let asks = |gib: u64| [Want { gpu_memory: Some(Memory::from_bytes(gib << 30)), ..m.wants(&key, 1) }];
    let words = short(driver.admit(&m.corner.target, &asks(24)).await.unwrap());
    let at = m.corner.target.runtime.at();
    assert_eq!(words, format!("{at} has a GPU of 16 GiB, and 'box' asks for 24 GiB"));
    assert_eq!(granted(driver.admit(&m.corner.target, &asks(16)).await.unwrap()), [m.numbers[0].clone()]);
    // one that does not say it is promised for nothing, unless that was saved
    let quiet = Machine::with(&[ANSWERS]).listed().await;
    let want = [Want { gpu_memory: Some(Memory::from_bytes(1 << 30)), ..quiet.wants(&key, 1) }];
    let words = short(quiet.driver().admit(&quiet.corner.target, &want).await.unwrap());
    assert!(words.contains("is not known (say it in the runtime's gpu_memory), and 'box' asks for 1 GiB"), "{words}");
    let mut said = quiet.corner.target.clone();
    said.spec.gpu_memory = Some(Memory::from_bytes(8 << 30));
    assert_eq!(granted(quiet.driver().admit(&said, &want).await.unwrap()), [quiet.numbers[0].clone()]);
}

#[tokio::test]
async fn what_nobody_can_tell_is_handed_out() {
    let m = Machine::with(&[NOT_ITS_FAULT, HANGS]).listed().await;
    let driver = m.limits(Limits { gpu_answers: Duration::from_secs(2), ..Limits::default() });
    let (target, n) = (&m.corner.target, &m.numbers);
    assert_eq!(granted(driver.admit(target, &[m.wants(&m.corner.key("a"), 2)]).await.unwrap()), *n);
    // the one that hangs is not waited for, and goes
    common::until("no container that asks is left", async || m.probes().is_empty()).await;
    // nor is it told by an image that is not there, or by nobody
    m.says(0, DEAD);
    for image in [Some("hmz-test-not-there:1".to_owned()), None] {
        let (driver, key) = (m.driver(), m.corner.key("b"));
        let want = Want { image, ..m.wants(&key, 2) };
        assert!(short(driver.admit(target, &[want]).await.unwrap()).contains(" has 0 of 2 GPUs free"));
    }
}

#[tokio::test]
async fn what_was_heard_holds_for_a_time() {
    let m = Machine::with(&[DEAD]).listed().await;
    let (target, key) = (&m.corner.target, m.corner.key("box"));
    let (long, brief) = (m.driver(), m.limits(Limits { gpus_known: Duration::ZERO, ..Limits::default() }));
    let wants = [m.wants(&key, 1)];
    for driver in [&long, &brief] {
        short(driver.admit(target, &wants).await.unwrap());
    }
    m.says(0, ANSWERS);
    short(long.admit(target, &wants).await.unwrap());
    assert_eq!(granted(brief.admit(target, &wants).await.unwrap()), [m.numbers[0].clone()]);
    // one that died since it was granted is not in a box: it is granted anew
    m.says(0, DEAD);
    let spec = hmz_drivers::BoxSpec { share: Share { gpus: m.numbers.clone(), ..Share::default() }, ..m.corner.spec(&key) };
    let error = brief.start(target, &spec).await.unwrap_err();
    let words = format!("{}: GPU {} does not answer", target.runtime.at(), m.numbers[0]);
    assert_eq!(error, DriverError::Transient(words));
    assert_eq!(m.there("{{.Names}}"), [] as [&str; 0]);
}

#[tokio::test]
async fn its_number_and_its_uuid_are_one_gpu() {
    let mut m = Machine::with(&[ANSWERS, ANSWERS]).listed().await;
    let by_number = m.corner.target.clone();
    let driver = m.driver();
    let first = granted(driver.admit(&by_number, &[m.wants(&m.corner.key("a"), 1)]).await.unwrap());
    assert_eq!(first, [m.numbers[0].clone()]);
    // a runtime of the same daemon that calls them by their uuids, of another process
    m.corner.target.spec.gpus = vec![m.uuid(0), m.uuid(1)];
    let (other, by_uuid) = (m.driver(), m.corner.target.clone());
    let second = granted(other.admit(&by_uuid, &[m.wants(&m.corner.key("b"), 1)]).await.unwrap());
    assert_eq!(second, [m.uuid(1)]);
    let third = driver.admit(&by_number, &[m.wants(&m.corner.key("c"), 1)]).await.unwrap();
    let words = short(third);
    assert!(words.contains(" has 0 of 2 GPUs free, and 'c' asks for 1 (GPU "), "{words}");
    assert!(words.contains(&format!("GPU {} held by ", m.uuid(1))), "{words}");
    let fourth = short(other.admit(&by_uuid, &[m.wants(&m.corner.key("d"), 1)]).await.unwrap());
    assert!(fourth.contains(" has 0 of 2 GPUs free, and 'd' asks for 1"), "{fourth}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_while_asking_leaves_nothing_and_nobody_waits_inside_the_lock() {
    let m = Machine::with(&[HANGS]).listed().await;
    let (target, driver) = (&m.corner.target, m.limits(Limits { gpu_answers: Duration::from_secs(5), ..Limits::default() }));
    let (one, two) = (m.corner.key("one"), m.corner.key("two"));
    let wants = [m.wants(&one, 1)];
    tokio::select! {
        admitted = driver.admit(target, &wants) => panic!("{admitted:?}"),
        () = async {
            common::until("it is asked", async || m.probes().len() == 1).await;
            // the label of all that is ours finds it, and it has the GPU alone and no network
            let name = &m.probes()[0];
            let uid = format!("label=humanize={}", rustix::process::getuid().as_raw());
            let found = common::docker(&["-H", &m.endpoint, "ps", "-a", "--filter", &uid, "--filter", &format!("name={name}"), "-q"]);
            assert!(!found.is_empty());
            let has = common::docker(&["-H", &m.endpoint, "inspect", "--format", "{{.HostConfig.NetworkMode}} {{json .HostConfig.DeviceRequests}} {{.Config.Entrypoint}} {{.Config.Cmd}}", name]);
            assert!(has.starts_with("none ") && has.contains(&format!("nvidia.com/gpu={}", m.numbers[0])), "{has}");
            assert!(has.ends_with("[nvidia-smi] [--query-gpu=index,uuid,memory.total --format=csv,noheader,nounits]"), "{has}");
            // who wants none is admitted meanwhile
            assert!(matches!(driver.admit(target, &[want(&two)]).await.unwrap(), Admitted::Held(_)));
            assert_eq!(m.probes().len(), 1);
        } => {}
    }
    common::until("nothing that asks is left", async || m.probes().is_empty()).await;
}

#[tokio::test]
async fn what_a_dead_process_left_is_removed_once_it_is_old() {
    let m = Machine::with(&[ANSWERS]).listed().await;
    let (driver, target) = (m.driver(), &m.corner.target);
    let instance = format!("hmz.instance={}", m.corner.instance);
    let name = format!("humanize-gpus-{}", &Uuid::new_v4().simple().to_string()[..16]);
    let words = ["-H", &m.endpoint, "create", "--name", &name, "--label", "humanize=1", "--label", "hmz.purpose=probe"];
    common::docker(&[&words[..], &["--label", &instance, IMAGE, "true"]].concat());
    // one that may still be heard out stays, and holds nothing
    driver.tidy(target).await.unwrap();
    assert_eq!(m.probes(), std::slice::from_ref(&name));
    assert_eq!(granted(driver.admit(target, &[m.wants(&m.corner.key("a"), 1)]).await.unwrap()), m.numbers);
    assert_eq!(m.probes(), [name]);
    // one that is older than any is waited for goes, whoever made it
    let hasty = m.limits(Limits { gpu_answers: Duration::from_millis(250), ..Limits::default() });
    common::until("it is removed", async || {
        hasty.tidy(target).await.unwrap();
        m.probes().is_empty()
    })
    .await;
}

/// A box of this corner on the machine, with that share.
fn boxed(m: &Machine, key: &BoxKey, gpus: &[String]) -> hmz_drivers::BoxSpec {
    hmz_drivers::BoxSpec { share: Share { gpus: gpus.to_vec(), ..Share::default() }, ..m.corner.spec(key) }
}

#[tokio::test]
async fn one_that_was_granted_before_its_other_name_was_known_is_given_back() {
    let mut m = Machine::with(&[ANSWERS, ANSWERS]).listed().await;
    let (one, by_number, a, b) = (m.driver(), m.corner.target.clone(), m.corner.key("a"), m.corner.key("b"));
    assert_eq!(granted(one.admit(&by_number, &[m.wants(&a, 1)]).await.unwrap()), [m.numbers[0].clone()]);
    // another process calls them by their uuids, and has no image to ask them with yet
    m.corner.target.spec.gpus = vec![m.uuid(0), m.uuid(1)];
    let (other, by_uuid) = (m.driver(), m.corner.target.clone());
    let unasked = Want { image: None, ..m.wants(&b, 1) };
    let first = granted(other.admit(&by_uuid, &[unasked]).await.unwrap());
    assert_eq!(first, [m.uuid(0)]);
    let error = other.start(&by_uuid, &boxed(&m, &b, &first)).await.unwrap_err();
    assert!(matches!(error, DriverError::Transient(_)), "{error}");
    let words = format!("{}: GPU {} is held by ", by_uuid.runtime.at(), m.uuid(0));
    assert!(error.to_string().starts_with(&words), "{error}");
    // its admission anew knows
    let second = granted(other.admit(&by_uuid, &[m.wants(&b, 1)]).await.unwrap());
    assert_eq!(second, [m.uuid(1)]);
    other.start(&by_uuid, &boxed(&m, &b, &second)).await.unwrap();
    one.start(&by_number, &boxed(&m, &a, &[m.numbers[0].clone()])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_between_the_question_and_the_lock_is_asked_too() {
    let mut m = Machine::with(&[ANSWERS, ANSWERS]).listed().await;
    // until then nothing says that they have numbers
    let (both, devices, numbers) = (m.spec(true), m.devices.clone(), m.numbers.clone());
    list(&m.devices, &m.spec(false));
    common::until("the numbers are gone", async || {
        !m.driver().probe(&m.corner.target).await.unwrap().gpu_names.contains(&numbers[0])
    })
    .await;
    let (by_number, a, b) = (m.corner.target.clone(), m.corner.key("a"), m.corner.key("b"));
    let wants = Want { image: None, ..m.wants(&a, 1) };
    let (came, handle) = (AtomicBool::new(false), tokio::runtime::Handle::current());
    let identity = m.corner.identity();
    let between = common::between_at(&m.corner, m.endpoint.trim_start_matches("unix://"), move |request| {
        let is_lock = request.starts_with("POST ") && request.contains("hmz-admission-lock");
        if !is_lock || came.swap(true, Ordering::SeqCst) {
            return;
        }
        list(&devices, &both);
        let began = std::time::Instant::now();
        handle.block_on(async {
            let driver = || DockerDriver::new(identity.clone());
            let admitted = driver().admit(&by_number, std::slice::from_ref(&wants)).await.unwrap();
            assert_eq!(granted(admitted), [numbers[0].clone()]);
            // what a daemon has is good for five seconds
            common::until("they are listed, and that is looked at again", async || {
                let listed = driver().probe(&by_number).await.unwrap().gpu_names.contains(&numbers[0]);
                listed && began.elapsed() > Duration::from_secs(5)
            })
            .await;
        });
    });
    m.corner.target.spec.endpoint = format!("unix://{between}").parse().unwrap();
    m.corner.target.spec.gpus = vec![m.uuid(0), m.uuid(1)];
    let by_uuid = m.corner.target.clone();
    assert_eq!(granted(m.driver().admit(&by_uuid, &[m.wants(&b, 1)]).await.unwrap()), [m.uuid(1)]);
}

#[tokio::test]
async fn a_hold_does_not_age_out_while_its_gpus_are_asked() {
    let m = Machine::with(&[HANGS]).listed().await;
    let ages = Limits { hold_age: Duration::from_secs(6), gpu_answers: Duration::from_secs(9), ..Limits::default() };
    let (driver, target, key) = (m.limits(ages), &m.corner.target, m.corner.key("box"));
    let unasked = Want { image: None, ..m.wants(&key, 1) };
    assert_eq!(granted(driver.admit(target, &[unasked]).await.unwrap()), m.numbers);
    driver.start(target, &boxed(&m, &key, &m.numbers)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_room_asks_nobody() {
    let mut m = Machine::with(&[ANSWERS]).listed().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (daemon, count) = (m.endpoint.trim_start_matches("unix://").to_owned(), Arc::clone(&asked));
    let between = common::between_at(&m.corner, &daemon, move |request| {
        let asks = request.starts_with("POST ") && request.contains("/containers/create?name=humanize-gpus-");
        count.fetch_add(usize::from(asks), Ordering::SeqCst);
    });
    m.corner.target.spec.endpoint = format!("unix://{between}").parse().unwrap();
    let (target, driver) = (&m.corner.target, m.limits(Limits { gpus_known: Duration::ZERO, ..Limits::default() }));
    let (a, b) = (m.corner.key("a"), m.corner.key("b"));
    assert_eq!(granted(driver.admit(target, &[m.wants(&a, 1)]).await.unwrap()), m.numbers);
    short(driver.admit(target, &[m.wants(&b, 1)]).await.unwrap());
    let before = asked.load(Ordering::SeqCst);
    for _ in 0..3 {
        short(driver.admit(target, &[m.wants(&b, 1)]).await.unwrap());
    }
    assert_eq!(asked.load(Ordering::SeqCst), before);
    // who waits for one that is silent hears whether it still is
    driver.remove(target, &a).await.unwrap();
    m.says(0, DEAD);
    short(driver.admit(target, &[m.wants(&b, 1)]).await.unwrap());
    m.says(0, ANSWERS);
    assert_eq!(granted(driver.admit(target, &[m.wants(&b, 1)]).await.unwrap()), m.numbers);
}
