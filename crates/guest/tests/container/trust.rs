//! Who may speak to whom, and what a command cannot reach.

use crate::harness::{Boxed, How, LIMIT, errno, eventually, prints, run, sh};
use hmz_wire::{ClientError, Fence, FromGuest, Reader, Status, ToGuest, VERSION, WireError, Writer, split};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A peer that speaks the protocol as it likes.
pub struct Raw {
    reader: Reader,
    writer: Writer,
    stream: UnixStream,
}

/// One that has said hello and heard its answer.
pub fn raw(it: &Boxed) -> Raw {
    let mut raw = unspoken(it);
    raw.writer.send(&ToGuest::Hello { version: VERSION, owner: false, fence: None }, &[]).expect("hello");
    assert!(matches!(raw.hear(), Some(FromGuest::Welcome(_))));
    raw
}

fn unspoken(it: &Boxed) -> Raw {
    let stream = UnixStream::connect(it.socket()).expect("connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a limit");
    let (reader, writer) = split(stream.try_clone().expect("clone")).expect("split");
    Raw { reader, writer, stream }
}

impl Raw {
    pub fn try_send(&self, message: &ToGuest) -> Result<(), WireError> {
        self.writer.send(message, &[])
    }

    fn hear(&mut self) -> Option<FromGuest> {
        self.reader.recv().ok().flatten().map(|(message, _)| message)
    }

