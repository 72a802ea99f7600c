//! This program as an agent: supervised, with its commands in a box; or natively.

use crate::support::home::TestHome;
use hmz_anchor::{CliFence, ExecPolicy, Passage, SupervisorConfig, launch};
use hmz_api::launch::BoxAddress;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// This program.
pub fn own() -> PathBuf {
    std::env::current_exe().expect("this program's path")
}

/// What a supervised piece of work printed: nanoseconds, here as seconds.
///
/// # Panics
/// When it does not end well.
pub fn supervised(home: &TestHome, place: &BoxAddress, words: &[&str]) -> f64 {
    let program = own();
    let env = [("PATH", "/usr/bin:/bin".to_owned()), ("TMPDIR", format!("{}/bench", place.scratch))];
    let config = SupervisorConfig {
        argv: std::iter::once("figures").chain(words.iter().copied()).map(str::to_owned).collect(),
        env: env.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>(),
        cwd: PathBuf::from(&place.workdir),
        place: place.clone(),
        policy: ExecPolicy { own: vec![program.clone()], ..ExecPolicy::default() },
        fence: CliFence::default(),
        env_allow: vec!["TERM".into()],
        passage: Passage::Own,
        program,
    };
    let mut session = launch::supervised(home.program()).expect("a supervisor");
    let mut child = session
        .command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a supervisor starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&config.frame().expect("a frame")).expect("it reads");
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("its output");
    let status = child.wait().expect("a wait");
    drop(session.lifeline);
    assert!(status.success(), "supervised {words:?}: {status}");
    seconds(&said)
}

/// The same work with nobody in between.
///
/// # Panics
/// When it does not end well.
pub fn native(place: &BoxAddress, words: &[&str]) -> f64 {
    let output = Command::new(own())
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(&place.workdir)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("this program starts");
    assert!(output.status.success(), "{words:?}: {}", output.status);
    seconds(&String::from_utf8_lossy(&output.stdout))
}

fn seconds(said: &str) -> f64 {
    let nanos: f64 = said.trim().parse().unwrap_or_else(|e| panic!("{said:?}: {e}"));
    nanos / 1e9
}
