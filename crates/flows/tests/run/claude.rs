//! Runs with the real claude, supervised, against a scripted provider on loopback.

use crate::agent;
use crate::container::{docker, eventually};
use crate::provider::Provider;
use crate::provider::script::{Step, bash, edit, read, write};
use crate::world::World;
use hmz_api::journal::{Event, Outcome};
use hmz_api::launch::RunLaunch;
use std::os::unix::fs::MetadataExt as _;

pub const TESTS: &[crate::Test] = &[
    ("claudes_commands_land_in_the_box_and_its_edits_here", works),
    ("claude_takes_no_key_and_no_file_of_the_users_to_the_box", keeps),
    ("claudes_own_tools_are_fenced_and_so_is_what_it_reads", fenced),
    ("a_spent_budget_interrupts_claude", budget),
    ("a_killed_runner_leaves_no_claude_behind", killed),
    ("claude_without_its_shell_in_the_box_is_refused", shell),
];

const BOXED: &str = "  agents: {coder: {}}\n  environments: {box: {}}\n  steps:\n    \
                     - turn: {agent: coder, environment: box, prompt: \"{{ task }}\"}\n";

fn launch(world: &World, provider: &Provider, script: &str) -> RunLaunch {
    let mut launch = world.launch(BOXED, "claude/scripted-1:low");
    launch.task = format!("Please do it. [[script:{script}]]");
    let env = &mut launch.caller.env;
    env.insert("PATH".into(), agent::path());
    env.extend(agent::variables(&provider.url()).into_iter().map(|(name, value)| (name.to_owned(), value)));
    launch
}

