//! A box of its own, and runs in it.

use crate::container::{docker, eventually};
use hmz_api::journal::{Event, Outcome, Record};
use hmz_api::kinds::{Budget, FlowSpec, Harness, RunParams};
use hmz_api::launch::{BoxAddress, CallerContext, RunLaunch};
use hmz_api::link::{Dial, Link, LinkKey, StreamLink};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// `docker exec -i` of the relay; a loaded machine has to lose nothing.
fn stream(container: &str) -> Link {
    let endpoint = std::env::var("HMZ_TEST_DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let dial = Dial::Engine { endpoint, container: container.to_owned(), argv: hmz_wire::relay_argv() };
    Link::Stream(Box::new(StreamLink { window_ms: 20_000, ..StreamLink::new(dial, LinkKey::new([7; 32])) }))
}

pub struct World {
    pub place: BoxAddress,
    pub container: String,
    dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// One whose container is made with these arguments besides.
    pub fn with(besides: &[&str]) -> Self {
        Self::make(besides, false)
    }

    /// One that is reached over a stream alone, and shares the workdir and nothing else.
    pub fn far(besides: &[&str]) -> Self {
        Self::make(besides, true)
    }

    fn make(besides: &[&str], far: bool) -> Self {
        let dir = tempfile::Builder::new().prefix("hmz-flows-").tempdir_in("/var/tmp").expect("a directory");
        let sub = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            path.to_str().expect("text").to_owned()
        };
        let (workdir, scratch, run) = (sub("work"), sub("scratch"), sub("run"));
        for name in ["home", "epic"] {
            sub(name);
        }
        let exe = std::env::current_exe().expect("our path");
        let mount = |from: &str, to: &str| format!("{from}:{to}");
        let name = format!("hmz-test-flows-{}-{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed));
        let binary = format!("{}:/.hmz/hmz:ro", exe.display());
        let (work_mount, scratch_mount) = (mount(&workdir, &workdir), mount(&scratch, &scratch));
        let run_mount = mount(&run, "/.hmz/run");
        let mut words = vec![
            "run",
            "-d",
            "--name",
            &name,
            "--label",
            "hmz-test=flows",
            "--security-opt",
            "no-new-privileges",
            "--hostname",
            "thebox",
            "-e",
            "HOME=/tmp",
            "-e",
            "USER=worker",
            "-v",
            &work_mount,
            "-v",
            &binary,
        ];
        if far {
            words.extend(["--tmpfs", &scratch, "--tmpfs", "/.hmz/run"]);
        } else {
            words.extend(["-v", &scratch_mount, "-v", &run_mount]);
        }
        words.extend(besides);
        words.extend([
            "--entrypoint",
            "/.hmz/hmz",
            "python:3.12-slim",
            "guest",
            "--socket",
            "/.hmz/run/g.sock",
            "--lease",
            "600",
        ]);
        if far {
            words.push("--channel");
        }
        let container = docker(&words);
        let pid = docker(&["inspect", "-f", "{{.State.Pid}}", &container]).parse().expect("a pid");
        let socket = if far { format!("/proc/{pid}/root/.hmz/run/g.sock") } else { format!("{run}/g.sock") };
        let link = if far { stream(&container) } else { Link::Direct { socket: socket.clone(), pid } };
        let place = BoxAddress { environment: "box".into(), used: "docker:here".into(), link, workdir, scratch };
        let world = Self { place, container, dir };
        eventually("the guest's socket", || Path::new(&socket).exists());
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn work(&self, name: &str) -> PathBuf {
        Path::new(&self.place.workdir).join(name)
    }

    /// Writes a list of steps and gives its path.
    pub fn steps(&self, text: &str) -> PathBuf {
        let path = self.path("steps.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A launch of a flow written as its `spec`, with `agent` in every agent role.
    pub fn launch(&self, spec: &str, agent: &str) -> RunLaunch {
        let text = format!("apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: tried}}\nspec:\n{spec}");
        let context = hmz_manifest::Context::new("/", None);
        let read = hmz_manifest::read(&text, "flow", &context).unwrap_or_else(|e| panic!("{e:?}"));
        let Some(hmz_api::AnyResource::Flow(flow)) = read.into_iter().next() else { panic!("no flow") };
        let flow: FlowSpec = flow.spec;
        let env = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME", self.path("home").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("HMZ_CANARY", "CANARY".to_owned()),
        ];
        RunLaunch {
            name: "a-run".into(),
            uid: uuid::Uuid::new_v4(),
            flow_name: "tried".into(),
            task: "do it".into(),
            agents: flow.agents.keys().map(|role| (role.clone(), agent.parse().unwrap())).collect(),
            envs: flow.environments.keys().map(|role| (role.clone(), "docker@here/w".to_owned())).collect(),
            boxes: flow.environments.keys().map(|role| (role.clone(), self.place.clone())).collect(),
            seconds: Default::default(),
            harnesses: flow.environments.keys().map(|role| (role.clone(), Harness::Local)).collect(),
            flow,
            params: RunParams { budget: Budget::default(), own: serde_json::Map::new() },
            epic: self.path("epic").display().to_string(),
            caller: CallerContext {
                cwd: self.path("").display().to_string(),
                env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                ..CallerContext::default()
            },
        }
    }

    /// Starts a runner.
    pub fn start(&self, launch: &RunLaunch) -> Running {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new(exe);
        command.arg("runner").env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = serde_json::to_vec(launch).unwrap();
        line.push(b'\n');
        child.stdin.as_mut().unwrap().write_all(&line).unwrap();
        Running { child, journal: self.path("epic").join("epic.jsonl") }
    }

    /// Runs a launch to its end.
    pub fn run(&self, launch: &RunLaunch) -> Ended {
        self.start(launch).end()
    }

    /// Runs it until its budget is spent while its command, which makes the file `begun`, runs: with the first of these
    /// durations in which a loaded machine comes so far.
    pub fn spend(&self, mut launch: RunLaunch, durations: [&str; 3]) -> Ended {
        for duration in durations {
            launch.params.budget.duration = Some(duration.parse().unwrap());
            let ended = self.run(&launch);
            if self.work("begun").exists() {
                return ended;
            }
            std::fs::remove_file(self.path("epic/epic.jsonl")).unwrap();
        }
        panic!("its command has not begun within any of {durations:?}");
    }

    /// Processes here whose environment or arguments name this world, apart from this one.
    pub fn here(&self) -> Vec<String> {
        let dir = self.dir.path().display().to_string();
        let mut found = Vec::new();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            // those of the box are seen here too, in a pid namespace of their own
            let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
            if pid == std::process::id() || namespace(&pid.to_string()) != namespace("self") {
                continue;
            }
            let read = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
            let args = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            let environ = String::from_utf8_lossy(&read("environ")).into_owned();
            let cwd = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
            if environ.contains(&dir) || args.contains(&dir) || cwd.starts_with(self.dir.path()) {
                found.push(format!("{pid} {args}"));
            }
        }
        found
    }

    /// Processes in the box besides the guest's own.
    pub fn in_box(&self) -> Vec<String> {
        let top = docker(&["top", &self.container, "-eo", "pid,args"]);
        top.lines().skip(1).filter(|l| !l.contains("/.hmz/hmz")).map(str::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        docker(&["rm", "-f", &self.container]);
    }
}

/// A runner at work.
pub struct Running {
    pub child: Child,
    journal: PathBuf,
}

/// How a run went.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub records: Vec<Record>,
    #[allow(dead_code, reason = "shown when a test fails")]
    pub err: String,
}

impl Running {
    pub fn records(&self) -> Vec<Record> {
        hmz_flows::journal::read(&self.journal).map(Iterator::collect).unwrap_or_default()
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let mut status = None;
        eventually("the runner's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ended { status: status.unwrap(), records: self.records(), err }
    }
}

impl Ended {
    pub fn events(&self) -> Vec<&Event> {
        self.records.iter().map(|record| &record.event).collect()
    }

    /// The outcome and the message, once it is sure that the runner ended well and said so last.
    #[track_caller]
    pub fn outcome(&self) -> (Outcome, &str) {
        assert!(self.status.success(), "{self:?}");
        match self.records.last().map(|record| &record.event) {
            Some(Event::Ended { outcome, message }) => (*outcome, message),
            _ => panic!("no end: {self:?}"),
        }
    }

    /// `Tool(about)` and what each answered.
    pub fn tools(&self) -> Vec<String> {
        let said = |event: &&Event| match event {
            Event::Tool { name, about } => Some(format!("{name}({about})")),
            Event::ToolResult { is_error, text } => Some(format!("{}{text}", if *is_error { "! " } else { "= " })),
            _ => None,
        };
        self.events().iter().filter_map(said).collect()
    }

    pub fn answers(&self) -> Vec<&str> {
        self.events()
            .into_iter()
            .filter_map(|e| if let Event::Ends { answer, .. } = e { Some(answer.as_str()) } else { None })
            .collect()
    }
}
