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
    let size = std::fs::metadata(world.home.program()).expect("the program").len();
    vec![warm, version, cold, Figure::alone("the program on disk", Unit::Bytes, size as f64, Aim::Value(12e6))]
}
