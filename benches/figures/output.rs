//! What a command writes, as the one who started it reads it: 20 MB through a pipe.

use crate::rounds::{compared, take_turns, timed};
use crate::session::{native, own, supervised};
use crate::support::command::Invocation;
use crate::table::{Aim, Figure, Unit};
use crate::world::World;

/// Bytes a round.
const BYTES: &str = "20000000";

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let bytes: f64 = BYTES.parse().expect("a number");
    let world = World::new();
    let project = world.home.project("p");
    let (place, _) = world.environment("box", &project);
    // a copy is another program than the agent's own, so it runs in the box
    let source = project.file("source");
    std::fs::copy(own(), &source).expect("a copy of this program");
    let source = source.to_str().expect("text");
    let words = ["drink", BYTES, source];
    let (a, b) = take_turns(rounds, |_| bytes / supervised(&world.home, &place, &words), |_| bytes / native(&place, &words));
    let agent = compared("20 MB of an agent's command", Unit::Rate, &a, "native", &b, Aim::Told);
    let shell = world.home.hmz(["sh", "env/box", "--", source, "pour", BYTES]);
    let plain = Invocation::new(source).args(["pour", BYTES]);
    let whole = |invocation: &Invocation| {
        let (took, out) = timed(invocation);
        assert!(out.len() as f64 == bytes, "{} of {bytes} bytes", out.len());
        bytes / took
    };
    let (a, b) = take_turns(rounds, |_| whole(&shell), |_| whole(&plain));
    vec![agent, compared("20 MB through hmz sh", Unit::Rate, &a, "native", &b, Aim::Told)]
}
