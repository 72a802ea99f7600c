//! One seed: random doings of users, daemons and fate, then peace, in which everything has to come right.

use crate::checks;
use crate::daemon::{Daemon, Liar, NO_IMAGE, ending};
use crate::dice::{Dice, SimClock};
use crate::fate::Fate;
use crate::others::{FakeCallers, FakeEpics, FakeFiles, FakeFlows, FakeGuests, FakeRunners, scratch};
use crate::slow_store::SlowStore;
use hmz_api::clock::SharedClock;
use hmz_api::kinds::{
    Admission, Endpoint, Environment, EnvironmentRequest, EnvironmentSpec, RestartPolicy, Run, RunParams, RunSpec, Runtime,
    RuntimeSpec, WorkPlace,
};
use hmz_api::{AnyResource, Backend, Cpus, Resource, RuntimeRef, Span};
use hmz_controllers::{CANCEL, Running, SettingsSnapshot, World, start};
use hmz_drivers::{BoxState, Driver};
use hmz_store::{Backend as StoreBackend, Memory, Sqlite, Store};
use hmz_telemetry::Ended;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

pub const INSTANCE: &str = "us";

/// The world and who is in it.
pub struct Sim {
    pub dice: Dice,
    pub store: Store,
    pub clock: SharedClock,
    pub daemons: Vec<Arc<Daemon>>,
    pub runners: Arc<FakeRunners>,
    pub files: Arc<FakeFiles>,
    lies: Arc<AtomicBool>,
    /// Whether each write to an environment is in vain the first time.
    pub contended: Arc<AtomicBool>,
    fate: Fate,
    settings: watch::Sender<SettingsSnapshot>,
    /// Whether the runtime `a` falls back to `b`, with one between them that is none.
    pub falls: bool,
    world: World,
    running: Option<Running>,
    told: Vec<String>,
    loud: bool,
}

fn settings(all: bool, falls: bool) -> SettingsSnapshot {
    let at = |path: &str| RuntimeSpec { endpoint: Endpoint::Unix(path.into()), ..RuntimeSpec::default() };
    let list = ["swarm:none", "docker:b"].map(|f| f.parse().unwrap());
    let a = RuntimeSpec { fallback: if falls { list.into() } else { Vec::new() }, ..at("/a.sock") };
    let mut runtimes = vec![(RuntimeRef::named(Backend::Docker, "a"), Ok(a))];
    if all {
        let b = RuntimeSpec { harness: "docker:a".parse().unwrap(), ..at("/b.sock") };
        runtimes.push((RuntimeRef::named(Backend::Docker, "b"), Ok(b)));
        runtimes.push((RuntimeRef::named(Backend::Docker, "broken"), Err("cpus: not a number".into())));
    }
    SettingsSnapshot { runtimes, settled: true, ..SettingsSnapshot::default() }
}

/// Plays a seed; what happened, as text.
pub fn play(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut sim = Sim::new(seed);
        sim.start();
        for _ in 0..10 + sim.dice.below(10) {
            sim.something().await;
            let millis = if sim.dice.one_in(3) { 15_000 } else { 900 };
            sim.pass(sim.dice.millis(millis)).await;
        }
        sim.peace().await;
        sim.told
    })
}

impl Sim {
    /// A world without lies, in which the controllers are at work, with a swarm beside the daemons.
    pub fn calm(seed: u64) -> Self {
        let mut sim = Self::with(seed, true);
        sim.lies.store(false, Ordering::Relaxed);
        sim.start();
        sim
    }

    /// The same, in which the spans of what is done are heard.
    pub fn heard(seed: u64) -> (Self, Arc<Mutex<Vec<Ended>>>) {
        let (mut sim, heard) = (Self::new(seed), Arc::<Mutex<Vec<_>>>::default());
        let told = Arc::clone(&heard);
        sim.world.spans = Some(Arc::new(move |span| told.lock().unwrap().push(span)));
        sim.lies.store(false, Ordering::Relaxed);
        sim.start();
        (sim, heard)
    }

    /// What the controllers are given.
    pub fn world(&self) -> &World {
        &self.world
    }

    fn new(seed: u64) -> Self {
        Self::with(seed, false)
    }

