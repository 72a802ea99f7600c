//! A docker daemon that is as good as another machine's (`tests/testbed/far`), with a way to it that is as long as one would be.

use super::command::Invocation;
use super::home::TestHome;
use super::{LIMIT, docker, eventually};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The daemon, and a home whose runtimes `tls` and `ssh` lead to it.
#[derive(Debug)]
pub struct Far {
    /// The home.
    pub home: TestHome,
    /// What the testbed says of it.
    pub place: BTreeMap<String, String>,
    /// The lines to the port with TLS and to that of ssh.
    pub lines: [Line; 2],
    /// What its runtimes say more, each `, FIELD: VALUE`.
    more: &'static str,
    /// A directory that only the daemon's machine has, as it has it and as it is seen from here.
    pub work: (PathBuf, PathBuf),
}

impl Far {
    /// A home, and lines on which every byte takes `delay` each way.
    pub fn new(delay: Duration) -> Self {
        Self::with(delay, |home| home)
    }

    /// The same with a home made so.
    pub fn with(delay: Duration, made: impl FnOnce(TestHome) -> TestHome) -> Self {
        Self::of("", delay, made)
    }

    /// The same of one of the testbed's other engines, which has every directory that is here. Empty: the daemon of this one.
    pub fn of(engine: &str, delay: Duration, made: impl FnOnce(TestHome) -> TestHome) -> Self {
        let testbed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testbed/far");
        let mut script = Invocation::new(testbed).args((!engine.is_empty()).then_some(engine));
        for name in ["PATH", "HOME", "HMZ_TESTBED_PULL", "HMZ_TESTBED_STATE", "HMZ_TESTBED_MIRROR"] {
            script = std::env::var_os(name).map_or(script.clone(), |value| script.env(name, value));
        }
        let out = script.limit(LIMIT * 5).run().ok().out();
        let place: BTreeMap<String, String> =
            out.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let port = |name: &str| place[name].rsplit(':').next().unwrap().parse().unwrap();
        let lines = [Line::to(port("tcp"), delay), Line::to(port("ssh_port"), delay)];
        let home = made(TestHome::new());
        let name = home.root().file_name().unwrap().to_str().unwrap().to_owned();
        let work = (Path::new("/srv").join(&name), Path::new(&place["files"]).join(&name));
        std::fs::create_dir(&work.1).unwrap();
        // podman does not tell whose a directory is
        let more = if engine == "podman" { ", exec_user: '0:0'" } else { "" };
        let far = Self { home, place, lines, more, work };
        far.home.settings(&far.settings());
        far
    }

    /// What a runtime says to be that daemon, over TLS.
    pub fn tls(&self) -> String {
        format!("endpoint: 'tcp://127.0.0.1:{}', tls_dir: {}", self.lines[0].port, self.place["tls"])
    }

    fn settings(&self) -> String {
        let at = |name: &str| &self.place[name];
        let (ssh, more) = (self.lines[1].port, self.more);
        format!(
            "runtimes:\n  docker:\n    tls: {{{}, harness: local{more}}}\n    \
             ssh: {{endpoint: 'ssh:far', harness: local{more}}}\n  ssh:\n    far:\n      host: 127.0.0.1\n      user: root\n      \
             port: {ssh}\n      identity_file: {}\n      config: /dev/null\n      options:\n        UserKnownHostsFile: {}\n        \
             IdentitiesOnly: 'yes'\n        IdentityAgent: none\n        HostKeyAlias: '[127.0.0.1]:{}'\n",
            self.tls(),
            at("ssh_key"),
            at("ssh_known_hosts"),
            at("ssh_port")
        )
    }

    /// That daemon's own socket, as docker is told it.
    pub fn socket(&self) -> String {
        format!("unix://{}", self.place["socket"])
    }

    /// `docker WORD…` on that daemon, by its own socket.
    #[track_caller]
    pub fn docker(&self, words: &[&str]) -> String {
        let host = self.socket();
        let mut asked = vec!["-H", &host];
        asked.extend(words);
        docker::docker(&asked)
    }

