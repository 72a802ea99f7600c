//! What every agent CLI gives: a check, what its supervisor is told, and sessions with turns.

use crate::Launcher;
use crate::second::SecondBox;
use async_trait::async_trait;
use hmz_anchor::{CliFence, ExecPolicy};
use hmz_api::Error;
use hmz_api::grammar::AgentSpec;
use hmz_api::journal::Event;
use hmz_api::kinds::Harness;
use hmz_api::launch::{BoxAddress, CallerContext};
use hmz_wire::Client;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A CLI as it was found where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// Its executable, absolute and resolved.
    pub program: PathBuf,
    /// Directories of its installation, which it reads.
    pub directories: Vec<PathBuf>,
    /// Executables of it that stay here, the program included.
    pub executables: Vec<PathBuf>,
    /// Its version, when the installation says.
    pub version: Option<String>,
}

/// A CLI's program as a box has to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxProgram {
    /// Its name on the PATH of the box.
    pub name: &'static str,
    /// The line that installs it there.
    pub install: &'static str,
}

/// Where a session's CLI runs.
#[derive(Debug, Clone)]
pub enum Seat {
    /// Here, supervised: this CLI. Its commands land in the box.
    Here(Installed),
    /// In the box itself, reached over this connection.
    Boxed(Client),
    /// In a second box, supervised there. Its commands land in the box.
    Second(Box<SecondBox>),
}

/// Everything a session is started with.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// How processes are started.
    pub launcher: Arc<dyn Launcher>,
    /// Where the CLI runs.
    pub seat: Seat,
    /// Model and effort.
    pub spec: AgentSpec,
    /// The caller's variables.
    pub caller: CallerContext,
    /// The box its commands land in, and where it runs itself when it does not here.
    pub place: BoxAddress,
    /// Names of the programs on the box's PATH; a guess while the box is on its way, see [`Session::suits`].
    pub programs: Arc<Vec<String>>,
}

/// Takes a turn's events as they happen.
pub type Sink<'a> = &'a mut (dyn FnMut(Event) + Send);

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// It answered; the text may be empty.
    Answered(String),
    /// It was interrupted before it answered.
    Interrupted,
    /// It failed, in one sentence for a person.
    Failed(String),
}

/// One agent CLI.
#[async_trait]
pub trait Agent: Send + Sync {
    /// Its word in `-a ROLE=WORD/MODEL`.
    fn cli(&self) -> &'static str;

    /// Finds it on the caller's PATH. Starts nothing.
    ///
    /// # Errors
    /// A refusal when it is not installed here, with the line that installs it.
    fn check(&self, caller: &CallerContext) -> Result<Installed, Error>;

    /// What a box needs of it to run it there; `None` when every box has it.
    fn boxed_program(&self) -> Option<BoxProgram>;

    /// Whether it can play a role as `spec` says. Starts nothing.
    ///
    /// # Errors
    /// A refusal that says what does not fit, such as an effort it has not.
    fn accepts(&self, spec: &AgentSpec, caller: &CallerContext) -> Result<(), Error>;

    /// Whether it can work in `place`, on whose PATH are `programs`, when its CLI runs where `harness` says. Starts nothing.
    ///
    /// # Errors
    /// A refusal that says what is missing, such as the shell its commands need.
    fn works_in(&self, caller: &CallerContext, harness: &Harness, place: &BoxAddress, programs: &[String]) -> Result<(), Error>;

    /// Which of its execs stay here.
    fn policy(&self, installed: &Installed) -> ExecPolicy;

    /// What it may touch here in a session of this name, when it is this CLI.
    fn fence(&self, start: &SessionStart, installed: &Installed, session: &str) -> CliFence;

    /// Names of variables its commands may bring along; a trailing `*` matches any ending.
    fn env_allow(&self) -> Vec<String>;

    /// A new session. The process starts with the first turn.
    ///
    /// # Errors
    /// When its directories cannot be made.
    async fn session(&self, start: SessionStart) -> Result<Box<dyn Session>, Error>;
}

/// A conversation with an agent, kept over turns; at most one process.
#[async_trait]
pub trait Session: Send {
    /// The CLI's own id of it.
    fn id(&self) -> &str;

    /// One turn: asks `prompt` and tells `sink` what happens until the answer is there. When `stop` is cancelled the
    /// agent is interrupted and the turn ends as [`TurnEnd::Interrupted`]; the session can be asked again.
    ///
    /// # Errors
    /// When the agent's process cannot be started. What goes wrong later is [`TurnEnd::Failed`].
    async fn turn(&mut self, prompt: &str, sink: Sink<'_>, stop: &CancellationToken) -> Result<TurnEnd, Error>;

    /// Starts its process before it is asked anything, so that the first turn need not wait for it. The session's box may
    /// still be on its way; what the process wants of it waits.
    ///
    /// # Errors
    /// When the agent's process cannot be started.
    async fn warm(&mut self) -> Result<(), Error>;

    /// Whether it was started as it would be in a box with these programs: one that was begun before those were known.
    fn suits(&self, programs: &[String]) -> bool;

    /// Ends the process: its input is closed, then it is told to end, then it is killed. Returns when it is gone.
    async fn close(&mut self);
}
