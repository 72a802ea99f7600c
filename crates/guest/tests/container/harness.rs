//! A real container with the guest as its first process, and shorthands to work in it.

pub use crate::container::{LIMIT, docker, eventually};
use hmz_wire::{Bytes, Client, ClientError, Command, CommandEvent, Fence, Spawn, Status};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct Boxed {
    pub name: String,
    pub pid: i32,
    pub dir: tempfile::TempDir,
}

pub struct How<'a> {
    pub image: &'a str,
    pub uid: u32,
    pub lease: u32,
    pub docker: &'a [&'a str],
}

pub const BUSYBOX: How<'static> = How { image: "busybox:latest", uid: 0, lease: 0, docker: &[] };

impl Boxed {
    pub fn new() -> Self {
        Self::start(&BUSYBOX)
    }

    pub fn start(how: &How<'_>) -> Self {
        Self::run(how).up().expect("a guest that listens")
    }

    /// Starts the container, and waits for nothing.
    pub fn run(how: &How<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::chown(dir.path(), Some(how.uid), Some(how.uid)).expect("chown, which takes root");
        let name = format!("hmz-test-guest-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let label = format!("hmz-test=guest-{}", std::process::id());
        let program = format!("{}:/.hmz/hmz:ro", env!("CARGO_BIN_EXE_hmz-guest"));
        let run = format!("{}:/.hmz/run", dir.path().display());
        let user = format!("{0}:{0}", how.uid);
        let lease = how.lease.to_string();
        let mut args = vec!["run", "-d", "--rm", "--name", &name, "--label", &label, "--user", &user];
        args.extend(["--network", "none", "-v", &program, "-v", &run, "-e", "HMZ_OWN=box", "--entrypoint", "/.hmz/hmz"]);
        args.extend(how.docker);
        args.extend([how.image, "guest", "--socket", "/.hmz/run/g.sock", "--lease", &lease]);
        docker(&args);
        Self { name, pid: 0, dir }
    }

    /// Waits until its guest listens; `None` when it has ended before that.
    pub fn up(mut self) -> Option<Self> {
        let mut gone = false;
        eventually("the guest's socket", || {
            gone = self.gone();
            gone || self.socket().exists()
        });
        let out = Process::new("docker").args(["inspect", "-f", "{{.State.Pid}}", &self.name]).output();
        let out = out.expect("the docker command line");
        self.pid = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or_default();
        (!gone && self.pid != 0).then_some(self)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("g.sock")
    }

    pub fn try_client(&self, owner: bool, fence: Option<Fence>) -> Result<Client, ClientError> {
        Client::connect(&self.socket(), self.pid, owner, fence)
    }

    pub fn client(&self) -> Client {
        self.try_client(false, None).expect("the guest")
    }

    pub fn fenced(&self, write: &[&str]) -> Client {
        let write = write.iter().map(|p| Bytes::from(p.as_bytes())).collect();
        self.try_client(false, Some(Fence { write, required: true })).expect("a fenced session")
    }

    pub fn gone(&self) -> bool {
        let out = Process::new("docker").args(["inspect", &self.name]).output().expect("the docker command line");
        !out.status.success()
    }

    /// The command lines of all processes in the box but the guest's, dead ones as `name (dead)`: seen from here, so that
    /// nothing in the box is asked.
    pub fn processes(&self) -> Vec<String> {
        let top = docker(&["top", &self.name, "-eo", "pid,stat,args"]);
        let lines = top.lines().skip(1).map(str::trim).filter(|l| !l.contains("/.hmz/hmz guest"));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // gone already is as good
        let _ = Process::new("docker").args(["rm", "-f", &self.name]).output();
    }
}

/// A command of these words, with nothing else said.
pub fn words(argv: &[&str]) -> Spawn {
    Spawn {
        id: 0,
        program: Bytes::from(argv[0].as_bytes()),
        by_name: false,
        argv: argv.iter().map(|a| Bytes::from(a.as_bytes())).collect(),
        env: Vec::new(),
        cwd: Bytes::from("/"),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: Vec::new(),
        ctty: None,
    }
}

pub fn sh(script: &str) -> Spawn {
    words(&["sh", "-c", script])
}

/// Starts it with nothing for standard input and one pipe for both outputs.
pub fn piped(client: &Client, mut spawn: Spawn) -> (Command, File) {
    let (read, write) = std::io::pipe().expect("a pipe");
    let null = File::open("/dev/null").expect("/dev/null");
    spawn.fds = vec![0, 1, 2];
    let fds: [BorrowedFd<'_>; 3] = [null.as_fd(), write.as_fd(), write.as_fd()];
    let command = client.spawn(spawn, &fds).expect("spawn");
    (command, File::from(std::os::fd::OwnedFd::from(read)))
}

/// Runs it to its end and to the end of its output.
pub fn run(client: &Client, spawn: Spawn) -> (Status, String) {
    let (command, mut out) = piped(client, spawn);
    let mut text = Vec::new();
    out.read_to_end(&mut text).expect("its output");
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = command.wait().expect("the guest").unwrap_or_else(|e| panic!("it was not started: errno {e}"));
    (status, text)
}

/// What it prints; it has to succeed.
pub fn prints(client: &Client, spawn: Spawn) -> String {
    let (status, text) = run(client, spawn);
    assert_eq!(status, Status::Exited(0), "{text}");
    text.trim_end().to_owned()
}

/// Why it cannot be started; nothing else is said of it.
pub fn errno(client: &Client, spawn: Spawn) -> i32 {
    let command = client.spawn(spawn, &[]).expect("spawn");
    match event(&command) {
        CommandEvent::Failed(errno) => errno,
        other => panic!("{other:?}"),
    }
}

pub fn event(command: &Command) -> CommandEvent {
    command.next_within(LIMIT).expect("an event")
}
