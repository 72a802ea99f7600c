//! Admission of one box on a daemon that lists a thousand held ones, played by a socket of our own: what hmz itself costs.

use crate::rounds::median;
use crate::table::{Aim, Figure, Unit};
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_api::{Backend, Cpus, RuntimeRef};
use hmz_drivers::docker::{DockerDriver, DockerIdentity, NoHosts};
use hmz_drivers::{Admitted, BoxKey, Driver, Target, Want};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// How many boxes are held.
const HELD: usize = 1000;

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let dir = tempfile::Builder::new().prefix("hmz-t").tempdir_in("/var/tmp").expect("a directory");
    let socket = dir.path().join("d.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let listing: Arc<str> = Value::Array((0..HELD).map(entry).collect()).to_string().into();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let listing = Arc::clone(&listing);
            std::thread::spawn(move || answer(stream, &listing));
        }
    });
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

/// A box as docker lists one, with all it says of it.
fn entry(n: usize) -> Value {
    let (instance, uid) = (format!("home-{}", n % 7), Uuid::new_v4());
    let digest =
        Sha256::new().chain_update(&instance).chain_update([0]).chain_update(uid.as_bytes()).chain_update(1u64.to_be_bytes());
    let tag: String = digest.finalize().iter().take(4).map(|b| format!("{b:02x}")).collect();
    let id = format!("{:064x}", uid.as_u128());
    json!({
        "Id": id, "Names": [format!("/humanize-here-box-{tag}")], "Image": "python:3.12-slim",
        "ImageID": format!("sha256:{id}"), "Command": "/.hmz/hmz guest /.hmz/run/g.sock 120", "Created": 1_790_000_000 + n, "Ports": [],
        "Labels": {
            "humanize": "0", "humanize.provider": "here", "humanize.role": "box", "humanize.host": "bench", "humanize.cpus": "1",
            "humanize.memory": "1073741824", "hmz.instance": instance, "hmz.uid": uid.to_string(), "hmz.incarnation": "1",
            "hmz.run": Uuid::new_v4().to_string(), "hmz.purpose": "box",
        },
        "State": "running", "Status": "Up 2 hours", "HostConfig": {"NetworkMode": "default"},
        "NetworkSettings": {"Networks": {"bridge": {
            "IPAMConfig": null, "Links": null, "Aliases": null, "NetworkID": id, "EndpointID": id, "Gateway": "172.17.0.1",
            "IPAddress": "172.17.0.2", "IPPrefixLen": 16, "IPv6Gateway": "", "GlobalIPv6Address": "", "GlobalIPv6PrefixLen": 0,
            "MacAddress": "02:42:ac:11:00:02", "DriverOpts": null,
        }}},
        "Mounts": [
            {"Type": "bind", "Source": "/root/.hmz/state/guest/0123456789abcdef/hmz", "Destination": "/.hmz/hmz", "Mode": "",
             "RW": false, "Propagation": "rprivate"},
            {"Type": "bind", "Source": format!("/tmp/hmz-0/{tag}/run"), "Destination": "/.hmz/run", "Mode": "", "RW": true,
             "Propagation": "rprivate"},
            {"Type": "bind", "Source": "/root/project", "Destination": "/root/project", "Mode": "", "RW": true,
             "Propagation": "rprivate"},
        ],
    })
}

/// Answers one request as a daemon would that does nothing: what is made has an id, and the lock is whose it was given to.
fn answer(mut stream: UnixStream, listing: &str) {
    let mut buffer = vec![0; 64 << 10];
    let read = stream.read(&mut buffer).unwrap_or(0);
    let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
    let line = request.lines().next().unwrap_or_default();
    let lock = json!({"Id": "1", "Name": "/hmz-admission-lock", "State": {"Status": "created"}, "Config": {"Labels": {
        "humanize": "0", "hmz.purpose": "lock"}}});
    let (status, body) = match line {
        _ if line.starts_with("DELETE ") => ("204 No Content", String::new()),
        _ if line.starts_with("POST ") => ("201 Created", json!({"Id": "1", "Warnings": []}).to_string()),
        _ if line.contains("/containers/hmz-admission-lock/json") => ("200 OK", lock.to_string()),
        _ if line.contains("/containers/json") => ("200 OK", listing.to_owned()),
        _ => ("200 OK", "{}".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}
