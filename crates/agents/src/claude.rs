//! `claude`: Claude Code, one process a session, stream-json both ways.
//!
//! Its permission prompts are answered by us over its own channel ([`permissions`]); configuration a project holds is not
//! loaded; its sign-in is renewed outside the fence ([`keeper`]).

mod arguments;
mod environment;
mod events;
mod install;
pub mod keeper;
mod permissions;
mod session;
mod state;

use crate::path::find;
use crate::{Agent, BoxProgram, Installed, Session, SessionStart};
use async_trait::async_trait;
use hmz_anchor::{CliFence, ExecPolicy};
use hmz_api::Error;
use hmz_api::grammar::AgentSpec;
use hmz_api::kinds::Harness;
use hmz_api::launch::{BoxAddress, CallerContext};
use state::StateFolders;
use std::path::Path;

/// The values of `--effort` (2.1.332).
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// Shells its commands can be run with, the preferred one first. It takes no other.
const SHELLS: &[&str] = &["bash", "zsh"];

/// Claude Code.
#[derive(Debug, Clone, Copy)]
pub struct Claude;

#[async_trait]
impl Agent for Claude {
    fn cli(&self) -> &'static str {
        "claude"
    }

    fn check(&self, caller: &CallerContext) -> Result<Installed, Error> {
        install::check(caller)
    }

    fn boxed_program(&self) -> Option<BoxProgram> {
        Some(BoxProgram { name: "claude", install: "npm i -g @anthropic-ai/claude-code" })
    }

    fn accepts(&self, spec: &AgentSpec, _: &CallerContext) -> Result<(), Error> {
        if let Some(account) = &spec.account {
            return Err(Error::refused(format!("claude@{account}: named accounts cannot be used yet"))
                .hint(format!("-a claude/{} uses the account claude is signed in with here", spec.model)));
        }
        if let Some(effort) = spec.effort.as_deref().filter(|e| !EFFORTS.contains(e)) {
            return Err(Error::refused(format!("claude has no effort '{effort}': {}", EFFORTS.join(", "))));
        }
        // it would be read as an option
        if spec.model.starts_with('-') {
            return Err(Error::refused(format!("'{}' is no model of claude's", spec.model)));
        }
        Ok(())
    }

    fn works_in(&self, caller: &CallerContext, harness: &Harness, place: &BoxAddress, programs: &[String]) -> Result<(), Error> {
        let name = shell_of(&place.environment, programs)?;
        if *harness != Harness::Local {
            return Ok(());
        }
        shell(caller, name)?;
        let state = StateFolders::of(caller)?;
        let workdir = Path::new(&place.workdir);
        let workdir = workdir.canonicalize().unwrap_or_else(|_| workdir.to_path_buf());
        if state.real_config().starts_with(&workdir) || workdir.starts_with(state.real_config()) {
            return Err(Error::refused(format!(
                "the workdir {} and claude's own folder {} hold one another",
                place.workdir,
                state.config.display()
            ))
            .hint("put the work in a directory of its own"));
        }
        Ok(())
    }

    fn policy(&self, installed: &Installed) -> ExecPolicy {
        ExecPolicy {
            own: installed.executables.clone(),
            listings: vec!["ps".to_owned()],
            // where the next command begins
            leaves: vec![" && pwd -P >| ".to_owned()],
        }
    }

    fn fence(&self, start: &SessionStart, installed: &Installed, session: &str) -> CliFence {
        state::fence(start, installed, session)
    }

    fn env_allow(&self) -> Vec<String> {
        environment::ALLOWED_IN_COMMANDS.iter().map(|name| (*name).to_owned()).collect()
    }

    async fn session(&self, start: SessionStart) -> Result<Box<dyn Session>, Error> {
        Ok(Box::new(session::ClaudeSession::new(start).await?))
    }
}

/// The name of the shell its commands are run with, which the box has to have.
fn shell_of(environment: &str, programs: &[String]) -> Result<&'static str, Error> {
    SHELLS.iter().copied().find(|shell| programs.iter().any(|program| program == shell)).ok_or_else(|| {
        Error::refused(format!("the image of '{environment}' has no bash, which claude's commands need"))
            .hint("use an image with bash, such as python:3.12-slim, or an agent that needs none, such as script")
    })
}

/// A path here of the shell of that name. Its commands go to the box, where the name is what counts; it only looks whether
/// the file is there.
fn shell(caller: &CallerContext, name: &str) -> Result<String, Error> {
    let here = caller.env.get("PATH").map(String::as_str).unwrap_or_default();
    find(name, &format!("/bin:/usr/bin:{here}")).map(|path| path.to_string_lossy().into_owned()).ok_or_else(|| {
        Error::refused(format!("claude needs {name} on this machine too: it looks for it before it runs a command"))
    })
}
