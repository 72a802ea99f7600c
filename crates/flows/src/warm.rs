//! The first agent of a flow, begun while its box starts: it is asked nothing before the box is there.

use crate::engine::Player;
use hmz_agents::{Launcher, Seat, Session, SessionStart};
use hmz_api::kinds::{Harness, Step};
use hmz_api::launch::RunLaunch;
use hmz_api::link::Link;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a box is taken to have until it says so itself: what most have.
const GUESS: [&str; 2] = ["bash", "sh"];

/// A conversation that was begun: agent role and environment role, and itself.
pub(crate) type Warmed = ((String, String), Box<dyn Session>);

/// Begins the first step's agent, when that is a turn in a box that is on its way. `None` as well when it cannot be
/// started now: it is then started in its turn, which says what is wrong.
pub(crate) async fn warm(launch: &RunLaunch, players: &BTreeMap<String, Player>, launcher: &Arc<dyn Launcher>) -> Option<Warmed> {
    let Step::Turn { agent, environment, .. } = launch.flow.steps.first()? else { return None };
    let place = launch.boxes.get(environment).filter(|place| matches!(place.link, Link::Awaited { .. }))?;
    let player = players.get(agent)?;
    // one that lives in its box has nowhere to begin
    let here = player.installed.clone().filter(|_| *launch.harness(environment) == Harness::Local)?;
    let start = SessionStart {
        launcher: Arc::clone(launcher),
        seat: Seat::Here(here),
        spec: player.spec.clone(),
        caller: launch.caller.clone(),
        place: place.clone(),
        programs: Arc::new(GUESS.map(str::to_owned).to_vec()),
    };
    let mut session = player.agent.session(start).await.ok()?;
    if session.warm().await.is_err() {
        session.close().await;
        return None;
    }
    Some(((agent.clone(), environment.clone()), session))
}
