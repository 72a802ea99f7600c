//! How long a verb takes to say what it knows, and how large the program is.

use crate::rounds::{compared, take_turns, timed};
use crate::support::command::Invocation;
use crate::support::processes;
use crate::support::{LIMIT, docker, eventually};
use crate::table::{Aim, Figure, Unit};
use crate::world::{World, daemon_of};
use rustix::process::{Pid, Signal, kill_process};

/// Calls of a verb for one of a round.
const TIMES: usize = 5;

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let mut listing = Invocation::new("docker").arg("ps");
    for name in ["PATH", "HOME"] {
        listing = listing.env(name, std::env::var_os(name).unwrap_or_default());
    }
    if let Some(host) = docker::host() {
        listing = listing.env("DOCKER_HOST", host);
    }
    let (get, version) = (world.home.hmz(["get", "runs"]), world.home.hmz(["version"]));
    let (a, b) = take_turns(rounds * TIMES, |_| timed(&get).0, |_| timed(&listing).0);
    let warm = compared("hmz get runs", Unit::Seconds, &a, "docker ps", &b, Aim::Told);
    let nothing = Invocation::new("/bin/true");
    let (a, b) = take_turns(rounds * TIMES, |_| timed(&version).0, |_| timed(&nothing).0);
    let version = compared("hmz version", Unit::Seconds, &a, "/bin/true", &b, Aim::Told);
    let cold = |_| {
        let daemon = daemon_of(&world.home);
        kill_process(Pid::from_raw(daemon).expect("a pid"), Signal::TERM).expect("a daemon ends");
        eventually("the end of the daemon", LIMIT, || (!processes::is_alive(daemon)).then_some(()));
        timed(&get).0
    };
    let (a, b) = take_turns(rounds, cold, |_| timed(&listing).0);
    let cold = compared("hmz get runs, starting the daemon", Unit::Seconds, &a, "docker ps", &b, Aim::Told);
    let size = |program: &std::path::Path| std::fs::metadata(program).expect("the program").len() as f64;
    let own = size(world.home.program());
    // where none of its own is embedded, boxes are given hmz itself
    let given = std::env::var_os("HMZ_GUEST").map_or(own, |guest| size(guest.as_ref()));
    let program = Figure::alone("the program on disk", Unit::Bytes, own, Aim::Told);
    vec![warm, version, cold, program, Figure::alone("what a box is given of it", Unit::Bytes, given, Aim::Value(12e6))]
}
