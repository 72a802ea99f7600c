//! The real Claude Code, unmodified, with a provider on loopback that asks for commands.
//!
//! The CLI is the one `HMZ_TEST_CLAUDE` names, else `claude` on PATH. One that cannot be had is a failure.

use crate::provider::Provider;
use crate::provider::script::{Step, bash};
use crate::world::{Session, World};
use crate::{Test, agent};

pub const TESTS: &[Test] = &[("claude_works_in_the_box", claude_works_in_the_box)];

fn claude_works_in_the_box(world: &World) {
    let provider = Provider::start().script(
        "work",
        [
            Step::call(bash("hostname; mkdir -p deep; cd deep")),
            Step::call(bash("pwd; env; echo made >made; ls /proc/self/fd")),
            Step::call(bash("git --version || echo no git; exit 7")),
            Step::say("all done"),
        ],
    );
    let program = std::fs::canonicalize(agent::claude()).expect("a program");
    let args = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "scripted-1",
        "--setting-sources",
        "",
        "--strict-mcp-config",
    ];
    let args = [&args[..], &["--dangerously-skip-permissions", "Do the work. [[script:work]]"]].concat();
    let mut config = world.config(program.to_str().expect("text"), &args);
    let home = world.path("claude-home");
    let state = home.join(".claude");
    let scratch = format!("{}/claude", world.place.scratch);
    std::fs::create_dir_all(&state).expect("a directory");
    for (name, value) in [
        ("HOME", home.to_str().expect("text")),
        ("IS_SANDBOX", "1"),
        ("SHELL", "/bin/bash"),
        ("USER", "root"),
        ("TMPDIR", &scratch),
        ("CLAUDE_CODE_TMPDIR", &scratch),
    ] {
        config.env.insert(name.into(), value.into());
    }
    config.env.extend(agent::variables(&provider.url()).into_iter().map(|(name, value)| (name.to_owned(), value)));
    config.fence.write.push(state);
    config.policy.own.push(program);
    let ended = Session::start(&config).end(b"");
    assert!(ended.status.success() && ended.out.contains("all done"), "{ended:?}");
    let results: Vec<String> = provider.results("work").into_iter().map(|result| result.text).collect();
    assert!(results[0].contains("thebox"), "the first command was not in the box: {results:?}");
    // the directory of one command is that of the next
    assert!(results[1].starts_with(&format!("{}/deep\n", world.place.workdir)), "{results:?}");
    assert!(world.work("deep/made").exists() && results[1].contains("BOX_OWN=1"), "{results:?}");
    assert!(results[2].contains("Exit code 7"), "{results:?}");
    assert!(provider.requests().iter().all(|asked| !asked.body.to_string().contains(agent::API_KEY)), "{results:?}");
    let left: Vec<_> = std::fs::read_dir(&home).expect("a directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, [".claude"], "the agent wrote outside its fence");
}
