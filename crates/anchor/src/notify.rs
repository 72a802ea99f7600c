//! Answers the execs of the CLI's tree, one after the other, in the one thread that also traces.
//!
//! An exec that goes to the box is made the stand-in's: two descriptors are put into the process, the thread is stopped
//! for a moment, and its registers are set to execute the stand-in with the arguments and the environment it had. Its
//! memory is never written: the empty path that call needs is the end of the path the caller gave. The call bears the
//! session's ticket, with which the filter lets it pass.

use crate::ahead::Around;
use crate::arguments::{self, Strings};
use crate::filter::Ticket;
use crate::late::{Late, Names, Reached};
use crate::looker::{Looker, Looking, Order};
use crate::memory;
use crate::policy::{Call, Decision, Policy};
use crate::sys::{self, Answer, Notification};
use hmz_standin::protocol::{KEEPS_TERMINAL_MARK, SOCKET_MARK, TOLD_MARK};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What the kernel answers to itself so that a call is made again whatever signal came between.
const ERESTARTNOINTR: i32 = 513;

/// `PTRACE_EVENT_STOP`: the stop that `PTRACE_INTERRUPT` asked for.
const EVENT_STOP: i32 = 128;

/// Everything an answer depends on.
pub(crate) struct Notifier {
    /// The filter's listener.
    pub(crate) listener: OwnedFd,
    /// Whether what it has heard waits for the answer alone, also when it is to stop.
    pub(crate) waits: bool,
    /// The stand-in, open for reading.
    pub(crate) standin: OwnedFd,
    /// What the filter knows our own execs by.
    pub(crate) ticket: Ticket,
    /// The rules.
    pub(crate) policy: Arc<Policy>,
    /// The box, which may still be on its way.
    pub(crate) place: Arc<Late>,
}

impl Notifier {
    /// Answers until the process ends. The thread that calls it is the tracer.
    pub(crate) fn run(self) {
        let mut names = Names::default();
        // without that thread each stand-in tells what it has itself
        let looker = Looker::start().ok();
        loop {
            let n = match sys::receive(self.listener.as_fd()) {
                Ok(n) => n,
                // the caller died before it was heard, or a signal came
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
                Err(_) => return,
            };
            if let Some(answer) = self.handle(&n, &mut names, looker.as_ref()) {
                // one that is gone needs no answer
                let _ = sys::answer(self.listener.as_fd(), n.id, answer);
            }
        }
    }

    /// `None`: it was answered already. What stays here does not wait for the box.
    fn handle(&self, n: &Notification, names: &mut Names, looker: Option<&Looker>) -> Option<Answer> {
        let Some(call) = Call::of(n).filter(|_| n.tid > 0) else {
            return Some(Answer::Fail(libc::EPERM));
        };
        // nearly all of them go to the box, and it takes as long as what is done here meanwhile
        let can_be_told = |_: &&Looker| self.place.now().as_ref().is_some_and(Reached::can_be_told);
        let looking = looker.filter(can_be_told).and_then(|looker| looker.look(n.tid));
        let Some(path) = memory::string(n.tid, call.path, 4096) else {
            return Some(Answer::Fail(libc::EACCES));
        };
        // without a box every name is its, and its failure
        let has = &mut |name: &str| self.place.wait().is_none_or(|there| there.has(name, names));
        let mut decision = self.policy.decide(&call, &path, has);
        let there = match &decision {
            Decision::Box(_) => self.place.wait(),
            Decision::Here | Decision::Fail(_) => None,
        };
        let (mut strings, mut around) = (Strings::default(), None);
        if let Decision::Box(_) = decision {
            around = looking.as_ref().and_then(|_| Around::of(n.tid));
            match arguments::read(n.tid, call.argv, call.envp) {
                Ok(read) => strings = read,
                Err(errno) => decision = Decision::Fail(errno),
            }
        }
        if !sys::still_waits(self.listener.as_fd(), n.id) {
            // what was read may have been another's
            return Some(Answer::Fail(libc::EPERM));
        }
        match (decision, there) {
            (Decision::Here, _) => Some(Answer::Continue),
            (Decision::Fail(errno), _) => Some(Answer::Fail(errno)),
            (Decision::Box(_), None) => Some(Answer::Fail(libc::EIO)),
            (Decision::Box(target), Some(there)) => {
                let order = |socket| Order { there, socket, target, strings, around };
                self.redirect(n, &call, call.path + path.len() as u64, looking, order);
                None
            }
        }
    }

