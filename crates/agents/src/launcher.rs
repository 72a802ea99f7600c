//! How an agent's process is started: under a supervisor, or in a box behind a proxy, which is what everything but a test of
//! a CLI's own talk does.

use crate::Grace;
use async_trait::async_trait;
use hmz_anchor::{AnchorError, BoxedConfig, RelayConfig, SupervisorConfig};
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

/// What is started, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// Here, supervised.
    Here(SupervisorConfig),
    /// In a box.
    Boxed(BoxedConfig),
    /// In a second box, supervised there.
    Second(Box<(RelayConfig, SupervisorConfig)>),
}

/// Starts processes as a [`Launch`] says.
#[async_trait]
pub trait Launcher: Send + Sync + Debug {
    /// Starts one. Its standard input is the CLI's own from the first byte the caller writes.
    ///
    /// # Errors
    /// When it cannot be started.
    async fn launch(&self, what: &Launch) -> Result<Started, Error>;

    /// How long what it starts may take to end.
    fn grace(&self) -> Grace {
        Grace::default()
    }
}

/// Starts a supervisor or a proxy, which starts the CLI.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// The hmz binary, absolute and resolved.
    pub exe: PathBuf,
    /// Where it logs; absent: nowhere.
    pub log: Option<SessionLog>,
}

/// Where the supervisor or proxy of a session logs, and as what.
#[derive(Debug, Clone)]
pub struct SessionLog {
    /// The file, which is added to.
    pub file: PathBuf,
    /// The run.
    pub run: String,
    /// The `traceparent` it works below.
    pub trace: String,
}

#[async_trait]
impl Launcher for Supervised {
    async fn launch(&self, what: &Launch) -> Result<Started, Error> {
        let (name, frame, ready): (_, Result<Vec<u8>, AnchorError>, _) = match what {
            Launch::Here(config) => ("supervisor", config.frame(), hmz_anchor::launch::supervised(&self.exe)),
            Launch::Boxed(config) => ("proxy", config.frame(), hmz_anchor::launch::proxied(&self.exe)),
            Launch::Second(both) => {
                let (relay, supervisor) = &**both;
                let frames = relay.frame().and_then(|first| Ok([first, supervisor.frame()?].concat()));
                ("relay", frames, hmz_anchor::launch::relayed(&self.exe))
            }
        };
        let cannot = |what: &dyn std::fmt::Display| Error::failed(format!("the agent's {name} could not be started: {what}"));
        let frame = frame.map_err(|e| cannot(&e))?;
        let supervised = ready.map_err(|e| cannot(&e))?;
        let mut command = Command::from(supervised.command);
        if let Some(log) = &self.log {
            // its own variables: the CLI has none of them
            command.env(hmz_anchor::log::FILE, &log.file).env(hmz_anchor::log::RUN, &log.run);
            command.env(hmz_telemetry::TRACEPARENT, &log.trace);
            command.envs(hmz_telemetry::PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| cannot(&e))?;
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(&frame).await.map_err(|e| cannot(&e))?;
            stdin.flush().await.map_err(|e| cannot(&e))?;
        }
        Ok(Started { child, lifeline: Some(supervised.lifeline) })
    }
}
