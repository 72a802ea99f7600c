//! Putting the controllers to work.

use crate::core::meter::Figures;
use crate::core::{self, Backoff, Meter, Options, Reconciler, Requests};
use crate::environment::Environments;
use crate::events;
use crate::index::Index;
use crate::index::tally::Sort;
use crate::router::{self, Wakers};
use crate::run::Runs;
use crate::runtime::Runtimes;
use crate::settings::Settings;
use crate::sweep::Sweep;
use crate::world::World;
use hmz_api::RuntimeRef;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// When an environment or a run is looked at again though nothing happened.
const RESYNC: Duration = Duration::from_secs(30);

/// When a runtime is looked at and swept again that nothing is on. The others are whenever their daemon is listed, which is sooner.
const UNUSED: Duration = Duration::from_secs(36);

/// How many environments are worked on at once.
const TOGETHER: usize = 128;
/// How many of them on one runtime. A pull is one of these for as long as it takes, and so is each call to a daemon that does
/// not answer.
const OF_ONE_DAEMON: usize = 32;

/// Controllers at work. Dropping it ends them at once, which is as safe as a crash.
pub struct Running {
    stop: CancellationToken,
    task: core::Spawned,
    wake: Wakers,
    meters: Meters,
    index: Arc<Index>,
}

/// What the controllers count. Clones are the same.
#[derive(Debug, Clone)]
pub struct Meters(Arc<Vec<Meter>>);

impl Meters {
    /// What each says now.
    pub fn figures(&self) -> Vec<Figures> {
        self.0.iter().map(Meter::figures).collect()
    }
}

/// How many resources there are of each sort, as the controllers know it. Clones are the same.
#[derive(Clone)]
pub struct Counts(Arc<Index>);

impl Counts {
    /// Those that there are now, or were a moment ago; `None` for as long as not everything is known.
    pub fn now(&self) -> Option<Vec<(Sort, usize)>> {
        self.0.counts()
    }
}

/// Starts the controllers on the current tokio runtime, as one task.
pub fn start(world: World) -> Running {
    let stop = CancellationToken::new();
    let (environments, environment_requests) = Requests::channel();
    let (runs, run_requests) = Requests::channel();
    let (runtimes, runtime_requests) = Requests::channel();
    let (settings, settings_requests) = Requests::channel();
    let (sweep, sweep_requests) = Requests::channel();
    let wake = Wakers { environments, runs, runtimes, settings, sweep };
    let names = ["environment", "run", "runtime", "settings", "sweep"];
    let meters = Meters(Arc::new(names.into_iter().map(Meter::new).collect()));
    // whether a default is to be listed is found out by its own controller
    for backend in world.drivers.keys() {
        wake.runtimes.ask(RuntimeRef::unsaved(*backend).resource_name(), "it is a default");
    }
    let index = Index::new();
    let (wakers, stopped, counted, known) = (wake.clone(), stop.clone(), meters.clone(), index.clone());
    let task = core::spawn(async move {
        let options = |concurrency, resync| Options { concurrency, of_lane: OF_ONE_DAEMON, resync, backoff: Backoff::DEFAULT };
        let controllers: [(Box<dyn Reconciler>, Options, _); 5] = [
            (Box::new(Environments(world.clone(), known.clone())), options(TOGETHER, RESYNC), environment_requests),
            (Box::new(Runs(world.clone())), options(16, RESYNC), run_requests),
            (Box::new(Runtimes(world.clone(), known.clone())), options(16, UNUSED), runtime_requests),
            (Box::new(Settings(world.clone())), options(1, Duration::ZERO), settings_requests),
            (Box::new(Sweep(world.clone(), known.clone())), options(8, UNUSED), sweep_requests),
        ];
        let work =
            controllers.into_iter().zip(counted.0.iter()).enumerate().map(|(nth, ((controller, options, requests), meter))| {
                let seed = world.seed.wrapping_add(nth as u64);
                let stopped = stopped.clone();
                async move { core::work(&*controller, options, seed, requests, stopped, meter).await }
            });
        let sources = async {
            tokio::join!(
                router::follow(&world, &known, &wakers),
                router::follow_settings(&world, &wakers),
                events::listen(&world, &known, &wakers)
            );
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            _ = futures::future::join_all(work) => {}
            () = sources => {}
        }
    });
    Running { stop, task, wake, meters, index }
}

impl Running {
    /// Asks for a look at a resource now, such as a run whose runner process was seen to end.
    pub fn look_again(&self, kind: &str, name: &str) {
        router::ask(&self.index, &self.wake, kind, name);
    }

    /// What there is.
    pub fn counts(&self) -> Counts {
        Counts(Arc::clone(&self.index))
    }

    /// What they count.
    pub fn meters(&self) -> Meters {
        self.meters.clone()
    }

    /// Whether any run has not ended, or any environment is to be started, healed or removed. For as long as the store cannot
    /// be read, something may be.
    pub fn is_busy(&self) -> bool {
        self.index.is_busy()
    }

    /// Whether they have ended: only after [`Running::drain`], or by a fault of ours.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends them in order: nothing new is begun, what is in hand may end for 5 s.
    pub async fn drain(self) {
        self.stop.cancel();
        self.task.await;
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}
