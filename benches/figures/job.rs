//! The main job: the real claude whose commands land in a container, against the same claude with nothing around it.

use crate::provider::Provider;
use crate::provider::script::{Step, bash, edit, read};
use crate::rounds::{compared, take_turns, timed};
use crate::support::agent;
use crate::support::command::Invocation;
use crate::support::home::TestHome;
use crate::support::project::Project;
use crate::table::{Aim, Figure, Unit};
use crate::world::World;

const TASK: &str = "Please fix add() in calc.py. [[script:job]]";

fn provider() -> Provider {
    Provider::start().script(
        "job",
        [
            Step::call(bash("hostname && uname -a")).saying("Looking around."),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("cat calc.py")),
            Step::say("Fixed add(); it adds now."),
        ],
    )
}

/// Claude as a person would start it.
fn bare(world: &World, provider: &Provider, project: &Project) -> Invocation {
    let words = ["-p", "--output-format", "stream-json", "--verbose", "--model", "scripted-1", "--effort", "low"];
    Invocation::new(agent::claude())
        .args(words)
        .args(["--dangerously-skip-permissions", TASK])
        .env("PATH", agent::path())
        .env("HOME", world.home.home())
        .envs([("SHELL", "/bin/bash"), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("TZ", "UTC"), ("IS_SANDBOX", "1")])
        .envs(agent::variables(&provider.url()))
        .cwd(project.dir())
}

fn ours(world: &World, project: &Project) -> Invocation {
    let place = format!("box=docker@here{}", project.path());
    let words = ["exec", "-f", "boxed", "-a", "coder=claude/scripted-1:low", "-e", &place, "-p", "budget.duration=10m", TASK];
    world.home.hmz(words)
}

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let provider = provider();
    let world = World::with(TestHome::new().with_claude(&provider.url()));
    let run = |name: String, command: &dyn Fn(&Project) -> Invocation| {
        let project = world.home.project(&name);
        let (took, _) = timed(&command(&project));
        project.assert_fixed();
        took
    };
    let boxed = |project: &Project| ours(&world, project);
    let alone = |project: &Project| bare(&world, &provider, project);
    // the first of each finds nothing in any cache
    run("boxed-warm".into(), &boxed);
    run("bare-warm".into(), &alone);
    let (a, b) = take_turns(rounds, |n| run(format!("boxed-{n}"), &boxed), |n| run(format!("bare-{n}"), &alone));
    vec![compared("main job, real claude", Unit::Seconds, &a, "bare claude", &b, Aim::Ratio(1.6))]
}
