//! A session of the built-in agent: one process, asked turn after turn.

use super::protocol::{Ask, Say};
use super::{Script, VERB, steps_of};
use crate::process::Process;
use crate::{Agent as _, Session, SessionStart, Sink, TurnEnd};
use async_trait::async_trait;
use hmz_anchor::SupervisorConfig;
use hmz_api::Error;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[derive(Debug)]
pub(super) struct ScriptSession {
    agent: Script,
    start: SessionStart,
    id: String,
    process: Option<Process>,
    /// Turns asked so far.
    turns: usize,
}

/// A session's own directory in the scratch directory.
pub(super) fn scratch(start: &SessionStart, session: &str) -> PathBuf {
    Path::new(&start.place.scratch).join(session)
}

impl ScriptSession {
    pub(super) fn new(agent: Script, start: SessionStart) -> Result<Self, Error> {
        let id = Uuid::new_v4().to_string();
        let dir = scratch(&start, &id);
        // the box can write here: what is already there was planted
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|e| Error::failed(format!("{} cannot be made: {e}", dir.display())))?;
        Ok(Self { agent, start, id, process: None, turns: 0 })
    }

    fn config(&self) -> SupervisorConfig {
        let steps = steps_of(&self.start.spec, &self.start.caller);
        let mut env = BTreeMap::new();
        for (name, value) in &self.start.caller.env {
            if matches!(name.as_str(), "PATH" | "LANG") || name.starts_with("LC_") {
                env.insert(name.clone(), value.clone());
            }
        }
        env.insert("TERM".into(), "dumb".into());
        env.insert("TMPDIR".into(), scratch(&self.start, &self.id).to_string_lossy().into_owned());
        SupervisorConfig {
            program: self.start.installed.program.clone(),
            argv: vec!["hmz".into(), VERB.into(), steps.to_string_lossy().into_owned(), self.turns.to_string()],
            env,
            cwd: PathBuf::from(&self.start.place.workdir),
            place: self.start.place.clone(),
            policy: self.agent.policy(&self.start.installed),
            fence: self.agent.fence(&self.start, &self.id),
            env_allow: self.agent.env_allow(),
        }
    }

    async fn end_process(&mut self) {
        if let Some(process) = self.process.take() {
            process.close().await;
        }
    }

    async fn died(&mut self) -> TurnEnd {
        let why = match &mut self.process {
            Some(process) => process.last_words().await,
            None => String::new(),
        };
        self.end_process().await;
        TurnEnd::Failed(format!("script ended in the middle of its turn: {why}"))
    }
}

#[async_trait]
impl Session for ScriptSession {
    fn id(&self) -> &str {
        &self.id
    }

    async fn warm(&mut self) -> Result<(), Error> {
        if self.process.is_none() {
            let config = self.config();
            self.process = Some(Process::start(&*self.start.launcher, &config).await?);
        }
        Ok(())
    }

    fn suits(&self, _: &[String]) -> bool {
        true
    }

    async fn turn(&mut self, prompt: &str, sink: Sink<'_>, stop: &CancellationToken) -> Result<TurnEnd, Error> {
        self.warm().await?;
        self.turns += 1;
        let mut interrupted: Option<Instant> = None;
        let Some(process) = &mut self.process else { return Ok(self.died().await) };
        match process.ask(&Ask::Prompt { text: prompt.to_owned() }, stop).await {
            Some(Ok(())) => {}
            Some(Err(_)) => return Ok(self.died().await),
            None => {
                self.end_process().await;
                return Ok(TurnEnd::Interrupted);
            }
        }
        loop {
            let Some(process) = &mut self.process else { return Ok(self.died().await) };
            let line = tokio::select! {
                biased;
                () = stop.cancelled(), if interrupted.is_none() => {
                    match process.interrupt(&Ask::Interrupt).await {
                        Ok(due) => interrupted = Some(due),
                        Err(_) => {
                            self.end_process().await;
                            return Ok(TurnEnd::Interrupted);
                        }
                    }
                    continue;
                }
                // before its lines, which need not end
                () = async { match interrupted { Some(due) => sleep_until(due).await, None => std::future::pending().await } } => {
                    self.end_process().await;
                    return Ok(TurnEnd::Interrupted);
                }
                line = process.next() => line,
            };
            match line {
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(Say::Event { event }) => sink(event),
                    Ok(Say::Interrupted) => return Ok(TurnEnd::Interrupted),
                    Ok(_) if interrupted.is_some() => return Ok(TurnEnd::Interrupted),
                    Ok(Say::Answered { text }) => return Ok(TurnEnd::Answered(text)),
                    Ok(Say::Failed { text }) => return Ok(TurnEnd::Failed(text)),
                    Err(_) => {}
                },
                Ok(None) if interrupted.is_some() => {
                    self.end_process().await;
                    return Ok(TurnEnd::Interrupted);
                }
                Ok(None) => return Ok(self.died().await),
                Err(error) => {
                    self.end_process().await;
                    return Ok(TurnEnd::Failed(format!("script cannot be listened to: {error}")));
                }
            }
        }
    }

    async fn close(&mut self) {
        self.end_process().await;
    }
}
