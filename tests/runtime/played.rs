//! A docker daemon with GPUs, which the machines of tests have not got: a socket that answers two questions.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// What it says of itself: the daemon of the page on containers.
const INFO: &str = r#"{"ServerVersion": "29.4.3", "NCPU": 64, "MemTotal": 2163600000000, "DefaultRuntime": "nvidia", "Runtimes":
  {"io.containerd.runc.v2": {}, "nvidia": {}, "runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"},
  {"Source": "cdi", "ID": "nvidia.com/gpu=1"}, {"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}"#;

/// Plays it at that socket until this process ends.
pub fn play(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
}

fn answer(mut stream: UnixStream) -> Option<()> {
    loop {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            // the client has what it wanted
            stream.read_exact(&mut byte).ok()?;
            request.push(byte[0]);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let body = if request.contains("/info ") { INFO } else { "OK" };
        let head = "HTTP/1.1 200 OK\r\nApi-Version: 1.47\r\nContent-Type: application/json";
        stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    }
}
