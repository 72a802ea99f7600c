//! How an agent's process is started: under a supervisor, which is what everything but a test of a CLI's own talk does.

use crate::Grace;
use async_trait::async_trait;
use hmz_anchor::SupervisorConfig;
use hmz_api::Error;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// A process that was started, with pipes to its standard streams.
#[derive(Debug)]
pub struct Started {
    /// The process; killed when dropped.
    pub child: Child,
    /// While it is open the process may live; closing it ends the whole tree.
    pub lifeline: Option<OwnedFd>,
}

/// Starts processes as a [`SupervisorConfig`] says.
#[async_trait]
pub trait Launcher: Send + Sync + Debug {
    /// Starts one. Its standard input is the CLI's own from the first byte the caller writes.
    ///
    /// # Errors
    /// When it cannot be started.
    async fn launch(&self, config: &SupervisorConfig) -> Result<Started, Error>;

    /// How long what it starts may take to end.
    fn grace(&self) -> Grace {
        Grace::default()
    }
}

/// Starts a supervisor, which starts the CLI.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// The hmz binary, absolute and resolved.
    pub exe: PathBuf,
}

#[async_trait]
impl Launcher for Supervised {
    async fn launch(&self, config: &SupervisorConfig) -> Result<Started, Error> {
        let cannot = |what: &dyn std::fmt::Display| Error::failed(format!("the agent's supervisor could not be started: {what}"));
        let frame = config.frame().map_err(|e| cannot(&e))?;
        let supervised = hmz_anchor::launch::supervised(&self.exe).map_err(|e| cannot(&e))?;
        let mut command = Command::from(supervised.command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| cannot(&e))?;
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(&frame).await.map_err(|e| cannot(&e))?;
            stdin.flush().await.map_err(|e| cannot(&e))?;
        }
        Ok(Started { child, lifeline: Some(supervised.lifeline) })
    }
}
