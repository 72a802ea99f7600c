//! Runs whose agents' CLIs run in the box itself: the built-in one, and the real claude.

use crate::agent;
use crate::container::{docker, eventually};
use crate::provider::Provider;
use crate::provider::script::{Step, bash, edit, read, write};
use crate::world::{Ended, World};
use hmz_api::journal::{Event, Outcome};
use hmz_api::kinds::Harness;
use hmz_api::launch::RunLaunch;
use std::os::unix::fs::MetadataExt as _;

pub const TESTS: &[crate::Test] = &[
    ("a_boxed_agent_lives_in_the_box", lives),
    ("a_boxed_conversation_is_kept_over_turns", turns),
    ("a_boxed_agent_that_dies_fails_its_turn", dies),
    ("a_spent_budget_interrupts_a_boxed_agent", budget),
    ("a_cancelled_run_leaves_nothing_of_a_boxed_agent", cancelled),
    ("a_boxed_agent_ends_with_its_runner", killed),
    ("a_boxed_agent_ends_with_its_proxy", proxy_killed),
    ("a_boxed_agent_is_fenced_as_its_commands_are", fenced),
    ("a_boxed_agent_needs_nothing_here", needs_nothing),
];

pub const OWN: &[crate::OwnBox] = &[
    ("claude_lives_in_the_box_and_its_files_are_there", || claude_works(World::with)),
    ("over_a_stream_claude_lives_in_the_box_and_its_files_are_there", || claude_works(World::far)),
    ("claude_in_the_box_gets_no_key_of_the_users", claude_keys),
    ("claude_in_the_box_is_asked_for_permissions", claude_permissions),
    ("a_spent_budget_interrupts_claude_in_the_box", claude_interrupted),
    ("a_conversation_with_claude_in_the_box_is_kept_over_turns", claude_turns),
    ("claude_in_the_box_ends_with_its_runner", claude_killed),
];

