//! What a command in a box cannot do there.

use crate::support::docker;
use crate::support::home::TestHome;
use crate::support::runs::{boxed_in, environment, exec, flow, results, script, sh};
use crate::support::user::User;

/// An image with a python that is root's and setuid. It goes with the test's end.
struct SetuidImage(String);

impl SetuidImage {
    fn make() -> Self {
        let name = format!("hmz-test-suid-{}", std::process::id());
        let install =
            "cp $(readlink -f /usr/local/bin/python3) /usr/local/bin/root-python && chmod 4755 /usr/local/bin/root-python";
        docker::docker(&["run", "--name", &name, "--label", "hmz-test=suid", "python:3.12-slim", "/bin/sh", "-c", install]);
        docker::docker(&["commit", &name, &format!("{name}:latest")]);
        docker::docker(&["rm", "-f", &name]);
        Self(name)
    }

    fn name(&self) -> String {
        format!("{}:latest", self.0)
    }
}

impl Drop for SetuidImage {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rmi", "-f", &self.name()]).output();
    }
}

const WHO: &str = "root-python -c 'import os; print(*os.getresuid())'";

#[test]
fn a_setuid_program_gains_nothing() {
    let image = SetuidImage::make();
    let bare =
        docker::docker(&["run", "--rm", "--user", "1234", "--label", "hmz-test=suid", &image.name(), "/bin/sh", "-c", WHO]);
    assert_eq!(bare, "1234 0 0", "the program of the test gains root where nothing is in its way");
    let user = User::get();
    let home = TestHome::of(user);
    let project = home.project("p");
    let uid = user.uid;
    let nothing = format!("{uid} {uid} {uid}");
    environment(&home, "e", &image.name(), &project);
    assert_eq!(sh(&home, "e", WHO).run().ok().out().trim(), nothing);
    // and what is started beside the guest
    let id = home.containers().pop().unwrap();
    assert_eq!(docker::docker(&["exec", &id, "/bin/sh", "-c", WHO]), nothing);
    let about = sh(&home, "e", "grep -e ^Cap -e ^NoNewPrivs -e ^Seccomp: /proc/1/status; cat /proc/self/status").run().ok().out();
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert_eq!(about.lines().filter(|l| *l == line).count(), 2, "{line}: {about}");
    }
    boxed_in(&home, "suid", &image.name());
    let agent = script(&home, "suid", &format!("- run: {}\n", serde_json::json!(WHO)));
    let finished = exec(&home, "suid", &agent, &project, "go").arg("--json").run().ok();
    assert_eq!(results(&finished)[0].trim(), nothing);
}

#[test]
fn an_agents_command_writes_the_workdir_and_temporary_files_only() {
    let home = TestHome::new();
    let project = home.project("p");
    let command = "id -u; pip install --no-index nothing 2>/dev/null; for f in /usr/local/lib/python3.12/site-packages/evil.py /usr/bin/evil \
                   /etc/passwd /bin/sh /.hmz/run/evil /.hmz/hmz /evil /root/evil; do (echo x >>$f) 2>/dev/null && echo wrote $f; done; \
                   rm /.hmz/run/g.sock 2>/dev/null && echo removed; mv /.hmz/run/g.sock /.hmz/run/h 2>/dev/null && echo moved; \
                   for f in good /tmp/good /var/tmp/good $TMPDIR/good /dev/shm/good /dev/null; do echo x >$f || echo cannot $f; done; \
                   grep CapBnd /proc/self/status; mount -t tmpfs none /mnt 2>/dev/null && echo mounted; mknod /tmp/sda b 8 0 2>/dev/null && echo made";
    let agent = script(&home, "fence", &format!("- run: {}\n", serde_json::json!(command)));
    let finished = exec(&home, "boxed", &agent, &project, "go").arg("--json").run().ok();
    assert_eq!(results(&finished)[0].trim(), "0\nCapBnd:\t00000000000004fb", "{finished}");
    assert_eq!(project.read("good"), "x\n");
}

/// Tries all that a process may do to another one, on each that is not its own or its ancestor's, and prints what worked.
const ATTACK: &str = r"
import ctypes, glob, json, os, signal, socket, sys
c = ctypes.CDLL(None, use_errno=True)
def parent(pid): return int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
mine, pid = set(), os.getpid()
while pid > 1: mine.add(pid); pid = parent(pid)
others = sorted(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) not in mine)
spawner = [p for p in mine if parent(p) == 1][0]
done = []
def attempt(what, f):
    try:
        f(); done.append(what)
    except OSError: pass
