//! `script`: the built-in agent without a model. It runs a list of steps as a separate supervised process, exactly as a
//! CLI is run, so that flows and pipelines can be tried without a sign-in.
//!
//! The model of `-a ROLE=script/PATH` is the path of the list, see [`steps`]. What plays it is `hmz_script`, which is in `hmz`
//! and in the guest, so that every box has it.

mod session;
pub mod steps;

use crate::boxed;
use crate::{Agent, BoxProgram, Installed, Session, SessionStart};
use async_trait::async_trait;
use hmz_anchor::{CliFence, ExecPolicy};
use hmz_api::Error;
use hmz_api::grammar::AgentSpec;
use hmz_api::kinds::Harness;
use hmz_api::launch::{BoxAddress, CallerContext};
use std::path::{Path, PathBuf};

pub use hmz_script::{VERB, main};

/// The built-in agent.
#[derive(Debug, Clone)]
pub struct Script {
    exe: PathBuf,
}

impl Script {
    /// The agent of this hmz binary (absolute and resolved).
    pub fn new(exe: &Path) -> Self {
        Self { exe: exe.to_path_buf() }
    }
}

/// The path of the list of steps; a relative one starts where the caller is.
pub(crate) fn steps_of(spec: &AgentSpec, caller: &CallerContext) -> PathBuf {
    Path::new(&caller.cwd).join(&spec.model)
}

#[async_trait]
impl Agent for Script {
    fn cli(&self) -> &'static str {
        "script"
    }

    fn check(&self, _: &CallerContext) -> Result<Installed, Error> {
        Ok(Installed {
            program: self.exe.clone(),
            directories: Vec::new(),
            executables: vec![self.exe.clone()],
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        })
    }

    fn boxed_program(&self) -> Option<BoxProgram> {
        None
    }

    fn accepts(&self, spec: &AgentSpec, caller: &CallerContext) -> Result<(), Error> {
        if let Some(account) = &spec.account {
            return Err(Error::refused(format!("script@{account}: script has no accounts")));
        }
        steps::read(&steps_of(spec, caller)).map(|_| ())
    }

    fn works_in(&self, _: &CallerContext, _: &Harness, place: &BoxAddress, programs: &[String]) -> Result<(), Error> {
        if programs.iter().any(|program| program == "sh") {
            return Ok(());
        }
        Err(Error::refused(format!("the image of '{}' has no sh, which script's commands need", place.environment)))
    }

    fn policy(&self, installed: &Installed) -> ExecPolicy {
        ExecPolicy { own: installed.executables.clone(), listings: Vec::new(), leaves: Vec::new() }
    }

    fn fence(&self, start: &SessionStart, installed: &Installed, session: &str) -> CliFence {
        CliFence {
            write: vec![PathBuf::from(&start.place.workdir), boxed::scratch(&start.place, session)],
            read: vec![installed.program.clone()],
        }
    }

    fn env_allow(&self) -> Vec<String> {
        ["TERM", "LANG", "LC_*", "TMPDIR"].map(str::to_owned).into()
    }

    async fn session(&self, start: SessionStart) -> Result<Box<dyn Session>, Error> {
        Ok(Box::new(session::ScriptSession::new(self.clone(), start).await?))
    }
}
