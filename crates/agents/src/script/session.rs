//! A session of the built-in agent: one process, asked turn after turn.

use super::{Script, VERB, steps, steps_of};
use crate::boxed::{make_directory, scratch};
use crate::process::Process;
use crate::{Agent as _, Launch, Seat, Session, SessionStart, Sink, TurnEnd};
use async_trait::async_trait;
use hmz_anchor::{BoxedConfig, CliFence, Passage, SupervisorConfig};
use hmz_api::Error;
use hmz_script::{Ask, Say};
use hmz_wire::GUEST_PROGRAM;
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
    /// Whether it was told what to play.
    told: bool,
    /// Turns asked so far.
    turns: usize,
}

impl ScriptSession {
    pub(super) async fn new(agent: Script, start: SessionStart) -> Result<Self, Error> {
        let id = Uuid::new_v4().to_string();
        let dir = scratch(&start.place, &id);
        // the box can write here: what is already there was planted
        match &start.seat {
            Seat::Here(_) => std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&dir)
                .map_err(|e| Error::failed(format!("{} cannot be made: {e}", dir.display())))?,
            Seat::Boxed(client) => {
                // nobody has made it in a container that is not ours
                make_directory(client, &start.place, Path::new(&start.place.scratch), true).await?;
                make_directory(client, &start.place, &dir, false).await?;
            }
            Seat::Second(second) => {
                make_directory(&second.client, &second.address, Path::new(&start.place.scratch), true).await?;
                make_directory(&second.client, &second.address, &dir, false).await?;
            }
        }
        Ok(Self { agent, start, id, process: None, told: false, turns: 0 })
    }

    fn launch(&self) -> Result<Launch, Error> {
        let argv = vec!["hmz".to_owned(), VERB.to_owned()];
        let cwd = PathBuf::from(&self.start.place.workdir);
        let place = self.start.place.clone();
        let own = [("TERM", "dumb".to_owned()), ("TMPDIR", scratch(&self.start.place, &self.id).to_string_lossy().into_owned())];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let installed = match &self.start.seat {
            Seat::Here(installed) => installed,
            Seat::Boxed(_) => {
                let program = place.link.guest().unwrap_or(GUEST_PROGRAM).to_owned();
                let (env, write) = (own.into(), Vec::new());
                return Ok(Launch::Boxed(BoxedConfig { program, argv, env, cwd, place, write }));
            }
            Seat::Second(second) => {
                let installed = &second.found.installed;
                return second.launch(SupervisorConfig {
                    program: installed.program.clone(),
                    argv,
                    env: second.env(own),
                    cwd,
                    place,
                    policy: self.agent.policy(installed),
                    fence: CliFence { write: second.writable(), read: vec![PathBuf::from("/")] },
                    env_allow: self.agent.env_allow(),
                    passage: Passage::default(),
                });
            }
        };
        let mut env = BTreeMap::new();
        for (name, value) in &self.start.caller.env {
            if matches!(name.as_str(), "PATH" | "LANG") || name.starts_with("LC_") {
                env.insert(name.clone(), value.clone());
            }
        }
        env.extend(own);
        Ok(Launch::Here(SupervisorConfig {
            program: installed.program.clone(),
            argv,
            env,
            cwd,
            place,
            policy: self.agent.policy(installed),
            fence: self.agent.fence(&self.start, installed, &self.id),
            env_allow: self.agent.env_allow(),
            passage: Passage::Own,
        }))
    }

    /// Tells a process that was started what to play; `None` as [`Process::ask`] says it.
    async fn begin(&mut self, stop: &CancellationToken) -> Result<Option<std::io::Result<()>>, Error> {
        let Some(process) = self.process.as_mut().filter(|_| !self.told) else { return Ok(Some(Ok(()))) };
        let steps = steps::read(&steps_of(&self.start.spec, &self.start.caller))?;
        self.told = true;
        Ok(process.ask(&Ask::Begin { steps, before: self.turns }, stop).await)
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
            self.process = Some(Process::start(&*self.start.launcher, &self.launch()?).await?);
            self.told = false;
        }
        Ok(())
    }

    fn suits(&self, _: &[String]) -> bool {
        true
    }

    async fn turn(&mut self, prompt: &str, sink: Sink<'_>, stop: &CancellationToken) -> Result<TurnEnd, Error> {
        self.warm().await?;
        let begun = self.begin(stop).await?;
        self.turns += 1;
        let mut interrupted: Option<Instant> = None;
        let taken = match (begun, &mut self.process) {
            (Some(Ok(())), Some(process)) => process.ask(&Ask::Prompt { text: prompt.to_owned() }, stop).await,
            (begun, _) => begun,
        };
        match taken {
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
