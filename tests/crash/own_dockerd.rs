//! A docker daemon of the test's own, which is stopped, started and frozen. It has its own mounts and network, and its files
//! and everything that it started are gone with it.

use crate::scene::{Scene, condition};
use crate::support::command::Invocation;
use crate::support::processes::is_alive;
use crate::support::{LIMIT, docker, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

struct Dockerd {
    dir: TempDir,
    /// Holds the namespaces while no daemon is there.
    holder: Child,
    daemon: Option<Child>,
    more: &'static [&'static str],
}

impl Dockerd {
    fn new(more: &'static [&'static str]) -> Self {
        assert!(rustix::process::getuid().is_root(), "a docker daemon of its own is root's");
        // short, since sockets are in it
        let dir = tempfile::Builder::new().prefix("hmz-d").tempdir_in("/var/tmp").unwrap();
        let holder = Command::new("unshare").args(["--mount", "--net", "sleep", "infinity"]).spawn().unwrap();
        std::fs::write(dir.path().join("none.json"), "{}").unwrap();
        let mut made = Self { dir, holder, daemon: None, more };
        eventually("the namespaces are there", LIMIT, || {
            let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
            (of(&made.holder.id().to_string())? != of("self")?).then_some(())
        });
        made.start();
        let archive = made.dir.path().join("image.tar");
        docker::docker(&["save", "-o", &archive.display().to_string(), "busybox:latest"]);
        let _ = made.docker(&["load", "-i", &archive.display().to_string()]);
        made
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("d.sock")
    }

    fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let daemon = Command::new("nsenter")
            .args(["--target", &self.holder.id().to_string(), "--mount", "--net", "dockerd"])
            .args(["--data-root", &at("data"), "--exec-root", &at("x"), "--pidfile", &at("pid"), "-H", &self.address()])
            .args(["--config-file", &at("none.json"), "--bridge=none", "--iptables=false", "--ip6tables=false"])
            .arg("--ip-forward=false")
            .args(self.more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let mut daemon = daemon.unwrap();
        eventually("the daemon answers", LIMIT, || {
            if let Some(ended) = daemon.try_wait().unwrap() {
                panic!("{ended}: {}", std::fs::read_to_string(at("log")).unwrap_or_default());
            }
            (self.run(&["version"]).run().code() == 0).then_some(())
        });
        self.daemon = Some(daemon);
    }

    fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("it is there");
        kill_process(Pid::from_child(daemon), signal).unwrap();
    }

    /// Stops it as a service is stopped.
    fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.daemon.take().unwrap().wait().unwrap();
    }

    fn run(&self, words: &[&str]) -> Invocation {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = self.dir.path().as_os_str();
        Invocation::new("docker").args(words).env("PATH", path).env("HOME", home).env("DOCKER_HOST", self.address())
    }

    fn docker(&self, words: &[&str]) -> String {
        self.run(words).run().ok().out().trim_end().to_owned()
    }

    /// The ids of all its containers.
    fn containers(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.docker(&["ps", "-aq", "--no-trunc"]).lines().map(str::to_owned).collect();
        ids.sort();
        ids
    }

    fn assert_empty(&self) {
        eventually("nothing is left on the daemon", LIMIT, || self.containers().is_empty().then_some(()));
    }

    /// A scene whose runtime is on it.
    fn scene(&self) -> Scene {
        let scene = Scene::new();
        let settings = std::fs::read_to_string(scene.home.hmz_home().join("settings.yaml")).unwrap();
        scene.home.settings(&settings.replace("endpoint: local", &format!("endpoint: {}", self.address())));
        scene
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = Pid::from_child(&daemon);
            let _ = kill_process(pid, Signal::CONT);
            if let Ok(left) = Command::new("docker").args(["-H", &self.address(), "ps", "-aq"]).output() {
                let left = String::from_utf8_lossy(&left.stdout).into_owned();
                let _ = Command::new("docker").args(["-H", &self.address(), "rm", "-f"]).args(left.split_whitespace()).output();
            }
            let _ = kill_process(pid, Signal::TERM);
            for _ in 0..200 {
                if !matches!(daemon.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in of(self.dir.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The processes whose command line names a directory: what a daemon with its files there started.
fn of(dir: &Path) -> Vec<Pid> {
    let dir = dir.as_os_str().as_encoded_bytes();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let names = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(dir.len()).any(|part| part == dir))
    };
    pids.filter(names).filter(|pid| *pid != std::process::id().cast_signed()).filter_map(Pid::from_raw).collect()
}

fn pid_of(scene: &Scene, env: &str) -> i32 {
    i32::try_from(scene.get(env)["status"]["pid"].as_i64().expect("it has a box")).unwrap()
}

/// Ready as often as it is said to have been started.
fn is_ready(scene: &Scene, env: &str, incarnation: u64) {
    eventually(&format!("{env} is ready as number {incarnation}"), LIMIT, || {
        let env = scene.get(env);
        (condition(&env, "Ready")?.0 == "True" && env["status"]["incarnation"] == incarnation).then_some(())
    });
}

#[test]
fn boxes_that_outlive_their_daemon_are_taken_for_what_they_are() {
    let mut dockerd = Dockerd::new(&["--live-restore"]);
    let scene = dockerd.scene();
    let runtime = format!("runtime/docker:{}", scene.runtime);
    let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n")).ok();
    is_ready(&scene, "env/e", 1);
    scene.begin("r");
    let (before, pid) = (dockerd.containers(), pid_of(&scene, "env/e"));
    assert_eq!(before.len(), 2);
    dockerd.stop();
    scene.condition(&runtime, "Reachable", "False");
    for env in ["env/e", "env/r-box"] {
        assert_eq!(scene.condition(env, "Ready", "Unknown").0, "Unreachable");
        assert_eq!(scene.get(env)["status"]["incarnation"], 1);
    }
    assert!(is_alive(pid));
    // the run goes on all the time, and what it needs the daemon for waits
    scene.go();
    assert_eq!(scene.complete("r").0, "Succeeded");
    dockerd.start();
    scene.condition(&runtime, "Reachable", "True");
    is_ready(&scene, "env/e", 1);
    let there = scene.get("env/e")["status"]["container_id"].as_str().unwrap().to_owned();
    assert!(before.contains(&there) && pid_of(&scene, "env/e") == pid);
    eventually("the run's box is gone", LIMIT, || (dockerd.containers() == [there.as_str()]).then_some(()));
    let _ = scene.home.hmz(["delete", "env/e"]).run().ok();
    dockerd.assert_empty();
}

#[test]
fn boxes_that_end_with_their_daemon_are_seen_when_it_is_back() {
    let mut dockerd = Dockerd::new(&[]);
    let scene = dockerd.scene();
    let runtime = format!("runtime/docker:{}", scene.runtime);
    let _ = scene.apply(&scene.environment_manifest("heals", "  restart: always\n")).ok();
    let _ = scene.apply(&scene.environment_manifest("stays", "")).ok();
    is_ready(&scene, "env/heals", 1);
    is_ready(&scene, "env/stays", 1);
    scene.begin("r");
    dockerd.stop();
    scene.condition(&runtime, "Reachable", "False");
    for env in ["env/heals", "env/stays"] {
        // whatever became of them, it is not known before the daemon is back
        assert_eq!(scene.condition(env, "Ready", "Unknown").0, "Unreachable");
        assert_eq!(scene.get(env)["status"]["incarnation"], 1);
    }
    let (reason, message) = scene.complete("r");
    assert!(reason == "Failed" && message.contains("is gone"), "{reason} {message}");
    dockerd.start();
    scene.condition(&runtime, "Reachable", "True");
    is_ready(&scene, "env/heals", 2);
    let (reason, message) = scene.condition("env/stays", "Ready", "False");
    // a daemon that is stopped stops them first, which is heard of or is not
    assert!(["Stopped", "Exited"].contains(&reason.as_str()), "{reason}: {message}");
    // the run's is not made anew, and the share of what died is given back
    eventually("one box is there", LIMIT, || (dockerd.containers().len() == 1).then_some(()));
    eventually("one share is handed out", LIMIT, || (scene.get(&runtime)["status"]["containers"] == 1).then_some(()));
    let _ = scene.home.hmz(["delete", "env/heals", "env/stays"]).run().ok();
    dockerd.assert_empty();
}

#[test]
fn a_daemon_that_is_frozen_is_one_that_is_away() {
    let dockerd = Dockerd::new(&[]);
    let scene = dockerd.scene();
    let runtime = format!("runtime/docker:{}", scene.runtime);
    let _ = scene.apply(&scene.environment_manifest("e", "  restart: always\n")).ok();
    is_ready(&scene, "env/e", 1);
    let before = dockerd.containers();
    dockerd.signal(Signal::STOP);
    // what is declared meanwhile waits, and no verb does
    let _ = scene.apply(&scene.environment_manifest("later", "")).ok();
    // nothing tells of it: it is found by the next look, once that has waited for its answer
    eventually("what is on it is not known", 3 * LIMIT, || {
        (condition(&scene.get("env/e"), "Ready")?.0 == "Unknown").then_some(())
    });
    assert_eq!(scene.condition("env/e", "Ready", "Unknown").0, "Unreachable");
    let (_, said) = scene.condition(&runtime, "Reachable", "False");
    assert!(said.contains("no answer in 30 s"), "{said}");
    assert_eq!(scene.get("env/e")["status"]["incarnation"], 1);
    dockerd.signal(Signal::CONT);
    is_ready(&scene, "env/e", 1);
    is_ready(&scene, "env/later", 1);
    scene.condition(&runtime, "Reachable", "True");
    assert!(before.iter().all(|id| dockerd.containers().contains(id)));
    let _ = scene.home.hmz(["delete", "env/e", "env/later"]).run().ok();
    dockerd.assert_empty();
}
