//! The raw system calls: everything of this crate that the compiler cannot check.
#![allow(unsafe_code)]

use libc::{c_int, pid_t};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One end of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    /// We are the child.
    Child,
    /// We are the parent of this pid.
    Parent(pid_t),
}

/// Forks this process, which must have one thread: the child may then do whatever it likes.
pub(crate) fn fork() -> io::Result<Forked> {
    // more than one thread would leave locks held in the child
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("this process has more than one thread"));
    }
    // SAFETY: there is no other thread, so the child finds no lock held by one that is not there.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Takes a descriptor that was inherited by number. `None` when it is not open.
pub(crate) fn take_fd(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD touches no memory.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return None;
    }
    // SAFETY: it is open, and callers take a number only once, at the beginning of the process.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor from `first` on close-on-exec.
pub(crate) fn cloexec_from(first: u32) -> io::Result<()> {
    // SAFETY: close_range touches no memory, and with this flag it closes nothing now.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets every signal to its default action.
pub(crate) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: no handler is installed; SIGKILL, SIGSTOP and the C library's own numbers are refused, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Random bytes nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most N bytes there.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) } {
        n if usize::try_from(n) == Ok(N) => Ok(bytes),
        -1 => Err(io::Error::last_os_error()),
        // so few are given whole
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Installs a seccomp filter on this thread and returns its listener; and whether a thread that was heard waits for its answer
/// whatever comes between but its end, which kernels before 5.19 do not know.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<(OwnedFd, bool)> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let mut flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
        | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW
        | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    loop {
        let prog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        // SAFETY: `prog` describes `program`, which the kernel copies.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const prog) };
        if fd >= 0 {
            // SAFETY: the call returned a new descriptor.
            let listener = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
            return Ok((listener, flags & libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0));
        }
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::EINVAL) || flags & libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV == 0 {
            return Err(e);
        }
        // a kernel before 5.19 does not know it
        flags &= !libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    }
}

/// The version of Landlock's interface this kernel has; an error when it gives none.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION: c_int = 1;
    // SAFETY: with this flag the kernel takes no attributes and answers with a number.
    match unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) } {
        -1 => Err(io::Error::last_os_error()),
        version => Ok(version),
    }
}

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
const SYNC_WAKE_UP: u64 = 1;

/// A system call that waits for our answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    /// Identifies it until it is answered.
    pub(crate) id: u64,
    /// The thread, as this process's pid namespace numbers it; 0 when it is not in it.
    pub(crate) tid: pid_t,
    /// The number of the system call.
    pub(crate) nr: c_int,
    /// Its arguments.
    pub(crate) args: [u64; 6],
}

/// How a notification is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel does the call.
    Continue,
    /// The call fails with this errno; also the kernel's inner ones, such as ERESTARTNOINTR.
    Fail(c_int),
}

/// Has whoever waits for a notification, or for its answer, woken on the same CPU: the two never run at once, and waking
/// another CPU costs more than the answer.
pub(crate) fn wake_here(listener: BorrowedFd<'_>) {
    // a kernel before 6.6 does not know it, and wakes as ever
    // SAFETY: the flags are passed by value.
    unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
    }
}

/// Waits for the next notification. `ENOENT`: the caller died meanwhile.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: an all-zero value of this plain struct is valid, and what the kernel asks for.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one seccomp_notif there.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut raw) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(Notification { id: raw.id, tid: raw.pid as pid_t, nr: raw.data.nr, args: raw.data.args })
}

/// Whether a notification still waits: then everything read of its thread before was read of that very thread.
pub(crate) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64 there.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a notification. `ENOENT`: nobody waits for it any more.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let (error, flags) = match answer {
        Answer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Fail(errno) => (-errno, 0),
    };
    let raw = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one seccomp_notif_resp there.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const raw) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Puts a descriptor of ours into the waiting process, at a free number, which is returned. The process wakes for it, and
/// waits again.
pub(crate) fn add_fd(listener: BorrowedFd<'_>, id: u64, fd: BorrowedFd<'_>, cloexec: bool) -> io::Result<RawFd> {
    put_fd(listener, id, fd, cloexec, 0)
}

/// The same, close-on-exec, and its number is the answer: what waited goes on with it as its call's result. When it fails
/// nothing is answered.
pub(crate) fn answer_with_fd(listener: BorrowedFd<'_>, id: u64, fd: BorrowedFd<'_>) -> io::Result<RawFd> {
    put_fd(listener, id, fd, true, libc::SECCOMP_ADDFD_FLAG_SEND as u32)
}

fn put_fd(listener: BorrowedFd<'_>, id: u64, fd: BorrowedFd<'_>, cloexec: bool, flags: u32) -> io::Result<RawFd> {
    let raw = libc::seccomp_notif_addfd {
        id,
        flags,
        srcfd: fd.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if cloexec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the kernel reads one seccomp_notif_addfd there.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const raw) } {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

/// Whether descriptors can be put into a waiting process; `EINVAL` is a kernel's that does not know the call.
pub(crate) fn can_add_fd(listener: BorrowedFd<'_>) -> io::Result<()> {
    match add_fd(listener, u64::MAX, listener, true) {
        // no notification has this id, which a kernel that knows the call says
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("a descriptor went to nobody")),
    }
}

/// Reads memory of another thread's process; short when a page is not there. `Err` when the call is not to be had.
pub(crate) fn read_memory(tid: pid_t, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`; the remote address is not dereferenced here.
    match unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n as usize),
    }
}

/// Reads strings' beginnings in one call, each the length that goes with it, one after the other into `buffer`, which holds
/// them all; short before the first one whose memory is not there. `Err` when the call is not to be had.
pub(crate) fn read_many(tid: pid_t, places: &[(u64, usize)], buffer: &mut [u8]) -> io::Result<usize> {
    let room = places.iter().map(|(_, len)| len).sum::<usize>().min(buffer.len());
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: room };
    let remote: Vec<libc::iovec> =
        places.iter().map(|(at, len)| libc::iovec { iov_base: *at as *mut libc::c_void, iov_len: *len }).collect();
    // SAFETY: the kernel writes at most `room` bytes into `buffer`; the remote addresses are not dereferenced here.
    match unsafe { libc::process_vm_readv(tid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0) } {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n as usize),
    }
}

/// The soft limit on a process's stack, in bytes; this process's own when another's is not told.
pub(crate) fn stack_limit(tid: pid_t) -> u64 {
    let limit = limit(tid, libc::RLIMIT_STACK).or_else(|| limit(0, libc::RLIMIT_STACK));
    limit.unwrap_or(libc::RLIM_INFINITY)
}

/// A soft limit of a process's (0: this one's); `None` when it is not told.
pub(crate) fn limit(tid: pid_t, resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and the kernel writes one rlimit.
    let got = unsafe { libc::prlimit(tid, resource, std::ptr::null(), &raw mut limit) };
    (got == 0).then_some(limit.rlim_cur)
}

/// Marks the other end's way to find this socket.
pub(crate) fn set_peek_off(socket: BorrowedFd<'_>, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads one int there.
    match unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const value).cast(),
            size_of::<c_int>() as u32,
        )
    } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ends this process by a signal, without a core; returns only when it was not to be.
pub(crate) fn die_of(signal: c_int) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // the kernel allows lowering it
    let _: Result<(), Errno> = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: no handler is installed; the mask is a plain value the C library fills in.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
