//! The real claude, driven as a session drives it, without a supervisor: what it says and does on its own channel.
//! Its commands run here, which is fine for these ones. The model is a script on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

#[path = "../../../tests/provider/mod.rs"]
mod provider;
mod support;

use hmz_agents::claude::Claude;
use hmz_agents::{Agent as _, Session, TurnEnd};
use hmz_api::journal::Event;
use provider::Provider;
use provider::script::{Call, Step, Usage, bash, edit, read, write};
use std::time::Duration;
use support::World;
use tokio_util::sync::CancellationToken;

/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn a_key_in_the_environment_leaves_the_sign_in_unread_and_the_state_file_readable() {
    let world = World::new("http://127.0.0.1:9");
    let start = world.start(None);
    let installed = Claude.check(&start.caller).unwrap();
    let fence = Claude.fence(&start, &installed, "id");
    assert!(fence.read.contains(&world.home().join(".claude.json")), "claude tries for seconds to read one it may not");
    assert!(!fence.read.contains(&world.home().join(".claude")));
}

async fn ask(session: &mut dyn Session, prompt: &str) -> (TurnEnd, Vec<Event>) {
    ask_until(session, prompt, &CancellationToken::new(), |_| false).await
}

/// One turn; it is interrupted when `when` says so.
async fn ask_until(
    session: &mut dyn Session,
    prompt: &str,
    stop: &CancellationToken,
    mut when: impl FnMut(&Event) -> bool + Send,
) -> (TurnEnd, Vec<Event>) {
    let mut events = Vec::new();
    let mut sink = |event: Event| {
        if when(&event) {
            stop.cancel();
        }
        events.push(event);
    };
    let end = tokio::time::timeout(LIMIT, session.turn(prompt, &mut sink, stop)).await.expect("the turn ends").unwrap();
    (end, events)
}

fn tools(events: &[Event]) -> Vec<String> {
    let tools =
        events.iter().filter_map(|e| if let Event::Tool { name, about } = e { Some(format!("{name}({about})")) } else { None });
    tools.collect()
}

fn notices(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|e| if let Event::Notice { text } = e { Some(text.as_str()) } else { None }).collect()
}

