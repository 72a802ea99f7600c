//! A docker daemon that lists so many boxes and does nothing else: a socket of our own.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// Starts it in a directory; its socket. It answers until this program ends.
///
/// # Panics
/// When there can be no socket there.
pub fn listing(dir: &Path, boxes: usize) -> PathBuf {
    let socket = dir.join("d.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    // one after another: a program that has held much is slow to start others, which is measured too
    let entries: Vec<String> = (0..boxes).map(|n| entry(n).to_string()).collect();
    let listing: Arc<str> = format!("[{}]", entries.join(",")).into();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let listing = Arc::clone(&listing);
            std::thread::spawn(move || answer(stream, &listing));
        }
    });
    socket
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
    let body = if line.starts_with("HEAD ") { "" } else { &body };
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}
