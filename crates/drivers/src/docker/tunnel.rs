//! One `ssh` of our own to a daemon's host: its socket is a socket here while that ssh lives.
//!
//! The ssh is started when it is first needed and again when it has ended. It holds nothing when this process is gone:
//! what it runs there ends with the pipe from here, and ssh with it.

use super::road::private;
use super::way::SshHost;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// How long ssh may take until it is there; its own time for the connection alone is shorter.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last words of an ssh that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Most lines of what ssh says that are kept, and the bytes of one.
const MAX_LINES: usize = 8;
const MAX_LINE: u64 = 4096;
/// What the line with the socket's path begins with: other output of a login may come before it.
const MARK: &str = "hmz-docker-socket ";

/// What is run on the host: says where its docker listens, and stays until it is left alone. Any login shell passes it on to
/// the shell it names.
const SAYS: &str = concat!(
    "exec sh -c 's=/var/run/docker.sock; ",
    "for c in \"${DOCKER_HOST#unix://}\" /var/run/docker.sock \"${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/docker.sock\" \"$HOME/.docker/run/docker.sock\"; do ",
    "if [ -S \"$c\" ]; then s=$c; break; fi; done; ",
    "echo; echo \"hmz-docker-socket $s\"; exec cat >/dev/null'"
);

/// The way over ssh to one daemon.
#[derive(Debug)]
pub struct Tunnel {
    host: SshHost,
    /// Where its sockets are: short, and this user's alone.
    dir: PathBuf,
    up: tokio::sync::Mutex<State>,
    said: Said,
}

/// The last of what ssh said.
type Said = Arc<Mutex<VecDeque<String>>>;

#[derive(Debug, Default)]
struct State {
    ssh: Option<Ssh>,
    /// When it could not be had last, and why.
    failed: Option<(Instant, String)>,
}

#[derive(Debug)]
struct Ssh {
    child: Child,
    _stdin: Option<ChildStdin>,
}

impl Tunnel {
    /// A way that is gone when it is first needed. `dir` is this tunnel's own and is made then.
    pub fn new(host: SshHost, dir: PathBuf) -> Self {
        Self { host, dir, up: tokio::sync::Mutex::default(), said: Arc::default() }
    }

    /// The daemon's socket here.
    ///
    /// # Errors
    /// Ssh's own words.
    pub async fn socket(&self) -> Result<PathBuf, String> {
        let began = Instant::now();
        let mut state = self.up.lock().await;
        if let Some(ssh) = &mut state.ssh
            && matches!(ssh.child.try_wait(), Ok(None))
        {
            return Ok(self.dir.join("s"));
        }
        // who waited for an attempt that failed has made it
        if let Some((at, why)) = &state.failed
            && *at > began
        {
            return Err(why.clone());
        }
        state.ssh = None;
        let tried = tokio::time::timeout(PATIENCE, self.start()).await;
        match tried
            .unwrap_or_else(|_| Err(self.words(&format!("ssh to {} took longer than {} s", self.host.to, PATIENCE.as_secs()))))
        {
            Ok(ssh) => {
                state.ssh = Some(ssh);
                state.failed = None;
                Ok(self.dir.join("s"))
            }
            Err(why) => {
                state.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// The last thing ssh said, else `otherwise`.
    pub fn words(&self, otherwise: &str) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.back().map_or_else(|| otherwise.to_owned(), |line| format!("{otherwise}: {line}"))
    }

    async fn start(&self) -> Result<Ssh, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clear();
        private(&self.dir)?;
        let control = self.dir.join("c");
        for stale in ["s", "c"] {
            let _ = std::fs::remove_file(self.dir.join(stale));
        }
        let mut child = self
            .command()
            // those of its configuration are not for this one
            .args(["-o", "ClearAllForwardings=yes", "-M", "-o", "ControlPersist=no", "-S"])
            .arg(&control)
            .args(self.host.options.iter())
            .args(["-o", "ConnectTimeout=10", "--", &self.host.to, SAYS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ssh: {e}"))?;
        let stdin = child.stdin.take();
        let heard = child.stderr.take().map(|stderr| tokio::spawn(listen(stderr, Arc::clone(&self.said))));
        let Some(stdout) = child.stdout.take() else { return Err("ssh has no output".into()) };
        let mut out = BufReader::new(stdout);
        let remote = loop {
            match line(&mut out).await {
                Some(text) => {
                    if let Some(path) = text.strip_prefix(MARK) {
                        break path.to_owned();
                    }
                }
                None => {
                    let status = child.wait().await.map_err(|e| format!("ssh: {e}"))?;
                    // its last words may not have been heard yet; a program it leaves behind holds them open
                    if let Some(heard) = heard {
                        let _ = tokio::time::timeout(LAST_WORDS, heard).await;
                    }
                    return Err(self.words(&format!("ssh to {} ended ({status})", self.host.to)));
                }
            }
        };
        tokio::spawn(async move { while line(&mut out).await.is_some() {} });
        if !remote.starts_with('/') || remote.contains(':') {
            return Err(format!("docker on {} listens at '{remote}', which is no path", self.host.to));
        }
        let forward = format!("{}:{remote}", self.dir.join("s").display());
        let asked = self
            .command()
            .arg("-S")
            .arg(&control)
            .args(self.host.options.iter())
            .args(["-O", "forward", "-L", &forward, "--", &self.host.to])
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|e| format!("ssh: {e}"))?;
        if !asked.status.success() {
            let words = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
            return Err(format!("ssh to {} does not forward {remote}: {words}", self.host.to));
        }
        Ok(Ssh { child, _stdin: stdin })
    }

    /// Ssh, whose sockets here are this user's alone.
    fn command(&self) -> Command {
        let mut command = crate::ssh::command();
        command.args(["-o", "StreamLocalBindMask=0177", "-o", "StreamLocalBindUnlink=yes"]);
        command
    }
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let n = from.take(MAX_LINE).read_until(b'\n', &mut bytes).await.ok()?;
    (n > 0).then(|| String::from_utf8_lossy(&bytes).trim().to_owned())
}

async fn listen(from: tokio::process::ChildStderr, said: Said) {
    let mut from = BufReader::new(from);
    while let Some(text) = line(&mut from).await {
        if text.is_empty() {
            continue;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MAX_LINES {
            said.pop_front();
        }
        said.push_back(text);
    }
}
