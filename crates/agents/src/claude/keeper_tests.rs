//! A stand-in for the CLI renews a made-up sign-in: the real login servers are never asked.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

struct World {
    dir: tempfile::TempDir,
    keeper: Keeper,
}

/// Milliseconds since the epoch, so many seconds from now.
fn in_secs(secs: i64) -> i64 {
    SystemClock.now().as_millisecond() + secs * 1000
}

fn credentials(expires: i64) -> String {
    format!(
        r#"{{"claudeAiOauth":{{"accessToken":"CANARY","refreshToken":"CANARY","expiresAt":{expires},"scopes":["x"]}},"mcpOAuth":{{}}}}"#
    )
}

/// A sign-in that ends in `left` seconds, and a CLI that does `does` when its status is asked.
fn world(left: i64, does: &str) -> World {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(".claude");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(".credentials.json"), credentials(in_secs(left))).unwrap();
    let program = dir.path().join("claude");
    let calls = dir.path().join("calls");
    let new = credentials(in_secs(8 * 3600));
    // what it was called with, then what it does; `renew` is a new file in the place of the old one, as the CLI does it
    let script = format!(
        "#!/bin/sh\nrenew() {{ printf '%s' '{new}' > \"$CLAUDE_SECURESTORAGE_CONFIG_DIR/new\" && \
         mv \"$CLAUDE_SECURESTORAGE_CONFIG_DIR/new\" \"$CLAUDE_SECURESTORAGE_CONFIG_DIR/.credentials.json\"; }}\n\
         {{ echo \"$*\"; pwd; ls -A; ls -A \"$CLAUDE_CONFIG_DIR\"; env; echo; }} >> {calls}\n{does}\n",
        calls = calls.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let installed = Installed { program, directories: Vec::new(), executables: Vec::new(), version: None };
    let env: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", &dir.path().to_string_lossy()),
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("SSH_AUTH_SOCK", "/canary"),
        ("ANTHROPIC_CUSTOM_HEADERS", "canary"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let caller = CallerContext { env, ..CallerContext::default() };
    let keeper = Keeper::new(&installed, folder, &caller);
    World { dir, keeper }
}

impl World {
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.split("\n\n").filter(|call| !call.is_empty()).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_sign_in_with_time_left_is_left_alone() {
    let world = world(400, "renew");
    assert_eq!(world.keeper.look().await, Renewal::Fresh);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test]
async fn one_that_is_near_its_end_is_renewed_in_the_users_own_file() {
    let world = world(200, "renew");
    let before = world.keeper.expiry();
    assert_eq!(world.keeper.look().await, Renewal::Renewed);
    assert!(world.keeper.expiry() > before);
    let calls = world.calls();
    assert_eq!(calls.len(), 1);
    let lines: Vec<&str> = calls[0].lines().collect();
    assert_eq!(lines[0], "auth status");
    assert!(lines[1].contains("/hmz-keeper-") && lines[1].ends_with("/cwd"), "{lines:?}");
    // no file is in its directory, nor in its folder of configuration: the variables come next
    assert!(lines[2].contains('='), "{lines:?}");
    assert!(lines.contains(&"HTTPS_PROXY=http://127.0.0.1:1"));
    assert!(!calls[0].to_lowercase().contains("canary"), "{lines:?}");
    let cwd = Path::new(lines[1]);
    assert!(!cwd.parent().unwrap().exists(), "its directories are removed");
    assert_eq!(world.keeper.look().await, Renewal::Fresh);
}

#[tokio::test]
async fn many_who_look_at_once_renew_once() {
    let world = world(-10, "sleep 0.2; renew");
    let looks = (0..4).map(|_| {
        let keeper = world.keeper.clone();
        async move { keeper.look().await }
    });
    let renewals = futures::future::join_all(looks).await;
    assert!(renewals.iter().all(|r| *r == Renewal::Renewed), "{renewals:?}");
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn one_that_cannot_be_renewed_is_said_once_with_what_to_do() {
    let world = world(-10, "echo CANARY; echo CANARY >&2; exit 1");
    let Renewal::Stale(why) = world.keeper.look().await else { panic!("it was not renewed") };
    assert_eq!(why, "claude's sign-in could not be renewed; sign in again: claude auth login");
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn a_refused_sign_in_is_renewed_unless_somebody_has() {
    let world = world(-10, "renew");
    let seen = world.keeper.expiry();
    assert_eq!(world.keeper.refused(seen).await, Renewal::Renewed);
    assert_eq!(world.keeper.refused(seen).await, Renewal::Renewed);
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn without_a_sign_in_there_is_nothing_to_renew() {
    let world = world(-10, "renew");
    std::fs::remove_file(world.dir.path().join(".claude/.credentials.json")).unwrap();
    assert_eq!(world.keeper.look().await, Renewal::Fresh);
    assert_eq!(world.keeper.refused(None).await, Renewal::Stale(SIGN_IN_AGAIN.to_owned()));
    assert_eq!(world.calls(), [""; 0]);
}
