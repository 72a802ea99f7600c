//! An agent's process: lines in, lines out, the end of what it says on stderr, and an orderly end.

use crate::lines::{LineError, Lines};
use crate::{Grace, Launch, Launcher, Started};
use hmz_api::Error;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// How much of its stderr is kept, in bytes.
const TAIL: usize = 8 << 10;

/// A running agent.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    listening: JoinHandle<()>,
    lifeline: Option<OwnedFd>,
    grace: Grace,
    /// By when it has to have ended by itself, once a turn of it was interrupted.
    due: Option<Instant>,
    /// Whether it was ever asked anything. One that was not has nothing to end in order.
    asked: bool,
}

impl Process {
    pub(crate) async fn start(launcher: &dyn Launcher, what: &Launch) -> Result<Self, Error> {
        let Started { mut child, lifeline } = launcher.launch(what).await?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(Error::new(hmz_api::ErrorKind::Internal, "an agent was started without pipes"));
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let listening = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
        let (lines, grace) = (Lines::new(stdout), launcher.grace());
        Ok(Self { child, stdin: Some(stdin), lines, tail, listening, lifeline, grace, due: None, asked: false })
    }

    /// Asks for a turn. `None` when `stop` was cancelled before all of it was taken: what it was asked then is not known.
    pub(crate) async fn ask(&mut self, message: &impl Serialize, stop: &CancellationToken) -> Option<std::io::Result<()>> {
        self.due = None;
        self.asked = true;
        tokio::select! {
            asked = self.send(message) => Some(asked),
            () = stop.cancelled() => {
                self.due = Some(Instant::now());
                None
            }
        }
    }

    /// Asks it to let go of its turn; returns by when it has to have done so. From then on it has no more time to end by
    /// itself either, until it is asked again.
    ///
    /// # Errors
    /// When it does not take the message in that time, or cannot.
    pub(crate) async fn interrupt(&mut self, message: &impl Serialize) -> std::io::Result<Instant> {
        let due = Instant::now() + self.grace.interruption;
        self.due = Some(due);
        timeout_at(due, self.send(message)).await??;
        Ok(due)
    }

    /// Writes one JSON line.
    pub(crate) async fn send(&mut self, message: &impl Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        stdin.write_all(&line).await?;
        stdin.flush().await
    }

