//! A conversation with claude: one process, started with the first turn and again when it has gone.

use super::arguments::{self, Conversation};
use super::events::{Heard, Outcome, Translator};
use super::keeper::{Expiry, Keeper, Renewal};
use super::permissions::{Answer, Places, answer};
use super::state::{self, StateFolders};
use super::{Claude, environment, shell, shell_of};
use crate::boxed::{is_there, make_directory, scratch};
use crate::process::Process;
use crate::second::SecondBox;
use crate::{Agent as _, Installed, Launch, Seat, Session, SessionStart, Sink, TurnEnd};
use async_trait::async_trait;
use hmz_anchor::{BoxedConfig, CliFence, Passage, SupervisorConfig};
use hmz_api::Error;
use hmz_api::journal::Event;
use hmz_api::link::Link;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A conversation.
#[derive(Debug)]
pub(super) struct ClaudeSession {
    start: SessionStart,
    id: String,
    /// Where the CLI keeps its state: here, or in the box it runs in.
    state: StateFolders,
    /// Keeps the sign-in, when one of the user's is used.
    keeper: Option<Keeper>,
    translator: Translator,
    process: Option<Process>,
}

impl ClaudeSession {
    pub(super) async fn new(start: SessionStart) -> Result<Self, Error> {
        let id = Uuid::new_v4().to_string();
        let (state, keeper) = match &start.seat {
            Seat::Here(installed) => {
                state::prepare(&start, &id)?;
                let state = StateFolders::of(&start.caller)?;
                let keeper = (!state::key_in_environment(&start.caller))
                    .then(|| Keeper::new(installed, state.config.clone(), &start.caller));
                (state, keeper)
            }
            Seat::Boxed(client) => {
                let state = StateFolders::in_box(client)?;
                // nobody has made it in a container that is not ours
                make_directory(client, &start.place, Path::new(&start.place.scratch), true).await?;
                // what it may write has to be there before it is fenced
                make_directory(client, &start.place, &state.config, true).await?;
                make_directory(client, &start.place, &scratch(&start.place, &id), false).await?;
                (state, None)
            }
            Seat::Second(second) => {
                let (client, there) = (&second.client, &second.address);
                let state = StateFolders::in_box(client)?;
                make_directory(client, there, Path::new(&start.place.scratch), true).await?;
                make_directory(client, there, &state.config, true).await?;
                make_directory(client, there, &scratch(&start.place, &id), false).await?;
                (state, None)
            }
        };
        Ok(Self { start, id, state, keeper, translator: Translator::default(), process: None })
    }

    /// What is started for the next turn.
    async fn launch(&self) -> Result<Launch, Error> {
        let place = &self.start.place;
        // a name whose transcript is there is refused as new, one without as old
        let transcript = self.project().join(format!("{}.jsonl", self.id));
        Ok(match &self.start.seat {
            Seat::Here(installed) => Launch::Here(self.supervised(installed, transcript.exists())?),
            Seat::Boxed(client) => Launch::Boxed(BoxedConfig {
                program: "claude".to_owned(),
                argv: self.argv(is_there(client, place, &transcript).await?),
                env: environment::in_box(&self.start, &self.id),
                cwd: PathBuf::from(&place.workdir),
                place: place.clone(),
                write: vec![self.state.config.clone()],
            }),
            Seat::Second(second) => {
                let has_begun = is_there(&second.client, &second.address, &transcript).await?;
                second.launch(self.supervised_in(second, has_begun)?)?
            }
        })
    }

    fn supervised(&self, installed: &Installed, has_begun: bool) -> Result<SupervisorConfig, Error> {
        let place = &self.start.place;
        let shell = shell(&self.start.caller, shell_of(&place.environment, &self.start.programs)?)?;
        Ok(SupervisorConfig {
            program: installed.program.clone(),
            argv: self.argv(has_begun),
            env: environment::of(&self.start, &self.id, &shell),
            cwd: PathBuf::from(&place.workdir),
            place: place.clone(),
            policy: Claude.policy(installed),
            fence: Claude.fence(&self.start, installed, &self.id),
            env_allow: Claude.env_allow(),
            passage: Passage::Own,
        })
    }

