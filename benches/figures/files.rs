//! Opening and closing a file of the project in a supervised process: no system call but `execve` is stopped.

use crate::rounds::{compared, take_turns};
use crate::session::{native, supervised};
use crate::table::{Aim, Figure, Unit};
use crate::world::World;

/// Files opened a round.
const TIMES: &str = "300000";

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let project = world.home.project("p");
    let (place, _) = world.environment("box", &project);
    let file = project.file("calc.py");
    let words = ["open", TIMES, file.to_str().expect("text")];
    let (a, b) = take_turns(rounds, |_| supervised(&world.home, &place, &words), |_| native(&place, &words));
    vec![compared("open + close, supervised", Unit::Seconds, &a, "native", &b, Aim::Ratio(1.05))]
}