    /// The next line of its output; can be cancelled.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        self.lines.next().await
    }

    /// Why it ended, for a person: the last line it wrote to stderr, else its status. Call it when its output has ended.
    pub(crate) async fn last_words(&mut self) -> String {
        // its output has ended: either it ends too, or something of it hangs on and is not worth waiting for
        let status = timeout(self.grace.input, self.child.wait()).await;
        let _ = timeout(self.grace.input, &mut self.listening).await;
        let tail: Vec<u8> = self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let said = String::from_utf8_lossy(&tail);
        let said = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let ended = match status {
            Ok(Ok(status)) => status.to_string(),
            _ => "it does not end".to_owned(),
        };
        if said.is_empty() { ended } else { format!("{said} ({ended})") }
    }

    /// Ends it and waits until it is gone: its input is closed, then it is told to end, then it is killed.
    pub(crate) async fn close(mut self) {
        drop(self.stdin.take());
        // one that waits for its box hears neither: its tree is held by whoever holds the lifeline
        if !self.asked && self.lifeline.take().is_some() && self.gone_within(self.grace.input).await {
            return;
        }
        let by_itself = self.due.map_or(self.grace.input, |due| due.saturating_duration_since(Instant::now()));
        if self.gone_within(by_itself).await {
            return;
        }
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // it has not been waited for, so the pid is still its own
            let _ = kill_process(pid, Signal::TERM);
        }
        if self.gone_within(self.grace.term).await {
            return;
        }
        // whoever holds the other end of the lifeline kills the whole tree and ends itself
        if self.lifeline.take().is_some() && self.gone_within(self.grace.term).await {
            return;
        }
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "an agent's process could not be killed");
        }
    }

    /// Whether it ends within that time.
    async fn gone_within(&mut self, limit: Duration) -> bool {
        let gone = async {
            // what it still says is thrown away, so that a full pipe does not keep it from ending
            while let Ok(Some(_)) = self.lines.next().await {}
            self.child.wait().await
        };
        timeout(limit, gone).await.is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn keep_tail(mut stderr: ChildStderr, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = [0u8; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut chunk).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&chunk[..n]);
        let beyond = tail.len().saturating_sub(TAIL);
        tail.drain(..beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use std::path::{Path, PathBuf};
    use std::process::Stdio;
    use tokio::process::Command;
    use tokio::time::advance;

    /// Against hanging only, of the machine's own clock: the tests' stands still unless they move it.
    const LIMIT: Duration = Duration::from_secs(60);

    const GRACE: Grace =
        Grace { interruption: Duration::from_secs(30), input: Duration::from_secs(500), term: Duration::from_secs(7000) };

    #[derive(Debug)]
    struct Bare;

    #[async_trait]
    impl Launcher for Bare {
        async fn launch(&self, what: &Launch) -> Result<Started, Error> {
            let Launch::Here(config) = what else { panic!("it is started here") };
            let mut command = Command::new(&config.program);
            command.args(&config.argv[1..]).current_dir(&config.cwd).kill_on_drop(true);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().map_err(|e| Error::failed(e.to_string()))?;
            Ok(Started { child, lifeline: None })
        }

        fn grace(&self) -> Grace {
            GRACE
        }
    }

    /// An agent that writes down what it is told, line by line, and how it takes the end of its input and SIGTERM.
    struct Told {
        dir: tempfile::TempDir,
    }

    impl Told {
        async fn start(at_end: &str, at_term: &str) -> (Self, Process) {
            let told = Self { dir: tempfile::tempdir().unwrap() };
            let script = format!(
                "trap 'echo term >>log; {at_term}' TERM; echo ready >>log; while read -r line; do echo \"$line\" >>log; done; \
                 echo end >>log; {at_end}; while :; do sleep 0.02; done"
            );
            let process = Process::start(&Bare, &config(told.dir.path(), &script)).await.unwrap();
            told.until("ready").await;
            (told, process)
        }

        fn log(&self) -> Vec<String> {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            log.lines().map(str::to_owned).collect()
        }

        /// Waits until it was told that. The clock stands still meanwhile: it never moves while a thread is waited for.
        async fn until(&self, word: &str) {
            let (log, word) = (self.dir.path().join("log"), word.to_owned());
            let waiting = tokio::task::spawn_blocking(move || {
                let end = std::time::Instant::now() + LIMIT;
                while !std::fs::read_to_string(&log).unwrap_or_default().lines().any(|line| line == word) {
                    assert!(std::time::Instant::now() < end, "it is not told '{word}'");
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            waiting.await.unwrap();
        }
    }

    fn config(dir: &Path, script: &str) -> Launch {
        let frame = serde_json::json!({
            "program": "/bin/bash", "argv": ["bash", "-c", script], "env": {}, "cwd": dir, "env_allow": [],
            "place": {"environment": "", "used": "", "link": {"mode": "direct", "socket": "", "pid": 0}, "workdir": "", "scratch": ""},
            "policy": {"own": Vec::<PathBuf>::new(), "listings": []}, "fence": {"write": [], "read": []},
        });
        Launch::Here(serde_json::from_value(frame).unwrap())
    }

    fn alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_with_its_input_is_told_nothing() {
        let (told, process) = Told::start("exit 0", "exit 0").await;
        let pid = process.child.id().unwrap();
        let closing = tokio::spawn(process.close());
        told.until("end").await;
        gone(pid).await;
        closing.await.unwrap();
        assert_eq!(told.log(), ["ready", "end"]);
    }

    /// Waits, with the clock standing still, until a process has ended.
    async fn gone(pid: u32) {
        let waiting = tokio::task::spawn_blocking(move || {
            let end = std::time::Instant::now() + LIMIT;
            while alive(pid) {
                assert!(std::time::Instant::now() < end, "it does not end");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_heeds_nothing_is_killed_and_was_told_before() {
        let (told, process) = Told::start("true", "true").await;
        let pid = process.child.id().unwrap();
        let closing = tokio::spawn(process.close());
        told.until("end").await;
        assert_eq!(told.log(), ["ready", "end"]);
        advance(GRACE.input).await;
        told.until("term").await;
        assert!(alive(pid), "it was killed with its time not over");
        advance(GRACE.term).await;
        closing.await.unwrap();
        assert!(!alive(pid));
        assert_eq!(told.log(), ["ready", "end", "term"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupted_one_has_one_time_for_all() {
        let (told, mut process) = Told::start("true", "exit 0").await;
        let pid = process.child.id().unwrap();
        let began = Instant::now();
        let due = process.interrupt(&"stop").await.unwrap();
        assert_eq!(due, began + GRACE.interruption);
        told.until("\"stop\"").await;
        // it lets go late: what is left is all it has
        advance(GRACE.interruption - Duration::from_secs(1)).await;
        let closing = tokio::spawn(process.close());
        told.until("end").await;
        assert!(alive(pid));
        advance(Duration::from_secs(1)).await;
        told.until("term").await;
        // with the clock standing still nobody kills it
        gone(pid).await;
        closing.await.unwrap();
        assert_eq!(told.log(), ["ready", "\"stop\"", "end", "term"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_reads_nothing_is_not_waited_for() {
        let told = Told { dir: tempfile::tempdir().unwrap() };
        let script = "trap 'echo term >>log' TERM; echo ready >>log; while :; do sleep 0.02; done";
        let mut process = Process::start(&Bare, &config(told.dir.path(), script)).await.unwrap();
        told.until("ready").await;
        let pid = process.child.id().unwrap();
        let (stop, long) = (CancellationToken::new(), "x".repeat(1 << 20));
        let cancel = stop.clone();
        let asking = tokio::spawn(async move {
            let asked = process.ask(&long, &stop).await;
            (process, asked.is_none())
        });
        tokio::task::yield_now().await;
        cancel.cancel();
        let (process, given_up) = asking.await.unwrap();
        assert!(given_up);
        let closing = tokio::spawn(process.close());
        told.until("term").await;
        assert!(alive(pid));
        advance(GRACE.term).await;
        closing.await.unwrap();
        assert!(!alive(pid));
    }
}
