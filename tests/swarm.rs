//! A docker swarm of three nodes: environments and runs on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod provider;
mod support;

use provider::Provider;
use provider::script::{Step, Usage, bash, edit, read};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use support::home::TestHome;
use support::project::Project;
use support::{LIMIT, eventually};

/// The swarm of the testbed, and a home with a runtime `c` on it.
struct Swarm {
    /// Held while the nodes are used; alone by who takes one away.
    _turn: std::fs::File,
    place: BTreeMap<String, String>,
    home: TestHome,
}

impl Swarm {
    /// With these settings of the runtime, two spaces before each line.
    fn new(settings: &str) -> Self {
        Self::with(rustix::fs::FlockOperation::LockShared, settings, TestHome::new())
    }

    fn with(turn: rustix::fs::FlockOperation, settings: &str, home: TestHome) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testbed/swarm");
        let out = Command::new(script).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let place: BTreeMap<_, _> =
            text.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let lock = Path::new(&place["ssh_config"]).with_file_name("turn");
        let lock = std::fs::File::options().create(true).truncate(false).write(true).open(lock).unwrap();
        rustix::fs::flock(&lock, turn).unwrap();
        let swarm = Self { _turn: lock, place, home };
        swarm.settings(settings);
        swarm
    }

    fn settings(&self, settings: &str) {
        let (manager, config) = (&self.place["manager"], &self.place["ssh_config"]);
        let hosts: String = ["w1", "w2"].map(|n| format!("    {n}: {{alias: {n}, config: {config}}}\n")).concat();
        let own: String = settings.lines().map(|line| format!("      {line}\n")).collect();
        self.home.settings(&format!(
            "runtimes:\n  ssh:\n{hosts}  swarm:\n    c:\n      endpoint: unix://{manager}\n      image: busybox:latest\n      nodes: \
             {{w1: w1, w2: w2}}\n{own}"
        ));
    }

    fn docker(&self, args: &[&str]) -> String {
        let host = format!("unix://{}", self.place["manager"]);
        let out = Command::new("docker").args(["-H", &host]).args(args).output().unwrap();
        assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }

    /// The ids of this home's services.
    fn services(&self) -> Vec<String> {
        let Some(label) = self.home.label() else { return Vec::new() };
        self.docker(&["service", "ls", "-q", "--filter", &format!("label={label}")]).lines().map(str::to_owned).collect()
    }

    fn nothing_is_left(&self) {
        eventually("no service of this home is left", LIMIT, || self.services().is_empty().then_some(()));
    }

    /// Writes the manifest of an environment.
    fn environment(&self, name: &str, project: &Project, more: &str) -> String {
        let file = self.home.root().join(format!("{name}.yaml"));
        let workdir = project.path();
        let text = format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'swarm:c', workdir: {workdir}{more}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn sh(&self, env: &str, command: &str) -> String {
        self.home.hmz(["sh", env, "--", "sh", "-c", command]).run().ok().out()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        let host = format!("unix://{}", self.place["manager"]);
        for id in self.services() {
            let _ = Command::new("docker").args(["-H", &host, "service", "rm", &id]).output();
        }
    }
}

/// Whose a directory of the project becomes.
fn give(project: &Project, uid: u32, gid: u32) {
    std::os::unix::fs::chown(project.dir(), Some(uid), Some(gid)).unwrap();
}

#[test]
fn an_environment_lives_on_a_worker_until_it_is_deleted() {
    let swarm = Swarm::new("constraints: [node.hostname==w1]");
    let (home, project) = (&swarm.home, swarm.home.project("p"));
    give(&project, 2345, 3456);
    let file = swarm.environment("box", &project, ", cpus: 0.25, memory: 64M");
    let _ = home.hmz(["apply", "-f", &file]).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/box"]).run().ok();
    let got = home.hmz(["get", "envs"]).run().ok();
    assert!(
        got.out().lines().nth(1).is_some_and(|l| l.starts_with("box ") && l.contains("swarm:c") && l.contains("True")),
        "{got}"
    );
    let described = home.hmz(["describe", "env/box"]).run().ok();
    assert!(described.out().contains("Node") && described.out().contains("w1"), "{described}");
    // its commands run there, as whose the directory is, and what they write is here
    assert_eq!(
        swarm.sh("env/box", "id -u; id -g; pwd; echo $$ >pid; echo done"),
        format!("2345\n3456\n{}\ndone\n", project.path())
    );
    let found = std::fs::metadata(project.file("pid")).unwrap();
    assert_eq!((found.uid(), found.gid()), (2345, 3456));
    assert_eq!(swarm.services().len(), 1);
    let runtimes = home.hmz(["describe", "runtime/swarm:c"]).run().ok();
    assert!(runtimes.out().contains("humanize-c-box-"), "{runtimes}");
    let _ = home.hmz(["delete", "env/box"]).run().ok();
    assert_eq!(swarm.services(), Vec::<String>::new());
}
