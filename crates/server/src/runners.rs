//! Runner processes, one a run. They outlive this daemon and are found again by pid and start time.

use crate::process::ProcessId;
use hmz_api::journal::Event;
use hmz_api::launch::RunLaunch;
use hmz_api::{Error, failpoint};
use hmz_controllers::RunnerState;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// Starts and finds runners.
#[derive(Debug)]
pub struct RunnerProcesses {
    executable: PathBuf,
    /// Where the name of a run goes whose runner ended.
    ended: mpsc::UnboundedSender<String>,
}

impl RunnerProcesses {
    /// Runners of this executable.
    pub fn new(executable: PathBuf) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (ended, receiver) = mpsc::unbounded_channel();
        (Self { executable, ended }, receiver)
    }

    /// Starts the runner of a run; the one that is there already is returned instead.
    ///
    /// The runner does nothing before it has read its launch, and its id is on disk before that is written: a daemon that
    /// dies in between leaves a runner that ends at once, or one that is found again, never two.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self, launch: &RunLaunch) -> Result<String, Error> {
        let epic = Path::new(&launch.epic);
        let failed = |e: std::io::Error| Error::failed(format!("could not start the run's runner: {e}"));
        if let Some(id) = self.find(&launch.epic) {
            return Ok(id);
        }
        let note = epic.join("runner");
        let log = std::fs::File::options().create(true).append(true).open(epic.join("runner.log")).map_err(failed)?;
        let mut command = tokio::process::Command::new(&self.executable);
        command
            .arg("runner")
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| {
                ["HOME", "PATH", "USER", "LOGNAME", "HMZ_HOME", "HMZ_IDLE", "HMZ_METRICS", "XDG_RUNTIME_DIR"]
                    .iter()
                    .chain(&hmz_telemetry::PASSED)
                    .any(|kept| name == kept)
            }))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .kill_on_drop(false);
        let mut child = command.spawn().map_err(failed)?;
        let gone =
            || Error::failed("the run's runner ended at once").hint(format!("its log: {}", epic.join("runner.log").display()));
        let id = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(ProcessId::of).ok_or_else(gone)?;
        failpoint::pass("runner.spawned");
        std::fs::write(&note, format!("{id}\n")).map_err(failed)?;
        failpoint::pass("runner.noted");
        let mut line = serde_json::to_vec(launch).map_err(|e| Error::failed(format!("the run's launch: {e}")))?;
        line.push(b'\n');
        let mut stdin = child.stdin.take().ok_or_else(gone)?;
        stdin.write_all(&line).await.map_err(failed)?;
        stdin.flush().await.map_err(failed)?;
        failpoint::pass("runner.launched");
        let (ended, name) = (self.ended.clone(), launch.name.clone());
        tokio::spawn(async move {
            // its stdin stays open as long as we live; what it exits with is in its journal
            let _stdin = stdin;
            let _ = child.wait().await;
            let _ = ended.send(name);
        });
        Ok(id.to_string())
    }

    /// The runner that was started for this epic and has read its launch, or still may.
    pub fn find(&self, epic: &str) -> Option<String> {
        let epic = Path::new(epic);
        let id = std::fs::read_to_string(epic.join("runner")).ok()?.trim().parse::<ProcessId>().ok()?;
        (id.is_alive() || epic.join("epic.jsonl").exists()).then(|| id.to_string())
    }

    /// How a runner is.
    pub fn observe(&self, runner: &str, epic: &str) -> RunnerState {
        if runner.parse::<ProcessId>().is_ok_and(ProcessId::is_alive) {
            return RunnerState::Alive;
        }
        let last = hmz_flows::journal::read(&Path::new(epic).join("epic.jsonl")).ok().and_then(Iterator::last);
        match last.map(|record| record.event) {
            Some(Event::Ended { outcome, message }) => RunnerState::Ended(outcome, message),
            _ => RunnerState::Died,
        }
    }

    /// Sees to it that the end of a runner that is not our child is told too.
    pub fn adopt(&self, run: &str, runner: &str) {
        let Some(fd) = runner.parse::<ProcessId>().ok().and_then(ProcessId::pidfd) else { return };
        let (ended, run) = (self.ended.clone(), run.to_owned());
        let waits = move || {
            let mut polled = [PollFd::new(&fd, PollFlags::IN)];
            // readable means that it ended; an interrupted wait is begun again
            while matches!(poll(&mut polled, None), Err(Errno::INTR)) {}
            let _ = ended.send(run);
        };
        // without a thread its end is seen at the next resync
        if let Err(e) = std::thread::Builder::new().name("runner".into()).spawn(waits) {
            tracing::warn!("no thread to wait for a runner: {e}");
        }
    }

    /// Asks it to end in order.
    pub fn cancel(&self, runner: &str) {
        if let Ok(id) = runner.parse::<ProcessId>() {
            id.signal(Signal::TERM);
        }
    }

    /// Ends it at once.
    pub fn kill(&self, runner: &str) {
        if let Ok(id) = runner.parse::<ProcessId>() {
            id.signal(Signal::KILL);
        }
    }
}
