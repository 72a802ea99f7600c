//! The daemon's life: one an HMZ_HOME, until a signal or until there is nothing to do.

use crate::attach::{self, Attached};
use crate::callers::Callers;
use crate::claim::Claim;
use crate::events::Events;
use crate::guest::GuestProgram;
use crate::listen::{self, ApiListener};
use crate::listing::Listings;
use crate::metrics::{self, Listening, Metrics};
use crate::paths::Paths;
use crate::routes::{Api, router};
use crate::saved::SavedRuntimes;
use crate::sync::{Keeper, Records, SyncConfig};
use crate::{idle, instance, leftovers, settings, world};
use hmz_api::clock::SystemClock;
use hmz_api::{Error, Run};
use hmz_store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a daemon that a verb started stays with nothing to do, unless `HMZ_IDLE` (seconds) says otherwise.
const IDLE: Duration = Duration::from_secs(60);

/// How often, and how long apart, the lock of a daemon is tried that does not answer: longer than one takes to end in order.
const ENDING_TRIES: u32 = 600;
const ENDING_APART: Duration = Duration::from_millis(50);

/// What a daemon is given.
#[derive(Debug, Clone)]
pub struct Config {
    /// The paths of its HMZ_HOME, made.
    pub paths: Paths,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// What its boxes are given.
    pub guest: GuestProgram,
    /// Whether it ends when there is nothing to do.
    pub ends_when_idle: bool,
    /// What is kept in step with what.
    pub sync: Option<SyncConfig>,
    /// Where metrics are told beside the socket: a port of this machine, or an address and a port.
    pub metrics: Option<String>,
    /// Whether that may be one that other machines reach.
    pub metrics_anywhere: bool,
}

/// What whoever started it is told, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It listens.
    Listening,
    /// Another daemon has this HMZ_HOME; this one ends.
    AnotherRuns,
}

