//! Sessions end as the CLI ended, and nothing is left of them, whoever dies.

use crate::Test;
use crate::container::eventually;
use crate::world::{Session, World, signal_of};
use hmz_api::launch::Told;
use hmz_api::link::Link;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub const TESTS: &[Test] = &[
    ("statuses_are_the_clis", statuses_are_the_clis),
    ("signals_reach_the_cli", signals_reach_the_cli),
    ("a_closed_output_is_seen", a_closed_output_is_seen),
    ("what_the_cli_leaves_is_swept", what_the_cli_leaves_is_swept),
    ("the_lifeline_ends_everything", the_lifeline_ends_everything),
    ("the_guardians_death_ends_everything", the_guardians_death_ends_everything),
    ("the_supervisors_death_ends_everything", the_supervisors_death_ends_everything),
    ("a_box_that_cannot_be_had_starts_nothing", a_box_that_cannot_be_had_starts_nothing),
    ("a_box_may_come_later", a_box_may_come_later),
    ("wrong_configurations_start_nothing", wrong_configurations_start_nothing),
];

/// A CLI that leaves processes everywhere: in the box, in a session of its own here, and as an orphan. All carry `mark`.
fn spreading(mark: &str, last: &str) -> String {
    format!(
        "import os,sys,subprocess,time,signal
subprocess.Popen(['sh','-c','sleep 7171; : {mark}'])
subprocess.Popen(['sh','-c','sleep 7172; : {mark}'],start_new_session=True)
code='import time; time.sleep(7173)'
subprocess.Popen([sys.executable,'-c',code,'{mark}'],start_new_session=True)
if os.fork()==0:
    os.setsid()
    if os.fork()==0: os.execv(sys.executable,['python3','-c',code,'{mark}'])
    os._exit(0)
os.wait()
r=subprocess.run(['sh','-c','echo ready'],stdout=subprocess.PIPE); open('ready-{mark}','wb').write(r.stdout)
{last}"
    )
}

/// A word that nothing else on this machine has in its command line.
fn unique(world: &World, mark: &str) -> String {
    format!("{mark}-{}", world.container)
}

/// The processes here that carry it. Those of the box are seen from here too, in a pid namespace of their own, and end a
/// moment after the session.
fn marked(mark: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let space = |process: &std::path::Path| std::fs::read_link(process.join("ns/pid")).ok();
    let here = space(std::path::Path::new("/proc/self"));
    let all = std::fs::read_dir("/proc").expect("proc").flatten().filter(|e| e.file_name().to_str() != Some(own.as_str()));
    let lines = all.filter(|e| space(&e.path()) == here).filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).replace('\0', " ")).filter(|l| l.contains(mark)).collect()
}

fn spread(world: &World, mark: &str, last: &str) -> Session {
    let script = spreading(mark, last);
    let mut config = world.config("/usr/bin/python3", &["-c", &script]);
    if let Link::Stream(link) = &mut config.place.link {
        // a box there finds out after that time; one that finds out too soon has nothing left either
        link.window_ms = 3_000;
    }
    let session = Session::start(&config);
    eventually("the CLI has spread", || world.work(&format!("ready-{mark}")).exists());
    session
}

fn nothing_left(world: &World, mark: &str) {
    eventually("no process here", || marked(mark).is_empty());
    eventually("no process in the box", || world.in_box().is_empty());
}

fn statuses_are_the_clis(world: &World) {
    assert_eq!(world.python("sys.exit(7)").status.code(), Some(7));
    assert_eq!(signal_of(world.python("os.kill(os.getpid(),9)").status), Some(9));
    assert_eq!(signal_of(world.python("os.kill(os.getpid(),11)").status), Some(11));
}

fn signals_reach_the_cli(world: &World) {
    for (signal, name) in [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT"), (libc::SIGHUP, "SIGHUP")] {
        let mark = format!("signal{signal}");
        let _ = std::fs::remove_file(world.work(&format!("ready-{mark}")));
        let script = format!(
            "import signal,time,os
def on(n,f): os._exit(40+n)
signal.signal(signal.{name},on)
open('ready-{mark}','w')
while True: time.sleep(1)"
        );
        let session = Session::start(&world.config("/usr/bin/python3", &["-c", &script]));
        eventually("it listens", || world.work(&format!("ready-{mark}")).exists());
        kill(session.pid(), signal);
        assert_eq!(session.end(b"").status.code(), Some(40 + signal));
    }
}

fn kill(pid: i32, signal: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).expect("a signal")).expect("it is there");
}

fn what_the_cli_leaves_is_swept(world: &World) {
    let mark = &unique(world, "swept");
    let session = spread(world, mark, "sys.exit(3)");
    assert_eq!(session.end(b"").status.code(), Some(3));
    assert_eq!(marked(mark), Vec::<String>::new());
    nothing_left(world, mark);
}