fn works(world: &World) {
    std::fs::write(world.work("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
    std::fs::create_dir(world.work("sub")).unwrap();
    let provider = Provider::start().script(
        "fix",
        [
            Step::call(bash("hostname && cd sub")).saying("Looking around."),
            Step::call(bash("pwd; echo $HOME; ls -a /tmp $HOME | grep -c claude")),
            Step::call(read("calc.py")),
            Step::call(edit("calc.py", "return a - b", "return a + b")),
            Step::call(bash("cd .. && python3 -c 'from calc import add; print(add(2, 3))'")),
            Step::call(bash("exit 7")),
            Step::say("Fixed add()."),
        ],
    );
    let ended = world.run(&launch(world, &provider, "fix"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    assert_eq!(ended.answers(), ["Fixed add()."]);
    let workdir = &world.place.workdir;
    let tools = ended.tools();
    assert_eq!(tools[..2], ["Bash(hostname && cd sub)", "= thebox"], "{ended:?}");
    assert_eq!(tools[3], format!("= {workdir}/sub\n/tmp\n0"), "cd persists, and nothing of claude's is in the box");
    assert_eq!(tools[4], format!("Read({workdir}/calc.py)"));
    assert_eq!(tools[9], "= 5");
    assert_eq!(tools[11], "! Exit code 7");
    assert!(std::fs::read_to_string(world.work("calc.py")).unwrap().contains("a + b"));
    assert_eq!(std::fs::metadata(world.work("calc.py")).unwrap().uid(), rustix::process::getuid().as_raw());
    let used =
        ended.events().into_iter().find_map(|e| if let Event::Result { spent, .. } = e { Some(spent.clone()) } else { None });
    assert_eq!(used.unwrap()["input"], 7000);
    eventually("no process here", || world.here().is_empty());
    eventually("no process in the box", || world.in_box().is_empty());
    // its own state is where the user's is, and the project's folder is all it wrote
    let written: Vec<String> = std::fs::read_dir(world.path("home/.claude"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(written, ["projects"]);
    assert!(!world.path("home/.claude.json").exists());
}

fn keeps(world: &World) {
    std::fs::write(world.path("home/.canary"), "HOMECANARY").unwrap();
    let provider = Provider::start().script(
        "look",
        [
            Step::call(bash("env; cat /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'")),
            Step::call(bash(format!("cat {}/.canary", world.path("home").display()))),
            Step::call(bash(
                "grep -rl 'C[A]NARY\\|sk-s[c]ripted' /tmp /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true",
            )),
            Step::say("done"),
        ],
    );
    let ended = world.run(&launch(world, &provider, "look"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let results = provider.results("look");
    let env = &results[0].text;
    for secret in ["CANARY", agent::API_KEY, "ANTHROPIC", "CLAUDE_CODE_MESSAGING", "CLAUDE_CODE_SESSION", "CLAUDE_CODE_EXECPATH"]
    {
        assert!(!env.contains(secret), "{secret}: {env}");
    }
    for wanted in ["USER=worker", "HOME=/tmp", "CLAUDECODE=1", "GIT_EDITOR=true"] {
        assert!(env.lines().any(|line| line == wanted), "{wanted}: {env}");
    }
    assert!(results[1].is_error && results[1].text.contains("No such file"), "{results:?}");
    assert!(!results[2].text.contains("/proc/") && !results[2].text.contains("/tmp/"), "{results:?}");
    assert!(!docker(&["inspect", &world.container]).contains("CANARY"));
}

fn fenced(world: &World) {
    let home = world.path("home");
    std::fs::write(home.join(".bashrc"), "# mine\n").unwrap();
    std::os::unix::fs::symlink(&home, world.work("link")).unwrap();
    let at = |name: &str| home.join(name).to_string_lossy().into_owned();
    let provider = Provider::start().script(
        "attack",
        [
            Step::call(write(at(".newrc"), "x")),
            Step::call(read(at(".bashrc"))),
            Step::call(edit(at(".bashrc"), "# mine", "evil")),
            Step::call(write("link/linked", "x")),
            Step::call(read("link/.bashrc")),
            Step::call(write(at(".claude/settings.json"), "{}")),
            Step::call(write("fine.txt", "x")),
            Step::say("done"),
        ],
    );
    let ended = world.run(&launch(world, &provider, "attack"));
    assert_eq!(ended.outcome(), (Outcome::Succeeded, ""), "{ended:?}");
    let results = provider.results("attack");
    let failed: Vec<bool> = results.iter().map(|r| r.is_error).collect();
    assert_eq!(failed, [true, true, true, true, true, true, false], "{results:?}");
    assert_eq!(std::fs::read_to_string(home.join(".bashrc")).unwrap(), "# mine\n");
    for name in [".newrc", "linked", ".claude/settings.json"] {
        assert!(!home.join(name).exists(), "{name}");
    }
    assert!(world.work("fine.txt").exists());
}

fn budget(world: &World) {
    let provider = Provider::start().script("long", [Step::call(bash("touch begun; sleep 300")), Step::say("never")]);
    let ended = world.spend(launch(world, &provider, "long"), ["6s", "30s", "90s"]);
    assert_eq!(ended.outcome(), (Outcome::BudgetExceeded, "stopped -- tried: its budget's duration is spent"), "{ended:?}");
    eventually("no process here", || world.here().is_empty());
    eventually("no process in the box", || world.in_box().is_empty());
}

fn killed(world: &World) {
    let provider = Provider::start().script("long", [Step::call(bash("touch begun; sleep 300")), Step::say("never")]);
    let running = world.start(&launch(world, &provider, "long"));
    eventually("the command runs", || world.work("begun").exists());
    running.signal("KILL");
    running.end();
    eventually("no process here", || world.here().is_empty());
    eventually("no process in the box", || world.in_box().is_empty());
}

fn shell(world: &World) {
    docker(&["exec", &world.container, "sh", "-c", "rm -f /bin/bash /usr/bin/bash /bin/rbash /usr/bin/rbash"]);
    let provider = Provider::start();
    eventually("the box tells that bash is gone", || {
        let ended = world.run(&launch(world, &provider, "none"));
        let (outcome, message) = ended.outcome();
        outcome == Outcome::Refused && message == "coder: the image of 'box' has no bash, which claude's commands need"
    });
}