/// Runs the daemon.
///
/// # Errors
/// When the socket or the store cannot be had.
pub async fn serve(config: Config, tell: impl FnOnce(State)) -> Result<(), Error> {
    let paths = config.paths.clone();
    let Some(lock) = alone(&paths, config.ends_when_idle || config.sync.is_some()).await? else {
        tell(State::AnotherRuns);
        return if config.ends_when_idle { Ok(()) } else { Err(Error::failed("a daemon runs already for this HMZ_HOME")) };
    };
    let instance = instance::instance(&paths)?;
    leftovers::sweep(&paths.state);
    let claim = Claim::take(&paths, &instance).await?;
    let clock = Arc::new(SystemClock);
    let store = Store::open(&paths.store(), clock.clone()).map_err(Error::from)?;
    let callers = Arc::new(Callers::default());
    let (attached, leavers) = Attached::new();
    let listener = ApiListener::bind(&paths)?;
    let connections = listener.count();
    let followed = settings::follow(world::settings_file(&paths, &config.env))?;
    let (world, runners, mut runners_ended) = world::build(&config, &store, &callers, clock, &instance, followed.snapshot)?;
    // runners of a daemon before us are not our children; their ends are heard all the same
    for run in store.list::<Run>().await?.iter().filter(|run| !run.status.is_complete()) {
        if let Some(runner) = &run.status.runner {
            runners.adopt(run.name(), runner);
        }
    }
    let events = Events::open(&paths.state.join("events.jsonl"), world.clock.clone());
    let recorded = events.record(store.clone());
    let records = Records::of(store.clone());
    records.adopt_files(&paths.state).await?;
    records.forget_given_up(config.sync.as_ref().map(|sync| sync.set.as_str())).await?;
    let keeper = match config.sync.clone() {
        Some(sync) => Some(Keeper::new(sync, &paths, &store, &events, &callers, world.clock.clone()).await?),
        None => None,
    };
    let kept = keeper.as_ref().map(Keeper::kept);
    let controllers = hmz_controllers::start(world.clone());
    let metrics = Metrics::new(store.clone(), controllers.counts(), controllers.meters(), paths.epics());
    let (telling, told) = watch::channel(metrics::Told::default());
    let port = match (port(&config, &metrics).await, &config.metrics) {
        (Ok(port), Some(said)) => {
            telling.send_replace(metrics::Told::Overruled(said.clone()));
            port
        }
        (Ok(port), None) => {
            tokio::spawn(metrics::follow(followed.metrics, metrics.clone(), telling));
            port
        }
        // whoever a verb started it for wants something else of it
        (Err(e), _) if config.ends_when_idle => {
            tracing::warn!("{}", e.message);
            telling.send_replace(metrics::Told::Not(e.message));
            None
        }
        (Err(e), _) => return Err(e),
    };
    tell(State::Listening);
    tracing::info!(socket = %paths.socket().display(), "listening");

    let api = Api {
        store: store.clone(),
        listings: Listings::default(),
        world,
        events: events.clone(),
        paths: paths.clone(),
        callers,
        attached: Arc::clone(&attached),
        settings: world::settings_file(&paths, &config.env),
        saved: SavedRuntimes::new(&paths, &config.env),
        records,
        kept,
        metrics,
        told,
    };
    let idle_for = config.env.get("HMZ_IDLE").and_then(|s| s.parse().ok()).map_or(IDLE, Duration::from_secs);
    let app = router(api);
    let hearing = async {
        while let Some(run) = runners_ended.recv().await {
            controllers.look_again("Run", &run);
        }
    };
    // it ends with this, wherever it is: what it does is gone on with after any end
    let mut keeping = JoinSet::new();
    if let Some(keeper) = keeper {
        keeping.spawn(keeper.run());
    }
    let why = tokio::select! {
        done = async { axum::serve(listener, app).await } => { done.map_err(|e| Error::failed(format!("the API: {e}")))?; "the API ended" }
        () = attach::watch(store.clone(), attached, leavers) => "nobody can attach any more",
        done = recorded => { done?; "nothing can be recorded any more" }
        () = hearing => "no runner can be heard any more",
        Some(done) = keeping.join_next() => {
            done.map_err(|e| Error::new(hmz_api::ErrorKind::Internal, e.to_string()))??;
            "nothing is kept in step any more"
        }
        () = idle::wait(&controllers, connections, idle_for), if config.ends_when_idle => "nothing is left to do",
        why = ended() => why?,
    };
    tracing::info!("ending: {why}");
    keeping.abort_all();
    // a verb that finds no socket starts the next daemon, which waits for nothing of ours: the lock goes last
    let _ = std::fs::remove_file(paths.socket());
    controllers.drain().await;
    drop(port);
    claim.release();
    drop(lock);
    Ok(())
}

/// The port for metrics, when one is wanted.
async fn port(config: &Config, metrics: &Metrics) -> Result<Option<Listening>, Error> {
    let Some(text) = &config.metrics else { return Ok(None) };
    let address = metrics::address(text, config.metrics_anywhere)?;
    Listening::begin(address, metrics.clone()).await.map(Some)
}

/// The lock; `None` when another daemon has this HMZ_HOME and answers. One that has it and does not is about to end, or to
/// listen: whoever was started for a verb waits for either, since the verb needs a daemon that answers.
async fn alone(paths: &Paths, waits: bool) -> Result<Option<listen::DaemonLock>, Error> {
    for _ in 0..ENDING_TRIES {
        if let Some(lock) = listen::lock(paths)? {
            return Ok(Some(lock));
        }
        if !waits || tokio::net::UnixStream::connect(paths.socket()).await.is_ok() {
            break;
        }
        tokio::time::sleep(ENDING_APART).await;
    }
    Ok(None)
}

/// Returns at SIGTERM, SIGINT or SIGHUP.
async fn ended() -> Result<&'static str, Error> {
    let take = |kind| signal(kind).map_err(|e| Error::failed(format!("signals: {e}")));
    let (mut term, mut int, mut hup) =
        (take(SignalKind::terminate())?, take(SignalKind::interrupt())?, take(SignalKind::hangup())?);
    Ok(tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
        _ = hup.recv() => "SIGHUP",
    })
}
