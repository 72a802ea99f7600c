//! What a kernel or a container does not give is said in one sentence, before the CLI starts.
//!
//! Each cause is a real one: the supervisor runs under a seccomp filter of the test's, which answers the one call it needs
//! as an older kernel does, or a container whose profile forbids it.

use crate::Test;
use crate::world::{Ended, Session, World};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

pub const TESTS: &[Test] = &[
    ("without_landlock_nothing_starts", without_landlock_nothing_starts),
    ("without_descriptors_put_in_nothing_starts", without_descriptors_put_in_nothing_starts),
    ("without_tracing_nothing_starts", without_tracing_nothing_starts),
    ("without_a_listener_nothing_starts", without_a_listener_nothing_starts),
    ("without_landlock_in_the_box_nothing_starts", without_landlock_in_the_box_nothing_starts),
];

/// A system call that is answered with an error; with `second`, only when its second argument is that.
struct Missing {
    number: i64,
    second: Option<u64>,
    errno: i32,
}

impl Missing {
    fn call(number: i64, errno: i32) -> Self {
        Self { number, second: None, errno }
    }

    /// A program that becomes the one of the tests where that call is missing.
    fn wrapper(&self, world: &World) -> PathBuf {
        let second = self.second.map_or("None".to_owned(), |value| value.to_string());
        let script = format!(
            r#"#!/usr/bin/python3 -I
import ctypes,os,struct,sys
step=lambda code,jt,jf,k: struct.pack('HBBI',code,jt,jf,k)
number,second,errno={},{second},{}
# the number is at 0, the lower half of the second argument at 24
steps=[step(0x20,0,0,0), step(0x15,0,1 if second is None else 3,number)]
if second is not None: steps+=[step(0x20,0,0,24), step(0x15,0,1,second)]
steps+=[step(6,0,0,0x50000|errno), step(6,0,0,0x7fff0000)]
filter=ctypes.create_string_buffer(b''.join(steps))
class Program(ctypes.Structure): _fields_=[('len',ctypes.c_ushort),('filter',ctypes.c_void_p)]
program=Program(len(steps),ctypes.addressof(filter))
libc=ctypes.CDLL(None,use_errno=True)
assert libc.prctl(38,1,0,0,0)==0 and libc.prctl(22,2,ctypes.byref(program))==0, ctypes.get_errno()
os.execv('{}',['hmz']+sys.argv[1:])
"#,
            self.number,
            self.errno,
            world.exe.display()
        );
        let path = world.path(&format!("without-{}-{}", self.number, self.errno));
        std::fs::write(&path, script).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        path
    }

    /// How a session ends under it; the CLI would leave a file.
    fn session(&self, world: &World) -> Ended {
        let config = world.config("/usr/bin/python3", &["-c", "open('started','w')"]);
        let ended = Session::start_with(&self.wrapper(world), &config, |_| {}).end(b"");
        assert!(!world.work("started").exists(), "the CLI was started: {ended:?}");
        ended
    }
}

/// The one line it says.
#[track_caller]
fn said(ended: &Ended, code: i32) -> &str {
    assert_eq!((ended.status.code(), ended.out.as_str()), (Some(code), ""), "{ended:?}");
    let line = ended.err.trim_end();
    assert!(!line.contains('\n'), "more than a line: {ended:?}");
    line.strip_prefix("hmz supervisor: error: ").expect("an error")
}

fn without_landlock_nothing_starts(world: &World) {
    for (errno, why) in [
        (libc::ENOSYS, "it is older than 5.13"),
        (libc::EOPNOTSUPP, "they were switched off when it was started"),
        (libc::EPERM, "Operation not permitted (os error 1)"),
    ] {
        let ended = Missing::call(libc::SYS_landlock_create_ruleset, errno).session(world);
        assert_eq!(said(&ended, 2), format!("the agent would not be fenced: this kernel holds no Landlock rules ({why})"));
    }
}

fn without_descriptors_put_in_nothing_starts(world: &World) {
    for (errno, why) in [(libc::EINVAL, "it is older than 5.9"), (libc::EPERM, "Operation not permitted (os error 1)")] {
        let missing = Missing { number: libc::SYS_ioctl, second: Some(libc::SECCOMP_IOCTL_NOTIF_ADDFD), errno };
        let wanted = format!("the agent's commands cannot be redirected: this kernel puts no descriptors into them ({why})");
        assert_eq!(said(&missing.session(world), 2), wanted);
    }
}

fn without_tracing_nothing_starts(world: &World) {
    let ended = Missing::call(libc::SYS_ptrace, libc::EPERM).session(world);
    let wanted = "the agent's commands cannot be redirected: this kernel lets nobody trace it (EPERM: Operation not permitted)";
    assert_eq!(said(&ended, 2), wanted);
}

fn without_a_listener_nothing_starts(world: &World) {
    for errno in [libc::ENOSYS, libc::EINVAL] {
        let ended = Missing::call(libc::SYS_seccomp, errno).session(world);
        let why = std::io::Error::from_raw_os_error(errno);
        let wanted = format!("the agent's commands cannot be redirected: this kernel gives no seccomp listener ({why})");
        assert_eq!(said(&ended, 2), wanted);
    }
}

fn without_landlock_in_the_box_nothing_starts(_: &World) {
    let profile =
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["landlock_create_ruleset"],"action":"SCMP_ACT_ERRNO"}]}"#;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("profile.json");
    std::fs::write(&path, profile).expect("a file");
    let world = World::with(0, "unfenced", &["--security-opt", &format!("seccomp={}", path.display())]);
    let config = world.config("/usr/bin/python3", &["-c", "open('started','w')"]);
    let ended = Session::start(&config).end(b"");
    assert_eq!(said(&ended, 1), "the box's guest refused: the kernel of the box cannot hold the fence of the session (none)");
    assert!(!world.work("started").exists(), "the CLI was started: {ended:?}");
}