    /// Reads what is left until the guest has ended the connection, in whatever way.
    pub fn ended(mut self) {
        loop {
            match self.reader.recv::<FromGuest>() {
                Ok(Some(_)) => {}
                Err(WireError::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("it goes on"),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

#[test]
fn broken_peers_are_dropped_and_others_served() {
    use std::io::Write;
    let it = Boxed::new();
    let client = it.client();
    // not a hello
    let raw_one = unspoken(&it);
    raw_one.try_send(&ToGuest::Ping(1)).expect("send");
    raw_one.ended();
    // another version
    let mut old = unspoken(&it);
    old.try_send(&ToGuest::Hello { version: VERSION + 1, owner: false, fence: None }).expect("send");
    assert!(matches!(old.hear(), Some(FromGuest::Refused(_))));
    old.ended();
    // a second hello
    let twice = raw(&it);
    twice.try_send(&ToGuest::Hello { version: VERSION, owner: false, fence: None }).expect("send");
    twice.ended();
    // an id used twice
    let again = raw(&it);
    for _ in 0..2 {
        again.try_send(&ToGuest::Spawn(hmz_wire::Spawn { id: 3, ..sh("sleep 1000") })).expect("send");
    }
    again.ended();
    // frames that are too large, cut, or noise
    for bytes in [&u32::MAX.to_le_bytes()[..], &[3, 0, 0, 0, 0xff, 0xff, 0xff], &[9, 0, 0, 0, 1], &[2, 0]] {
        let noise = raw(&it);
        (&noise.stream).write_all(bytes).expect("write");
        if bytes.len() < 7 {
            noise.stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
        }
        noise.ended();
    }
    // commands that do not exist
    let mut odd = raw(&it);
    odd.try_send(&ToGuest::Signal { id: 99, signal: 9 }).expect("send");
    odd.try_send(&ToGuest::Close { id: 99 }).expect("send");
    odd.try_send(&ToGuest::Ping(7)).expect("send");
    assert_eq!(odd.hear(), Some(FromGuest::Pong(7)));
    assert_eq!(prints(&client, sh("echo on")), "on");
    eventually("no process", || it.processes().is_empty());
}

#[test]
fn a_signal_that_is_none_does_nothing() {
    let it = Boxed::new();
    let client = it.client();
    let (command, _out) = crate::harness::piped(&client, sh("sleep 1000"));
    for signal in [0, -9, 65, i32::MAX] {
        command.signal(signal).expect("signal");
    }
    command.signal(libc::SIGKILL).expect("signal");
    assert_eq!(command.wait().expect("guest"), Ok(Status::Signaled(libc::SIGKILL)));
}

#[test]
fn peers_inside_the_box_are_turned_away() {
    let it = Boxed::start(&How { image: "python:3.12-slim", uid: 1234, lease: 0, docker: &[] });
    let client = it.client();
    let script = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/.hmz/run/g.sock')\ns.settimeout(30)\n\
                  try:\n  s.sendall(b'\\x04\\x00\\x00\\x00\\x00\\x01\\x00\\x00')\nexcept BrokenPipeError: pass\n\
                  try: print(len(s.recv(10)))\nexcept ConnectionResetError: print(0)";
    assert_eq!(prints(&client, crate::harness::words(&["python3", "-c", script])), "0");
}

#[test]
fn strangers_outside_are_turned_away() {
    // a connection made by a user who is neither root nor the box's
    let it = Boxed::start(&How { image: "busybox:latest", uid: 1234, lease: 0, docker: &[] });
    let dir = it.dir.path();
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
    std::fs::set_permissions(it.socket(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
    let script = "import socket,sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.settimeout(30)\n\
                  try: s.sendall(b'\\x04\\x00\\x00\\x00\\x00\\x01\\x00\\x00')\nexcept BrokenPipeError: pass\n\
                  try: print(len(s.recv(10)))\nexcept ConnectionResetError: print(0)";
    let probe = |uid: u32| {
        use std::os::unix::process::CommandExt;
        let out = std::process::Command::new("python3").args(["-c", script]).arg(it.socket()).uid(uid).gid(uid).output();
        out.expect("python3")
    };
    let out = probe(4321);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "0", "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn an_impostor_is_told_by_its_pid_and_those_there_go_on() {
    let it = Boxed::start(&How { image: "python:3.12-slim", uid: 1234, lease: 0, docker: &[] });
    let client = it.client();
    let script = "import os, socket\nos.unlink('/.hmz/run/g.sock')\ns = socket.socket(socket.AF_UNIX)\n\
                  s.bind('/.hmz/run/g.sock')\ns.listen()\nprint('up', flush=True)\ns.accept()[0].recv(1)";
    let (command, out) = crate::harness::piped(&client, crate::harness::words(&["python3", "-c", script]));
    let line = std::io::BufRead::lines(std::io::BufReader::new(&out)).next();
    assert_eq!(line.expect("a line").expect("up"), "up");
    match it.try_client(false, None) {
        Err(ClientError::Impostor { found, wanted }) => assert!(wanted == it.pid && found != wanted),
        other => panic!("{other:?}"),
    }
    assert_eq!(prints(&client, sh("echo on")), "on");
    command.close().expect("close");
}

#[test]
fn the_guest_cannot_be_read_or_traced_by_its_own_user() {
    for uid in [0, 1234] {
        let it = Boxed::start(&How { image: "python:3.12-slim", uid, lease: 0, docker: &[] });
        let client = it.client();
        let script = "import ctypes, os, subprocess, sys\n\
            c = ctypes.CDLL(None, use_errno=True)\n\
            def attempts(pid):\n\
            \x20 for name in ('mem', 'environ'):\n\
            \x20   try:\n\
            \x20     open(f'/proc/{pid}/{name}', 'rb').close()\n\
            \x20     yield name\n\
            \x20   except OSError: pass\n\
            \x20 try:\n\
            \x20   os.listdir(f'/proc/{pid}/fd')\n\
            \x20   os.readlink(f'/proc/{pid}/fd/0')\n\
            \x20   yield 'fd'\n\
            \x20 except OSError: pass\n\
            \x20 if c.ptrace(16, pid, 0, 0) == 0:\n\
            \x20   os.waitpid(pid, 0x40000000)\n\
            \x20   c.ptrace(17, pid, 0, 0)\n\
            \x20   yield 'ptrace'\n\
            child = subprocess.Popen(['sleep', '1000'])\n\
            print(list(attempts(1)), list(attempts(os.getppid())), 'environ' in list(attempts(child.pid)))\n\
            os.kill(child.pid, 9)";
        assert_eq!(prints(&client, crate::harness::words(&["python3", "-c", script])), "[] [] True", "uid {uid}");
    }
}

#[test]
fn the_fence_holds_for_a_command_and_all_it_starts() {
    let it = Boxed::start(&How { image: "busybox:latest", uid: 0, lease: 0, docker: &[] });
    assert_eq!(prints(&it.client(), sh("mkdir -p /work/sub /other; echo x >/other/f; ln -s /other /link; echo ok")), "ok");
    let client = it.fenced(&["/work", "/no/such", "/link", "relative"]);
    assert_eq!(client.welcome().fence, "full");
    let good = "echo 1 >/work/a && mkdir /work/sub/d && mv /work/a /work/sub/d/b && echo x >/dev/null && cat /other/f && \
                : >/dev/shm/s && rm /dev/shm/s && echo 0 >/proc/self/oom_score_adj";
    assert_eq!(prints(&client, sh(good)), "x");
    for bad in [
        "echo y >/other/f",
        ": >/other/new",
        "mkdir /other/d",
        "rm /other/f",
        "mv /work/sub /other/sub",
        "ln -s x /other/l",
        "mknod /other/p p",
    ] {
        let (status, text) = run(&client, sh(&format!("sh -c '{bad}'")));
        assert_ne!(status, Status::Exited(0), "{bad}: {text}");
    }
    assert_eq!(prints(&it.client(), sh("cat /other/f; ls /other")), "x\nf");
    // and another session has its own
    assert_eq!(prints(&it.fenced(&["/other"]), sh("echo z >/other/f; cat /other/f")), "z");
    assert_eq!(errno(&client, crate::harness::words(&["/no/such"])), libc::ENOENT);
}

#[test]
fn a_required_fence_that_cannot_be_had_is_refused() {
    // a system call filter that knows everything but Landlock
    let dir = tempfile::tempdir().expect("a directory");
    let filter = dir.path().join("filter.json");
    let calls = r#"["landlock_create_ruleset","landlock_add_rule","landlock_restrict_self"]"#;
    let text = format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{{"names":{calls},"action":"SCMP_ACT_ERRNO"}}]}}"#);
    std::fs::write(&filter, text).expect("write");
    let option = format!("seccomp={}", filter.display());
    let it = Boxed::start(&How { image: "busybox:latest", uid: 1234, lease: 0, docker: &["--security-opt", &option] });
    let fence = |required| Some(Fence { write: Vec::new(), required });
    assert!(matches!(it.try_client(false, fence(true)), Err(ClientError::Refused(_))));
    assert_eq!(it.try_client(false, fence(false)).expect("a session").welcome().fence, "none");
}

#[test]
fn nobody_gains_privileges() {
    let it = Boxed::start(&How { image: "busybox:latest", uid: 1234, lease: 0, docker: &[] });
    let client = it.client();
    assert_eq!(prints(&client, sh("grep NoNewPrivs /proc/self/status | tr -d '\\t'")), "NoNewPrivs:1");
}
