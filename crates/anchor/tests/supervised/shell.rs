//! `shell` and `exec`, from a process of their own.

use crate::Test;
use crate::container::{LIMIT, docker};
use crate::world::{TERMINAL, World, reading};
use hmz_anchor::exec::{self, Limits};
use hmz_wire::{Bytes, Client, Status};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("exec_bounds_what_it_keeps", exec_bounds_what_it_keeps),
    ("shell_without_a_terminal", shell_without_a_terminal),
    ("shell_on_a_terminal", shell_on_a_terminal),
    ("a_box_without_terminals_gets_one_of_ours", a_box_without_terminals_gets_one_of_ours),
    ("what_a_command_costs", what_a_command_costs),
];

/// `shell` as a program: a box's address as JSON, `tty` or `no`, the command.
pub fn main(args: &[String]) -> ExitCode {
    let address = serde_json::from_str(&args[0]).expect("an address");
    let argv = args[2..].iter().map(|a| Bytes::from(a.as_bytes())).collect();
    match hmz_anchor::tty::shell(&address, argv, args[1] == "tty") {
        Ok(Status::Exited(status)) => ExitCode::from(status as u8),
        Ok(Status::Signaled(signal)) => ExitCode::from(128 + signal as u8),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(99)
        }
    }
}

fn client(world: &World) -> Client {
    Client::open(&world.place.link, false, None).expect("a client")
}

fn words(argv: &[&str]) -> Vec<Bytes> {
    argv.iter().map(|a| Bytes::from(a.as_bytes())).collect()
}

fn exec_bounds_what_it_keeps(world: &World) {
    let client = client(world);
    let cwd = Path::new(&world.place.workdir);
    let run = |script: &str, limits| exec::run(&client, &words(&["sh", "-c", script]), cwd, &[("A".into(), "b".into())], limits);
    let out = run("echo $A; pwd; echo err >&2; cat; exit 3", Limits::default()).expect("it runs");
    assert_eq!((out.status, out.truncated, out.timed_out), (Status::Exited(3), false, false));
    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("b\n{}\n", world.place.workdir));
    assert_eq!(out.stderr, b"err\n");
    let small = Limits { output: 10, time: None };
    let out = run("yes | head -c 1000000; sleep 100 & exit 0", small).expect("it runs");
    assert_eq!((out.status, out.truncated, out.stdout.len()), (Status::Exited(0), true, 10));
    // a machine may be too slow to say a word within the first of these
    for time in [300, 3000, 30_000].map(Duration::from_millis) {
        let out = run("echo on; sleep 100", Limits { output: 10, time: Some(time) }).expect("it runs");
        assert_eq!((out.status, out.timed_out), (Status::Signaled(9), true));
        if !out.stdout.is_empty() {
            assert_eq!(out.stdout, b"on\n");
            break;
        }
        assert!(time < Duration::from_secs(30), "what it wrote before its time was over is lost");
    }
    assert!(exec::run(&client, &words(&["/no/such"]), cwd, &[], small).is_err());
    assert!(exec::run(&client, &[], cwd, &[], small).is_err());
}

fn command(world: &World, tty: &str, argv: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our path"));
    command.arg("run-shell").arg(serde_json::to_string(&world.place).expect("JSON")).arg(tty).args(argv);
    command
}

fn shell_without_a_terminal(world: &World) {
    let mut child = command(world, "no", &["sh", "-c", "cat; hostname; echo err >&2; exit 5"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"in\n").expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(5));
    assert_eq!((out.stdout.as_slice(), out.stderr.as_slice()), (&b"in\nthebox\n"[..], &b"err\n"[..]));
    // an input that never ends does not keep an ended command
    let mut child = command(world, "no", &["true"]).stdin(Stdio::piped()).spawn().expect("it starts");
    let _open = child.stdin.take();
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let mut child = command(world, "no", &["sh", "-c", "trap 'exit 6' TERM; echo on; while :; do sleep 0.05; done"]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = [0u8; 3];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("a line");
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(6));
    let out = command(world, "tty", &["true"]).stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(out.status.code(), Some(99));
}