fn the_lifeline_ends_everything(world: &World) {
    let mark = &unique(world, "lifeline");
    let mut session = spread(world, mark, "time.sleep(1000)");
    session.lifeline = None;
    let ended = session.end(b"");
    assert!(!ended.status.success());
    assert_eq!(marked(mark), Vec::<String>::new());
    nothing_left(world, mark);
}

fn the_guardians_death_ends_everything(world: &World) {
    let mark = &unique(world, "guardian");
    let session = spread(world, mark, "time.sleep(1000)");
    kill(session.pid(), libc::SIGKILL);
    assert_eq!(signal_of(session.end(b"").status), Some(9));
    nothing_left(world, mark);
}

fn the_supervisors_death_ends_everything(world: &World) {
    let mark = &unique(world, "supervisor");
    let session = spread(world, mark, "time.sleep(1000)");
    let pid = session.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    kill(children.trim().parse().expect("one child"), libc::SIGKILL);
    assert!(!session.end(b"").status.success());
    nothing_left(world, mark);
}

fn a_box_that_cannot_be_had_starts_nothing(world: &World) {
    let mut config = world.config("/usr/bin/python3", &["-c", "open('started','w')"]);
    let Link::Direct { socket, pid } = config.place.link.clone() else { panic!("a box of this machine") };
    config.place.link = Link::Direct { socket, pid: 1 };
    let ended = Session::start(&config).end(b"");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.err.contains("is not its guest's"), "{ended:?}");
    config.place.link = Link::Direct { socket: "/nonexistent".into(), pid };
    assert_eq!(Session::start(&config).end(b"").status.code(), Some(1));
    assert!(!world.work("started").exists());
}

/// The CLI is at work before its box is there, and its first command waits for that.
fn a_box_may_come_later(world: &World) {
    let script =
        "import subprocess\nopen('begun','w')\nprint(subprocess.run(['hostname'], capture_output=True, text=True).stdout)";
    let mut config = world.config("/usr/bin/python3", &["-c", script]);
    let file = world.path("boxes.json");
    config.place.link = Link::Awaited { file: file.display().to_string(), role: "box".into() };
    let session = Session::start(&config);
    eventually("the CLI's first work", || world.work("begun").exists());
    let told = Told::Up(BTreeMap::from([("box".to_owned(), world.place.clone())]));
    say(&file, &told);
    let ended = session.end(b"");
    assert!(ended.status.success() && ended.out.trim() == "thebox", "{ended:?}");
    std::fs::remove_file(world.work("begun")).expect("a file");
    std::fs::remove_file(&file).expect("a file");
    // one that does not come up fails the commands, and not the CLI
    let script = "import subprocess\ntry:\n subprocess.run(['hostname'])\nexcept OSError as e:\n print(e.errno)";
    let mut config = world.config("/usr/bin/python3", &["-c", script]);
    config.place.link = Link::Awaited { file: file.display().to_string(), role: "box".into() };
    let session = Session::start(&config);
    say(&file, &Told::Down { outcome: hmz_api::journal::Outcome::Failed, message: "no such runtime".into() });
    let ended = session.end(b"");
    assert!(ended.status.success() && ended.out.trim() == libc::EIO.to_string(), "{ended:?}");
    assert!(ended.err.contains("no such runtime"), "{ended:?}");
    std::fs::remove_file(&file).expect("a file");
}

fn say(file: &Path, told: &Told) {
    let part = file.with_extension("part");
    std::fs::write(&part, serde_json::to_vec(told).expect("JSON")).expect("a file");
    std::fs::rename(part, file).expect("a file");
}

fn wrong_configurations_start_nothing(world: &World) {
    let mut config = world.config("/nonexistent/cli", &[]);
    let ended = Session::start(&config).end(b"");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.err.contains("/nonexistent/cli"), "{ended:?}");
    config.cwd = "/nonexistent".into();
    assert_eq!(Session::start(&config).end(b"").status.code(), Some(2));
    let exe = std::env::current_exe().expect("our path");
    let mut supervised = hmz_anchor::launch::supervised(&exe).expect("a command");
    let mut child =
        supervised.command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&[4, 0, 0, 0, b'n', b'o', b'p', b'e']).expect("it reads");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

fn a_closed_output_is_seen(world: &World) {
    let script = "import os,time; os.close(1); open('closed','w'); time.sleep(1000)";
    let mut session = Session::start(&world.config("/usr/bin/python3", &["-c", script]));
    // the end of the output comes while the CLI still runs
    assert_eq!(session.output(), b"");
    assert!(session.child.try_wait().expect("a wait").is_none());
    session.lifeline = None;
    session.child.wait().expect("it ends");
}
