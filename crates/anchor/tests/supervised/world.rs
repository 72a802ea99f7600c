//! A box, and sessions that work in it.

use crate::container::{LIMIT, docker, eventually};
use hmz_anchor::{CliFence, ExecPolicy, Passage, SupervisorConfig, launch};
use hmz_api::launch::BoxAddress;
use hmz_api::link::{Dial, Link, LinkKey, StreamLink};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A container whose first process is the guest.
pub struct World {
    pub place: BoxAddress,
    pub container: String,
    /// This program, where every user may run it.
    pub exe: PathBuf,
    pub uid: u32,
    dir: tempfile::TempDir,
}

/// The way to a box over `docker exec -i`; a loaded machine has to lose nothing.
fn stream(container: &str) -> StreamLink {
    let endpoint = std::env::var("HMZ_TEST_DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let dial = Dial::Engine { endpoint, container: container.to_owned(), argv: hmz_wire::relay_argv() };
    StreamLink { window_ms: 20_000, ..StreamLink::new(dial, LinkKey::new([7; 32])) }
}

impl World {
    /// A box and directories of user `uid`.
    pub fn new(uid: u32) -> Self {
        Self::with(uid, "box", &[])
    }

    /// The same, whose container gets these options too; `kind` sets its name apart from the others'.
    pub fn with(uid: u32, kind: &str, options: &[&str]) -> Self {
        Self::make(uid, kind, options, false)
    }

    /// The same, reached over a stream alone.
    pub fn far(uid: u32) -> Self {
        Self::make(uid, "far", &[], true)
    }

    fn make(uid: u32, kind: &str, options: &[&str], far: bool) -> Self {
        let dir = tempfile::Builder::new().prefix("hmz-anchor-").tempdir_in("/var/tmp").expect("a directory");
        let own = |path: &Path| std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("an owner");
        let sub = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            own(&path);
            path.to_str().expect("text").to_owned()
        };
        let (workdir, scratch, run) = (sub("work"), sub("scratch"), sub("run"));
        for name in ["home", "cli"] {
            sub(name);
        }
        let exe = dir.path().join("hmz");
        std::fs::copy(std::env::current_exe().expect("our path"), &exe).expect("a copy");
        own(dir.path());
        let name = format!("hmz-test-anchor-{}-{uid}-{kind}", std::process::id());
        let mounts = [format!("{workdir}:{workdir}"), format!("{scratch}:{scratch}"), format!("{run}:/.hmz/run")];
        let mounts = if far { &mounts[..2] } else { &mounts[..] };
        let program = format!("{}:/.hmz/hmz:ro", exe.display());
        let user = format!("{uid}:{uid}");
        let mut args = vec!["run", "-d", "--name", &name, "--label", "hmz-test=anchor", "--user", &user, "--hostname", "thebox"];
        args.extend(["--security-opt", "no-new-privileges", "-e", "BOX_OWN=1", "-v", &program]);
        args.extend(options);
        args.extend(mounts.iter().flat_map(|mount| ["-v", mount.as_str()]));
        if far {
            args.extend(["--tmpfs", "/.hmz/run"]);
        }
        args.extend(["--entrypoint", "/.hmz/hmz", "python:3.12-slim", "guest", "--socket", "/.hmz/run/g.sock"]);
        if far {
            args.push("--channel");
        }
        let container = docker(&args);
        let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &container]).parse().expect("a pid");
        let socket = if far { format!("/proc/{pid}/root/.hmz/run/g.sock") } else { format!("{run}/g.sock") };
        eventually("the guest's socket", || Path::new(&socket).exists());
        let link = if far { Link::Stream(Box::new(stream(&container))) } else { Link::Direct { socket, pid } };
        let place = BoxAddress { environment: "box".into(), used: "docker@here".into(), link, workdir, scratch };
        Self { place, container, exe, uid, dir }
    }

    /// A path below the world's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn work(&self, name: &str) -> PathBuf {
        Path::new(&self.place.workdir).join(name)
    }

    /// Processes in the box besides the guest's own, as command lines.
    pub fn in_box(&self) -> Vec<String> {
        let top = docker(&["top", &self.container, "-eo", "pid,args"]);
        top.lines().skip(1).filter(|l| !l.contains("/.hmz/hmz")).map(str::to_owned).collect()
    }

    /// A session's configuration: `program` with these arguments.
    pub fn config(&self, program: &str, args: &[&str]) -> SupervisorConfig {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let env = [("PATH", path), ("HOME", "/nonexistent"), ("CANARY", "secret"), ("TERM", "dumb"), ("LANG", "C.UTF-8")];
        let mut env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        env.insert("TMPDIR".into(), format!("{}/s1", self.place.scratch));
        SupervisorConfig {
            program: program.into(),
            argv: std::iter::once(program).chain(args.iter().copied()).map(str::to_owned).collect(),
            env,
            cwd: self.place.workdir.clone().into(),
            place: self.place.clone(),
            policy: ExecPolicy { own: Vec::new(), listings: vec!["ps".into()], leaves: vec![" && pwd -P >| ".into()] },
            fence: CliFence { write: Vec::new(), read: vec![self.path("cli")] },
            env_allow: vec!["TERM".into(), "LC_*".into(), "FROM_CLI".into()],
            passage: Passage::Own,
        }
    }

    /// Runs a python program as the CLI.
    pub fn python(&self, script: &str) -> Ended {
        let full = format!("import os,sys,subprocess,signal,time,socket,threading\n{script}");
        let own = |command: &mut Command| {
            command.uid(self.uid).gid(self.uid);
        };
        Session::start_with(&self.exe, &self.config("/usr/bin/python3", &["-c", &full]), own).end(b"")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.container]);
    }
}