    /// The same in a second box, with what is passed into a box of the caller's variables and no more.
    fn supervised_in(&self, second: &SecondBox, has_begun: bool) -> Result<SupervisorConfig, Error> {
        let place = &self.start.place;
        let name = shell_of(&place.environment, &self.start.programs)?;
        let shell = second.found.shells.get(name).ok_or_else(|| {
            let used = &second.address.used;
            Error::refused(format!("claude needs {name} on {used} too: it looks for it before it runs a command"))
        })?;
        let mut env = second.env(environment::in_box(&self.start, &self.id));
        env.extend(environment::shells(shell));
        let mut write = second.writable();
        write.push(self.state.config.clone());
        Ok(SupervisorConfig {
            program: second.found.installed.program.clone(),
            argv: self.argv(has_begun),
            env,
            cwd: PathBuf::from(&place.workdir),
            place: place.clone(),
            policy: Claude.policy(&second.found.installed),
            fence: CliFence { write, read: vec![PathBuf::from("/")] },
            env_allow: Claude.env_allow(),
            passage: Passage::default(),
        })
    }

    /// The folder of its transcripts.
    fn project(&self) -> PathBuf {
        let workdir = self.start.place.workdir.as_ref();
        match &self.start.seat {
            Seat::Here(_) => self.state.project(workdir),
            Seat::Boxed(_) | Seat::Second(_) => self.state.project_of(workdir),
        }
    }

    fn argv(&self, has_begun: bool) -> Vec<String> {
        let spec = &self.start.spec;
        let conversation = if has_begun { Conversation::Resumed } else { Conversation::Fresh };
        arguments::of(&spec.model, spec.effort.as_deref(), &self.id, conversation, &self.state)
    }

    fn places(&self) -> Places {
        let project = self.project();
        let elsewhere = matches!(self.start.seat, Seat::Boxed(_));
        Places {
            boxed: !matches!(self.start.seat, Seat::Here(_)),
            elsewhere: elsewhere && matches!(self.start.place.link, Link::Stream(_)),
            workdir: PathBuf::from(&self.start.place.workdir),
            scratch: scratch(&self.start.place, &self.id),
            results: vec![project.join(&self.id), project.join("tool-results")],
        }
    }

    /// Ends the process; the conversation can be resumed.
    async fn end_process(&mut self) {
        if let Some(process) = self.process.take() {
            process.close().await;
        }
    }

    /// Says why the process ended in the middle of a turn.
    async fn died(&mut self) -> TurnEnd {
        let why = match self.process.take() {
            Some(mut process) => {
                let why = process.last_words().await;
                process.close().await;
                why
            }
            None => String::new(),
        };
        TurnEnd::Failed(format!("claude ended in the middle of its turn: {why}"))
    }

    /// Answers a permission prompt.
    async fn permit(&mut self, request: &str, question: &super::permissions::Question, sink: Sink<'_>) -> std::io::Result<()> {
        let response = match answer(question, &self.places()) {
            Answer::Allow => json!({"behavior": "allow", "updatedInput": question.input}),
            Answer::Deny(why) => {
                self.translator.denied(&question.tool_use_id);
                sink(Event::Notice { text: format!("claude may not use {}: {why}", question.tool_name) });
                json!({"behavior": "deny", "message": why})
            }
        };
        self.send(&control_response(request, &response)).await
    }

    async fn send(&mut self, message: &Value) -> std::io::Result<()> {
        match &mut self.process {
            Some(process) => process.send(message).await,
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }
}

fn control_response(request: &str, response: &Value) -> Value {
    json!({"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": response}})
}

/// A renewal that was begun because the provider refused the sign-in.
#[derive(Default)]
struct Renewing {
    going_on: Option<JoinHandle<Renewal>>,
    /// Whether one was begun in this turn; it is tried once.
    begun: bool,
}

impl Renewing {
    /// Waits for the end of the one that goes on, for ever when there is none; can be cancelled.
    async fn end(&mut self) -> Option<String> {
        let ended = match &mut self.going_on {
            Some(going_on) => going_on.await,
            None => std::future::pending().await,
        };
        self.going_on = None;
        match ended {
            Ok(Renewal::Stale(why)) => Some(why),
            Ok(Renewal::Fresh | Renewal::Renewed) => None,
            Err(e) => Some(format!("claude's sign-in could not be renewed: {e}")),
        }
    }
}

#[async_trait]
impl Session for ClaudeSession {
    fn id(&self) -> &str {
        &self.id
    }

    async fn warm(&mut self) -> Result<(), Error> {
        // one whose sign-in is to be renewed first is left to the turn, which does that
        if self.keeper.as_ref().is_some_and(Keeper::is_due) { Ok(()) } else { self.begin().await }
    }

