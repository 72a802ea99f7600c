//! Engines of other versions, where they differ from the one that the other tests use.

#![allow(clippy::unwrap_used, clippy::expect_used)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, up, want};
use hmz_api::Memory;
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, Limits};
use hmz_drivers::{Admitted, Driver, DriverError, RemoveOutcome};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The engines of the testbed, by name.
const ENGINES: [&str; 3] = ["docker26", "docker28", "podman"];

/// How many want the lock at once.
const AT_ONCE: usize = 12;

/// A corner on an engine of the testbed.
struct There {
    corner: Corner,
    endpoint: String,
}

impl There {
    fn on(name: &str, spec: RuntimeSpec) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/testbed/engines");
        let out = Command::new(script).arg(name).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let endpoint = format!("unix://{}", text.trim_end().strip_prefix(&format!("{name}=")).unwrap());
        let mut corner = Corner::new(spec);
        corner.target.spec.endpoint = endpoint.parse().unwrap();
        corner.target.local_endpoint = None;
        Self { corner, endpoint }
    }

    /// Ids of everything this corner has there.
    fn left(&self) -> Vec<String> {
        let label = format!("label=hmz.instance={}", self.corner.instance);
        let words = ["-H", &self.endpoint, "ps", "-aq", "--no-trunc", "--filter", &label];
        common::docker(&words).lines().map(str::to_owned).collect()
    }
}

impl Drop for There {
    fn drop(&mut self) {
        for id in self.left() {
            let _ = Command::new("docker").args(["-H", &self.endpoint, "rm", "-fv", &id]).output();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_is_waited_for() {
    for engine in ENGINES {
        let there = There::on(engine, RuntimeSpec { max_containers: Some(1), ..Default::default() });
        let c = &there.corner;
        let drivers: Vec<_> = (0..AT_ONCE).map(|_| c.driver()).collect();
        let keys: Vec<_> = (0..AT_ONCE).map(|n| c.key(&format!("box{n}"))).collect();
        let asked = drivers.iter().zip(&keys).map(|(driver, key)| async { driver.admit(&c.target, &[want(key)]).await });
        let answers = futures::future::join_all(asked).await;
        let held = answers.iter().filter(|a| matches!(a, Ok(Admitted::Held(_)))).count();
        let short = answers.iter().filter(|a| matches!(a, Ok(Admitted::Short(_)))).count();
        assert_eq!((held, short), (1, AT_ONCE - 1), "{engine}: {answers:?}");
        for key in &keys {
            c.driver().remove(&c.target, key).await.unwrap();
        }
        assert!(there.left().is_empty(), "{engine}");
    }
}

#[tokio::test]
async fn what_is_there_already_is_adopted_and_a_strangers_is_left_alone() {
    for engine in ENGINES {
        let there = There::on(engine, RuntimeSpec::default());
        let (c, driver) = (&there.corner, there.corner.driver());
        let spec = c.spec(&c.key("box"));
        let mine = up(&driver, &c.target, &spec).await;
        assert_eq!(driver.start(&c.target, &spec).await.unwrap().id, mine.id, "{engine}");
        assert_eq!(driver.remove(&c.target, &spec.key).await.unwrap(), RemoveOutcome::Removed, "{engine}");
        let label = format!("hmz.instance={}", c.instance);
        let words = ["-H", &there.endpoint, "create", "--name", &mine.name, "--label", &label, common::IMAGE, "true"];
        let theirs = common::docker(&words);
        driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
        let error = driver.start(&c.target, &spec).await.unwrap_err();
        assert!(matches!(error, DriverError::Foreign(_)), "{engine}: {error}");
        driver.remove(&c.target, &spec.key).await.unwrap();
        assert_eq!(there.left(), [theirs], "{engine}");
    }
}

#[tokio::test]
async fn an_ordinary_user_has_a_name_and_not_the_file_it_is_in() {
    for engine in ENGINES {
        let there = There::on(engine, RuntimeSpec::default());
        let c = &there.corner;
        let who = DockerIdentity { uid: 54_321, gid: 54_322, user_name: "tester".into(), ..c.identity() };
        let started = up(&DockerDriver::new(who), &c.target, &c.spec(&c.key("box"))).await;
        let command = "whoami; id -gn; stat -c '%a %u %g' /etc/passwd /etc/group";
        let told = common::docker(&["-H", &there.endpoint, "exec", &started.id, "sh", "-c", command]);
        assert_eq!(told, "tester\ntester\n644 0 0\n644 0 0", "{engine}");
    }
}

#[tokio::test]
async fn what_is_refused_as_if_it_were_trouble_is_refused_in_the_end() {
    // there is no such network, and below that much memory nothing starts
    let network = RuntimeSpec { run_args: vec!["--network=hmz-test-none".into()], ..Default::default() };
    let memory = RuntimeSpec::default();
    for (engine, spec, words) in [
        ("docker28", &network, "network hmz-test-none not found"),
        ("podman", &network, "network not found"),
        ("podman", &memory, "memory limit"),
    ] {
        let there = There::on(engine, spec.clone());
        let c = &there.corner;
        let driver = c.with_limits(Limits { same_words: Duration::ZERO, ..Limits::default() });
        let mut spec = c.spec(&c.key("box"));
        if words == "memory limit" {
            spec.limit.memory = Some(Memory::from_bytes(64 << 10));
        }
        let mut said = Vec::new();
        while said.len() < 3 {
            driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
            let error = driver.start(&c.target, &spec).await.unwrap_err();
            let is_final = !error.is_retryable();
            said.push(error.to_string());
            if is_final {
                break;
            }
        }
        assert!(said.len() < 3, "{engine}: {said:?}");
        assert!(said.iter().all(|one| one.contains(words)), "{engine}: {said:?}");
        assert!(there.left().is_empty(), "{engine}");
        // where it has to stand for a while, it is tried again until then
        let patient = c.with_limits(Limits { same_words: Duration::from_secs(3600), ..Limits::default() });
        for _ in 0..2 {
            patient.admit(&c.target, &[want(&spec.key)]).await.unwrap();
            let error = patient.start(&c.target, &spec).await.unwrap_err();
            assert_eq!(error.is_retryable(), engine == "podman", "{engine}: {error}");
        }
    }
}

#[tokio::test]
async fn gpus_that_an_engine_does_not_give_are_refused() {
    for engine in ENGINES {
        let spec = RuntimeSpec { gpus: vec!["GPU-none".into()], ..Default::default() };
        let there = There::on(engine, spec);
        let (c, driver) = (&there.corner, there.corner.driver());
        let key = c.key("box");
        let wanted = hmz_drivers::Want { gpus: Some(1), ..want(&key) };
        assert!(matches!(driver.admit(&c.target, &[wanted]).await.unwrap(), Admitted::Held(_)), "{engine}");
        let share = Share { gpus: vec!["GPU-none".into()], ..Share::default() };
        let error = driver.start(&c.target, &hmz_drivers::BoxSpec { share, ..c.spec(&key) }).await.unwrap_err();
        let DriverError::Refused(words) = &error else { panic!("{engine}: {error}") };
        assert!(
            words.starts_with(&format!("could not start a container of {} on {}: ", common::IMAGE, there.endpoint)),
            "{words}"
        );
        driver.remove(&c.target, &key).await.unwrap();
        assert!(there.left().is_empty(), "{engine}");
    }
}
