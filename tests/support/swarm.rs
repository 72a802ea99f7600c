//! The swarm of the testbed (`tests/testbed/swarm`), for tests of any crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is part of tests, whose failures are panics")]

use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Its three nodes.
#[derive(Debug)]
pub struct Nodes {
    /// Held while they are used; alone by who takes one away.
    _turn: File,
    /// What the testbed says of them: the sockets `manager`, `w1` and `w2`, and `ssh_config`.
    pub place: BTreeMap<String, String>,
}

impl Nodes {
    /// The nodes, started where they do not run.
    ///
    /// # Panics
    /// When they cannot be had, in the testbed's own words.
    pub fn get(turn: FlockOperation) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("tests/testbed/swarm"));
        let script = script.into_iter().find(|script| script.is_file()).expect("the testbed of the workspace");
        let out = Command::new(script).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let place: BTreeMap<_, _> =
            text.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let lock = Path::new(&place["ssh_config"]).with_file_name("turn");
        let lock = File::options().create(true).truncate(false).write(true).open(lock).unwrap();
        flock(&lock, turn).unwrap();
        Self { _turn: lock, place }
    }

    /// `docker WORD…` on one of them, by the name of its socket; its stdout without the last newline.
    ///
    /// # Panics
    /// When it fails, in docker's own words.
    #[track_caller]
    pub fn docker(&self, node: &str, args: &[&str]) -> String {
        let host = format!("unix://{}", self.place[node]);
        let out = Command::new("docker").args(["-H", &host]).args(args).output().unwrap();
        assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }
}