    fn suits(&self, programs: &[String]) -> bool {
        let shell = |programs: &[String]| shell_of(&self.start.place.environment, programs).ok();
        shell(programs) == shell(&self.start.programs)
    }

    async fn turn(&mut self, prompt: &str, sink: Sink<'_>, stop: &CancellationToken) -> Result<TurnEnd, Error> {
        if let Some(keeper) = self.keeper.clone() {
            // it goes on with the old one as long as that is good
            if let Renewal::Stale(why) = keeper.look().await {
                sink(Event::Notice { text: why });
            }
        }
        let mut renewing = Renewing::default();
        let end = self.talk(prompt, &mut *sink, stop, &mut renewing).await;
        // the turn may end first; a renewal is never left in its middle
        if renewing.going_on.is_some()
            && let Some(why) = renewing.end().await
        {
            sink(Event::Notice { text: why });
        }
        end
    }

    async fn close(&mut self) {
        self.end_process().await;
    }
}

impl ClaudeSession {
    async fn begin(&mut self) -> Result<(), Error> {
        if self.process.is_none() {
            let launch = self.launch().await?;
            self.process = Some(Process::start(&*self.start.launcher, &launch).await?);
        }
        Ok(())
    }

    async fn talk(
        &mut self,
        prompt: &str,
        sink: Sink<'_>,
        stop: &CancellationToken,
        renewing: &mut Renewing,
    ) -> Result<TurnEnd, Error> {
        let expiry: Option<Expiry> = self.keeper.as_ref().and_then(Keeper::expiry);
        self.begin().await?;
        let asked = json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": prompt}]}});
        let taken = match &mut self.process {
            Some(process) => process.ask(&asked, stop).await,
            None => Some(Err(std::io::ErrorKind::BrokenPipe.into())),
        };
        match taken {
            Some(Ok(())) => {}
            Some(Err(_)) => return Ok(self.died().await),
            None => {
                self.end_process().await;
                return Ok(TurnEnd::Interrupted);
            }
        }
        let mut interrupted: Option<Instant> = None;
        loop {
            let Some(process) = &mut self.process else { return Ok(self.died().await) };
            let line = tokio::select! {
                biased;
                () = stop.cancelled(), if interrupted.is_none() => {
                    let request = json!({"type": "control_request", "request_id": Uuid::new_v4(), "request": {"subtype": "interrupt"}});
                    match process.interrupt(&request).await {
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
                    // it does not let go; the conversation is resumed with a new process
                    self.end_process().await;
                    return Ok(TurnEnd::Interrupted);
                }
                why = renewing.end() => {
                    if let Some(text) = why {
                        sink(Event::Notice { text });
                    }
                    continue;
                }
                line = process.next() => line,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) if interrupted.is_some() => {
                    self.end_process().await;
                    return Ok(TurnEnd::Interrupted);
                }
                Ok(None) => return Ok(self.died().await),
                Err(error) => {
                    self.end_process().await;
                    return Ok(TurnEnd::Failed(format!("claude cannot be listened to: {error}")));
                }
            };
            match self.translator.hear(&line, &mut *sink) {
                Heard::Nothing => {}
                Heard::Asks(request, question) => {
                    if self.permit(&request, &question, &mut *sink).await.is_err() {
                        return Ok(self.died().await);
                    }
                }
                Heard::AsksOther(request) => {
                    let refused = json!({"type": "control_response", "response": {"subtype": "error", "request_id": request, "error": "not available here"}});
                    if self.send(&refused).await.is_err() {
                        return Ok(self.died().await);
                    }
                }
                Heard::Unauthorized => {
                    if let Some(keeper) = self.keeper.clone().filter(|_| !renewing.begun) {
                        renewing.begun = true;
                        renewing.going_on = Some(tokio::spawn(async move { keeper.refused(expiry).await }));
                    }
                }
                Heard::Ended(_) if interrupted.is_some() => return Ok(TurnEnd::Interrupted),
                Heard::Ended(Outcome::Answered(text)) => return Ok(TurnEnd::Answered(text)),
                Heard::Ended(Outcome::Failed(why)) => {
                    // a process whose turn failed ends by itself; a new one resumes the conversation
                    self.end_process().await;
                    return Ok(TurnEnd::Failed(why));
                }
            }
        }
    }
}