const BOXED: &str = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                     - turn: {agent: coder, environment: box, prompt: \"{{ task }}\"}\n";

const TWO: &str = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                   - turn: {agent: coder, environment: box, prompt: one}\n    - turn: {agent: coder, environment: box, prompt: two}\n";

/// With every CLI in its box.
fn in_box(mut launch: RunLaunch) -> RunLaunch {
    for harness in launch.harnesses.values_mut() {
        *harness = Harness::Env;
    }
    launch
}

fn script(world: &World, flow: &str, steps: &str) -> RunLaunch {
    let steps = world.steps(steps);
    in_box(world.launch(flow, &format!("script/{}", steps.display())))
}

fn play(world: &World, steps: &str) -> Ended {
    world.run(&script(world, BOXED, steps))
}

/// Nothing of a run is left, here or in the box.
fn nothing_left(world: &World) {
    eventually("no process here", || world.here().is_empty());
    eventually("no process in the box", || world.in_box().is_empty() && agents(world) == 0);
}

/// How many built-in agents are in the box.
fn agents(world: &World) -> usize {
    docker(&["top", &world.container, "-eo", "pid,args"]).lines().filter(|line| line.contains("script-agent")).count()
}

fn lives(world: &World) {
    std::fs::write(world.work("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    let ended = play(
        world,
        "- run: hostname; pwd; env | grep -c CANARY\n- read: /etc/hostname\n- edit: {path: calc.py, old: a - b, new: a + b}\n\
         - run: tr '\\0' ' ' </proc/$PPID/cmdline; echo; test $(stat -c %d:%i -L /proc/$PPID/root) = $(stat -c %d:%i /) && echo inside\n\
         - run: echo x >$TMPDIR/x && stat -c %a $TMPDIR\n- say: \"Asked: {{ prompt }}\"\n",
    );
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let tools = ended.tools();
    assert_eq!(tools[1], format!("! thebox\n{}\n0\n", world.place.workdir));
    assert_eq!(tools[3], "= thebox\n", "its own files are the box's");
    assert_eq!(tools[7], "= hmz script-agent \ninside\n", "its parent is the agent, in the box");
    assert_eq!(tools[9], "= 700\n");
    assert_eq!(ended.answers(), ["Asked: do it"]);
    assert!(std::fs::read_to_string(world.work("calc.py")).unwrap().contains("a + b"));
    assert_eq!(std::fs::metadata(world.work("calc.py")).unwrap().uid(), rustix::process::getuid().as_raw());
    assert_eq!(ended.events()[1], &Event::Placed { text: "coder's harness runs on its environment's machine".into() });
    nothing_left(world);
}

fn turns(world: &World) {
    let steps = "- - say: \"first {{ prompt }}\"\n- - run: exit 4\n    expect_status: 4\n  - say: \"second {{ prompt }}\"\n";
    let ended = world.run(&script(world, TWO, steps));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["first one", "second two"]);
    nothing_left(world);
}

fn dies(world: &World) {
    let ended = play(world, "- run: \"sleep 300 & kill -9 $PPID\"\n- say: never\n");
    let (outcome, message) = ended.outcome();
    assert_eq!(outcome, Outcome::Failed, "{ended:?}");
    assert!(message.starts_with("coder: script ended in the middle of its turn: "), "{message}");
    nothing_left(world);
}

const LONG: &str = "- run: touch begun; sleep 300\n- say: never\n";

fn budget(world: &World) {
    let ended = world.spend(script(world, BOXED, LONG), ["4s", "20s", "90s"]);
    assert_eq!(ended.outcome(), (Outcome::BudgetExceeded, "stopped -- tried: its budget's duration is spent"), "{ended:?}");
    nothing_left(world);
}

fn cancelled(world: &World) {
    for signal in ["INT", "TERM"] {
        let running = world.start(&script(world, BOXED, LONG));
        eventually("its command runs", || world.work("begun").exists());
        running.signal(signal);
        assert_eq!(running.end().outcome(), (Outcome::Cancelled, "cancelled"), "{signal}");
        nothing_left(world);
        std::fs::remove_file(world.work("begun")).unwrap();
        std::fs::remove_file(world.path("epic/epic.jsonl")).unwrap();
    }
}

fn killed(world: &World) {
    // what it left running in the background, in a session of its own, too
    let running = world.start(&script(world, BOXED, "- run: setsid sleep 300 & touch begun; sleep 300\n- say: never\n"));
    eventually("its command runs", || world.work("begun").exists());
    assert_eq!(agents(world), 1);
    running.signal("KILL");
    running.end();
    nothing_left(world);
}

fn proxy_killed(world: &World) {
    let running = world.start(&script(world, BOXED, LONG));
    eventually("its command runs", || world.work("begun").exists());
    let proxy = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.child.id())).unwrap();
    let proxies: Vec<i32> = proxy.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let [proxy] = proxies[..] else { panic!("not one child: {proxies:?}") };
    let line = std::fs::read_to_string(format!("/proc/{proxy}/cmdline")).unwrap();
    assert!(line.contains("proxy"), "{line:?}");
    rustix::process::kill_process(rustix::process::Pid::from_raw(proxy).unwrap(), rustix::process::Signal::KILL).unwrap();
    let ended = running.end();
    let (outcome, message) = ended.outcome();
    assert_eq!(outcome, Outcome::Failed, "{ended:?}");
    assert!(message.starts_with("coder: script ended in the middle of its turn: "), "{message}");
    nothing_left(world);
}

fn fenced(world: &World) {
    let ended = play(
        world,
        "- run: echo x >/usr/x\n- run: echo x >/tmp/x && cat /tmp/x\n- run: echo x >here && cat here\n- write: {path: /usr/x, content: x}\n",
    );
    let (outcome, message) = ended.outcome();
    assert_eq!((outcome, message), (Outcome::Failed, "coder: /usr/x: Permission denied (os error 13)"), "{ended:?}");
    let tools = ended.tools();
    assert!(tools[1].starts_with("! ") && tools[1].contains("Permission denied"), "{tools:?}");
    assert_eq!((tools[3].as_str(), tools[5].as_str()), ("= x\n", "= x\n"));
    nothing_left(world);
}

