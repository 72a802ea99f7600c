//! A session ends when it is told to, whatever its CLI does about it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use async_trait::async_trait;
use hmz_agents::claude::Claude;
use hmz_agents::script::Script;
use hmz_agents::{Agent, Grace, Installed, Launch, Launcher, Started, TurnEnd};
use hmz_api::Error;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use support::{Bare, World};
use tokio_util::sync::CancellationToken;

/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(120);

/// Gives what it starts next to no time.
#[derive(Debug)]
struct Impatient;

#[async_trait]
impl Launcher for Impatient {
    async fn launch(&self, what: &Launch) -> Result<Started, Error> {
        Bare.launch(what).await
    }

    fn grace(&self) -> Grace {
        let short = Duration::from_millis(20);
        Grace { interruption: short, input: LIMIT * 10, term: short }
    }
}

/// Has `agent` start a program of bash and interrupts its turn once that has begun.
async fn interrupted(agent: &dyn Agent, prompt: &str, script: &str) {
    let world = World::new("http://127.0.0.1:9");
    let program = world.home().join("cli");
    std::fs::write(&program, format!("#!/bin/bash\ntrap '' TERM INT HUP\n: >begun\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let installed = Installed { program: program.clone(), directories: Vec::new(), executables: vec![program], version: None };
    let mut start = world.start_of(installed, world.caller("/usr/bin:/bin"), None);
    start.launcher = Arc::new(Impatient);
    // what the built-in agent is told to play, of which the program takes no notice
    std::fs::write(std::path::Path::new(&start.caller.cwd).join(&start.spec.model), "- say: x\n").unwrap();
    let mut session = agent.session(start).await.unwrap();
    let stop = CancellationToken::new();
    let cancel = async {
        while !world.work("begun").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let mut sink = |_| {};
    let (end, ()) = tokio::join!(tokio::time::timeout(LIMIT, session.turn(prompt, &mut sink, &stop)), cancel);
    assert_eq!(end.expect("the turn ends").unwrap(), TurnEnd::Interrupted);
    tokio::time::timeout(LIMIT, session.close()).await.expect("the session ends");
    world.assert_no_agent_left().await;
}

#[tokio::test]
async fn a_cli_that_heeds_nothing_is_ended() {
    let script = "while :; do sleep 0.02; done";
    interrupted(&Claude, "go", script).await;
    interrupted(&Script::new("/bin/false".as_ref()), "go", script).await;
}

#[tokio::test]
async fn a_cli_that_never_stops_talking_is_ended() {
    let script = "while :; do echo '{}'; done";
    interrupted(&Claude, "go", script).await;
    interrupted(&Script::new("/bin/false".as_ref()), "go", script).await;
}

#[tokio::test]
async fn a_cli_that_reads_nothing_is_ended() {
    let (script, long) = ("while :; do sleep 0.02; done", "x".repeat(1 << 20));
    interrupted(&Claude, &long, script).await;
    interrupted(&Script::new("/bin/false".as_ref()), &long, script).await;
}
