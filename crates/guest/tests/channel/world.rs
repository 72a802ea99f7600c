//! A box that is reached over a stream alone.

use crate::harness::docker;
use hmz_api::link::{Dial, Link, LinkKey, StreamLink};
use hmz_wire::{Client, ClientError, CommandEvent, Fence, Spawn, relay_argv};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Long enough that a loaded machine loses nothing.
pub const WINDOW_MS: u64 = 60_000;

pub struct Far {
    pub name: String,
    pub id: String,
    /// Where the dialling program looks whether it may go on.
    pub dir: tempfile::TempDir,
    argv: Vec<String>,
}

impl Far {
    /// A box whose first process is the guest.
    pub fn new() -> Self {
        Self::start("busybox:latest", 0)
    }

    pub fn start(image: &str, uid: u32) -> Self {
        Self::leased(image, uid, 0).expect("a box without a lease does not end")
    }

    /// One with a lease of some seconds; `None` when it has ended before it was there.
    pub fn leased(image: &str, uid: u32, lease: u32) -> Option<Self> {
        let lease = lease.to_string();
        let argv = ["guest", "--socket", "/.hmz/run/g.sock", "--channel", "--lease", &lease];
        let far = Self::container(image, uid, "/.hmz/hmz", &argv, relay_argv(), "--init=false");
        let mut gone = false;
        crate::harness::eventually("the guest's socket", || {
            let pid = far.pid();
            gone = pid.is_none();
            gone || pid.is_some_and(|pid| PathBuf::from(format!("/proc/{pid}/root/.hmz/run/g.sock")).exists())
        });
        (!gone).then_some(far)
    }

    /// A container that is somebody else's.
    pub fn foreign(image: &str) -> Self {
        let argv = ["/.hmz/hmz", "guest", "serve"].map(str::to_owned).to_vec();
        Self::container(image, 0, "sleep", &["1000000"], argv, "--init=true")
    }

    fn container(image: &str, uid: u32, entry: &str, command: &[&str], argv: Vec<String>, init: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let name = format!("hmz-test-far-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let label = format!("hmz-test=guest-{}", std::process::id());
        let program = format!("{}:/.hmz/hmz:ro", env!("CARGO_BIN_EXE_hmz-guest"));
        let user = format!("{uid}:{uid}");
        let mut args = vec!["run", "-d", "--rm", init, "--name", &name, "--label", &label, "--user", &user];
        args.extend(["--network", "none", "-v", &program, "--tmpfs", "/.hmz/run", "-e", "HMZ_OWN=box", "--entrypoint", entry]);
        args.push(image);
        args.extend(command);
        let id = docker(&args);
        Self { name, id, dir, argv }
    }

    /// Its first process, here; `None` when the container is gone.
    pub fn pid(&self) -> Option<u32> {
        let out = Process::new("docker").args(["inspect", "-f", "{{.State.Pid}}", &self.name]).output();
        let out = out.expect("the docker command line");
        String::from_utf8_lossy(&out.stdout).trim().parse().ok().filter(|pid| *pid != 0)
    }

    /// The file that ends all ways to the box when it is there.
    pub fn barrier(&self) -> PathBuf {
        self.dir.path().join("closed")
    }

    /// The way to it, with the window in milliseconds.
    pub fn link(&self, window_ms: u64) -> Option<StreamLink> {
        // a program as ssh is one: it goes through while nobody stands in its way
        let script = "test -e \"$0\" && { echo closed >&2; exit 1; }; exec docker exec -i \"$@\"";
        let mut argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned(), self.barrier().to_str()?.to_owned()];
        argv.push(self.name.clone());
        argv.extend(self.argv.iter().cloned());
        let env = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").ok()?)]);
        Some(StreamLink { window_ms, ..StreamLink::new(Dial::Program { argv, env }, key(1)) })
    }

    pub fn try_client(&self, link: StreamLink, fence: Option<Fence>) -> Result<Client, ClientError> {
        Client::open(&Link::Stream(Box::new(link)), false, fence)
    }

    pub fn client(&self) -> Client {
        self.try_client(self.link(WINDOW_MS).expect("a link"), None).expect("the guest")
    }

    /// Pids, here, of what runs in the container with these words in its command line.
    pub fn pids(&self, words: &str) -> Vec<i32> {
        let top = docker(&["top", &self.name, "-eo", "pid,args"]);
        let found = top.lines().skip(1).filter(|line| line.contains(words));
        found.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
    }

    /// Command lines of all that is not the guest's or the container's own.
    pub fn others(&self) -> Vec<String> {
        let top = docker(&["top", &self.name, "-eo", "pid,args"]);
        let all = top.lines().skip(1).map(str::trim).filter(|l| !l.contains("/.hmz/hmz guest") && !l.contains("sleep 1000000"));
        all.map(str::to_owned).collect()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // gone already is as good
        let _ = Process::new("docker").args(["rm", "-f", &self.name]).output();
    }
}

pub fn key(byte: u8) -> LinkKey {
    LinkKey::new([byte; 32])
}

/// A command, its input and its outputs.
type OnPipes = (hmz_wire::Command, File, File, File);

/// Starts it on three pipes.
pub fn on_pipes(client: &Client, spawn: Spawn) -> OnPipes {
    try_on_pipes(client, spawn).expect("spawn")
}

/// The same; `None` when the session is lost.
pub fn try_on_pipes(client: &Client, mut spawn: Spawn) -> Option<OnPipes> {
    let ((in_theirs, input), (out, out_theirs), (err, err_theirs)) =
        (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    spawn.fds = vec![0, 1, 2];
    let command = client.spawn(spawn, &[in_theirs.as_fd(), out_theirs.as_fd(), err_theirs.as_fd()]).ok()?;
    Some((command, File::from(OwnedFd::from(input)), File::from(OwnedFd::from(out)), File::from(OwnedFd::from(err))))
}

/// Events until one that ends it.
pub fn end(command: &hmz_wire::Command) -> CommandEvent {
    loop {
        match crate::harness::event(command) {
            CommandEvent::Started => {}
            other => return other,
        }
    }
}

pub fn kill(pid: i32, signal: nix::sys::signal::Signal) {
    // one that has gone meanwhile is as good
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
}

/// Resident memory of a process, in bytes; 0 when it is gone.
pub fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}
