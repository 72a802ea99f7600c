//! Admission of one box on a daemon that lists a thousand held ones, played by a socket of our own: what hmz itself costs.

use crate::listed;
use crate::rounds::median;
use crate::table::{Aim, Figure, Unit};
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_api::{Backend, Cpus, RuntimeRef};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, NoHosts};
use hmz_drivers::{Admitted, BoxKey, Driver, Target, Want};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// How many boxes are held.
const HELD: usize = 1000;

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let dir = tempfile::Builder::new().prefix("hmz-t").tempdir_in("/var/tmp").expect("a directory");
    let socket = listed::listing(dir.path(), HELD);
    let spec = RuntimeSpec {
        endpoint: Endpoint::Unix(socket.display().to_string()),
        cpus: Some(Cpus::whole(4096)),
        memory: Some(hmz_api::Memory::from_bytes(1 << 50)),
        ..RuntimeSpec::default()
    };
    let target = Target { runtime: RuntimeRef::named(Backend::Docker, "here"), spec, local_endpoint: None };
    let driver = DockerDriver::new(identity(dir.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let admitted = || {
        let key = BoxKey { instance: "bench".into(), uid: Uuid::new_v4(), incarnation: 1, role: "box".into() };
        let want = Want { key, run: None, cpus: Some(Cpus::whole(1)), memory: None, gpus: None, gpu_memory: None, image: None };
        let began = Instant::now();
        let answer = runtime.block_on(driver.admit(&target, &[want]));
        let took = began.elapsed().as_secs_f64();
        assert!(matches!(answer, Ok(Admitted::Held(_))), "{answer:?}");
        took
    };
    admitted();
    let took: Vec<f64> = (0..rounds).map(|_| admitted()).collect();
    vec![Figure::alone("admission beside 1,000 held boxes", Unit::Seconds, median(&took), Aim::Value(0.02))]
}

fn identity(dir: &Path) -> DockerIdentity {
    DockerIdentity {
        instance: "bench".into(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        user_name: "bench".into(),
        hostname: "bench".into(),
        docker_config_dir: dir.join("docker-config"),
        sockets: dir.join("d"),
        guest: dir.join("guest"),
        hosts: Arc::new(NoHosts),
        clock: Arc::new(hmz_api::clock::SystemClock),
    }
}
