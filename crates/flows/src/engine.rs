//! Runs a flow's steps, one after the other.

use crate::boxes::{Boxes, gone, second_gone};
use crate::exec::exec;
use crate::journal::{About, Writer};
use crate::template::{Left, Names, params, render};
use hmz_agents::second::{Found, SecondBox};
use hmz_agents::{Agent, Installed, Launcher, Seat, Session, SessionStart, TurnEnd};
use hmz_api::Error;
use hmz_api::grammar::AgentSpec;
use hmz_api::journal::Event;
use hmz_api::kinds::{Command, Harness, Step};
use hmz_api::launch::RunLaunch;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Who plays a role.
pub(crate) struct Player {
    pub(crate) agent: Box<dyn Agent>,
    /// Its CLI here, where it is needed.
    pub(crate) installed: Option<Installed>,
    pub(crate) spec: AgentSpec,
}

/// Why a flow did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It failed, in one sentence.
    Failed(String),
    /// It was told to stop.
    Stopped,
}

/// Why a run is to stop before its flow's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody said so.
    Cancelled,
    /// Its budget's duration is spent.
    BudgetSpent,
    /// A box is lost: what is said of it.
    Lost(String),
}

/// A flow at work.
pub(crate) struct Engine<'a> {
    pub(crate) launch: &'a RunLaunch,
    pub(crate) players: &'a BTreeMap<String, Player>,
    pub(crate) boxes: &'a Boxes,
    /// What was found of each agent's CLI in the second box of an environment role.
    pub(crate) found: BTreeMap<(String, String), Found>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) journal: &'a Writer,
    pub(crate) stop: &'a CancellationToken,
    /// Why it was told to stop, once it was.
    pub(crate) why: &'a OnceLock<Why>,
    /// Agent role and environment role → conversation.
    pub(crate) sessions: BTreeMap<(String, String), Box<dyn Session>>,
}