    /// The ids of this home's containers there.
    pub fn containers(&self) -> Vec<String> {
        let Some(label) = self.home.label() else { return Vec::new() };
        self.docker(&["ps", "-aq", "--no-trunc", "--filter", &format!("label={label}")]).lines().map(str::to_owned).collect()
    }

    /// Sees that nothing is left there, and of processes here nothing but our daemon and its ssh.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        eventually("no container is left", LIMIT, || self.containers().is_empty().then_some(()));
        let of_ours = || {
            let lines = self.home.processes().into_iter().map(super::processes::line);
            lines.filter(|line| !line.contains(" controller --background") && !line.starts_with("ssh ")).collect::<Vec<_>>()
        };
        eventually("no process is left", LIMIT, || of_ours().is_empty().then_some(()));
        let boxes = format!("/tmp/hmz-{}/{}", self.home.uid(), &self.home.label().unwrap()["hmz.instance=".len()..][..8]);
        let directories = || std::fs::read_dir(&boxes).into_iter().flatten().flatten().filter(|e| e.path().join("run").exists());
        eventually("no directory of a box is left", LIMIT, || (directories().count() == 0).then_some(()));
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for _ in 0..50 {
            let left = self.containers();
            if left.is_empty() {
                break;
            }
            let mut words = vec!["rm", "-fv"];
            words.extend(left.iter().map(String::as_str));
            let host = format!("unix://{}", self.place["socket"]);
            let path = std::env::var_os("PATH").unwrap_or_default();
            let _ = Invocation::new("docker").args(["-H", &host]).args(&words).env("PATH", path).run();
        }
        let _ = std::fs::remove_dir_all(&self.work.1);
    }
}

/// A line to a port of this machine, on which every byte takes its time each way.
#[derive(Debug)]
pub struct Line {
    /// Where it begins: a port of 127.0.0.1.
    pub port: u16,
    cut: Arc<Cut>,
}

#[derive(Debug, Default)]
struct Cut {
    is_cut: AtomicBool,
    made: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Line {
    fn to(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("its number").port();
        let cut = Arc::new(Cut::default());
        let state = Arc::clone(&cut);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if state.is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                state.made.fetch_add(1, Ordering::SeqCst);
                for stream in [&near, &far] {
                    let _ = stream.set_nodelay(true);
                    state.open.lock().unwrap().extend(stream.try_clone());
                }
                let (back_from, back_to) = (far.try_clone().expect("a handle"), near.try_clone().expect("a handle"));
                carry(near, far, delay);
                carry(back_from, back_to, delay);
            }
        });
        Self { port: own, cut }
    }

    /// Cuts it: what goes over it breaks, and nothing new comes through.
    pub fn cut(&self) {
        self.cut.is_cut.store(true, Ordering::SeqCst);
        for stream in self.cut.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Joins it again.
    pub fn join(&self) {
        self.cut.is_cut.store(false, Ordering::SeqCst);
    }

    /// How many connections have gone over it.
    pub fn made(&self) -> usize {
        self.cut.made.load(Ordering::SeqCst)
    }
}

/// What is on its way: the pieces, and when each is to arrive. An empty one is the end.
type OnItsWay = (Mutex<VecDeque<(Instant, Vec<u8>)>>, Condvar);

/// Copies what comes, each piece its delay after it came.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let way: Arc<OnItsWay> = Arc::default();
    let reader = Arc::clone(&way);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let len = from.read(&mut buffer).unwrap_or(0);
            reader.0.lock().unwrap().push_back((Instant::now() + delay, buffer[..len].to_vec()));
            reader.1.notify_one();
            if len == 0 {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        loop {
            let mut pieces = way.0.lock().unwrap();
            let (at, piece) = loop {
                match pieces.pop_front() {
                    Some(next) => break next,
                    None => pieces = way.1.wait(pieces).unwrap(),
                }
            };
            drop(pieces);
            // the length of the line
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if piece.is_empty() || to.write_all(&piece).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    });
}
