//! A session whose sign-in the provider refuses in the middle of a turn. A script stands in for claude, for the real one
//! would ask the real login servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use hmz_agents::claude::Claude;
use hmz_agents::{Agent as _, Installed, SessionStart, TurnEnd};
use hmz_api::clock::{Clock as _, SystemClock};
use hmz_api::journal::Event;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use support::World;
use tokio_util::sync::CancellationToken;

/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(120);

fn credentials(left: i64) -> String {
    let expires = SystemClock.now().as_millisecond() + left * 1000;
    format!(r#"{{"claudeAiOauth":{{"accessToken":"x","refreshToken":"x","expiresAt":{expires}}}}}"#)
}

/// A session of a claude that is refused twice, and answers once `renewals` says that its status was asked.
fn start(world: &World, renews: bool) -> SessionStart {
    let folder = world.home().join(".claude");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(".credentials.json"), credentials(3600)).unwrap();
    let renewals = world.home().join("renewals");
    // a renewal that fails takes longer than the turn, which must not end in its middle
    let renew = if renews {
        format!("printf '%s' '{}' > {}/.credentials.json", credentials(8 * 3600), folder.display())
    } else {
        format!("echo begun >> {0}; sleep 0.5; echo done >> {0}", renewals.display())
    };
    let retry = r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":2,"retry_delay_ms":550,"error_status":401,"error":"authentication_failed"}"#;
    let result = if renews {
        r#"{"type":"result","subtype":"success","is_error":false,"result":"done"}"#
    } else {
        r#"{"type":"result","subtype":"success","is_error":true,"result":"Failed to authenticate"}"#
    };
    let script = format!(
        "#!/bin/sh\nif [ \"$1 $2\" = 'auth status' ]; then {renew}; echo asked >> {renewals}; exit 0; fi\nread prompt\n\
         echo '{retry}'\necho '{retry}'\nwhile ! [ -s {renewals} ]; do sleep 0.02; done\necho '{result}'\ncat > /dev/null\n",
        renewals = renewals.display()
    );
    let program = world.home().join("claude");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut caller = world.caller("/usr/bin:/bin");
    caller.env.remove("ANTHROPIC_API_KEY");
    let installed = Installed { program, directories: Vec::new(), executables: Vec::new(), version: None };
    world.start_of(installed, caller, None)
}

async fn turn(start: SessionStart) -> (TurnEnd, Vec<String>) {
    let mut session = Claude.session(start).await.unwrap();
    let mut notices = Vec::new();
    let mut sink = |event: Event| {
        if let Event::Notice { text } = event {
            notices.push(text);
        }
    };
    let stop = CancellationToken::new();
    let end = tokio::time::timeout(LIMIT, session.turn("go", &mut sink, &stop)).await.expect("the turn ends").unwrap();
    session.close().await;
    (end, notices)
}

#[tokio::test]
async fn a_refused_sign_in_is_renewed_while_claude_tries_again() {
    let world = World::new("http://127.0.0.1:1");
    let (end, notices) = turn(start(&world, true)).await;
    assert_eq!(end, TurnEnd::Answered("done".into()), "{notices:?}");
    assert_eq!(notices.len(), 2, "only the two tries are told: {notices:?}");
    assert_eq!(std::fs::read_to_string(world.home().join("renewals")).unwrap(), "asked\n");
}

#[tokio::test]
async fn one_that_cannot_be_renewed_is_tried_once_and_said() {
    let world = World::new("http://127.0.0.1:1");
    let (end, notices) = turn(start(&world, false)).await;
    assert_eq!(end, TurnEnd::Failed("Failed to authenticate".into()));
    let said: Vec<&String> = notices.iter().filter(|n| n.contains("sign in again: claude auth login")).collect();
    assert_eq!(said.len(), 1, "{notices:?}");
    assert_eq!(std::fs::read_to_string(world.home().join("renewals")).unwrap(), "begun\ndone\nasked\n");
}
