//! Runs with the built-in agent.

use crate::container::{docker, eventually};
use crate::world::{Ended, World};
use hmz_api::journal::{Event, Outcome};
use std::io::Write as _;
use std::path::Path;

pub const TESTS: &[crate::Test] = &[
    ("an_agents_commands_land_in_the_box_and_its_files_here", lands),
    ("later_steps_see_what_earlier_ones_left", steps),
    ("a_conversation_is_kept_over_turns", turns),
    ("a_failed_turn_fails_the_run", fails),
    ("a_failed_command_fails_the_run_unless_it_may", exec_fails),
    ("a_spent_budget_ends_the_run_and_is_no_failure", budget),
    ("a_run_is_cancelled_by_a_signal_or_a_word", cancelled),
    ("a_killed_runner_leaves_no_agent_behind", killed),
    ("a_box_that_goes_away_fails_the_run", lost),
    ("what_cannot_start_is_refused_in_the_journal", refused),
    ("a_fenced_agent_writes_nothing_else_here", fenced),
];

const BOXED: &str = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                     - turn: {agent: coder, environment: box, prompt: \"{{ task }}\"}\n";

fn play(world: &World, steps: &str) -> Ended {
    let steps = world.steps(steps);
    world.run(&world.launch(BOXED, &format!("script/{}", steps.display())))
}

/// Nothing of a run is left, here or in the box.
fn nothing_left(world: &World) {
    eventually("no process here", || world.here().is_empty());
    eventually("no process in the box", || world.in_box().is_empty());
}

fn lands(world: &World) {
    std::fs::write(world.work("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    let ended = play(
        world,
        "- say: I look around.\n- run: hostname; pwd; env | grep -c CANARY\n- read: calc.py\n- edit: {path: calc.py, old: a - b, new: a + b}\n\
         - run: python3 -c 'from calc import add; print(add(2, 3))'\n- say: \"Asked: {{ prompt }}\"\n",
    );
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let workdir = &world.place.workdir;
    assert_eq!(
        ended.tools(),
        [
            "Bash(hostname; pwd; env | grep -c CANARY)".to_owned(),
            format!("! thebox\n{workdir}\n0\n"),
            format!("Read({workdir}/calc.py)"),
            "= def add(a, b):\n    return a - b\n".into(),
            format!("Edit({workdir}/calc.py)"),
            "= ".into(),
            "Bash(python3 -c 'from calc import add; print(add(2, 3))')".into(),
            "= 5\n".into(),
        ]
    );
    assert_eq!(ended.answers(), ["Asked: do it"]);
    assert!(std::fs::read_to_string(world.work("calc.py")).unwrap().contains("a + b"));
    let kinds: Vec<&Event> = ended.events();
    assert!(matches!(kinds[0], Event::Began { run, used, .. } if run == "a-run" && used["box"] == "docker:here"), "{ended:?}");
    assert_eq!(kinds[1], &Event::Placed { text: "coder's harness runs here".into() });
    assert_eq!(kinds[2], &Event::Begins);
    assert_eq!((ended.records[2].agent.as_str(), ended.records[2].cli.as_str()), ("coder", "script"));
    nothing_left(world);
}

fn steps(world: &World) {
    let flow = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                - exec: {environment: box, command: \"echo one; echo two >&2; exit 3\", id: test, allow_failure: true}\n    \
                - turn: {agent: coder, environment: box, prompt: \"{{ steps.test.status }} {{ steps.test.stdout | trim }} {{ steps.test.stderr | trim }}\", id: said}\n    \
                - exec: {environment: box, command: [echo, \"{{ steps.said }}\", \"{{ last }}; $HOME\"]}\n";
    let steps = world.steps("- say: \"<{{ prompt }}>\"\n");
    let ended = world.run(&world.launch(flow, &format!("script/{}", steps.display())));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["<3 one two>"]);
    let execs: Vec<_> = ended
        .events()
        .into_iter()
        .filter_map(|e| {
            if let Event::Exec { command, status, stdout, .. } = e {
                Some((command.as_str(), *status, stdout.as_str()))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        execs,
        [
            ("echo one; echo two >&2; exit 3", 3, "one\n"),
            ("echo <3 one two> <3 one two>; $HOME", 0, "<3 one two> <3 one two>; $HOME\n"),
        ]
    );
}

fn turns(world: &World) {
    let flow = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                - turn: {agent: coder, environment: box, prompt: one}\n    - turn: {agent: coder, environment: box, prompt: two}\n";
    let steps =
        world.steps("- - say: \"first {{ prompt }}\"\n- - run: exit 4\n    expect_status: 4\n  - say: \"second {{ prompt }}\"\n");
    let ended = world.run(&world.launch(flow, &format!("script/{}", steps.display())));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["first one", "second two"]);
    let sessions: std::collections::BTreeSet<&str> =
        ended.records.iter().filter(|r| r.event == Event::Begins).map(|r| r.session.as_str()).collect();
    assert_eq!(sessions.len(), 1, "one conversation");
}

fn fails(world: &World) {
    let ended = play(world, "- run: \"true\"\n- fail: I give up.\n- say: never\n");
    assert_eq!(ended.outcome(), (Outcome::Failed, "coder: I give up."));
    assert!(ended.events().contains(&&Event::Failed { text: "I give up.".into() }), "{ended:?}");
    let ended = play(world, "- run: exit 3\n  expect_status: 0\n");
    assert_eq!(ended.outcome(), (Outcome::Failed, "coder: 'exit 3' ended with 3 and not with 0"));
    let ended = play(world, "- run: no-such-program\n- run: kill -9 $$\n- say: ok\n");
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""));
    nothing_left(world);
}

fn exec_fails(world: &World) {
    let flow = "  environments: {box: {}}\n  steps:\n    - exec: {environment: box, command: \"echo no >&2; exit 7\"}\n";
    let ended = world.run(&world.launch(flow, "script/x"));
    assert_eq!(ended.outcome(), (Outcome::Failed, "'echo no >&2; exit 7' in 'box' ended with 7"));
    let flow = "  environments: {box: {}}\n  steps:\n    - exec: {environment: box, command: [no-such-program]}\n";
    let ended = world.run(&world.launch(flow, "script/x"));
    let (outcome, message) = ended.outcome();
    assert!(outcome == Outcome::Failed && message.contains("no-such-program") && message.contains("No such file"), "{message}");
}

fn budget(world: &World) {
    let steps = world.steps("- run: sleep 300 & touch begun; sleep 300\n- say: never\n");
    let launch = world.launch(BOXED, &format!("script/{}", steps.display()));
    let ended = world.spend(launch, ["1500ms", "15s", "60s"]);
    assert_eq!(ended.outcome(), (Outcome::BudgetExceeded, "stopped -- tried: its budget's duration is spent"));
    assert_eq!(ended.answers(), [""]);
    assert!(ended.events().contains(&&Event::Notice { text: "turn cut off: its budget is spent".into() }), "{ended:?}");
    nothing_left(world);
    let flow = "  environments: {box: {}}\n  steps:\n    - exec: {environment: box, command: \"sleep 300 & sleep 300\"}\n";
    let mut launch = world.launch(flow, "script/x");
    launch.params.budget.duration = Some("500ms".parse().unwrap());
    assert_eq!(world.run(&launch).outcome().0, Outcome::BudgetExceeded);
    nothing_left(world);
}

fn cancelled(world: &World) {
    for how in ["TERM", "INT", "word", "early"] {
        let steps = world.steps("- run: touch begun; sleep 300\n- say: never\n");
        let _ = std::fs::remove_file(world.work("begun"));
        let mut running = world.start(&world.launch(BOXED, &format!("script/{}", steps.display())));
        if how == "early" {
            running.child.stdin.as_mut().unwrap().write_all(b"{\"do\":\"cancel\"}\n").unwrap();
        } else {
            eventually("the command runs", || world.work("begun").exists());
        }
        match how {
            "word" => running.child.stdin.as_mut().unwrap().write_all(b"{\"do\":\"cancel\"}\n").unwrap(),
            "early" => {}
            signal => running.signal(signal),
        }
        let ended = running.end();
        assert_eq!(ended.outcome(), (Outcome::Cancelled, "cancelled"), "{how}: {ended:?}");
        nothing_left(world);
        std::fs::remove_file(world.path("epic/epic.jsonl")).unwrap();
    }
}

fn killed(world: &World) {
    let steps = world.steps("- run: touch begun; sleep 300\n");
    let mut running = world.start(&world.launch(BOXED, &format!("script/{}", steps.display())));
    eventually("the command runs", || world.work("begun").exists());
    // the end of its input means nothing
    drop(running.child.stdin.take());
    assert!(!world.here().is_empty());
    running.signal("KILL");
    let ended = running.end();
    assert!(!ended.status.success());
    assert!(!ended.events().iter().any(|e| matches!(e, Event::Ended { .. })));
    nothing_left(world);
}

fn lost(world: &World) {
    let steps = world.steps("- run: touch begun; sleep 300\n- say: never\n");
    let running = world.start(&world.launch(BOXED, &format!("script/{}", steps.display())));
    eventually("the command runs", || world.work("begun").exists());
    docker(&["kill", &world.container]);
    let ended = running.end();
    let message = "the box of 'box' on docker:here is gone: its guest ended the connection";
    assert_eq!(ended.outcome(), (Outcome::Failed, message), "{ended:?}");
    eventually("no process here", || world.here().is_empty());
}

fn refused(world: &World) {
    let ended = world.run(&world.launch(BOXED, "script/none.yaml"));
    let (outcome, message) = ended.outcome();
    assert!(outcome == Outcome::Refused && message.contains("none.yaml"), "{message}");
    let mut launch = world.launch(BOXED, "claude/m");
    launch.caller.env.insert("PATH".into(), "/nonexistent".into());
    let message = "claude is not installed here: npm i -g @anthropic-ai/claude-code";
    assert_eq!(world.run(&launch).outcome(), (Outcome::Refused, message));
}

fn fenced(world: &World) {
    let home = world.path("home");
    std::fs::write(home.join("secret"), "CANARY").unwrap();
    std::os::unix::fs::symlink(&home, world.work("link")).unwrap();
    for (step, what) in [
        (format!("write: {{path: {}/new, content: x}}", home.display()), "Permission denied"),
        ("write: {path: link/new, content: x}".to_owned(), "Permission denied"),
        (format!("read: {}/secret", home.display()), "Permission denied"),
    ] {
        let ended = play(world, &format!("- {step}\n"));
        let (outcome, message) = ended.outcome();
        assert!(outcome == Outcome::Failed && message.contains(what), "{step}: {ended:?}");
    }
    assert!(!Path::new(&home.join("new")).exists());
}
