//! The runner: one process a run. It is told what to do on its standard input, keeps the run's boxes, and writes the
//! journal; whoever started it may die.

use crate::boxes::{Boxes, Place};
use crate::check;
use crate::engine::{Engine, Halt, Player, Why};
use crate::journal::{About, Writer};
use crate::warm::warm;
use hmz_agents::second::Found;
use hmz_agents::{Launcher, SessionLog, Supervised, of_cli};
use hmz_anchor::AnchorError;
use hmz_api::journal::{Event, Outcome};
use hmz_api::kinds::{Harness, Step};
use hmz_api::launch::{BoxAddress, RunLaunch, RunnerCommand};
use hmz_api::link::Link;
use hmz_api::{Error, ErrorKind, RuntimeRef};
use hmz_telemetry::TraceContext;
use hmz_wire::ClientError;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// Longest line on the standard input, in bytes.
const LONGEST: u64 = 16 << 20;

/// The log of a run's agent sessions, in its epic directory.
pub const SESSIONS_LOG: &str = "sessions.log";

/// The hidden verb `hmz runner`; `exe` is the hmz binary, absolute and resolved. Ends with 0 when the journal holds the
/// run's end, whatever that is.
pub fn main(exe: PathBuf) -> ExitCode {
    let launch = match read_launch() {
        Ok(launch) => launch,
        Err(error) => {
            eprintln!("hmz runner: error: {error}");
            return ExitCode::from(2);
        }
    };
    let _guard =
        hmz_telemetry::start(hmz_telemetry::Process { name: "runner", filter: "info", ansi: false, target: true, file: None });
    let trace = TraceContext::below(launch.caller.trace.as_deref());
    let span = hmz_telemetry::span!("run", trace, run = %launch.name, flow = %launch.flow_name);
    hmz_anchor::log::commands(&trace);
    let (tell, told) = mpsc::unbounded_channel();
    // not a task: the end of the runner does not wait for a read that has no end
    std::thread::spawn(move || listen(&tell));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("hmz runner: error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let log = SessionLog { file: Path::new(&launch.epic).join(SESSIONS_LOG), run: launch.name.clone(), trace: trace.to_string() };
    let launcher = Arc::new(Supervised { exe: exe.clone(), log: Some(log) });
    let ended = runtime.block_on(run(&launch, &exe, launcher, told).instrument(span));
    runtime.shutdown_background();
    match ended {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hmz runner: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_launch() -> Result<RunLaunch, Error> {
    let mut line = String::new();
    let internal = |what: String| Error::new(ErrorKind::Internal, what);
    std::io::stdin().lock().take(LONGEST).read_line(&mut line).map_err(|e| internal(e.to_string()))?;
    // the line holds the user's variables: what is wrong with it is said without it
    serde_json::from_str(&line).map_err(|e| internal(format!("the launch does not decode at column {}", e.column())))
}

/// Commands on the standard input; its end means nothing.
fn listen(tell: &mpsc::UnboundedSender<RunnerCommand>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = String::new();
        match stdin.by_ref().take(LONGEST).read_line(&mut line) {
            Ok(1..) => {
                if let Ok(command) = serde_json::from_str(&line)
                    && tell.send(command).is_err()
                {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Runs a launch to its end, and says how it ended. `commands` may close at any time.
///
/// # Errors
/// When the journal cannot be written.
pub async fn run(
    launch: &RunLaunch,
    exe: &Path,
    launcher: Arc<dyn Launcher>,
    mut commands: mpsc::UnboundedReceiver<RunnerCommand>,
) -> Result<Outcome, Error> {
    let cannot = |e: std::io::Error| Error::failed(format!("the journal in {} cannot be written: {e}", launch.epic));
    let mut signals = Vec::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        signals.push(signal(kind).map_err(|e| Error::failed(format!("signals cannot be heard: {e}")))?);
    }
    // whoever started it may have had a terminal
    let _hangup = signal(SignalKind::hangup());
    let journal = Writer::open(Path::new(&launch.epic)).map_err(cannot)?;
    let used = launch.boxes.iter().map(|(role, address)| (role.clone(), address.used.clone())).collect();
    let (name, uid, flow) = (launch.name.clone(), launch.uid.to_string(), launch.flow_name.clone());
    let envs = launch.envs.clone();
    journal.write(&About::default(), Event::Began { run: name, uid, flow, envs, used }).map_err(cannot)?;
    tracing::info!("the run begins");

    let stop = CancellationToken::new();
    let why: OnceLock<Why> = OnceLock::new();
    let (tell_lost, mut lost) = mpsc::unbounded_channel();
    // what is spent is the time that the boxes were there
    let (came, there) = oneshot::channel();
    let budget = async {
        match (launch.params.budget.duration, there.await) {
            (Some(span), Ok(())) => tokio::time::sleep(span.duration()).await,
            _ => std::future::pending().await,
        }
    };
    let watch = async {
        let [terminate, interrupt] = signals.as_mut_slice() else { return };
        let reason = tokio::select! {
            _ = terminate.recv() => Why::Cancelled,
            _ = interrupt.recv() => Why::Cancelled,
            () = cancelled(&mut commands) => Why::Cancelled,
            Some(gone) = lost.recv() => Why::Lost(gone),
            () = budget => Why::BudgetSpent,
        };
        let _ = why.set(reason);
        stop.cancel();
        // the flow ends, and with it this
        std::future::pending::<()>().await;
    };
    let work = work(launch, exe, launcher, &journal, &stop, &why, (tell_lost, came));
    let halted = tokio::select! {
        halted = work => halted,
        () = watch => Err(Ended::Failed("signals cannot be heard".into())),
    };
    let (outcome, message) = end_of(launch, halted, why.get());
    // what it says may be an agent's words, which no log holds
    tracing::info!(outcome = outcome.reason(), "the run ends");
    journal.write(&About::default(), Event::Ended { outcome, message }).map_err(cannot)?;
    Ok(outcome)
}

async fn cancelled(commands: &mut mpsc::UnboundedReceiver<RunnerCommand>) {
    match commands.recv().await {
        Some(RunnerCommand::Cancel) => {}
        // its end means nothing
        None => std::future::pending().await,
    }
}

/// How the work ended when it did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    Refused(String),
    Failed(String),
    Stopped,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        if error.kind == ErrorKind::Refused { Self::Refused(error.message) } else { Self::Failed(error.message) }
    }
}

fn end_of(launch: &RunLaunch, halted: Result<(), Ended>, why: Option<&Why>) -> (Outcome, String) {
    let flow = &launch.flow_name;
    match (halted, why) {
        (Ok(()), _) => (Outcome::Succeeded, String::new()),
        (Err(Ended::Refused(message)), _) => (Outcome::Refused, message),
        // what breaks because a box went away is told as that
        (Err(_), Some(Why::Lost(gone))) => (Outcome::Failed, gone.clone()),
        (Err(Ended::Stopped), Some(Why::BudgetSpent)) => {
            (Outcome::BudgetExceeded, format!("stopped -- {flow}: its budget's duration is spent"))
        }
        // what breaks because it was told to end has not failed
        (Err(Ended::Stopped), _) | (Err(Ended::Failed(_)), Some(Why::Cancelled)) => (Outcome::Cancelled, "cancelled".to_owned()),
        (Err(Ended::Failed(message)), _) => (Outcome::Failed, message),
    }
}

async fn work(
    launch: &RunLaunch,
    exe: &Path,
    launcher: Arc<dyn Launcher>,
    journal: &Writer,
    stop: &CancellationToken,
    why: &OnceLock<Why>,
    (lost, came): (mpsc::UnboundedSender<String>, oneshot::Sender<()>),
) -> Result<(), Ended> {
    let refused = |e: Error| Ended::Refused(e.message);
    let players = players(launch, exe).map_err(refused)?;
    let mut warmed = None;
    let connect = async {
        tokio::select! {
            boxes = Boxes::connect(launch, &lost) => boxes.map_err(Ended::from),
            () = stop.cancelled() => Err(Ended::Stopped),
        }
    };
    let begin = async { warmed = warm(launch, &players, &launcher).await };
    let (boxes, ()) = tokio::join!(connect, begin);
    let boxes = match boxes {
        Ok(boxes) => boxes,
        Err(ended) => {
            if let Some((_, mut session)) = warmed {
                session.close().await;
            }
            return Err(ended);
        }
    };
    // nobody hears of it where there is no budget
    let _ = came.send(());
    let (sessions, found) = (BTreeMap::new(), BTreeMap::new());
    let mut engine = Engine { launch, players: &players, boxes: &boxes, found, launcher, journal, stop, why, sessions };
    if let Some((pair, session)) = warmed {
        engine.take_over(pair, session).await;
    }
    let halted = match settle(launch, &players, &boxes, journal, &mut engine.found).await {
        Ok(()) => engine.run().await.map_err(|halt| match halt {
            Halt::Failed(message) => Ended::Failed(message),
            Halt::Stopped => Ended::Stopped,
        }),
        Err(ended) => Err(ended),
    };
    engine.close().await;
    boxes.release();
    halted
}

/// Each agent can work in its boxes, and where it runs is told. What of them was found in second boxes goes to `found`.
async fn settle(
    launch: &RunLaunch,
    players: &BTreeMap<String, Player>,
    boxes: &Boxes,
    journal: &Writer,
    found: &mut BTreeMap<(String, String), Found>,
) -> Result<(), Ended> {
    for (role, player, environment) in pairs(launch, players) {
        let Some(place) = boxes.of(environment) else { continue };
        let (programs, harness) = (place.client.programs(), launch.harness(environment));
        player
            .agent
            .works_in(&launch.caller, harness, &place.address, &programs)
            .map_err(|e| Ended::Refused(format!("{role}: {}", e.message)))?;
        let of_role = |e: Error| Ended::Refused(format!("{role}: {}", e.message));
        match (harness, boxes.second_of(environment)) {
            (Harness::Env, _) => can_fence(&place.address).await?,
            (Harness::On(_), Some(second)) => {
                let one = found_in(second, place, harness, role, player).await?;
                boxes.have_one_workdir(environment).await.map_err(of_role)?;
                found.insert((role.to_owned(), environment.to_owned()), one);
            }
            _ => boxes.has_workdir(environment).await.map_err(of_role)?,
        }
    }
    for (role, player, text) in placed(launch, players) {
        let about = About {
            agent: role.to_owned(),
            cli: player.spec.cli.clone(),
            model: player.spec.model.clone(),
            session: String::new(),
        };
        journal.write(&about, Event::Placed { text }).map_err(|e| Ended::Failed(e.to_string()))?;
    }
    Ok(())
}

/// What is found of an agent's CLI in the second box of a role, which can hold it.
async fn found_in(second: &Place, place: &Place, harness: &Harness, role: &str, player: &Player) -> Result<Found, Ended> {
    let (cli, at) = (&player.spec.cli, at(&place.address));
    let cannot =
        |why: &str| Ended::Refused(format!("{at}: {cli}'s harness cannot run where its harness setting ({harness}) says: {why}"));
    if !is_here(second) {
        return Err(cannot(&format!(
            "{role}={}: {}: a fence cannot hold a harness that runs on another machine",
            player.spec,
            player.spec.class()
        )));
    }
    can_fence(&second.address).await?;
    hmz_agents::second::look(&second.client, &second.address.link, cli).await.map_err(|e| match e.kind {
        ErrorKind::Refused => cannot(&e.message),
        _ => Ended::from(e),
    })
}

/// Whether a box is on this machine, however it is reached: its kernel is the one here.
fn is_here(place: &Place) -> bool {
    let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    matches!(place.address.link, Link::Direct { .. }) || here.is_ok_and(|here| here.trim() == place.client.welcome().boot_id)
}

/// A box's runtime, as refusals say it.
fn at(address: &BoxAddress) -> String {
    address.used.parse::<RuntimeRef>().map_or_else(|_| address.used.clone(), |used| used.at())
}

/// The agents, found and checked.
fn players(launch: &RunLaunch, exe: &Path) -> Result<BTreeMap<String, Player>, Error> {
    check::roles(&launch.flow_name, &launch.flow, &launch.agents, launch.boxes.keys().map(String::as_str))?;
    let has_none = |e: &str| matches!(launch.harness(e), Harness::On(_)) && !launch.seconds.contains_key(e);
    if let Some((agent, environment)) = turns(launch).find(|(_, e)| has_none(e)) {
        let harness = launch.harness(environment);
        return Err(Error::refused(format!("{agent}: its harness is to run on {harness}, and it has no box there")));
    }
    let here = here(launch);
    check::check(&launch.flow_name, &launch.flow, &launch.task, &launch.params)?;
    check::check_agents(&launch.agents, &launch.caller, &here, exe)?;
    let player = |(role, spec): (&String, &hmz_api::grammar::AgentSpec)| {
        let agent = of_cli(&spec.cli, exe)?;
        let installed = here.contains(role).then(|| agent.check(&launch.caller)).transpose()?;
        Ok((role.clone(), Player { agent, installed, spec: spec.clone() }))
    };
    launch.agents.iter().map(player).collect()
}

/// The agent roles whose CLI runs here for one of their turns.
fn here(launch: &RunLaunch) -> BTreeSet<String> {
    let here = turns(launch).filter(|(_, environment)| *launch.harness(environment) == Harness::Local);
    here.map(|(agent, _)| agent.to_owned()).collect()
}

/// The agent role and the environment role of each turn.
fn turns(launch: &RunLaunch) -> impl Iterator<Item = (&str, &str)> {
    launch.flow.steps.iter().filter_map(|step| match step {
        Step::Turn { agent, environment, .. } => Some((agent.as_str(), environment.as_str())),
        Step::Exec { .. } => None,
    })
}

/// Where each agent's CLI runs, once for each place, in the order of the roles.
fn placed<'a>(launch: &'a RunLaunch, players: &'a BTreeMap<String, Player>) -> Vec<(&'a str, &'a Player, String)> {
    let mut all = Vec::new();
    for (role, player) in players {
        let harnesses: BTreeSet<String> = turns(launch)
            .filter(|(agent, _)| agent == role)
            .map(|(_, environment)| match launch.harness(environment) {
                Harness::Env => "on its environment's machine".to_owned(),
                Harness::Local => "here".to_owned(),
                Harness::On(runtime) => format!("on the runtime {runtime}"),
            })
            .collect();
        all.extend(harnesses.into_iter().map(|place| (role.as_str(), player, format!("{role}'s harness runs {place}"))));
    }
    all
}

/// Whether a box can fence a CLI that runs in it.
async fn can_fence(address: &BoxAddress) -> Result<(), Ended> {
    let asked = address.clone();
    let asked = tokio::task::spawn_blocking(move || hmz_anchor::fenced(&asked, &[]).map(|client| client.finish())).await;
    match asked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(AnchorError::Box(ClientError::Refused(why)))) => {
            let at = at(address);
            Err(Ended::Refused(format!(
                "{at} cannot fence the agent to its permission: it needs Landlock ({why}); set the harness of the runtime it is \
                 on to local"
            )))
        }
        Ok(Err(e)) => Err(Ended::Failed(e.to_string())),
        Err(e) => Err(Ended::Failed(format!("a connection was given up: {e}"))),
    }
}

/// Each agent role with each environment role it works in.
fn pairs<'a>(launch: &'a RunLaunch, players: &'a BTreeMap<String, Player>) -> Vec<(&'a str, &'a Player, &'a str)> {
    turns(launch).filter_map(|(agent, environment)| Some((agent, players.get(agent)?, environment))).collect()
}