#[tokio::test]
async fn a_session_works_over_turns_and_says_what_it_does() {
    let provider = Provider::start()
        .script(
            "fix",
            [
                Step::call(bash("hostname && pwd")).saying("Looking around."),
                Step::call(read("calc.py")),
                Step::call(edit("calc.py", "return a - b", "return a + b")),
                Step::call(bash("touch made; exit 7")),
                Step::say("Fixed add().").using(Usage { input: 7, output: 11, cache_read: 13, cache_write: 17 }),
            ],
        )
        .script("again", [Step::say("Nothing to do.")]);
    let world = World::new(&provider.url());
    std::fs::write(world.work("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    let mut session = Claude.session(world.start(Some("low"))).await.unwrap();
    let (end, events) = ask(&mut *session, "Fix it. [[script:fix]]").await;
    assert_eq!(end, TurnEnd::Answered("Fixed add().".into()), "{events:?}");
    let calc = world.work("calc.py");
    assert_eq!(
        tools(&events),
        [
            "Bash(hostname && pwd)".to_owned(),
            format!("Read({})", calc.display()),
            format!("Edit({})", calc.display()),
            "Bash(touch made; exit 7)".into()
        ]
    );
    assert_eq!(events.first(), Some(&Event::Text { text: "Looking around.".into() }));
    assert!(std::fs::read_to_string(&calc).unwrap().contains("a + b"));
    assert!(world.work("made").exists());
    assert!(events.contains(&Event::ToolResult { is_error: true, text: "Exit code 7".into() }), "{events:?}");
    let Some(Event::Result { spent, cost }) = events.last() else { panic!("no usage: {events:?}") };
    assert_eq!((spent["input"], spent["output"], spent["cache_read"], spent["cache_write"]), (4007, 211, 813, 17));
    assert!(cost.is_some());

    let (end, events) = ask(&mut *session, "And now? [[script:again]]").await;
    assert_eq!(end, TurnEnd::Answered("Nothing to do.".into()));
    let Some(Event::Result { spent, .. }) = events.last() else { panic!("no usage: {events:?}") };
    assert_eq!(spent["input"], 1000, "the usage is the turn's own");
    session.close().await;

    // a session that was closed goes on with a new process
    let (end, _) = ask(&mut *session, "Once more. [[script:again]]").await;
    assert_eq!(end, TurnEnd::Answered("Nothing to do.".into()));
    let last = provider.requests().pop().unwrap();
    let said = last.body["messages"].to_string();
    assert!(said.contains("Fix it.") && said.contains("Once more."), "the conversation is the same one");
    session.close().await;
    world.assert_no_agent_left().await;
}

#[tokio::test]
async fn its_own_tools_write_in_the_workdir_and_nowhere_else() {
    let world_of = |url: &str| {
        let world = World::new(url);
        std::fs::create_dir_all(world.work(".git/hooks")).unwrap();
        std::os::unix::fs::symlink(world.home(), world.work("link")).unwrap();
        world
    };
    let provider = Provider::start();
    let world = world_of(&provider.url());
    let home = world.home();
    let outside = |name: &str| home.join(name).to_string_lossy().into_owned();
    let provider = provider.script(
        "attack",
        [
            Step::call(write("inside.txt", "x")),
            Step::call(write(outside(".newrc"), "x")),
            Step::call(write("link/linked", "x")),
            Step::call(write(".git/hooks/pre-commit", "x")),
            Step::call(write(".mcp.json", "{}")),
            Step::call(write(".claude/settings.json", "{}")),
            Step::call(read("/etc/hostname")),
            Step::call(Call::Raw { name: "AskUserQuestion".into(), input: serde_json::json!({"questions": [{"question": "q?", "header": "h", "multiSelect": false, "options": [{"label": "a", "description": "a"}, {"label": "b", "description": "b"}]}]}) }),
            Step::say("done"),
        ],
    );
    let mut session = Claude.session(world.start(None)).await.unwrap();
    let (end, events) = ask(&mut *session, "Go. [[script:attack]]").await;
    assert_eq!(end, TurnEnd::Answered("done".into()), "{events:?}");
    session.close().await;
    assert_eq!(provider.results("attack").len(), 8);
    assert!(world.work("inside.txt").exists());
    for path in [
        home.join(".newrc"),
        home.join("linked"),
        world.work(".git/hooks/pre-commit"),
        world.work(".mcp.json"),
        world.work(".claude"),
    ] {
        assert!(!path.exists(), "{} was written", path.display());
    }
    let failed: Vec<bool> =
        events.iter().filter_map(|e| if let Event::ToolResult { is_error, .. } = e { Some(*is_error) } else { None }).collect();
    assert_eq!(failed, [false, true, true, true, true, true, true, true], "{events:?}");
    let notices = notices(&events);
    assert!(notices.iter().any(|n| n.contains("is outside the working directory")), "{notices:?}");
    assert!(notices.iter().any(|n| n.contains("runs programs on the user's machine")), "{notices:?}");
    assert!(notices.iter().any(|n| n.contains("nobody is here to answer")), "{notices:?}");
}

#[tokio::test]
async fn what_a_project_planted_starts_nothing() {
    let provider = Provider::start().script("go", [Step::call(bash("true")), Step::say("done")]);
    let world = World::new(&provider.url());
    let canary = world.work("fired");
    let fire = format!("touch {}", canary.display());
    std::fs::create_dir(world.work(".claude")).unwrap();
    let hook = serde_json::json!({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": fire}]}], "PreToolUse": [{"matcher": "", "hooks": [{"type": "command", "command": fire}]}]}});
    std::fs::write(world.work(".claude/settings.json"), hook.to_string()).unwrap();
    std::fs::create_dir_all(world.home().join(".claude")).unwrap();
    std::fs::write(world.home().join(".claude/settings.json"), hook.to_string()).unwrap();
    let server = serde_json::json!({"mcpServers": {"x": {"command": "/bin/sh", "args": ["-c", fire]}}});
    std::fs::write(world.work(".mcp.json"), server.to_string()).unwrap();
    let mut session = Claude.session(world.start(None)).await.unwrap();
    let (end, _) = ask(&mut *session, "Go. [[script:go]]").await;
    assert_eq!(end, TurnEnd::Answered("done".into()));
    session.close().await;
    assert!(!canary.exists());
}

#[tokio::test]
async fn an_interrupted_turn_ends_and_the_session_goes_on() {
    let provider = Provider::start()
        .script("long", [Step::call(bash("touch begun; sleep 300")), Step::say("never")])
        .script("stall", [Step::stall()])
        .script("after", [Step::say("here again")]);
    let world = World::new(&provider.url());
    let mut session = Claude.session(world.start(None)).await.unwrap();
    let stop = CancellationToken::new();
    let begun = world.work("begun");
    let watch = {
        let stop = stop.clone();
        tokio::spawn(async move {
            while !begun.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stop.cancel();
        })
    };
    let (end, _) = ask_until(&mut *session, "Go. [[script:long]]", &stop, |_| false).await;
    assert_eq!(end, TurnEnd::Interrupted);
    watch.await.unwrap();
    let (end, _) = ask(&mut *session, "Go. [[script:after]]").await;
    assert_eq!(end, TurnEnd::Answered("here again".into()));

    let stop = CancellationToken::new();
    let before = provider.requests().len();
    let stalled = ask_until(&mut *session, "Go. [[script:stall]]", &stop, |_| false);
    let watch = async {
        while provider.requests().len() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.cancel();
    };
    let ((end, _), ()) = tokio::join!(stalled, watch);
    assert_eq!(end, TurnEnd::Interrupted);
    let (end, _) = ask(&mut *session, "Go. [[script:after]]").await;
    assert_eq!(end, TurnEnd::Answered("here again".into()));
    session.close().await;
    world.assert_no_agent_left().await;
}

#[tokio::test]
async fn errors_of_the_provider_fail_the_turn_in_its_words() {
    let provider = Provider::start()
        .script("flaky", [Step::error(529).times(1, Step::say("recovered"))])
        .script("broken", [Step::error(400)])
        .script("fine", [Step::say("fine")]);
    let world = World::new(&provider.url());
    let mut session = Claude.session(world.start(None)).await.unwrap();
    let (end, events) = ask(&mut *session, "Go. [[script:flaky]]").await;
    assert_eq!(end, TurnEnd::Answered("recovered".into()));
    assert!(notices(&events).iter().any(|n| n.contains("claude's provider is overloaded; trying again in")), "{events:?}");
    let (end, events) = ask(&mut *session, "Go. [[script:broken]]").await;
    assert!(matches!(&end, TurnEnd::Failed(why) if why.contains("400")), "{end:?} {events:?}");
    let (end, _) = ask(&mut *session, "Go. [[script:fine]]").await;
    assert_eq!(end, TurnEnd::Answered("fine".into()));
    session.close().await;
}

#[tokio::test]
async fn a_claude_that_dies_fails_its_turn_and_comes_back() {
    let provider = Provider::start()
        .script("die", [Step::call(bash("kill -9 $PPID")), Step::say("never")])
        .script("fine", [Step::say("fine")]);
    let world = World::new(&provider.url());
    let mut session = Claude.session(world.start(None)).await.unwrap();
    let (end, _) = ask(&mut *session, "Go. [[script:die]]").await;
    assert!(matches!(&end, TurnEnd::Failed(why) if why.contains("ended in the middle of its turn")), "{end:?}");
    let (end, _) = ask(&mut *session, "Go. [[script:fine]]").await;
    assert_eq!(end, TurnEnd::Answered("fine".into()));
    session.close().await;
}
