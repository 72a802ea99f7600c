//! The raw system calls: fork, kill by number, signal dispositions, and starting a command through `clone(CLONE_VM |
//! CLONE_VFORK)`. The only `unsafe` of the guest.
//!
//! A command starts without a copy of the guest's memory: the child borrows it until its exec, while the guest's only
//! thread stands still. So the child touches nothing but what was prepared for it, allocates nothing, and reports the
//! errno of the step that failed through memory both see.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::RawFd;

/// Bytes of stack a child has until its exec.
const STACK: usize = 64 << 10;

/// The highest signal number.
pub(crate) const MAX_SIGNAL: i32 = 64;

/// A command as the child needs it.
pub(crate) struct Exec<'a> {
    /// The paths to try, in order.
    pub paths: &'a [CString],
    /// Whether the first path is to be tried alone, and the others only when nothing is there.
    pub fallback: bool,
    /// The arguments.
    pub argv: &'a [CString],
    /// The variables, `NAME=value`.
    pub env: &'a [CString],
    /// The directory it starts in.
    pub cwd: &'a CStr,
    /// Its umask.
    pub umask: u32,
    /// The signals blocked in it, bit n-1 is signal n.
    pub blocked: u64,
    /// The signals ignored in it, bit n-1 is signal n.
    pub ignored: u64,
    /// Descriptors here and the numbers they get; numbers are different from each other and not negative.
    pub fds: &'a [(RawFd, i32)],
    /// The number of the controlling terminal.
    pub ctty: Option<i32>,
}

/// What the child works on: pointers into memory that stands still while it does.
struct Child {
    paths: *const *const c_char,
    path_count: usize,
    fallback: bool,
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    umask: u32,
    blocked: u64,
    ignored: u64,
    fds: *mut (RawFd, i32),
    fd_count: usize,
    ctty: Option<i32>,
    errno: c_int,
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// Starts a command in a session of its own; returns when its exec has succeeded. Only for a process with one thread
/// that blocks all signals and has none ignored.
///
/// # Errors
/// The errno of the step that failed; no child is left then.
pub(crate) fn spawn(exec: &Exec<'_>) -> Result<i32, i32> {
    let paths = pointers(exec.paths);
    let argv = pointers(exec.argv);
    let env = pointers(exec.env);
    let mut fds = exec.fds.to_vec();
    fds.sort_unstable_by_key(|&(_, target)| target);
    let mut child = Child {
        paths: paths.as_ptr(),
        path_count: exec.paths.len(),
        fallback: exec.fallback,
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: exec.cwd.as_ptr(),
        umask: exec.umask,
        blocked: exec.blocked,
        ignored: exec.ignored,
        fds: fds.as_mut_ptr(),
        fd_count: fds.len(),
        ctty: exec.ctty,
        errno: 0,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let argument: *mut Child = &raw mut child;
    // SAFETY: the stack is STACK bytes, aligned to 16 and alive until the call returns, which CLONE_VFORK delays until
    // the child has exec'd or ended. All that `argument` points at lives as long. This process has one thread, so no
    // lock is held that the child could wait for, and nothing else touches that memory meanwhile.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>();
        libc::clone(run, top, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument.cast())
    };
    if pid < 0 {
        return Err(last_errno());
    }
    // SAFETY: written by the child before it ended; a volatile read because the compiler cannot see that.
    let errno = unsafe { std::ptr::read_volatile(&raw const (*argument).errno) };
    if errno == 0 {
        return Ok(pid);
    }
    // SAFETY: waits for the child just made; no status is asked for.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0 && last_errno() == libc::EINTR {}
    Err(errno)
}

/// The child until its exec. Never returns.
extern "C" fn run(argument: *mut c_void) -> c_int {
    let child = argument.cast::<Child>();
    // SAFETY: `spawn` gives a `Child` whose pointers are valid; only async-signal-safe calls are made.
    unsafe {
        let errno = start(&mut *child);
        std::ptr::write_volatile(&raw mut (*child).errno, errno);
        libc::_exit(127)
    }
}

/// # Safety
/// Only in the child of [`spawn`].
unsafe fn start(child: &mut Child) -> c_int {
    // SAFETY: the pointers are those of `spawn`; every call is a plain system call on this process's own state.
    unsafe {
        if libc::setsid() < 0 {
            return last_errno();
        }
        let errno = place(std::slice::from_raw_parts_mut(child.fds, child.fd_count));
        if errno != 0 {
            return errno;
        }
        if let Some(fd) = child.ctty
            && libc::ioctl(fd, libc::TIOCSCTTY, 0) < 0
        {
            return last_errno();
        }
        if libc::chdir(child.cwd) < 0 {
            return last_errno();
        }
        libc::umask(child.umask & 0o777);
        let mut ignore: libc::sigaction = std::mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        for signal in 1..=MAX_SIGNAL {
            if child.ignored & (1 << (signal - 1)) != 0 {
                // SIGKILL and SIGSTOP cannot be, and the C library keeps two for itself: as natively, no error
                libc::sigaction(signal, &raw const ignore, std::ptr::null_mut());
            }
        }
        let mask = child.blocked;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
        exec(child)
    }
}

/// Puts each descriptor at its number and closes all else. They come sorted by number.
///
/// # Safety
/// Only in the child of [`spawn`].
unsafe fn place(fds: &mut [(RawFd, i32)]) -> c_int {
    let above = fds.last().map_or(0, |&(_, target)| target).saturating_add(1);
    // SAFETY: descriptors of this process's own table, a copy of the parent's.
    unsafe {
        for (fd, _) in fds.iter_mut() {
            // one that lies where another has to go is moved out of the way first
            if *fd < above {
                let moved = libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, above);
                if moved < 0 {
                    let errno = last_errno();
                    return if errno == libc::EINVAL { libc::EMFILE } else { errno };
                }
                *fd = moved;
            }
        }
        let mut next = 0;
        for &(fd, target) in fds.iter() {
            if libc::dup2(fd, target) < 0 {
                return last_errno();
            }
            close_range(next, i64::from(target) - 1);
            next = target + 1;
        }
        close_range(next, i64::from(u32::MAX));
    }
    0
}

