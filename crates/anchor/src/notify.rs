//! Answers the execs of the CLI's tree, one after the other, in the one thread that also traces.
//!
//! An exec that goes to the box is made the stand-in's: two descriptors are put into the process, the thread is stopped
//! for a moment, and its registers are set to execute the stand-in with the arguments and the environment it had. Its
//! memory is never written: the empty path that call needs is the end of the path the caller gave.

use crate::memory;
use crate::policy::{Call, Decision, Policy, Target};
use crate::session::Sessions;
use crate::sys::{self, Answer, Notification};
use hmz_standin::protocol::{KEEPS_TERMINAL_MARK, SOCKET_MARK};
use hmz_wire::Client;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What the kernel answers to itself so that a call is made again whatever signal came between.
const ERESTARTNOINTR: i32 = 513;

/// `PTRACE_EVENT_STOP`: the stop that `PTRACE_INTERRUPT` asked for.
const EVENT_STOP: i32 = 128;

/// The call a redirected thread makes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    program: i32,
    empty: u64,
}

/// Everything an answer depends on.
pub(crate) struct Notifier {
    /// The filter's listener.
    pub(crate) listener: OwnedFd,
    /// The stand-in, open for reading.
    pub(crate) standin: OwnedFd,
    /// The rules.
    pub(crate) policy: Arc<Policy>,
    /// The box.
    pub(crate) client: Client,
    /// What serves stand-ins.
    pub(crate) sessions: Arc<Sessions>,
}

impl Notifier {
    /// Answers until the process ends. The thread that calls it is the tracer.
    pub(crate) fn run(self) {
        let mut pending = HashMap::new();
        let mut names = (Arc::new(Vec::new()), HashSet::new());
        loop {
            let n = match sys::receive(self.listener.as_fd()) {
                Ok(n) => n,
                // the caller died before it was heard, or a signal came
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
                Err(_) => return,
            };
            let programs = self.client.programs();
            if !Arc::ptr_eq(&programs, &names.0) {
                names = (Arc::clone(&programs), programs.iter().cloned().collect());
            }
            if let Some(answer) = self.handle(&n, &mut pending, &names.1) {
                // one that is gone needs no answer
                let _ = sys::answer(self.listener.as_fd(), n.id, answer);
            }
        }
    }

    /// `None`: it was answered already.
    fn handle(&self, n: &Notification, pending: &mut HashMap<i32, Pending>, programs: &HashSet<String>) -> Option<Answer> {
        let Some(call) = Call::of(n).filter(|_| n.tid > 0) else {
            return Some(Answer::Fail(libc::EPERM));
        };
        if let Some(ours) = pending.remove(&n.tid)
            && call.empty_path
            && (Pending { program: call.dirfd, empty: call.path }) == ours
        {
            let good = memory::is_zero(n.tid, ours.empty) && sys::still_waits(self.listener.as_fd(), n.id);
            return Some(if good { Answer::Continue } else { Answer::Fail(libc::EACCES) });
        }
        let Some(path) = memory::string(n.tid, call.path, 4096) else {
            return Some(Answer::Fail(libc::EACCES));
        };
        let decision = self.policy.decide(&call, &path, programs);
        if !sys::still_waits(self.listener.as_fd(), n.id) {
            // what was read may have been another's
            return Some(Answer::Fail(libc::EPERM));
        }
        match decision {
            Decision::Here => Some(Answer::Continue),
            Decision::Fail(errno) => Some(Answer::Fail(errno)),
            Decision::Box(target) => {
                self.redirect(n, &call, call.path + path.len() as u64, target, pending);
                None
            }
        }
    }

    /// Makes the waiting exec the stand-in's.
    fn redirect(&self, n: &Notification, call: &Call, empty: u64, target: Target, pending: &mut HashMap<i32, Pending>) {
        let listener = self.listener.as_fd();
        let pid = Pid::from_raw(n.tid);
        if let Err(e) = ptrace::seize(pid, ptrace::Options::empty()) {
            // somebody traces it already
            let _ = sys::answer(listener, n.id, Answer::Fail(e as i32));
            return;
        }
        let given = self.give(n.id);
        // from here on the thread has to be let go
        let _ = ptrace::interrupt(pid);
        let answer = match &given {
            Ok(_) => Answer::Fail(ERESTARTNOINTR),
            Err(e) => Answer::Fail(e.raw_os_error().unwrap_or(libc::EPERM)),
        };
        // a kernel that wakes the waiter for the interrupt has nobody to answer, and makes the call again by itself
        let _ = sys::answer(listener, n.id, answer);
        if !stopped(pid) {
            return;
        }
        if let Ok((program, ours)) = given
            && let Ok(mut regs) = ptrace::getregs(pid)
        {
            regs.orig_rax = libc::SYS_execveat as u64;
            regs.rax = -i64::from(ERESTARTNOINTR) as u64;
            regs.rdi = program as u64;
            regs.rsi = empty;
            regs.rdx = call.argv;
            regs.r10 = call.envp;
            regs.r8 = libc::AT_EMPTY_PATH as u64;
            if ptrace::setregs(pid, regs).is_ok() {
                pending.insert(n.tid, Pending { program, empty });
                self.sessions.begin(ours, target);
            }
        }
        let _ = ptrace::detach(pid, None);
    }

    /// Puts the socket and the stand-in into the process; returns the stand-in's number there and our end of the socket.
    fn give(&self, id: u64) -> std::io::Result<(i32, UnixStream)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sys::add_fd(self.listener.as_fd(), id, theirs.as_fd(), false)?;
        let program = sys::add_fd(self.listener.as_fd(), id, self.standin.as_fd(), true)?;
        let mark = if self.client.is_copied() { KEEPS_TERMINAL_MARK } else { SOCKET_MARK };
        sys::set_peek_off(theirs.as_fd(), mark + program)?;
        Ok((program, UnixStream::from(ours)))
    }
}

/// Whether a waiting process can be stopped for a moment and read, as a redirect does.
pub(crate) fn can_trace(pid: Pid) -> nix::Result<()> {
    ptrace::seize(pid, ptrace::Options::empty())?;
    ptrace::interrupt(pid)?;
    if stopped(pid) {
        ptrace::getregs(pid)?;
        ptrace::detach(pid, None)?;
    }
    Ok(())
}

/// Waits for the stop that was asked for. False when the thread is gone.
fn stopped(pid: Pid) -> bool {
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Ok(WaitStatus::PtraceEvent(_, _, EVENT_STOP)) => return true,
            Ok(WaitStatus::Stopped(_, signal)) => {
                let _ = ptrace::cont(pid, signal);
            }
            Ok(WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_)) => {
                let _ = ptrace::cont(pid, None);
            }
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return false,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}
