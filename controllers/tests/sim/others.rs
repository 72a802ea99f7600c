//! Everybody else the controllers deal with: runners, files, guests, flows, journals.

use crate::daemon::Daemon;
use crate::dice::Dice;
use async_trait::async_trait;
use hmz_api::journal::Outcome;
use hmz_api::kinds::{FlowSpec, Run, Step};
use hmz_api::launch::{BoxAddress, CallerContext, RunLaunch, Told};
use hmz_api::link::Link;
use hmz_api::{Error, ErrorKind, Resource};
use hmz_controllers::{BoxFiles, Callers, Epics, Flows, GuestProbe, RunnerState, Runners};
use hmz_drivers::{BoxKey, BoxState, GuestFiles, Purpose};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

pub struct Runner {
    pub launch: RunLaunch,
    pub state: RunnerState,
    ends: Instant,
    dies: bool,
    stubborn: bool,
}

/// Runners that end, die, do not listen, and whose start is not always heard of.
pub struct FakeRunners {
    pub dice: Dice,
    pub lies: Arc<AtomicBool>,
    /// By journal.
    pub runners: Mutex<BTreeMap<String, Runner>>,
    pub broken: Mutex<Vec<String>>,
    pub told: Arc<Mutex<BTreeMap<String, Told>>>,
    /// Whether runs go on until they are ended.
    pub lasting: AtomicBool,
    /// The runs whose runner was started, and those of whom one at work was ended, since somebody looked.
    pub begun: Mutex<Vec<Uuid>>,
    pub ended: Mutex<BTreeSet<Uuid>>,
}

impl Runner {
    /// Whether it was started before its boxes were up.
    fn awaits(&self) -> bool {
        self.launch.boxes.values().any(|b| matches!(b.link, Link::Awaited { .. }))
    }
}

