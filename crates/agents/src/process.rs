//! An agent's process: lines in, lines out, the end of what it says on stderr, and an orderly end.

use crate::lines::{LineError, Lines};
use crate::{Launcher, Started};
use hmz_anchor::SupervisorConfig;
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
use tokio::time::timeout;

/// How much of its stderr is kept, in bytes.
const TAIL: usize = 8 << 10;

/// How long it may take to end by itself once its input is closed, and once more when it is told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running agent.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    listening: JoinHandle<()>,
    lifeline: Option<OwnedFd>,
}

impl Process {
    pub(crate) async fn start(launcher: &dyn Launcher, config: &SupervisorConfig) -> Result<Self, Error> {
        let Started { mut child, lifeline } = launcher.launch(config).await?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(Error::new(hmz_api::ErrorKind::Internal, "an agent was started without pipes"));
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let listening = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
        Ok(Self { child, stdin: Some(stdin), lines: Lines::new(stdout), tail, listening, lifeline })
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
        let status = timeout(PATIENCE, self.child.wait()).await;
        let _ = timeout(PATIENCE, &mut self.listening).await;
        let tail: Vec<u8> = self.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let said = String::from_utf8_lossy(&tail);
        let said = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let ended = match status {
            Ok(Ok(status)) => status.to_string(),
            _ => "it does not end".to_owned(),
        };
        if said.is_empty() { ended } else { format!("{said} ({ended})") }
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn close(mut self) {
        drop(self.stdin.take());
        let drained = async {
            // what it still says is thrown away, so that a full pipe does not keep it from ending
            while let Ok(Some(_)) = self.lines.next().await {}
            self.child.wait().await
        };
        if timeout(PATIENCE, drained).await.is_ok() {
            return;
        }
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // it has not been waited for, so the pid is still its own
            let _ = kill_process(pid, Signal::TERM);
        }
        if timeout(PATIENCE, self.child.wait()).await.is_ok() {
            return;
        }
        // whoever holds the other end of the lifeline ends the whole tree
        drop(self.lifeline.take());
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "an agent's process could not be killed");
        }
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
