//! Renews claude's sign-in outside the fence, through the CLI's own status call, in the user's own file.
//!
//! The fenced CLI can read the sign-in and never renews it. Of the file only the time it runs out is read here; its
//! tokens are not. One renewal runs at a time on a machine, held by a lock on the folder.

use super::environment::NETWORK;
use crate::Installed;
use hmz_api::clock::{Clock, SystemClock};
use hmz_api::launch::CallerContext;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// It is renewed when less than this is left; the CLI does it by itself below five minutes.
const NEAR: Duration = Duration::from_secs(5 * 60);

/// How long the status call may take; it takes less than a second.
const DEADLINE: Duration = Duration::from_secs(30);

/// Largest file of a sign-in that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// What to tell somebody whose sign-in cannot be renewed.
pub const SIGN_IN_AGAIN: &str = "sign in again: claude auth login";

/// Variables of the caller's that the status call gets, besides those of the network.
const PASSED: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "LANG",
    "CLAUDE_CODE_CUSTOM_OAUTH_URL",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
];

/// What became of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// It has time left, or there is none to renew.
    Fresh,
    /// It was renewed.
    Renewed,
    /// It could not be renewed; for a person.
    Stale(String),
}

/// When a sign-in runs out, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(i64);

/// Keeps one sign-in.
#[derive(Debug, Clone)]
pub struct Keeper {
    program: PathBuf,
    folder: PathBuf,
    caller: CallerContext,
}

#[derive(Deserialize)]
struct Credentials {
    #[serde(rename = "claudeAiOauth")]
    login: Option<Login>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(rename = "expiresAt")]
    expires_at: Option<i64>,
}

impl Keeper {
    /// A keeper of the sign-in in `folder`, such as `~/.claude`.
    pub fn new(installed: &Installed, folder: PathBuf, caller: &CallerContext) -> Self {
        Self { program: installed.program.clone(), folder, caller: caller.clone() }
    }

    /// When the sign-in runs out; `None` when there is no sign-in that does.
    pub fn expiry(&self) -> Option<Expiry> {
        let file = File::open(self.folder.join(".credentials.json")).ok()?;
        let credentials: Credentials = serde_json::from_reader(std::io::BufReader::new(file.take(LARGEST))).ok()?;
        credentials.login?.expires_at.map(Expiry)
    }

    /// Whether the sign-in is near its end.
    pub fn is_due(&self) -> bool {
        self.expiry().is_some_and(is_near)
    }

    /// Renews the sign-in when it is near its end.
    pub async fn look(&self) -> Renewal {
        match self.expiry() {
            Some(expiry) if is_near(expiry) => self.renew(expiry).await,
            _ => Renewal::Fresh,
        }
    }

    /// Renews the sign-in because the provider refused it when it ran out at `seen`.
    pub async fn refused(&self, seen: Option<Expiry>) -> Renewal {
        match seen.or_else(|| self.expiry()) {
            Some(seen) => self.renew(seen).await,
            None => Renewal::Stale(SIGN_IN_AGAIN.to_owned()),
        }
    }

    /// Has the CLI renew a sign-in that runs out at `seen`, unless somebody else has meanwhile.
    async fn renew(&self, seen: Expiry) -> Renewal {
        let folder = self.folder.clone();
        // held until the end of this function; whoever holds it is done within its own deadline
        let lock = tokio::task::spawn_blocking(move || {
            let folder = File::open(folder)?;
            flock(&folder, FlockOperation::LockExclusive)?;
            Ok::<_, std::io::Error>(folder)
        });
        let _lock = match lock.await {
            Ok(Ok(lock)) => lock,
            Ok(Err(e)) => return Renewal::Stale(format!("claude's sign-in cannot be renewed: {}: {e}", self.folder.display())),
            Err(e) => return Renewal::Stale(format!("claude's sign-in cannot be renewed: {e}")),
        };
        if self.expiry().is_some_and(|now| now > seen) {
            return Renewal::Renewed;
        }
        let said = match Empty::new() {
            Ok(empty) => self.status(&empty).await,
            Err(e) => Err(e),
        };
        match (self.expiry(), said) {
            (Some(now), _) if now > seen => Renewal::Renewed,
            (_, Err(e)) => Renewal::Stale(format!("claude's sign-in could not be renewed ({e}); {SIGN_IN_AGAIN}")),
            (_, Ok(())) => Renewal::Stale(format!("claude's sign-in could not be renewed; {SIGN_IN_AGAIN}")),
        }
    }

    async fn status(&self, empty: &Empty) -> std::io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["auth", "status"]).env_clear().current_dir(empty.cwd());
        command.envs(PASSED.iter().chain(NETWORK).filter_map(|name| Some((*name, self.caller.env.get(*name)?))));
        // an empty folder has no hooks and no plugins of anybody's; the sign-in is in the real one
        command.env("CLAUDE_CONFIG_DIR", empty.config()).env("CLAUDE_SECURESTORAGE_CONFIG_DIR", &self.folder);
        command.env("TMPDIR", empty.tmp()).env("TERM", "dumb").env("DISABLE_AUTOUPDATER", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // never killed, neither by us nor by a signal to our group: between the server's answer and the file the old
        // sign-in is gone already and the new one is nowhere else
        command.process_group(0).kill_on_drop(false);
        let mut child = command.spawn()?;
        match tokio::time::timeout(DEADLINE, child.wait()).await {
            // its status says whether somebody is signed in; whether it was renewed the file says
            Ok(ended) => ended.map(|_| ()),
            Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it did not answer in time")),
        }
    }
}

fn is_near(expiry: Expiry) -> bool {
    let left = expiry.0.saturating_sub(SystemClock.now().as_millisecond());
    left < i64::try_from(NEAR.as_millis()).unwrap_or(i64::MAX)
}

/// Directories with nothing in them, removed at the end.
struct Empty(PathBuf);

impl Empty {
    fn new() -> std::io::Result<Self> {
        let root = std::env::temp_dir().join(format!("hmz-keeper-{}", uuid::Uuid::new_v4()));
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        builder.create(&root)?;
        let empty = Self(root);
        for dir in [empty.cwd(), empty.config(), empty.tmp()] {
            builder.create(dir)?;
        }
        Ok(empty)
    }

    fn cwd(&self) -> PathBuf {
        self.0.join("cwd")
    }

    fn config(&self) -> PathBuf {
        self.0.join("config")
    }

    fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, dir = %self.0.display(), "a directory of the keeper's stays behind");
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
