//! Daemons that hold containers as real ones would, and a driver that lies about them: replies that are lost, calls that
//! fail, events that are dropped, doubled and late, pulls that take their time, daemons that are not there.

use crate::dice::Dice;
use crate::fate::Fate;
use crate::room::{MEMORY, Seen, admitted, attached, runs};
use async_trait::async_trait;
use futures::StreamExt;
use hmz_api::kinds::{Endpoint, Share};
use hmz_api::{Cpus, Memory};
use hmz_drivers::{
    Admitted, BoxEvent, BoxEvents, BoxKey, BoxSpec, BoxState, Driver, DriverError, Ending, Exit, Facts, Labels, ObservedBox,
    Progress, ProgressSink, Promised, Purpose, RemoveOutcome, Scales, Started, Target, Want,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

/// CPUs of each daemon, where nothing else is said.
pub const CPUS: u64 = 4;
/// When a hold that nobody renewed counts no more.
pub const HOLD_AGE: Duration = Duration::from_secs(30);
/// An image that is nowhere to be had.
pub const NO_IMAGE: &str = "registry.invalid/none";
/// A container of somebody else's that runs on each daemon.
pub const THEIRS: &str = "build";

#[derive(Clone)]
pub struct Container {
    pub seen: ObservedBox,
    pub made: Instant,
    pub lease: Option<Duration>,
    pub owned: Instant,
    pub answers: Instant,
}

#[derive(Default)]
pub struct State {
    pub containers: BTreeMap<String, Container>,
    pub images: BTreeSet<String>,
    pub unreachable: bool,
    /// Whether it takes ten minutes to answer nothing.
    pub stuck: bool,
    /// Whether it tells nobody of anything.
    pub mute: bool,
    /// Clients whose pull began, in all.
    pub pulls: u64,
    /// How often it was asked for anything, and how often it was listed, in all.
    pub asked: u64,
    pub listed: u64,
    /// Boxes that were made since [`Daemon::remember`], each with its image.
    pub made: Vec<(ObservedBox, String)>,
    /// Those that were there then, but for those whose lease ran out since.
    pub before: Vec<ObservedBox>,
    next: i32,
    /// Holds that were made, in all.
    holds: u64,
    listeners: Vec<mpsc::UnboundedSender<BoxEvent>>,
}

/// The name of a container, as a key derives it.
fn name_of(key: &BoxKey, purpose: Purpose) -> String {
    let kind = if purpose == Purpose::Box { "box" } else { "hold" };
    format!("hmz-{kind}-{}-{}", key.uid.simple(), key.incarnation)
}

/// One daemon.
pub struct Daemon {
    pub name: String,
    pub cpus: u64,
    /// Its GPUs.
    pub gpus: Vec<String>,
    /// Containers of somebody else's that run.
    pub theirs: Vec<String>,
    /// How long its guests take at most until they answer, in milliseconds.
    pub guests: u64,
    pub state: Mutex<State>,
    pub broken: Mutex<Vec<String>>,
}

impl Daemon {
    pub fn new(name: &str) -> Self {
        Self::with(name, CPUS)
    }

    pub fn with(name: &str, cpus: u64) -> Self {
        let guests = if cpus > CPUS { 5 } else { 400 };
        // one of two has GPUs
        let gpus = if name == "a" { Vec::new() } else { vec!["0".to_owned(), "1".to_owned()] };
        let theirs = vec![THEIRS.to_owned()];
        Self { name: name.to_owned(), cpus, gpus, theirs, guests, state: Mutex::default(), broken: Mutex::default() }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("unix:///{}.sock", self.name)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn broke(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }

    /// Ends boxes whose lease ran out, and checks what has to hold at every moment.
    pub fn tick(&self, owned: &dyn Fn(&BoxKey) -> bool) {
        let mut state = self.state();
        for one in state.containers.values_mut() {
            if one.seen.key.as_ref().is_some_and(owned) {
                one.owned = Instant::now();
            }
        }
        let late = |c: &Container| c.lease.is_some_and(|lease| c.owned.elapsed() > lease);
        let gone: Vec<String> = state.containers.iter().filter(|(_, c)| late(c)).map(|(n, _)| n.clone()).collect();
        for name in &gone {
            state.containers.remove(name);
            state.before.retain(|before| before.name != *name);
        }
        self.check(&state);
        drop(state);
        if !gone.is_empty() {
            self.tell();
        }
    }

    pub fn check(&self, state: &State) {
        let held = state.held(&[]);
        if held > self.cpus * 1000 {
            self.broke(format!("{}: {held} of {} thousandths handed out", self.name, self.cpus * 1000));
        }
        let memory: u64 = state.holding(&[]).filter_map(|seen| seen.share.memory).map(Memory::bytes).sum();
        if memory > MEMORY {
            self.broke(format!("{}: {memory} of {MEMORY} bytes handed out", self.name));
        }
        let mut given = BTreeSet::new();
        if let Some(twice) = state.holding(&[]).flat_map(|seen| &seen.share.gpus).find(|id| !given.insert(*id)) {
            self.broke(format!("{}: GPU {twice} was handed out twice", self.name));
        }
        let mut boxes = BTreeMap::new();
        for one in state.containers.values().filter(|c| c.seen.purpose == Purpose::Box) {
            if let Some(key) = &one.seen.key {
                *boxes.entry((key.uid, key.incarnation)).or_insert(0) += 1;
            }
        }
        for (key, n) in boxes.into_iter().filter(|(_, n)| *n > 1) {
            self.broke(format!("{}: {n} boxes of {key:?}", self.name));
        }
    }

    /// From now on what is made is noted.
    pub fn remember(&self) {
        let mut state = self.state();
        state.made.clear();
        let boxes = state.containers.values().map(|c| &c.seen).filter(|seen| seen.purpose == Purpose::Box);
        state.before = boxes.cloned().collect();
    }

    /// Says that something happened, and not to whom.
    pub fn tell(&self) {
        self.say(BoxEvent::Any);
    }

    /// Says that something happened to a box or its hold.
    pub fn tell_of(&self, key: &BoxKey) {
        self.say(BoxEvent::Of(key.uid));
    }

    fn say(&self, event: BoxEvent) {
        let mut state = self.state();
        if !state.mute {
            state.listeners.retain(|l| l.send(event).is_ok());
        }
    }

    /// Ends every stream of events; they may be asked for again.
    pub fn hang_up(&self) {
        self.state().listeners.clear();
    }

    /// Somebody else takes a share, if there is room, as we do.
    pub fn stranger_takes(&self, cpus: u64, dice: &Dice) {
        let mut state = self.state();
        if state.held(&[]) + cpus * 1000 <= self.cpus * 1000 {
            let key =
                BoxKey { instance: "stranger".into(), uid: hmz_store::Ids::uid(dice), incarnation: 1, role: "theirs".into() };
            let share = Share { cpus: Some(Cpus::whole(cpus)), ..Share::default() };
            state.add(Purpose::Box, &key, None, "theirs", share, BoxState::Running(1), None);
        }
        self.check(&state);
        drop(state);
        self.tell();
    }

    pub fn strangers_leave(&self) {
        self.state().containers.retain(|_, c| c.seen.key.as_ref().is_none_or(|k| k.instance != "stranger"));
        self.tell();
    }

    /// A box comes to be that nobody waits for any more.
    pub fn starts_late(&self, key: &BoxKey) {
        let _ = self.state().add(Purpose::Box, key, None, &self.name, Share::default(), BoxState::Running(1), None);
    }

    /// How many holds were made.
    pub fn holds(&self) -> u64 {
        self.state().holds
    }

    pub fn boxes_of(&self, instance: &str) -> Vec<String> {
        let state = self.state();
        let ours = |c: &Container| {
            let running = matches!(c.seen.state, BoxState::Running(_)) && c.seen.purpose == Purpose::Box;
            running && c.seen.key.as_ref().is_some_and(|k| k.instance == instance)
        };
        state.containers.iter().filter(|(_, c)| ours(c)).map(|(n, _)| n.clone()).collect()
    }
}

impl State {
    pub fn counts(&self, one: &Container) -> bool {
        match one.seen.purpose {
            Purpose::Hold => one.made.elapsed() < HOLD_AGE,
            _ => matches!(one.seen.state, BoxState::Created | BoxState::Running(_)),
        }
    }

    /// What holds a share, but for these; a box and its hold count once.
    pub fn holding(&self, but: &[&BoxKey]) -> impl Iterator<Item = &ObservedBox> {
        let counted = self.containers.values().filter(|c| self.counts(c)).filter(|c| {
            let key = c.seen.key.as_ref();
            // the box that a hold is for has the same share
            let boxed = |key| c.seen.purpose == Purpose::Hold && self.of(key, Purpose::Box).is_some_and(|b| self.counts(b));
            let left_out = |key: &BoxKey| but.iter().any(|but| but.uid == key.uid && *but == key);
            !key.is_some_and(|key| left_out(key) || boxed(key))
        });
        counted.map(|c| &c.seen)
    }

    /// Thousandths of CPUs handed out, but for these.
    pub fn held(&self, but: &[&BoxKey]) -> u64 {
        self.holding(but).filter_map(|seen| seen.share.cpus).map(Cpus::millis).sum()
    }

    #[allow(clippy::too_many_arguments)]
    pub fn add(
        &mut self,
        purpose: Purpose,
        key: &BoxKey,
        run: Option<Uuid>,
        provider: &str,
        share: Share,
        state: BoxState,
        lease: Option<Duration>,
    ) -> String {
        self.next += 1;
        self.holds += u64::from(purpose == Purpose::Hold);
        let name = name_of(key, purpose);
        let seen = ObservedBox {
            id: format!("id{}", self.next),
            name: name.clone(),
            labels: Labels {
                purpose,
                key: Some(key.clone()),
                run,
                provider: provider.into(),
                host: "here".into(),
                role: key.role.clone(),
                share,
            },
            state,
            created: None,
            program: None,
        };
        let now = Instant::now();
        self.containers.insert(name.clone(), Container { seen, made: now, lease, owned: now, answers: now });
        name
    }

    pub fn of(&self, key: &BoxKey, purpose: Purpose) -> Option<&Container> {
        self.containers.get(&name_of(key, purpose)).filter(|c| c.seen.purpose == purpose && c.seen.key.as_ref() == Some(key))
    }

    /// Takes the hold, or the box, of a key away.
    pub fn take_away(&mut self, key: &BoxKey, purpose: Purpose) -> bool {
        self.of(key, purpose).is_some() && self.containers.remove(&name_of(key, purpose)).is_some()
    }

    fn forget(&mut self, key: &BoxKey) -> bool {
        let hold = self.take_away(key, Purpose::Hold);
        self.take_away(key, Purpose::Box) || hold
    }
}

/// The driver of all daemons.
pub struct Liar {
    /// By address.
    pub daemons: BTreeMap<String, Arc<Daemon>>,
    pub dice: Dice,
    pub fate: Fate,
    /// Whether it lies at the moment.
    pub lies: Arc<std::sync::atomic::AtomicBool>,
    /// Whether it can tell what it has room for before it is asked for it.
    pub weighs: bool,
}

impl Liar {
    fn lies(&self, one_in: u64) -> bool {
        self.lies.load(std::sync::atomic::Ordering::Relaxed) && self.dice.one_in(one_in)
    }

    /// The way there: it takes a moment, and may end there.
    async fn reach(&self, target: &Target) -> Result<Arc<Daemon>, DriverError> {
        tokio::time::sleep(self.dice.millis(20)).await;
        let path = match &target.spec.endpoint {
            Endpoint::Unix(path) => format!("unix://{path}"),
            _ => target.local_endpoint.clone().unwrap_or_else(|| "unix:///a.sock".into()),
        };
        let at = target.runtime.at();
        let unreachable = |why: &str| DriverError::Unreachable { at: at.clone(), why: why.into() };
        let daemon = self.daemons.get(&path).cloned().ok_or_else(|| unreachable("no such socket"))?;
        daemon.state().asked += 1;
        if daemon.state().unreachable {
            return Err(unreachable("connection refused"));
        }
        let stuck = daemon.state().stuck;
        if stuck {
            tokio::time::sleep(Duration::from_secs(600)).await;
            return Err(unreachable("it took too long"));
        }
        if self.lies(25) {
            return Err(DriverError::Transient("the daemon is busy".into()));
        }
        if self.lies(40) {
            return Err(unreachable("connection reset"));
        }
        self.fate.step().await;
        Ok(daemon)
    }

    /// The way back: it takes a moment, and the reply may be lost.
    async fn back<T>(&self, daemon: &Daemon, target: &Target, reply: T) -> Result<T, DriverError> {
        // one with many boxes is checked now and then
        if daemon.cpus <= CPUS {
            daemon.check(&daemon.state());
        }
        self.fate.step().await;
        tokio::time::sleep(self.dice.millis(20)).await;
        if self.lies(20) {
            return Err(DriverError::Unreachable { at: target.runtime.at(), why: "the reply was lost".into() });
        }
        Ok(reply)
    }
}

#[async_trait]
impl Driver for Liar {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        let daemon = self.reach(target).await?;
        let facts = Facts {
            version: "20.10".into(),
            cpus: Cpus::whole(daemon.cpus),
            memory: Memory::from_bytes(MEMORY),
            gpus: Some(daemon.gpus.clone()),
            gpu_names: daemon.gpus.clone(),
            endpoint: daemon.endpoint(),
            ..Facts::default()
        };
        self.back(&daemon, target, facts).await
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        let daemon = self.reach(target).await?;
        if let Some(container) = &target.spec.container {
            let answer = attached(&daemon, target, container, wants)?;
            return self.back(&daemon, target, answer).await;
        }
        if self.lies(15) {
            // nobody waits for the answer any more, and the daemon does it all the same, some time
            let at = target.runtime.at();
            let (daemon, target, wants, after) = (daemon.clone(), target.clone(), wants.to_vec(), self.dice.millis(9000));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                admitted(&daemon, &target, &wants);
                daemon.check(&daemon.state());
            });
            return Err(DriverError::Unreachable { at, why: "it took too long".into() });
        }
        let answer = admitted(&daemon, target, wants);
        if matches!(answer, Admitted::Held(_)) {
            wants.iter().for_each(|want| daemon.tell_of(&want.key));
        }
        self.back(&daemon, target, answer).await
    }

    async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        gone: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        if let Some(container) = target.spec.container.as_ref().filter(|_| self.weighs) {
            let daemon = self.reach(target).await?;
            let answer = attached(&daemon, target, container, wants)?;
            return self.back(&daemon, target, Some(answer)).await;
        }
        let scales = self.scales(target, false).await?;
        Ok(scales.map(|scales| scales.weigh(wants, promised, gone)))
    }

    async fn scales(&self, target: &Target, _: bool) -> Result<Option<Box<dyn Scales>>, DriverError> {
        if !self.weighs {
            return Ok(None);
        }
        let daemon = self.reach(target).await?;
        if target.spec.container.is_some() {
            return Ok(None);
        }
        let scales: Box<dyn Scales> = Box::new(Seen::of(&daemon, &daemon.state(), target));
        self.back(&daemon, target, Some(scales)).await
    }

    async fn renew(&self, target: &Target, keys: &[BoxKey]) -> Result<(), DriverError> {
        let daemon = self.reach(target).await?;
        if target.spec.container.is_some() {
            return self.back(&daemon, target, ()).await;
        }
        {
            let mut state = daemon.state();
            for key in keys {
                let name = state.of(key, Purpose::Hold).filter(|c| c.made.elapsed() < HOLD_AGE).map(|c| c.seen.name.clone());
                let boxed = state.of(key, Purpose::Box).is_some();
                match name.and_then(|name| state.containers.get_mut(&name)) {
                    Some(hold) => hold.made = Instant::now(),
                    None if boxed => {}
                    None => return Err(DriverError::Transient("no longer holds the share".into())),
                }
            }
        }
        keys.iter().for_each(|key| daemon.tell_of(key));
        self.back(&daemon, target, ()).await
    }

    async fn has_image(&self, target: &Target, image: &str) -> Result<Option<bool>, DriverError> {
        let daemon = self.reach(target).await?;
        let is_there = target.spec.container.is_some() || daemon.state().images.contains(image);
        self.back(&daemon, target, Some(is_there)).await
    }

    async fn ensure_image(&self, target: &Target, image: &str, progress: ProgressSink) -> Result<(), DriverError> {
        let daemon = self.reach(target).await?;
        if target.spec.container.is_some() {
            return self.back(&daemon, target, ()).await;
        }
        if image == NO_IMAGE {
            return Err(DriverError::Refused(format!("could not start a container of {image}: no such image")));
        }
        if !daemon.state().images.contains(image) {
            daemon.state().pulls += 1;
            for part in 0..self.dice.below(60) {
                tokio::time::sleep(self.dice.millis(1500)).await;
                progress(Progress { text: format!("pulling {image}: {part}M") });
                if self.lies(60) {
                    return Err(DriverError::Transient("the registry hung up".into()));
                }
            }
            daemon.state().images.insert(image.to_owned());
        }
        self.back(&daemon, target, ()).await
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        let daemon = self.reach(target).await?;
        if let Some(container) = &target.spec.container {
            runs(&daemon, target, container)?;
        }
        let is_theirs = target.spec.container.is_some();
        let answer = {
            let mut state = daemon.state();
            let there = state.of(&spec.key, Purpose::Box).map(|c| (c.seen.name.clone(), c.seen.state.clone()));
            let ended = match there {
                Some((name, BoxState::Running(_))) => Some(name),
                Some((name, _)) => {
                    state.containers.remove(&name);
                    None
                }
                None => None,
            };
            let hold = state.of(&spec.key, Purpose::Hold).filter(|c| state.counts(c)).map(|c| c.seen.share.clone());
            let hold = if is_theirs { Some(spec.share.clone()) } else { hold };
            let started = match (ended, hold) {
                (Some(name), _) => Ok(name),
                (None, None) => Err(DriverError::Transient("no longer holds the share".into())),
                (None, Some(share)) => {
                    if share != spec.share {
                        daemon.broke(format!("a box of {:?} where {share:?} was admitted", spec.share));
                    }
                    if self.lies(10) {
                        Err(DriverError::Transient("the container could not be started".into()))
                    } else if !is_theirs && !state.images.contains(&spec.image) {
                        Err(DriverError::Refused(format!("could not start a container of {}: no such image", spec.image)))
                    } else {
                        state.next += 1;
                        let pid = 1000 + state.next;
                        let provider = target.runtime.provider();
                        // what stands for one that works in somebody's container has no share of its own
                        let share = if is_theirs { Share::default() } else { spec.share.clone() };
                        let running = BoxState::Running(pid);
                        let name = state.add(Purpose::Box, &spec.key, spec.run, provider, share, running, spec.lease);
                        if let Some(made) = state.containers.get_mut(&name) {
                            let noted = (made.seen.clone(), spec.image.clone());
                            made.answers += self.dice.millis(daemon.guests);
                            state.made.push(noted);
                        }
                        Ok(name)
                    }
                }
            };
            match started {
                Err(error) => {
                    state.forget(&spec.key);
                    Err(error)
                }
                Ok(name) => {
                    state.take_away(&spec.key, Purpose::Hold);
                    let made = &state.containers[&name].seen;
                    let BoxState::Running(pid) = made.state else { unreachable!() };
                    Ok(Started { id: made.id.clone(), name, pid, node: None, reach: None })
                }
            }
        };
        daemon.tell_of(&spec.key);
        match answer {
            Ok(started) => self.back(&daemon, target, started).await,
            Err(error) => Err(error),
        }
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        let daemon = self.reach(target).await?;
        let listed = {
            let mut state = daemon.state();
            state.listed += 1;
            state.containers.values().map(|c| c.seen.clone()).collect()
        };
        // what is heard of late is old by then
        if self.lies(10) {
            tokio::time::sleep(self.dice.millis(2000)).await;
        }
        self.back(&daemon, target, listed).await
    }

    // one box is asked for alone, as of a real daemon
    async fn find(&self, target: &Target, key: &BoxKey, _id: &str) -> Result<Option<BoxState>, DriverError> {
        let daemon = self.reach(target).await?;
        let found = daemon.state().containers.get(&name_of(key, Purpose::Box)).map(|c| c.seen.state.clone());
        if self.lies(10) {
            tokio::time::sleep(self.dice.millis(2000)).await;
        }
        self.back(&daemon, target, found).await
    }

    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
        let daemon = self.reach(target).await?;
        let removed = daemon.state().forget(key);
        if removed {
            daemon.tell_of(key);
        }
        self.back(&daemon, target, if removed { RemoveOutcome::Removed } else { RemoveOutcome::Absent }).await
    }

    async fn ending(&self, target: &Target, _: &str) -> Result<Option<Ending>, DriverError> {
        let daemon = self.reach(target).await?;
        let known =
            Ending { code: Some(137), oom: self.dice.one_in(3), stopped: self.dice.one_in(3), killed: true, ..Ending::default() };
        let remembers = self.dice.one_in(2);
        self.back(&daemon, target, remembers.then_some(known)).await
    }

    async fn events(&self, target: &Target) -> Result<BoxEvents, DriverError> {
        let daemon = self.reach(target).await?;
        let (send, receive) = mpsc::unbounded_channel();
        daemon.state().listeners.push(send);
        let (dice, lies, at) = (self.dice.clone(), self.lies.clone(), target.runtime.at());
        let stream = futures::stream::unfold((receive, None), move |(mut receive, again)| {
            let (dice, lies, at) = (dice.clone(), lies.clone(), at.clone());
            async move {
                if let Some(again) = again {
                    return Some((Ok(again), (receive, None)));
                }
                loop {
                    let event = receive.recv().await?;
                    let lying = lies.load(std::sync::atomic::Ordering::Relaxed);
                    match if lying { dice.below(10) } else { 9 } {
                        0 | 1 => {} // dropped
                        2 => return Some((Ok(event), (receive, Some(event)))),
                        3 => tokio::time::sleep(dice.millis(3000)).await,
                        4 => {
                            let why = "the events ended".into();
                            return Some((Err(DriverError::Unreachable { at, why }), (receive, None)));
                        }
                        // not every daemon says whose box it was
                        5 => return Some((Ok(BoxEvent::Any), (receive, None))),
                        _ => return Some((Ok(event), (receive, None))),
                    }
                }
            }
        });
        Ok(stream.boxed())
    }
}

/// How a container may end.
pub fn ending(dice: &Dice) -> Exit {
    match dice.below(3) {
        0 => Exit { code: Some(137), oom: true, at: None },
        1 => Exit { code: Some(1), oom: false, at: None },
        _ => Exit { code: None, oom: false, at: None },
    }
}