/// A supervisor that runs.
pub struct Session {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub lifeline: Option<OwnedFd>,
    out: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
}

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// What it printed, when it ended well.
    pub fn good(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.out.trim_end().to_owned()
    }
}

pub fn reading(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        let _ = sender.send(all);
    });
    receiver
}

impl Session {
    pub fn start(config: &SupervisorConfig) -> Self {
        Self::start_with(&std::env::current_exe().expect("our path"), config, |_| {})
    }

    pub fn start_with(exe: &Path, config: &SupervisorConfig, change: impl FnOnce(&mut Command)) -> Self {
        let mut supervised = launch::supervised(exe).expect("a command");
        supervised.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut supervised.command);
        let mut child = supervised.command.spawn().expect("a supervisor");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&config.frame().expect("a frame")).expect("it reads");
        let out = reading(child.stdout.take().expect("a pipe"));
        let err = reading(child.stderr.take().expect("a pipe"));
        Self { child, stdin: Some(stdin), lifeline: Some(supervised.lifeline), out, err }
    }

    /// Gives the rest of the input and waits.
    pub fn end(mut self, input: &[u8]) -> Ended {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(input);
        }
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a wait") {
                break status;
            }
            if Instant::now() > end {
                self.lifeline = None;
                panic!(
                    "the session hangs; stderr: {}",
                    String::from_utf8_lossy(&self.err.recv_timeout(LIMIT).unwrap_or_default())
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text =
            |r: &Receiver<Vec<u8>>| String::from_utf8_lossy(&r.recv_timeout(LIMIT).expect("an end of output")).into_owned();
        Ended { status, out: text(&self.out), err: text(&self.err) }
    }

    /// All it prints, until nothing can print any more.
    pub fn output(&self) -> Vec<u8> {
        self.out.recv_timeout(LIMIT).expect("an end of output")
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

/// The signal a process died of.
pub fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// What a python program needs that works a shell on a terminal `fd`, whose prompt is `ready> `: `size`, `until`, `run`, and
/// a line `job` that starts a program which says `start` and stays.
pub const TERMINAL: &str = r#"import pty,os,sys,time,fcntl,termios,struct
def size(fd,r,c): fcntl.ioctl(fd,termios.TIOCSWINSZ,struct.pack('HHHH',r,c,0,0))
unread=b''
def until(what):
    # what is read beyond it is kept for the next: the terminal tells in pieces of any size
    global unread
    while what not in unread: unread+=os.read(fd,4096)
    got,unread=unread.split(what,1)
    return got
def run(line):
    os.write(fd,line+b"; echo e'n'd\n")
    got=until(b'end\r\n')
    # what is typed before the prompt may be lost when the shell sets the terminal
    until(b'ready> ')
    return got
# in steps: a signal that comes just before a sleep is seen after it
job=b"python3 -c 'exec(\"import time\\nprint(chr(115)+chr(116)+chr(97)+chr(114)+chr(116),flush=1)\\nwhile 1: time.sleep(0.05)\")'\n"
"#;
