//! What a waiting exec would leave its stand-in, told before there is one: its box can begin while the stand-in starts.
//!
//! It tells the plain case alone, exactly, or nothing: one thread, no leader of a session (it may own a terminal, which a
//! stand-in has to give up), few descriptors. Of everything else the stand-in tells itself.

use crate::arguments::Strings;
use crate::hello::Introduction;
use crate::sys;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that are looked at. Each costs a file's reading, and the stand-in lists those that are left in one call.
const MAX_LOOKED_AT: usize = 12;

/// Longest file that is read here, in bytes.
const MAX_TEXT: usize = 4096;

/// What an exec leaves, but for its strings and descriptors.
#[derive(Debug)]
pub(crate) struct Around {
    state: State,
    cwd: Vec<u8>,
}

impl Around {
    /// What the exec of thread `tid` leaves. `None`: ask the stand-in.
    pub(crate) fn of(tid: i32) -> Option<Self> {
        let open = |name: &str| openat(CWD, format!("/proc/{tid}/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let state = State::of(&whole(&open("status")?)?)?;
        let cwd = readlinkat(CWD, format!("/proc/{tid}/cwd"), Vec::with_capacity(256)).ok()?.into_bytes();
        // one that was removed has such a name, and is none
        (cwd.starts_with(b"/") && !cwd.ends_with(b" (deleted)")).then_some(Self { state, cwd })
    }

    /// As the stand-in would introduce itself.
    pub(crate) fn introduce(self, strings: Strings, fds: Descriptors) -> Introduction {
        let Self { state: State { umask, blocked, ignored }, cwd } = self;
        Introduction { argv: strings.argv, env: strings.env, cwd, umask, blocked, ignored, ctty: None, fds, rest: Vec::new() }
    }
}

/// What stays open, by number.
pub(crate) type Descriptors = Vec<(i32, OwnedFd)>;

/// The descriptors that the exec of thread `tid` leaves open. `None`: ask the stand-in.
pub(crate) fn descriptors(tid: i32) -> Option<Descriptors> {
    let pid = Pid::from_raw(tid)?;
    // what is put into it has to have a number, or the exec would fail when its command has begun
    if sys::limit(tid, libc::RLIMIT_NOFILE)? < MAX_LOOKED_AT as u64 + 2 {
        return None;
    }
    // no leader of its threads, no descriptor
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let own = openat(CWD, format!("/proc/{tid}"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // another thread could change them meanwhile, and have ended when the threads are counted with the rest
    if !has_one_thread(own.as_fd()) {
        return None;
    }
    let count = count(own.as_fd());
    if count.is_some_and(|count| count > MAX_LOOKED_AT) {
        return None;
    }
    staying(own.as_fd(), process.as_fd(), count)
}

/// What a process's `status` says.
#[derive(Debug, PartialEq, Eq)]
struct State {
    umask: u32,
    blocked: u64,
    ignored: u64,
}

impl State {
    /// `None` when it has more than one thread, whose ends the others' exec is, leads a session, or does not say all.
    ///
    /// The session is read here and not asked of the kernel: one that was begun outside of this pid namespace is number 0,
    /// which rustix takes for no answer a kernel gives.
    fn of(status: &str) -> Option<Self> {
        let (mut umask, mut threads, mut blocked, mut ignored) = (None, None, None, None);
        let (mut ids, mut session) = (None, None);
        for line in status.lines() {
            let Some((name, value)) = line.split_once(":\t") else { continue };
            match name {
                "Umask" => umask = u32::from_str_radix(value, 8).ok(),
                "Threads" => threads = value.parse::<u32>().ok(),
                // a number for each pid namespace
                "NSpid" => ids = Some(value),
                "NSsid" => session = Some(value),
                "SigBlk" => blocked = u64::from_str_radix(value, 16).ok(),
                "SigIgn" => ignored = u64::from_str_radix(value, 16).ok(),
                _ => {}
            }
        }
        (threads? == 1 && session? != ids?).then_some(Self { umask: umask?, blocked: blocked?, ignored: ignored? })
    }
}

/// The whole of a small file of the kernel's.
fn whole(file: &OwnedFd) -> Option<String> {
    let mut bytes = vec![0; MAX_TEXT];
    let len = rustix::io::read(file, &mut bytes).ok()?;
    bytes.truncate(len);
    // what fills the buffer may be longer
    (len < MAX_TEXT).then(|| String::from_utf8(bytes).ok())?
}

/// What an `fdinfo` begins with: where the descriptor is in its file, and its flags.
fn beginning(info: &OwnedFd) -> Option<[u8; 64]> {
    let mut bytes = [0; 64];
    rustix::io::read(info, &mut bytes).ok().map(|_| bytes)
}

/// Whether a process has one thread: the links of its list of them are two more.
fn has_one_thread(own: BorrowedFd<'_>) -> bool {
    rustix::fs::statat(own, "task", AtFlags::empty()).is_ok_and(|found| found.st_nlink == 3)
}

/// How many descriptors are open; `None` where the kernel does not tell (before 6.2).
fn count(own: BorrowedFd<'_>) -> Option<usize> {
    let size = rustix::fs::statat(own, "fd", AtFlags::empty()).ok()?.st_size;
    usize::try_from(size).ok().filter(|&count| count > 0)
}

/// The descriptors that the exec leaves open, in the order of their numbers; `count` are open.
fn staying(own: BorrowedFd<'_>, process: BorrowedFd<'_>, count: Option<usize>) -> Option<Descriptors> {
    let infos = openat(own, "fdinfo", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut found = Vec::new();
    // what the exec closes is none, and what cannot be taken is nothing to be told
    let take = |number: i32, info: &OwnedFd| match stays(&beginning(info)?)? {
        true => Some(Some((number, pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()?))),
        false => Some(None),
    };
    // they most often are the lowest numbers, and a list takes longer than the asking
    let mut seen = 0;
    for number in 0..2 * count.unwrap_or(0) as i32 {
        match openat(&infos, number.to_string(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(info) => {
                found.extend(take(number, &info)?);
                seen += 1;
            }
            Err(Errno::NOENT) => {}
            Err(_) => return None,
        }
        if Some(seen) == count {
            return Some(found);
        }
    }
    found.clear();
    for number in list(infos.as_fd())? {
        let info = openat(&infos, number.to_string(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        found.extend(take(number, &info)?);
    }
    Some(found)
}

/// The numbers in a directory of descriptors.
fn list(infos: BorrowedFd<'_>) -> Option<Vec<i32>> {
    let mut numbers = Vec::with_capacity(MAX_LOOKED_AT);
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(infos, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        if let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) {
            if numbers.len() == MAX_LOOKED_AT {
                return None;
            }
            numbers.push(number);
        }
    }
    Some(numbers)
}

/// Whether a descriptor's `fdinfo` says that it outlives an exec.
fn stays(info: &[u8]) -> Option<bool> {
    // a last line may be cut
    let flags = info.split_inclusive(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"flags:")?.strip_suffix(b"\n"))?;
    let flags = u32::from_str_radix(std::str::from_utf8(flags).ok()?.trim(), 8).ok()?;
    Some(flags & OFlags::CLOEXEC.bits() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUmask:\t0027\nNSpid:\t10\t3\nNSsid:\t1\t0\nThreads:\t1\nSigBlk:\t0000000000000001\nSigIgn:\t8000000000000200\n";

    #[test]
    fn a_status_is_told_whole_or_not() {
        let state = State { umask: 0o27, blocked: 1, ignored: 0x8000_0000_0000_0200 };
        assert_eq!(State::of(STATUS), Some(state));
        assert_eq!(State::of(&STATUS.replace("Threads:\t1", "Threads:\t2")), None);
        assert_eq!(State::of(&STATUS.replace("NSsid:\t1\t0", "NSsid:\t10\t3")), None);
        for name in ["Umask", "NSpid", "NSsid", "Threads", "SigBlk", "SigIgn"] {
            assert_eq!(State::of(&STATUS.replace(name, "Other")), None, "{name}");
        }
    }

    #[test]
    fn what_is_closed_by_an_exec_does_not_stay() {
        assert_eq!(stays(b"pos:\t0\nflags:\t0100002\n"), Some(true));
        assert_eq!(stays(b"pos:\t0\nflags:\t02100002\nmnt_id:\t1"), Some(false));
        assert_eq!(stays(b"pos:\t0\nflags:\t02"), None);
        assert_eq!(stays(b"pos:\t0\n"), None);
    }

    #[test]
    fn of_many_descriptors_nothing_is_told() {
        let own = |name| openat(CWD, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("this process");
        let _more: Vec<_> = (0..=MAX_LOOKED_AT).map(|_| own("/dev/null")).collect();
        let told = count(own("/proc/self").as_fd());
        assert!(told.is_none_or(|count| count > MAX_LOOKED_AT), "{told:?}");
        assert!(staying(own("/proc/self").as_fd(), process.as_fd(), None).is_none());
    }

    #[test]
    fn the_plain_case_is_told() {
        // whoever runs the tests may have left more than is looked at
        crate::sys::cloexec_from(3).expect("marks");
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("a directory");
        let out = std::fs::File::create(dir.join("out")).expect("a file");
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .stdin(std::process::Stdio::piped())
            .stdout(out)
            .stderr(std::process::Stdio::null())
            .current_dir(&dir)
            .spawn()
            .expect("a process");
        let strings = || Strings { argv: vec![b"a".to_vec().into()], env: vec![b"B=c".to_vec().into()] };
        let tid = child.id() as i32;
        let (around, fds) = (Around::of(tid), descriptors(tid));
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv().is_err());
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let (own, own_fds) = (Around::of(own), descriptors(own));
        drop(end);
        assert!(thread.join().expect("its end"));
        child.kill().and_then(|()| child.wait()).expect("its end");
        let told = around.expect("one thread, no session").introduce(strings(), fds.expect("three descriptors"));
        assert_eq!((told.argv, told.env), (strings().argv, strings().env));
        assert_eq!(told.cwd, dir.as_os_str().as_encoded_bytes());
        assert_eq!(told.fds.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        let same = |fd: &OwnedFd, path: &std::path::Path| {
            let (one, other) = (rustix::fs::fstat(fd).expect("a file"), rustix::fs::stat(path).expect("a file"));
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
        };
        assert!(same(&told.fds[1].1, &dir.join("out")) && same(&told.fds[2].1, std::path::Path::new("/dev/null")));
        assert!(own.is_none() && own_fds.is_none(), "a process with threads");
    }
}