    fn with(seed: u64, swarm: bool) -> Self {
        let dice = Dice::new(seed);
        let clock: SharedClock = Arc::new(SimClock::new());
        let lies = Arc::new(AtomicBool::new(true));
        // the same either way: each backend holds to the same conformance suite
        let inner: Box<dyn StoreBackend> =
            if seed.is_multiple_of(8) { Box::new(Sqlite::in_memory(256).unwrap()) } else { Box::new(Memory::remembering(256)) };
        let fate = Fate::default();
        let contended = Arc::<AtomicBool>::default();
        let (lied, others, tries, writes) = (lies.clone(), contended.clone(), AtomicU64::new(0), AtomicU64::new(0));
        let backend = SlowStore { inner, dice: dice.clone(), fate: fate.clone(), lies: lied, contended: others, tries, writes };
        let store = Store::with(Arc::new(backend), clock.clone(), Arc::new(dice.clone()));
        let mut daemons = vec![Arc::new(Daemon::new("a")), Arc::new(Daemon::new("b"))];
        let told = Arc::default();
        let runners = Arc::new(FakeRunners::new(&dice, &lies, &told));
        let files = Arc::new(FakeFiles { dice: dice.clone(), there: Mutex::default() });
        let mut by_address: BTreeMap<String, Arc<Daemon>> = daemons.iter().map(|d| (d.endpoint(), d.clone())).collect();
        let driver = |daemons: BTreeMap<String, Arc<Daemon>>, weighs: bool| -> Arc<dyn Driver> {
            Arc::new(Liar { daemons, dice: dice.clone(), fate: fate.clone(), lies: lies.clone(), weighs })
        };
        let mut drivers = BTreeMap::from([(Backend::Docker, driver(by_address.clone(), true))]);
        if swarm {
            // its manager says what it has room for when it is asked for it
            let manager = Arc::new(Daemon::new("s"));
            drivers.insert(Backend::Swarm, driver([(manager.endpoint(), manager.clone())].into(), false));
            by_address.insert(manager.endpoint(), manager.clone());
            daemons.push(manager);
        }
        let (settings, receiver) = watch::channel(settings(true, !seed.is_multiple_of(3)));
        let world = World {
            store: store.clone(),
            drivers,
            clock: clock.clone(),
            instance: INSTANCE.into(),
            carrier: hmz_controllers::Carrier::new([7; 32], &BTreeMap::new()),
            seed,
            runners: runners.clone(),
            files: files.clone(),
            probe: Arc::new(FakeGuests { daemons: by_address, dice: dice.clone() }),
            callers: Arc::new(FakeCallers),
            flows: Arc::new(FakeFlows),
            epics: Arc::new(FakeEpics { dice: dice.clone(), told }),
            settings: receiver,
            spans: None,
        };
        let loud = std::env::var_os("HMZ_SIM_LOG").is_some();
        let told = Vec::new();
        Self {
            dice,
            store,
            clock,
            daemons,
            runners,
            files,
            lies,
            contended,
            fate,
            settings,
            falls: !seed.is_multiple_of(3),
            world,
            running: None,
            told,
            loud,
        }
    }

    fn start(&mut self) {
        self.running = Some(start(self.world.clone()));
    }

    pub fn tell(&mut self, what: String) {
        let line = format!("{} {what}", self.clock.now());
        if self.loud {
            eprintln!("{line}");
        }
        self.told.push(line);
    }

    /// Lets time pass, in steps; what has to hold is checked at each.
    pub async fn pass(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < until {
            let step =
                Duration::from_millis(if time.as_secs() > 60 { 1000 } else { 250 }).min(until - tokio::time::Instant::now());
            tokio::time::sleep(step).await;
            self.runners.tick();
            let owned = self.runners.owned();
            for daemon in &self.daemons {
                daemon.tick(&|key| owned.contains(&scratch(key)));
                checks::never(&daemon.broken);
            }
            checks::never(&self.runners.broken);
            assert!(!self.running.as_ref().is_some_and(Running::is_finished), "the controllers ended by themselves");
        }
    }

    fn place(&self) -> RuntimeRef {
        let name = self.dice.pick(&[Some("a"), Some("a"), Some("b"), None]).flatten();
        RuntimeRef { backend: Backend::Docker, name: name.map(str::to_owned) }
    }

    fn image(&self) -> Option<String> {
        match self.dice.below(8) {
            0 => Some(NO_IMAGE.into()),
            1 => Some("node:22".into()),
            _ => None,
        }
    }