/// No CLI is looked for here, and the user's own variables are not its own.
fn needs_nothing(world: &World) {
    let mut launch = in_box(world.launch(BOXED, "claude/scripted-1"));
    launch.caller.env.insert("PATH".into(), "/nonexistent".into());
    let ended = world.run(&launch);
    let (outcome, message) = ended.outcome();
    assert_eq!(outcome, Outcome::Failed, "{ended:?}");
    assert!(message.contains("cannot run claude in the box: No such file or directory"), "{message}");
    nothing_left(world);
}

/// A box with claude, which reaches the provider on loopback.
fn with_claude(provider: &Provider) -> World {
    with_claude_in(provider, World::with)
}

/// The same, made by `make` from the arguments of its container.
fn with_claude_in(provider: &Provider, make: fn(&[&str]) -> World) -> World {
    let program = agent::claude().canonicalize().unwrap();
    let mount = format!("{}:/usr/local/bin/claude:ro", program.display());
    let variables: Vec<String> =
        agent::variables(&provider.url()).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut words = vec!["--network", "host", "-v", &mount];
    for variable in &variables {
        words.extend(["-e", variable]);
    }
    make(&words)
}

fn claude(world: &World, flow: &str, script: &str) -> RunLaunch {
    let mut launch = in_box(world.launch(flow, "claude/scripted-1:low"));
    launch.task = format!("Please do it. [[script:{script}]]");
    // nothing of claude's is needed here
    launch.caller.env.insert("PATH".into(), "/nonexistent".into());
    launch
}