/// Runs a python program that is told our program and the box's address; a terminal needs a session of its own around
/// it, which python makes.
fn around(world: &World, script: &str) -> String {
    let exe = std::env::current_exe().expect("our path");
    let place = serde_json::to_string(&world.place).expect("JSON");
    let mut child = Command::new("/usr/bin/python3");
    let mut child = child.args(["-c", script]).arg(exe).arg(place).stdout(Stdio::piped()).spawn().expect("python");
    let out = reading(child.stdout.take().expect("a pipe")).recv_timeout(LIMIT);
    if out.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    String::from_utf8(out.expect("it ends")).expect("text").trim_end().to_owned()
}

fn a_box_without_terminals_gets_one_of_ours(_: &World) {
    let world = World::with(0, "bare", &[]);
    docker(&["exec", &world.container, "rm", "/dev/ptmx"]);
    let script = "
import pty,os,sys
pid,fd=pty.fork()
if pid==0: os.execv(sys.argv[1],[sys.argv[1],'run-shell',sys.argv[2],'tty','sh','-c','test -t 0 && tty; hostname'])
got=b''
try:
    while more:=os.read(fd,4096): got+=more
except OSError: pass
print(got.split(), os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))";
    assert_eq!(around(&world, script), "[b'not', b'a', b'tty', b'thebox'] 0");
}

fn shell_on_a_terminal(world: &World) {
    let script = r#"
import re
pid,fd=pty.fork()
if pid==0:
    size(0,30,90)
    os.execv(sys.argv[1],[sys.argv[1],'run-shell',sys.argv[2],'tty','bash','--norc','--noprofile','-i'])
until(b'# ')
run(b"PS1='rea''dy> '")
got=run(b"test -t 0 && echo is'a'tty; hostname; stty size")
print(b'isatty' in got, b'thebox' in got, b'30 90' in got)
print(bool(termios.tcgetattr(fd)[3] & termios.ICANON))
# it has a name in the box, by which it is found there, and other programs' terminals come from the same place
got=run(b"tty; python3 -c 'import os; print(os.ttyname(0))'; echo by-name >$(tty); script -qc tty /dev/null")
print(len(re.findall(rb'(?<=[\r\n])/dev/pts/\d+\r',got)), b'\nby-name\r' in got)
size(fd,31,91)
end=time.time()+110
while b'31 91' not in run(b'stty size'): assert time.time()<end
print('resized')
os.write(fd,job); until(b'start'); os.write(fd,b'\x03'); until(b'ready> ')
print(b'rc=130' in run(b'echo rc=$?'))
os.write(fd,job); until(b'start'); os.write(fd,b'\x1a'); until(b'ready> ')
print(b'Stopped' in run(b'jobs'))
# a shell with a stopped job wants to be told twice
os.write(fd,b'exit 8\n'); until(b'ready> ')
os.write(fd,b'exit 9\n')
try:
    while os.read(fd,4096): pass
except OSError: pass
print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
a,b=pty.openpty(); before=termios.tcgetattr(b)
pid=os.fork()
if pid==0:
    os.dup2(b,0); os.execv(sys.argv[1],[sys.argv[1],'run-shell',sys.argv[2],'tty','sleep','100'])
end=time.time()+110
while termios.tcgetattr(b)==before and time.time()<end: time.sleep(0.01)
os.kill(pid,15); print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]), termios.tcgetattr(b)==before)
"#;
    assert_eq!(around(world, &[TERMINAL, script].concat()), "True True True\nFalse\n3 True\nresized\nTrue\nTrue\n9\n143 True");
}

/// Prints, and asserts nothing about time.
fn what_a_command_costs(world: &World) {
    let script = "import time,subprocess,os
def cost(n=300):
    t=[]
    for _ in range(n):
        a=time.perf_counter(); pid=os.posix_spawn('/bin/true',['true'],{}); os.waitpid(pid,0); t.append(time.perf_counter()-a)
    t.sort(); return '%.3f ms' % (t[n//2]*1000)
print(cost())";
    let native = Command::new("/usr/bin/python3").args(["-c", script]).output().expect("python");
    let native = String::from_utf8_lossy(&native.stdout).trim().to_owned();
    let redirected = world.python(script).good();
    let begin = Instant::now();
    for _ in 0..5 {
        docker(&["exec", &world.container, "/bin/true"]);
    }
    println!("native {native}, redirected {redirected}, docker exec {:.1} ms", begin.elapsed().as_secs_f64() * 200.0);
}