    async fn something(&mut self) {
        match self.dice.below(17) {
            0..=2 => self.apply_environment().await,
            3..=5 => self.apply_run().await,
            6 => self.delete_one().await,
            7 => self.change_one().await,
            8 => self.cancel_one().await,
            9 | 10 => self.hurt_a_box(),
            11 => self.cut_off(),
            12 => self.strangers(),
            13 => self.edit_settings(),
            _ => self.crash().await,
        }
    }

    async fn apply_environment(&mut self) {
        let name = format!("env{}", self.dice.below(4));
        let spec = EnvironmentSpec {
            runtime: self.place(),
            workdir: Some("/w".into()),
            image: self.image(),
            cpus: Some(Cpus::whole(1 + self.dice.below(3))),
            memory: None,
            gpus: None,
            gpu_memory: None,
            restart: if self.dice.one_in(2) { RestartPolicy::Always } else { RestartPolicy::Never },
            admission: self.dice.pick(&[None, None, Some(Admission::Wait), Some(Admission::Refuse)]).flatten(),
            wait_for: self.dice.pick(&[None, None, Some(Span::from_secs(20))]).flatten(),
        };
        let made = self.store.create(Resource::<Environment>::new(&name, spec.clone())).await;
        self.tell(format!("apply env {name} {:?} {:?} {:?}: {}", spec.runtime, spec.cpus, spec.image, made.is_ok()));
    }

    async fn apply_run(&mut self) {
        let (flow, n) = self
            .dice
            .pick(&[("one", 1), ("one", 1), ("two", 2), ("five", 5), ("paired", 2), ("paired", 2), ("none", 0)])
            .unwrap();
        let name = format!("run{}", self.dice.below(5));
        let place = |sim: &Self| {
            EnvironmentRequest::Place(WorkPlace {
                runtime: sim.place(),
                workdir: Some("/w".into()),
                image: sim.image().filter(|_| sim.dice.one_in(3)),
                cpus: Some(Cpus::whole(1 + sim.dice.below(2))),
                memory: None,
                gpus: None,
                gpu_memory: None,
            })
        };
        let spec = RunSpec {
            flow: flow.into(),
            task: String::new(),
            agents: if flow == "paired" { [("coder".to_owned(), "script/s".parse().unwrap())].into() } else { BTreeMap::new() },
            environments: (0..n).map(|i| (format!("e_{i}"), place(self))).collect(),
            params: RunParams::default(),
            admission: self.dice.pick(&[None, Some(Admission::Wait), Some(Admission::Refuse)]).flatten(),
            wait_for: self.dice.pick(&[None, Some(Span::from_secs(20))]).flatten(),
            ttl_after_finish: self.dice.pick(&[None, Some(Span::from_secs(30))]).flatten(),
        };
        let made = self.store.create(Resource::<Run>::new(&name, spec)).await;
        self.tell(format!("apply run {name} {flow}: {}", made.is_ok()));
    }

    async fn delete_one(&mut self) {
        let n = self.dice.below(5);
        let (kind, name) = if self.dice.one_in(2) { ("run", format!("run{n}")) } else { ("env", format!("env{n}")) };
        let gone = self.store.delete_any(kind, &name).await;
        self.tell(format!("delete {kind} {name}: {}", gone.is_ok()));
    }

    async fn change_one(&mut self) {
        let name = format!("env{}", self.dice.below(4));
        let Some(mut env) = self.store.get::<Environment>(&name).await.unwrap() else { return };
        match self.dice.below(4) {
            0 => env.spec.image = Some("node:22".into()),
            1 => env.spec.cpus = Some(Cpus::whole(1 + self.dice.below(2))),
            2 => env.spec.runtime = self.place(),
            _ => env.spec.restart = RestartPolicy::Always,
        }
        let done = self.store.update(env).await;
        self.tell(format!("change env {name}: {}", done.is_ok()));
    }

    async fn cancel_one(&mut self) {
        let name = format!("run{}", self.dice.below(5));
        let Some(mut run) = self.store.get::<Run>(&name).await.unwrap() else { return };
        run.metadata.annotations.insert(CANCEL.into(), self.clock.now().to_string());
        let done = self.store.update(run).await;
        self.tell(format!("cancel run {name}: {}", done.is_ok()));
    }

