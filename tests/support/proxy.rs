//! A socket between hmz and a docker daemon: the daemon is away for a while, or does not answer.

use super::docker;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the way to the daemon does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is there.
    Open,
    /// Nobody is at the socket any more.
    Cut,
    /// Whoever connects is let in and hears nothing.
    Silent,
}

/// The socket in between, in a directory of the test's.
pub struct Proxy {
    socket: PathBuf,
    way: Arc<Mutex<(Way, Vec<UnixStream>)>>,
}

impl Proxy {
    /// One before the docker daemon.
    pub fn of_docker(dir: &Path) -> Self {
        let host = docker::host().unwrap_or_else(|| "unix:///var/run/docker.sock".into());
        Self::new(dir, host.strip_prefix("unix://").expect("the daemon is reached over a socket"))
    }

    /// One before the socket `real`.
    pub fn new(dir: &Path, real: &str) -> Self {
        let real = PathBuf::from(real);
        let socket = dir.join("proxy.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let way: Arc<Mutex<(Way, Vec<UnixStream>)>> = Arc::new(Mutex::new((Way::Open, Vec::new())));
        let state = way.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = state.lock().unwrap();
                state.1.push(client.try_clone().unwrap());
                if state.0 == Way::Open {
                    let daemon = UnixStream::connect(&real).unwrap();
                    state.1.push(daemon.try_clone().unwrap());
                    pass(client.try_clone().unwrap(), daemon.try_clone().unwrap());
                    pass(daemon, client);
                } else if state.0 == Way::Cut {
                    let _ = client.shutdown(Shutdown::Both);
                }
            }
        });
        Self { socket, way }
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on it is so; what was connected is cut off.
    pub fn set(&self, way: Way) {
        let mut state = self.way.lock().unwrap();
        state.0 = way;
        for stream in state.1.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let aside = self.socket.with_extension("aside");
        if way == Way::Cut {
            std::fs::rename(&self.socket, aside).unwrap();
        } else if aside.exists() {
            std::fs::rename(aside, &self.socket).unwrap();
        }
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
