//! A home, a workdir and a scratch directory for a session whose process is started bare.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

#[path = "../../../../tests/support/agent.rs"]
mod agent;

use async_trait::async_trait;
use hmz_agents::claude::Claude;
use hmz_agents::{Agent as _, Installed, Launch, Launcher, Seat, SessionStart, Started};
use hmz_api::Error;
use hmz_api::launch::{BoxAddress, CallerContext};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Starts the program itself, with the very arguments, variables and directory a supervisor would give it.
#[derive(Debug)]
pub struct Bare;

#[async_trait]
impl Launcher for Bare {
    async fn launch(&self, what: &Launch) -> Result<Started, Error> {
        let Launch::Here(config) = what else { panic!("it is started here") };
        let mut command = Command::new(&config.program);
        command.arg0(&config.argv[0]).args(&config.argv[1..]).env_clear().envs(&config.env).current_dir(&config.cwd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|e| Error::failed(e.to_string()))?;
        Ok(Started { child, lifeline: None })
    }
}

/// The directories of a session.
pub struct World {
    dir: tempfile::TempDir,
    url: String,
}

impl World {
    pub fn new(url: &str) -> Self {
        // not below /tmp, which a CLI treats in ways of its own
        let dir = tempfile::Builder::new().prefix("hmz-agents-").tempdir_in("/var/tmp").unwrap();
        for name in ["home", "work", "scratch"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, url: url.to_owned() }
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn work(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// What the real claude is started with.
    pub fn start(&self, effort: Option<&str>) -> SessionStart {
        let caller = self.caller(&agent::path());
        let installed = Claude.check(&caller).unwrap();
        self.start_of(installed, caller, effort)
    }

    pub fn caller(&self, path: &str) -> CallerContext {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let own = [("PATH", path.to_owned()), ("HOME", text(&self.home())), ("LANG", "C.UTF-8".into())];
        let env = own.into_iter().chain(agent::variables(&self.url));
        CallerContext {
            cwd: text(self.dir.path()),
            env: env.map(|(name, value)| (name.to_owned(), value)).collect(),
            ..CallerContext::default()
        }
    }

    pub fn start_of(&self, installed: Installed, caller: CallerContext, effort: Option<&str>) -> SessionStart {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        SessionStart {
            launcher: Arc::new(Bare),
            seat: Seat::Here(installed),
            spec: hmz_api::grammar::AgentSpec {
                cli: "claude".into(),
                account: None,
                model: "scripted-1".into(),
                effort: effort.map(str::to_owned),
            },
            caller,
            place: BoxAddress {
                environment: "box".into(),
                used: "docker:here".into(),
                link: hmz_api::link::Link::Direct { socket: "/nonexistent".into(), pid: 0 },
                workdir: text(&self.dir.path().join("work")),
                scratch: text(&self.dir.path().join("scratch")),
            },
            programs: Arc::new(vec!["bash".into(), "sh".into()]),
        }
    }

    /// Sees that no process with this home is left, now or a moment later.
    pub async fn assert_no_agent_left(&self) {
        let end = Instant::now() + Duration::from_secs(120);
        while self.agents() > 0 {
            assert!(Instant::now() < end, "{} processes of the session are left", self.agents());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn agents(&self) -> usize {
        let home = format!("HOME={}\0", self.home().display());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let environs = processes.filter_map(|p| std::fs::read(p.path().join("environ")).ok());
        environs.filter(|e| e.windows(home.len()).any(|w| w == home.as_bytes())).count()
    }
}