    pub fn hurt_a_box(&mut self) {
        let Some(daemon) = self.dice.pick(&self.daemons) else { return };
        let Some(name) = self.dice.pick(&daemon.boxes_of(INSTANCE)) else { return };
        let mut state = daemon.state();
        let removed = self.dice.one_in(2);
        let key = state.containers.get(&name).and_then(|one| one.seen.key.clone());
        if removed {
            state.containers.remove(&name);
        } else if let Some(one) = state.containers.get_mut(&name) {
            one.seen.state = BoxState::Exited(ending(&self.dice));
        }
        drop(state);
        key.iter().for_each(|key| daemon.tell_of(key));
        self.tell(format!("hurt {name}: removed {removed}"));
    }

    pub fn cut_off(&mut self) {
        let Some(daemon) = self.dice.pick(&self.daemons) else { return };
        let off = !daemon.state().unreachable;
        daemon.state().unreachable = off;
        self.tell(format!("daemon {} unreachable: {off}", daemon.name));
    }

    pub fn strangers(&mut self) {
        let Some(daemon) = self.dice.pick(&self.daemons) else { return };
        if self.dice.one_in(3) {
            daemon.strangers_leave();
        } else {
            daemon.stranger_takes(1 + self.dice.below(3), &self.dice);
        }
        self.tell(format!("strangers on {}", daemon.name));
    }

    fn edit_settings(&mut self) {
        let mut new = settings(self.dice.one_in(2), self.falls);
        new.settled = !self.dice.one_in(4);
        new.problem = self.dice.one_in(3).then(|| "line 3: not YAML".into());
        self.tell(format!("settings.yaml: {} entries, problem {:?}", new.runtimes.len(), new.problem));
        self.settings.send_replace(new);
    }

    /// The controllers end wherever they are, and begin again on what is there.
    async fn crash(&mut self) {
        let orderly = self.dice.one_in(5);
        let step = self.dice.below(60);
        if orderly {
            self.pass(self.dice.millis(300)).await;
            if let Some(running) = self.running.take() {
                running.drain().await;
            }
        } else {
            // in the middle of that step, or soon if nothing is done
            self.fate.end_at(step);
            let _ = tokio::time::timeout(Duration::from_millis(300 + self.dice.below(2000)), self.fate.reached()).await;
        }
        self.running = None;
        self.fate.go_on();
        self.tell(format!("crash: orderly {orderly}, at step {step}"));
        self.pass(self.dice.millis(5000)).await;
        self.start();
    }

    async fn all_but_runtimes(&self) -> Vec<AnyResource> {
        let mut items = self.store.list_any(None).await.unwrap().items;
        items.retain(|one| one.kind() != RUNTIME);
        items
    }

    /// Nobody does anything any more and nobody lies: everything comes right.
    async fn peace(&mut self) {
        self.lies.store(false, Ordering::Relaxed);
        self.settings.send_replace(settings(true, self.falls));
        let everything_goes = self.dice.one_in(2);
        for daemon in &self.daemons {
            daemon.state().unreachable = false;
            daemon.strangers_leave();
        }
        self.tell(format!("peace; everything goes: {everything_goes}"));
        if everything_goes {
            for one in self.store.list_any(None).await.unwrap().items {
                if one.kind() != RUNTIME {
                    let _ = self.store.delete_any(one.kind(), &one.metadata().name).await;
                }
            }
        }
        self.pass(Duration::from_secs(420)).await;
        let trying = checks::converged(self, everything_goes).await;
        let (before, others) = (self.store.revision().await.unwrap(), self.all_but_runtimes().await);
        self.pass(Duration::from_secs(100)).await;
        checks::given_back(self, &trying);
        let after = self.store.revision().await.unwrap();
        // a gang that waits holds some of it for a moment when it tries its list again, and its runtimes say who holds what
        let gangs = checks::gangs_that_wait(self).await;
        // and two that wait see what the other holds in that moment
        let tries = gangs > 1 || gangs == 1 && self.falls && others == self.all_but_runtimes().await;
        // what is refused is tried again now and then, in case its cause went away
        let refused = checks::any_refused(self).await;
        let all = self.store.list_any(None).await.unwrap().items;
        let written: Vec<_> = all.iter().filter(|one| one.metadata().resource_version > before).collect();
        assert!(
            before == after || refused || tries,
            "something is written while nothing happens, {before} to {after}: {written:#?}"
        );
        self.tell(format!("revision {after}"));
    }
}

const RUNTIME: &str = <Runtime as hmz_api::Kind>::KIND;