impl FakeRunners {
    pub fn new(dice: &Dice, lies: &Arc<AtomicBool>, told: &Arc<Mutex<BTreeMap<String, Told>>>) -> Self {
        Self {
            dice: dice.clone(),
            lies: lies.clone(),
            runners: Mutex::default(),
            broken: Mutex::default(),
            told: told.clone(),
            lasting: AtomicBool::default(),
            begun: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    pub fn tick(&self) {
        let told = self.told.lock().unwrap();
        for (epic, runner) in self.runners.lock().unwrap().iter_mut() {
            if runner.state == RunnerState::Alive && runner.awaits() && !runner.dies {
                match told.get(epic) {
                    // what waits for its boxes does not end by itself
                    None => continue,
                    Some(Told::Down { outcome, message }) => runner.state = RunnerState::Ended(*outcome, message.clone()),
                    Some(Told::Up(_)) => {}
                }
            }
            if runner.state == RunnerState::Alive && runner.ends <= Instant::now() {
                runner.state =
                    if runner.dies { RunnerState::Died } else { RunnerState::Ended(Outcome::Succeeded, String::new()) };
            }
        }
    }

    /// Environments whose box a runner at work owns.
    pub fn owned(&self) -> BTreeSet<String> {
        let told = self.told.lock().unwrap();
        let runners = self.runners.lock().unwrap();
        let reaches = |epic: &String, r: &Runner| !r.awaits() || matches!(told.get(epic), Some(Told::Up(_)));
        let alive = runners.iter().filter(|(epic, r)| r.state == RunnerState::Alive && reaches(epic, r)).map(|(_, r)| r);
        alive.flat_map(|r| r.launch.boxes.values().chain(r.launch.seconds.values()).map(|b| b.scratch.clone())).collect()
    }

    fn end(&self, runner: &str, state: impl Fn(&mut Runner) -> Option<RunnerState>) {
        let mut runners = self.runners.lock().unwrap();
        let found = runners.iter_mut().find(|(epic, r)| format!("runner of {epic}") == runner && r.state == RunnerState::Alive);
        if let Some((_, runner)) = found {
            self.ended.lock().unwrap().insert(runner.launch.uid);
            runner.state = state(runner).unwrap_or_else(|| runner.state.clone());
        }
    }
}

#[async_trait]
impl Runners for FakeRunners {
    async fn find(&self, epic: &str) -> Option<String> {
        self.runners.lock().unwrap().get(epic).map(|_| format!("runner of {epic}"))
    }

    async fn start(&self, launch: RunLaunch) -> Result<String, Error> {
        tokio::time::sleep(self.dice.millis(30)).await;
        let lies = self.lies.load(Ordering::Relaxed);
        if lies && self.dice.one_in(15) {
            return Err(Error::new(ErrorKind::Internal, "fork failed"));
        }
        let epic = launch.epic.clone();
        let (mut dies, stubborn) = (self.dice.one_in(6), self.dice.one_in(4));
        let mut ends = Instant::now() + self.dice.millis(60_000);
        if self.lasting.load(Ordering::Relaxed) {
            (dies, ends) = (false, ends + Duration::from_secs(1_000_000));
        }
        self.begun.lock().unwrap().push(launch.uid);
        let runner = Runner { launch, state: RunnerState::Alive, ends, dies, stubborn };
        if self.runners.lock().unwrap().insert(epic.clone(), runner).is_some() {
            self.broken.lock().unwrap().push(format!("two runners for {epic}"));
        }
        tokio::time::sleep(self.dice.millis(30)).await;
        if lies && self.dice.one_in(3) {
            return Err(Error::new(ErrorKind::Internal, "the pipe broke"));
        }
        Ok(format!("runner of {epic}"))
    }

    async fn observe(&self, runner: &str, epic: &str) -> RunnerState {
        assert_eq!(runner, format!("runner of {epic}"));
        self.runners.lock().unwrap().get(epic).map_or(RunnerState::Died, |r| r.state.clone())
    }

    async fn cancel(&self, runner: &str) {
        self.end(runner, |r| (!r.stubborn).then(|| RunnerState::Ended(Outcome::Cancelled, String::new())));
    }

    async fn kill(&self, runner: &str) {
        self.end(runner, |_| Some(RunnerState::Died));
    }
}

/// Files, as a set of keys.
pub struct FakeFiles {
    pub dice: Dice,
    pub there: Mutex<BTreeSet<BoxKey>>,
}

pub fn scratch(key: &BoxKey) -> String {
    format!("/scratch/{}-{}", key.uid, key.incarnation)
}

#[async_trait]
impl BoxFiles for FakeFiles {
    async fn prepare(&self, key: &BoxKey) -> Result<GuestFiles, Error> {
        tokio::time::sleep(self.dice.millis(3)).await;
        self.there.lock().unwrap().insert(key.clone());
        let scratch = scratch(key).into();
        Ok(GuestFiles { program: "/hmz".into(), socket_dir: format!("/run/{}", key.uid).into(), scratch })
    }

    // whose a box is is known by its scratch here
    async fn prepare_second(&self, key: &BoxKey, serves: &BoxKey) -> Result<GuestFiles, Error> {
        self.prepare(serves).await?;
        self.prepare(key).await
    }

    async fn remove(&self, key: &BoxKey) -> Result<(), Error> {
        tokio::time::sleep(self.dice.millis(3)).await;
        self.there.lock().unwrap().remove(key);
        Ok(())
    }
}

/// Guests that answer a while after their box runs.
pub struct FakeGuests {
    /// By address.
    pub daemons: BTreeMap<String, Arc<Daemon>>,
    pub dice: Dice,
}

#[async_trait]
impl GuestProbe for FakeGuests {
    async fn check(&self, address: &BoxAddress) -> Result<(), String> {
        tokio::time::sleep(self.dice.millis(10)).await;
        // most often it is where its runtime says
        let named = address.used.strip_prefix("docker:").map(|name| format!("unix:///{name}.sock"));
        let first = named.and_then(|endpoint| self.daemons.get(&endpoint));
        for daemon in first.into_iter().chain(self.daemons.values()) {
            let mut state = daemon.state();
            // named as a daemon names it
            let name = address.scratch.trim_start_matches("/scratch/").replace('-', "");
            let name = name.split_at_checked(32).map(|(uid, incarnation)| format!("hmz-box-{uid}-{incarnation}"));
            let found = name.and_then(|name| state.containers.get_mut(&name)).filter(|c| c.seen.purpose == Purpose::Box);
            if let Some(found) = found {
                let runs = matches!(address.link, Link::Direct { pid, .. } if found.seen.state == BoxState::Running(pid));
                let answers = runs && found.answers <= Instant::now();
                if answers {
                    found.owned = Instant::now();
                }
                return if answers { Ok(()) } else { Err("the guest does not answer".into()) };
            }
        }
        Err("there is no socket".into())
    }
}

/// What the caller's `local` is.
pub struct FakeCallers;

impl Callers for FakeCallers {
    fn get(&self, _: Uuid) -> Option<CallerContext> {
        Some(CallerContext { cwd: "/w".into(), docker_endpoint: Some("unix:///a.sock".into()), ..CallerContext::default() })
    }
}

/// Flows `one`, `two` and `five`, by their number of environments, and `paired`: two, an agent in one of them.
pub struct FakeFlows;

#[async_trait]
impl Flows for FakeFlows {
    async fn find(&self, name: &str, _: &str) -> Result<(FlowSpec, String), Error> {
        let n = match name {
            "one" => 1,
            "two" => 2,
            "five" => 5,
            "paired" => 2,
            _ => return Err(Error::refused(format!("there is no flow '{name}'"))),
        };
        let environments = (0..n).map(|i| (format!("e_{i}"), hmz_api::kinds::FlowEnvironment::default())).collect();
        let (mut agents, mut steps) = (BTreeMap::new(), Vec::new());
        if name == "paired" {
            agents.insert("coder".to_owned(), hmz_api::kinds::FlowAgent::default());
            steps.push(Step::Turn { agent: "coder".into(), environment: "e_0".into(), prompt: "t".into(), id: None });
        }
        let flow = FlowSpec { description: None, agents, environments, params: BTreeMap::new(), steps };
        Ok((flow, "builtin".into()))
    }
}

/// Journals' directories, and what is told in them.
pub struct FakeEpics {
    pub dice: Dice,
    pub told: Arc<Mutex<BTreeMap<String, Told>>>,
}

#[async_trait]
impl Epics for FakeEpics {
    async fn open(&self, run: &Resource<Run>, _: &str) -> Result<String, Error> {
        tokio::time::sleep(Duration::from_millis(self.dice.below(5))).await;
        Ok(format!("/epics/{}", run.metadata.uid.unwrap()))
    }

    async fn tell(&self, epic: &str, told: &Told) -> Result<(), Error> {
        tokio::time::sleep(self.dice.millis(5)).await;
        // who waits takes the first it finds
        self.told.lock().unwrap().entry(epic.to_owned()).or_insert_with(|| told.clone());
        Ok(())
    }
}