fn claude_works(make: fn(&[&str]) -> World) {
    let provider = Provider::start().script(
        "fix",
        [
            Step::call(bash("hostname && mkdir -p sub && cd sub")).saying("Looking around."),
            Step::call(bash("pwd; echo $HOME; tr '\\0' '\\n' </proc/$PPID/cmdline | head -1")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("cd .. && python3 -c 'from calc import add; print(add(2, 3))'")),
            Step::call(read("/etc/hostname")),
            Step::call(bash("exit 7")),
            Step::say("Fixed add()."),
        ],
    );
    let world = with_claude_in(&provider, make);
    std::fs::write(world.work("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    let ended = world.run(&claude(&world, BOXED, "fix"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["Fixed add()."]);
    let workdir = &world.place.workdir;
    let tools = ended.tools();
    assert_eq!(tools[1], "= thebox", "{ended:?}");
    assert_eq!(tools[3], format!("= {workdir}/sub\n/tmp\nclaude"), "cd persists, and claude is in the box");
    assert_eq!(tools[4], format!("Read({workdir}/calc.py)"));
    assert_eq!(tools[9], "= 5");
    assert!(tools[11].contains("thebox"), "its own files are the box's: {ended:?}");
    assert_eq!(tools[13], "! Exit code 7");
    assert!(std::fs::read_to_string(world.work("calc.py")).unwrap().contains("a + b"));
    assert_eq!(std::fs::metadata(world.work("calc.py")).unwrap().uid(), rustix::process::getuid().as_raw());
    nothing_left(&world);
    // its state is the box's, and none of it is here
    assert!(!world.path("home/.claude").exists());
    // where it is looked for when the conversation is resumed
    let session = &ended.records.iter().find(|r| r.event == Event::Begins).unwrap().session;
    let project: String = workdir.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let kept = docker(&["exec", &world.container, "find", "/tmp/.claude/projects", "-name", "*.jsonl"]);
    assert_eq!(kept, format!("/tmp/.claude/projects/{project}/{session}.jsonl"));
}

fn claude_keys() {
    let provider = Provider::start().script("look", [Step::call(bash("env")), Step::say("done")]);
    let world = with_claude(&provider);
    let mut launch = claude(&world, BOXED, "look");
    let secrets = [
        ("ANTHROPIC_AUTH_TOKEN", "CANARY-1"),
        ("ANTHROPIC_CUSTOM_HEADERS", "x: CANARY-2"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "CANARY-3"),
        ("HTTPS_PROXY", "http://CANARY-4"),
    ];
    launch.caller.env.extend(secrets.map(|(name, value)| (name.to_owned(), value.to_owned())));
    launch.caller.env.insert("MAX_THINKING_TOKENS".into(), "1234".into());
    let home = world.path("home/.claude");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join(".credentials.json"), "{\"claudeAiOauth\":{\"accessToken\":\"CANARY-5\"}}").unwrap();
    let ended = world.run(&launch);
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let env = provider.results("look")[0].text.clone();
    assert!(!env.contains("CANARY"), "{env}");
    assert!(env.lines().any(|line| line == "MAX_THINKING_TOKENS=1234"), "what is no key is passed: {env}");
    for request in provider.requests() {
        assert!(!format!("{:?}", request.headers).contains("CANARY"), "{:?}", request.headers);
        assert_eq!(request.headers.get("x-api-key").map(String::as_str), Some(agent::API_KEY), "the box's own key is used");
    }
    let found = docker(&["exec", &world.container, "sh", "-c", "grep -rl CANA[R]Y /tmp /root /home 2>/dev/null; true"]);
    assert_eq!(found, "", "nothing of the user's sign-in is in the box");
    nothing_left(&world);
}

fn claude_permissions() {
    let provider = Provider::start().script(
        "attack",
        [
            Step::call(write("/etc/planted", "x")),
            Step::call(write(".git/hooks/pre-commit", "x")),
            Step::call(write("fine.txt", "x")),
            Step::call(bash("echo x >/usr/planted")),
            Step::say("done"),
        ],
    );
    let world = with_claude(&provider);
    let ended = world.run(&claude(&world, BOXED, "attack"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let results = provider.results("attack");
    let failed: Vec<bool> = results.iter().map(|r| r.is_error).collect();
    assert_eq!(failed, [true, true, false, true], "{results:?}");
    assert!(results[0].text.contains("outside the working directory"), "{results:?}");
    assert!(results[3].text.contains("Permission denied"), "{results:?}");
    assert!(world.work("fine.txt").exists() && !world.work(".git").exists());
    nothing_left(&world);
}

fn claude_interrupted() {
    let provider = Provider::start().script("long", [Step::call(bash("touch begun; sleep 300")), Step::say("never")]);
    let world = with_claude(&provider);
    let ended = world.spend(claude(&world, BOXED, "long"), ["8s", "40s", "120s"]);
    assert_eq!(ended.outcome(), (Outcome::BudgetExceeded, "stopped -- tried: its budget's duration is spent"), "{ended:?}");
    nothing_left(&world);
}

fn claude_turns() {
    let provider = Provider::start()
        .script("one", [Step::call(bash("echo first >said.txt")), Step::say("one")])
        .script("two", [Step::call(bash("cat said.txt")), Step::say("two")]);
    let world = with_claude(&provider);
    let flow = TWO.replace("prompt: one", "prompt: '[[script:one]]'").replace("prompt: two", "prompt: '[[script:two]]'");
    let ended = world.run(&claude(&world, &flow, "none"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["one", "two"]);
    assert_eq!(provider.results("two")[0].text, "first");
    let last = provider.requests().into_iter().rfind(|r| r.asked.has_tools).unwrap();
    assert!(last.body["messages"].to_string().contains("[[script:one]]"), "one conversation");
    nothing_left(&world);
}

fn claude_killed() {
    let provider = Provider::start().script("long", [Step::call(bash("touch begun; sleep 300")), Step::say("never")]);
    let world = with_claude(&provider);
    for signal in ["INT", "KILL"] {
        let running = world.start(&claude(&world, BOXED, "long"));
        eventually("the command runs", || world.work("begun").exists());
        running.signal(signal);
        running.end();
        nothing_left(&world);
        std::fs::remove_file(world.work("begun")).unwrap();
        std::fs::remove_file(world.path("epic/epic.jsonl")).unwrap();
    }
}