impl Engine<'_> {
    /// Runs all steps.
    pub(crate) async fn run(&mut self) -> Result<(), Halt> {
        let params = params(&self.launch.flow, &self.launch.params.own);
        let mut names = Names { task: &self.launch.task, params: &params, steps: BTreeMap::new(), last: None };
        for (n, step) in self.launch.flow.steps.iter().enumerate() {
            if self.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            let wrong = |what: String| Halt::Failed(format!("step {}: {what}", n + 1));
            let (left, id) = match step {
                Step::Turn { agent, environment, prompt, id } => {
                    let prompt = render(prompt, &names).map_err(wrong)?;
                    (self.turn(agent, environment, &prompt).await?, id)
                }
                Step::Exec { environment, command, id, allow_failure } => {
                    let argv = match command {
                        Command::Shell(text) => Ok(vec!["/bin/sh".into(), "-c".into(), render(text, &names).map_err(wrong)?]),
                        Command::Words(words) => words.iter().map(|word| render(word, &names)).collect::<Result<_, _>>(),
                    };
                    (self.exec(environment, argv.map_err(wrong)?, *allow_failure).await?, id)
                }
            };
            if let Some(id) = id {
                names.steps.insert(id.clone(), left.clone());
            }
            names.last = Some(left);
        }
        Ok(())
    }

    /// Goes on with a conversation that was begun before its box was there; one that does not suit the box is ended, and
    /// begun again in its turn.
    pub(crate) async fn take_over(&mut self, (role, environment): (String, String), mut session: Box<dyn Session>) {
        let programs = self.boxes.of(&environment).map(|there| there.client.programs());
        if programs.is_some_and(|programs| session.suits(&programs)) {
            self.sessions.insert((role, environment), session);
        } else {
            session.close().await;
        }
    }

    /// Ends every conversation; no process of theirs is left.
    pub(crate) async fn close(&mut self) {
        futures::future::join_all(self.sessions.values_mut().map(|session| session.close())).await;
        self.sessions.clear();
    }

    async fn turn(&mut self, role: &str, environment: &str, prompt: &str) -> Result<Left, Halt> {
        let failed = |e: Error| Halt::Failed(format!("{role}: {e}"));
        let Some(player) = self.players.get(role) else { return Err(Halt::Failed(format!("nobody plays '{role}'"))) };
        let session = match self.sessions.entry((role.to_owned(), environment.to_owned())) {
            Entry::Occupied(session) => session.into_mut(),
            Entry::Vacant(place) => {
                let Some(there) = self.boxes.of(environment) else {
                    return Err(Halt::Failed(format!("'{environment}' has no box")));
                };
                let found = self.found.get(&(role.to_owned(), environment.to_owned()));
                let second = self.boxes.second_of(environment).zip(found);
                let seat = match (self.launch.harness(environment), second, &player.installed) {
                    (Harness::Env, ..) => Seat::Boxed(there.client.clone()),
                    (Harness::On(_), Some((second, found)), _) => Seat::Second(Box::new(SecondBox {
                        client: second.client.clone(),
                        address: second.address.clone(),
                        found: found.clone(),
                    })),
                    (Harness::Local, _, Some(installed)) => Seat::Here(installed.clone()),
                    (Harness::On(_), None, _) | (Harness::Local, _, None) => {
                        return Err(Halt::Failed(format!("'{role}' was not found where it runs")));
                    }
                };
                let start = SessionStart {
                    launcher: Arc::clone(&self.launcher),
                    seat,
                    spec: player.spec.clone(),
                    caller: self.launch.caller.clone(),
                    place: there.address.clone(),
                    programs: there.client.programs(),
                };
                place.insert(player.agent.session(start).await.map_err(failed)?)
            }
        };
        let about = About {
            agent: role.to_owned(),
            cli: player.spec.cli.clone(),
            model: player.spec.model.clone(),
            session: session.id().to_owned(),
        };
        let tell = |event: Event| {
            if let Err(error) = self.journal.write(&about, event) {
                tracing::error!(%error, "the journal cannot be written");
            }
        };
        tell(Event::Begins);
        let began = Instant::now();
        let span = tracing::info_span!("turn", agent = role, env = environment, cli = player.spec.cli, model = player.spec.model);
        let end = session.turn(prompt, &mut |event| tell(event), self.stop).instrument(span.clone()).await;
        let seconds = began.elapsed().as_secs_f64();
        span.in_scope(|| tracing::info!(seconds, "a turn ended"));
        match end {
            Ok(TurnEnd::Answered(_)) if !self.boxes.answers(environment).await => {
                let why = gone(environment, self.launch.boxes.get(environment));
                tell(Event::Failed { text: why.clone() });
                tell(Event::Ends { seconds, answer: String::new() });
                Err(Halt::Failed(why))
            }
            Ok(TurnEnd::Answered(answer)) => {
                tell(Event::Ends { seconds, answer: answer.clone() });
                Ok(Left::Answer(answer))
            }
            Ok(TurnEnd::Interrupted) => {
                if self.why.get() == Some(&Why::BudgetSpent) {
                    tell(Event::Notice { text: "turn cut off: its budget is spent".to_owned() });
                }
                tell(Event::Ends { seconds, answer: String::new() });
                if self.stop.is_cancelled() { Err(Halt::Stopped) } else { Err(Halt::Failed(format!("{role} was interrupted"))) }
            }
            Ok(TurnEnd::Failed(why)) => {
                // one whose CLI has lost its box fails by that, whatever is heard of first
                let why = if self.boxes.second_is_gone(environment).await {
                    second_gone(environment, self.launch.seconds.get(environment))
                } else {
                    why
                };
                tell(Event::Failed { text: why.clone() });
                tell(Event::Ends { seconds, answer: String::new() });
                Err(Halt::Failed(format!("{role}: {why}")))
            }
            Err(error) => {
                tell(Event::Failed { text: error.message.clone() });
                tell(Event::Ends { seconds, answer: String::new() });
                Err(failed(error))
            }
        }
    }

    async fn exec(&self, environment: &str, argv: Vec<String>, allow_failure: bool) -> Result<Left, Halt> {
        let Some(place) = self.boxes.of(environment) else {
            return Err(Halt::Failed(format!("'{environment}' has no box")));
        };
        let command = match argv.as_slice() {
            [shell, flag, text] if shell == "/bin/sh" && flag == "-c" => text.clone(),
            words => words.join(" "),
        };
        let left = match exec(place, argv, self.stop).await {
            Ok(Some(left)) => left,
            Ok(None) => return Err(Halt::Stopped),
            Err(error) => return Err(Halt::Failed(format!("'{command}' in '{environment}': {error}"))),
        };
        let Left::Command { stdout, stderr, status } = &left else { return Ok(left) };
        let event = Event::Exec {
            environment: environment.to_owned(),
            command: command.clone(),
            status: *status,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
        };
        if let Err(error) = self.journal.write(&About::default(), event) {
            tracing::error!(%error, "the journal cannot be written");
        }
        if *status != 0 && !allow_failure {
            return Err(Halt::Failed(format!("'{command}' in '{environment}' ended with {status}")));
        }
        Ok(left)
    }
}
