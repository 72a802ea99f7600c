//! A world of many daemons with many environments on each.

use crate::daemon::{Daemon, Liar};
use crate::dice::{Dice, SimClock};
use crate::fate::Fate;
use crate::others::{FakeCallers, FakeEpics, FakeFiles, FakeFlows, FakeGuests, FakeRunners};
use crate::slow_store::SlowStore;
use hmz_api::clock::SharedClock;
use hmz_api::kinds::{Endpoint, Environment, EnvironmentSpec, RestartPolicy, RuntimeSpec, condition};
use hmz_api::{Backend, Cpus, Resource, RuntimeRef};
use hmz_controllers::{Carrier, Running, SettingsSnapshot, World, start};
use hmz_drivers::Driver;
use hmz_store::{Memory, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Environments on each daemon, each of which has exactly their room.
pub const EACH: u64 = 100;
/// The image of all of them; every daemon has it.
const IMAGE: &str = "python:3.12-slim";

pub struct Many {
    pub dice: Dice,
    pub store: Store,
    pub daemons: Vec<Arc<Daemon>>,
    pub lies: Arc<AtomicBool>,
    pub fate: Fate,
    pub world: World,
    pub files: Arc<FakeFiles>,
    /// Kept, since nobody hears of settings whose sender is gone.
    _settings: watch::Sender<SettingsSnapshot>,
}

impl Many {
    /// So many daemons, each with a runtime in the settings, in which nobody lies.
    pub fn new(seed: u64, daemons: u64) -> Self {
        let dice = Dice::new(seed);
        let clock: SharedClock = Arc::new(SimClock::new());
        let lies = Arc::new(AtomicBool::new(false));
        let fate = Fate::default();
        let writes = AtomicU64::new(0);
        let inner = Box::new(Memory::new());
        let (contended, tries) = (Arc::default(), AtomicU64::new(0));
        let backend = SlowStore { inner, dice: dice.clone(), fate: fate.clone(), lies: lies.clone(), contended, tries, writes };
        let store = Store::with(Arc::new(backend), clock.clone(), Arc::new(dice.clone()));
        let daemons: Vec<Arc<Daemon>> = (0..daemons).map(|n| Arc::new(Daemon::with(&format!("d{n}"), EACH))).collect();
        let by_address: BTreeMap<String, Arc<Daemon>> = daemons.iter().map(|d| (d.endpoint(), d.clone())).collect();
        let mut runtimes = Vec::new();
        for daemon in &daemons {
            daemon.state().images.insert(IMAGE.into());
            let endpoint = Endpoint::Unix(format!("/{}.sock", daemon.name));
            let spec = RuntimeSpec { endpoint, ..RuntimeSpec::default() };
            runtimes.push((RuntimeRef::named(Backend::Docker, daemon.name.clone()), Ok(spec)));
        }
        let settings = SettingsSnapshot { runtimes, settled: true, ..SettingsSnapshot::default() };
        let (sender, receiver) = watch::channel(settings);
        let told = Arc::default();
        let runners = FakeRunners::new(&dice, &lies, &told);
        let files = Arc::new(FakeFiles { dice: dice.clone(), there: Mutex::default() });
        let liar = Liar { daemons: by_address.clone(), dice: dice.clone(), fate: fate.clone(), lies: lies.clone(), weighs: true };
        let driver: Arc<dyn Driver> = Arc::new(liar);
        let world = World {
            store: store.clone(),
            drivers: BTreeMap::from([(Backend::Docker, driver)]),
            clock,
            instance: "us".into(),
            carrier: Carrier::new([7; 32], &BTreeMap::new()),
            seed,
            runners: Arc::new(runners),
            files: files.clone(),
            probe: Arc::new(FakeGuests { daemons: by_address, dice: dice.clone() }),
            callers: Arc::new(FakeCallers),
            flows: Arc::new(FakeFlows),
            epics: Arc::new(FakeEpics { dice: dice.clone(), told }),
            settings: receiver,
            spans: None,
        };
        Self { dice, store, daemons, lies, fate, world, files, _settings: sender }
    }

    /// Has the controllers work.
    pub fn start(&self) -> Running {
        start(self.world.clone())
    }

    /// Declares as many environments as there is room for, but for `less`.
    pub async fn declare(&self, less: u64) {
        let daemons = self.daemons.len() as u64;
        for n in 0..daemons * EACH - less {
            let spec = EnvironmentSpec {
                runtime: RuntimeRef::named(Backend::Docker, format!("d{}", n % daemons)),
                workdir: Some("/home/me/project".into()),
                image: Some(IMAGE.into()),
                cpus: Some(Cpus::whole(1)),
                memory: None,
                gpus: None,
                gpu_memory: None,
                restart: RestartPolicy::Always,
                admission: None,
                wait_for: None,
            };
            self.store.create(Resource::<Environment>::new(format!("env-{n:06}"), spec)).await.unwrap();
        }
    }

    /// Passes time until nothing was written for a while.
    pub async fn settle(&self) {
        let (mut last, mut still) = (u64::MAX, 0);
        while still < 25 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.store.revision().await.unwrap();
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
    }

    /// How many environments there are, and how many of them are ready.
    pub async fn ready(&self) -> (usize, usize) {
        let (mut all, mut ready) = (0, 0);
        let count = |env: &Resource<Environment>| {
            all += 1;
            ready += usize::from(env.status.conditions.is_true(condition::READY));
        };
        self.store.each::<Environment>(count).await.unwrap();
        (all, ready)
    }
}