def trace(pid):
    if c.ptrace(16, pid, 0, 0): raise OSError(ctypes.get_errno())
    os.waitpid(pid, 0x40000000); c.ptrace(17, pid, 0, 0)
def readv(pid):
    class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
    local = ctypes.create_string_buffer(8)
    for line in open(f'/proc/{pid}/maps'):
        if c.process_vm_readv(pid, ctypes.byref(V(ctypes.addressof(local), 8)), 1, ctypes.byref(V(int(line.split('-')[0], 16), 8)), 1, 0) == 8: return
    raise OSError
for pid in others + [spawner]:
    for name in ('mem', 'environ', 'maps'): attempt(f'{name} {pid}', lambda: open(f'/proc/{pid}/{name}', 'rb').read(1))
    attempt(f'fd {pid}', lambda: os.readlink(f'/proc/{pid}/fd/0'))
    attempt(f'cwd {pid}', lambda: os.listdir(f'/proc/{pid}/root'))
    attempt(f'trace {pid}', lambda: trace(pid))
    attempt(f'readv {pid}', lambda: readv(pid))
    attempt(f'pidfd {pid}', lambda: c.syscall(438, os.pidfd_open(pid), 0, 0) >= 0 or (_ for _ in ()).throw(OSError()))
for pid in others:
    attempt(f'see {pid}', lambda: os.kill(pid, 0))
    attempt(f'kill {pid}', lambda: os.kill(pid, signal.SIGKILL))
def ask(path):
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(path)
    try:
        s.sendall(b'\x04\x00\x00\x00\x00\x01\x00\x00')
        if not s.recv(1): raise OSError
    except OSError: raise OSError
for path in ['/.hmz/run/g.sock', '/var/run/docker.sock', '/run/docker.sock', *sys.argv[1:]]: attempt(f'ask {path}', lambda: ask(path))
seen = [line.split()[-1] for line in open('/proc/net/unix') if '/' in line]
done += [f'socket {path}' for path in seen if 'g.sock' not in path]
print(json.dumps([len(others), done]))
";

#[test]
fn a_command_reaches_neither_the_guest_nor_another_session_nor_a_socket() {
    for user in [None, Some(User::get())] {
        let home = user.map_or_else(TestHome::new, TestHome::of);
        let project = home.project("p");
        project.write("attack.py", ATTACK);
        home.give_to_user(project.dir());
        flow(
            &home,
            "two",
            "agents: {a: {}, b: {}}\nenvironments: {box: {image: \"python:3.12-slim\"}}\nsteps:\n  - turn: {agent: a, environment: box, prompt: \
             one}\n  - turn: {agent: b, environment: box, prompt: two}\n  - turn: {agent: a, environment: box, prompt: three}",
        );
        let find = crate::support::command::Invocation::new("find").arg(home.root().join("run")).args(["-name", "api.sock"]);
        let _ = home.hmz(["get", "runs"]).run().ok();
        let api = find.env("PATH", "/usr/bin:/bin").run().ok().out().trim().to_owned();
        assert!(api.ends_with("api.sock"), "{api}");
        let a = script(&home, "a", "- - run: sleep 4242 >/dev/null 2>&1 & echo one\n- - run: ps >/dev/null 2>&1; echo again\n");
        let b = script(&home, "b", &format!("- run: python3 attack.py {api}\n  expect_status: 0\n"));
        let place = format!("box=docker@here{}", project.path());
        let words = ["exec", "-f", "two", "-a", &format!("a={a}"), "-a", &format!("b={b}"), "-e", &place, "--json", "go"];
        let finished = home.hmz(words).run().ok();
        let said = results(&finished);
        let (others, done): (usize, Vec<String>) =
            serde_json::from_str(said[1].trim()).unwrap_or_else(|e| panic!("{e} {said:?}"));
        // the first process, the run's own spawner, the other session's with what it left running
        assert!(others >= 4, "{said:?}");
        assert!(done.is_empty(), "uid {}: {done:?}", home.uid());
        assert_eq!(said[2].trim(), "again", "the other session goes on");
    }
}