    /// Makes the waiting exec the stand-in's. Where what it would say is known, its command begins meanwhile.
    fn redirect(
        &self,
        n: &Notification,
        call: &Call,
        empty: u64,
        looking: Option<Looking<'_>>,
        order: impl FnOnce(UnixStream) -> Order,
    ) {
        let listener = self.listener.as_fd();
        let pid = Pid::from_raw(n.tid);
        let fail = |errno: i32| {
            // one that is gone needs no answer
            let _ = sys::answer(listener, n.id, Answer::Fail(errno));
        };
        let (ours, theirs) = match socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
            Ok(pair) => pair,
            Err(e) => return fail(e.raw_os_error()),
        };
        let order = order(UnixStream::from(ours));
        if let Err(e) = ptrace::seize(pid, ptrace::Options::empty()) {
            // somebody traces it already
            return fail(e as i32);
        }
        let is_copied = order.there.is_copied();
        // what has no arguments is given one by the kernel; and from here on the number is its caller's, if it was until here
        let is_plain = order.around.is_some() && !order.strings.argv.is_empty() && sys::still_waits(listener, n.id);
        let untold = match looking.filter(|_| is_plain) {
            // what it asks for ends with the caller, whose end closes the socket
            Some(looking) => looking.begin(order),
            None => Some(order),
        };
        let mark = match &untold {
            None => TOLD_MARK,
            Some(_) if is_copied => KEEPS_TERMINAL_MARK,
            Some(_) => SOCKET_MARK,
        };
        let program = match self.give(n.id, pid, &theirs, mark) {
            Ok(program) => Some(program),
            Err(e) => {
                fail(e.raw_os_error().unwrap_or(libc::EPERM));
                None
            }
        };
        drop(theirs);
        if !stopped(pid) {
            return;
        }
        if let Some(program) = program
            && let Ok(mut regs) = ptrace::getregs(pid)
        {
            // the call is made again from the start, whatever signal comes between: it is two bytes long
            regs.rip -= 2;
            regs.rax = libc::SYS_execveat as u64;
            regs.orig_rax = u64::MAX;
            regs.rdi = program as u64;
            regs.rsi = empty;
            regs.rdx = call.argv;
            regs.r10 = call.envp;
            regs.r8 = self.ticket.flags(libc::AT_EMPTY_PATH);
            regs.r9 = self.ticket.rest();
            if ptrace::setregs(pid, regs).is_ok()
                && let Some(Order { there, socket, target, .. }) = untold
            {
                there.begin(socket, target);
            }
        }
        let_go(pid);
    }

    /// Puts the socket and the stand-in into the process, answers, and has it stop, which it has to be let go from in any
    /// case. Returns the stand-in's number there; what fails is not answered.
    fn give(&self, id: u64, pid: Pid, theirs: &OwnedFd, mark: i32) -> std::io::Result<i32> {
        let listener = self.listener.as_fd();
        let given = sys::add_fd(listener, id, theirs.as_fd(), false);
        // from here on the thread has to be let go. One that wakes for the interrupt cannot be answered any more: it is
        // given everything before
        let early = if self.waits { None } else { Some(sys::add_fd(listener, id, self.standin.as_fd(), true)) };
        let _ = ptrace::interrupt(pid);
        given?;
        let program = match early {
            None => sys::answer_with_fd(listener, id, self.standin.as_fd())?,
            Some(early) => {
                let program = early?;
                let _ = sys::answer(listener, id, Answer::Fail(ERESTARTNOINTR));
                program
            }
        };
        // it has not begun to look for the socket; if this could fail, it would not find it, and end
        let _ = sys::set_peek_off(theirs.as_fd(), mark + program);
        Ok(program)
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

/// Lets a stopped thread go. One that was killed in its stop cannot be: its end has to be heard here before its parent hears it, which
/// would wait for it for ever.
fn let_go(pid: Pid) {
    while let Err(nix::errno::Errno::ESRCH) = ptrace::detach(pid, None) {
        if !stopped(pid) {
            return;
        }
    }
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