/// Closes the descriptors from `first` to `last`. All of them are close-on-exec anyway: where the call is not to be
/// had nothing is lost.
///
/// # Safety
/// Only in the child of [`spawn`].
unsafe fn close_range(first: i32, last: i64) {
    if i64::from(first) <= last {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_close_range, first as libc::c_uint, last as libc::c_uint, 0) };
    }
}

/// Tries the paths as `execvp` does.
///
/// # Safety
/// Only in the child of [`spawn`].
unsafe fn exec(child: &Child) -> c_int {
    let mut refused = 0;
    let mut first = 0;
    for index in 0..child.path_count {
        // SAFETY: `paths` has `path_count` valid strings; argv and env end with a null pointer.
        let path = unsafe { *child.paths.add(index) };
        // SAFETY: as above.
        unsafe { libc::execve(path, child.argv, child.env) };
        let errno = last_errno();
        if child.fallback && index == 0 {
            // a script whose interpreter is missing is ENOENT too, and is there
            // SAFETY: as above.
            if errno != libc::ENOENT || unsafe { libc::faccessat(libc::AT_FDCWD, path, libc::F_OK, 0) } == 0 {
                return errno;
            }
            first = errno;
            continue;
        }
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => refused = errno,
            _ => return errno,
        }
        if child.path_count == 1 {
            return errno;
        }
    }
    match (refused, first) {
        (0, 0) => libc::ENOENT,
        (0, first) => first,
        (refused, _) => refused,
    }
}

fn last_errno() -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Forks; `None` in the child. Only for a process with one thread.
///
/// # Errors
/// When there can be no further process.
pub(crate) fn fork() -> std::io::Result<Option<i32>> {
    // SAFETY: one thread, so no lock of another one stays held in the child.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Sends a signal by number to a process, or to a group when `pid` is negative. One that is gone is as good.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// Gives every signal its default disposition, so that a command need only be told what it ignores. By the kernel's own
/// call: the C library keeps two signals for itself, and whoever started the container may have had them ignored.
pub(crate) fn default_signals() {
    // the kernel's sigaction on x86_64: handler, flags, restorer, mask; a handler of 0 is SIG_DFL
    let default = [0u64; 4];
    for signal in 1..=MAX_SIGNAL {
        // SAFETY: the kernel reads 32 bytes that are there. No handler was ever installed here, so none can be running; what
        // cannot be set needs no setting.
        unsafe {
            let old = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), old, size_of::<u64>());
        }
    }
}

/// Whether a descriptor is open in this process; sets it close-on-exec.
pub(crate) fn close_on_exec(fd: RawFd) {
    // SAFETY: no memory is involved, and a number that is not open is an error that changes nothing.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}
