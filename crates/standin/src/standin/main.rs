//! The stand-in's program. See the crate's documentation; the words it exchanges are in `protocol.rs`.
#![no_std]
#![no_main]

#[path = "../protocol.rs"]
#[allow(dead_code)]
mod protocol;
mod sys;

use core::mem::{MaybeUninit, size_of};
use core::ptr::addr_of;
use protocol::{
    ALIVE, EMPTY, EXITED, Hello, KEEPS_TERMINAL_MARK, MAGIC, MAX_CWD, MAX_FDS, SIGNALED, SOCKET_MARK, TOLD_MARK, Verdict, kills,
};
use sys::syscall;

/// Numbers of system calls and constants of the kernel's x86_64 interface.
mod nr {
    pub const READ: usize = 0;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const POLL: usize = 7;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const GETPID: usize = 39;
    pub const SENDTO: usize = 44;
    pub const SENDMSG: usize = 46;
    pub const GETSOCKOPT: usize = 55;
    pub const FORK: usize = 57;
    pub const KILL: usize = 62;
    pub const GETCWD: usize = 79;
    pub const UMASK: usize = 95;
    pub const GETSID: usize = 124;
    pub const RT_SIGPENDING: usize = 127;
    pub const SETRLIMIT: usize = 160;
    pub const GETDENTS64: usize = 217;
    pub const EXIT_GROUP: usize = 231;
    pub const SIGNALFD4: usize = 289;
    pub const CLOSE_RANGE: usize = 436;
}

const AT_EXECFN: usize = 31;
const SOL_SOCKET: usize = 1;
const SO_PEEK_OFF: usize = 42;
const MSG_NOSIGNAL: usize = 0x4000;
const TIOCGSID: usize = 0x5429;
const TIOCNOTTY: usize = 0x5422;
const SIG_BLOCK_SET: usize = 2;
const SIGHUP: u32 = 1;
const SIGKILL: u32 = 9;
const SIGCONT: u32 = 18;
const SIGTSTP: u32 = 20;
const SIGTTIN: u32 = 21;
const SIGTTOU: u32 = 22;
/// The signals that stop a process and can be held back.
const STOPS: [u32; 3] = [SIGTSTP, SIGTTIN, SIGTTOU];

macro_rules! call {
    ($nr:expr $(, $arg:expr)*) => {{
        let given = [$($arg as usize),*];
        let mut args = [0usize; 6];
        args[..given.len()].copy_from_slice(&given);
        // SAFETY: every pointer given in this file is to a live local or to the initial stack, with its true length.
        unsafe { syscall($nr, args) }
    }};
}

/// `struct sigaction` as the kernel takes it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

#[repr(C)]
struct Iov {
    base: *const u8,
    len: usize,
}

#[repr(C)]
struct Message {
    name: usize,
    name_len: u32,
    iov: *const Iov,
    iov_len: usize,
    control: *const u8,
    control_len: usize,
    flags: i32,
}

#[repr(C)]
struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; MAX_FDS],
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(255)
}

fn exit(status: u32) -> ! {
    call!(nr::EXIT_GROUP, status);
    // exit_group does not return; if it could, there is nothing else to do
    loop {
        core::hint::spin_loop();
    }
}

/// Ends by `signal`, without a core.
fn die(signal: u32) -> ! {
    let limit = [0u64; 2];
    call!(nr::SETRLIMIT, 4, limit.as_ptr());
    disposition(signal, 0);
    let none = 0u64;
    call!(nr::RT_SIGPROCMASK, SIG_BLOCK_SET, &raw const none, 0, 8);
    call!(nr::KILL, call!(nr::GETPID), signal);
    exit(128 + signal)
}

/// Sets a signal to default (0) or ignored (1).
fn disposition(signal: u32, handler: usize) {
    let action = Action { handler, flags: 0, restorer: 0, mask: 0 };
    call!(nr::RT_SIGACTION, signal, &raw const action, 0, 8);
}

/// Bits of those of these signals that are ignored.
fn ignored(signals: impl Iterator<Item = u32>) -> u64 {
    let mut set = 0;
    for signal in signals {
        let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        if call!(nr::RT_SIGACTION, signal, 0, &raw mut action, 8) == 0 && action.handler == 1 {
            set |= 1u64 << (signal - 1);
        }
    }
    set
}

/// The number in `/dev/fd/N`, which is what the kernel calls a program it was given as a descriptor.
fn number_of(name: *const u8) -> i32 {
    let mut at = name;
    let mut number = 0i32;
    loop {
        // SAFETY: the name is a string on the initial stack, and ends with a zero byte.
        let byte = unsafe { at.read() };
        match byte {
            0 => return number,
            b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0')),
            _ => number = 0,
        }
        at = at.wrapping_add(1);
    }
}

/// The socket to the supervisor, usually the number just below the one the program was executed from; and its mark.
fn find_socket(program: i32) -> (i32, i32) {
    let mark = |fd: i32| {
        let mut value = -1i32;
        let mut len = 4u32;
        let got = call!(nr::GETSOCKOPT, fd, SOL_SOCKET, SO_PEEK_OFF, &raw mut value, &raw mut len) == 0;
        let mark = value.wrapping_sub(program);
        if got && (mark == TOLD_MARK || mark == SOCKET_MARK || mark == KEEPS_TERMINAL_MARK) { mark } else { 0 }
    };
    let mut fd = program - 1;
    while fd >= 0 {
        if mark(fd) != 0 {
            return (fd, mark(fd));
        }
        fd -= 1;
    }
    for fd in program..program + 4096 {
        if mark(fd) != 0 {
            return (fd, mark(fd));
        }
    }
    exit(255)
}

/// The open descriptors but the socket, in no order, as many as are handed over.
fn descriptors(socket: i32, fds: &mut [i32; MAX_FDS]) -> usize {
    let mut count = 0;
    let dir = call!(nr::OPEN, c"/proc/self/fd".as_ptr(), 0o200_000 | 0o2_000_000, 0);
    if dir < 0 {
        for fd in 0..256 {
            let mut value = PollFd { fd, events: 0, revents: 0 };
            call!(nr::POLL, &raw mut value, 1, 0);
            if value.revents & 0x20 == 0 && fd != socket && count < MAX_FDS {
                fds[count] = fd;
                count += 1;
            }
        }
        return count;
    }
    let mut buffer = MaybeUninit::<[u8; 2048]>::uninit();
    loop {
        let got = call!(nr::GETDENTS64, dir, buffer.as_mut_ptr(), 2048);
        if got <= 0 {
            break;
        }
        let mut at = 0usize;
        while at < got as usize {
            let entry = buffer.as_ptr().cast::<u8>().wrapping_add(at);
            // SAFETY: the kernel wrote whole entries into the first `got` bytes: length at 16, a name with its zero at 19.
            let (len, first) = unsafe { (entry.add(16).cast::<u16>().read_unaligned(), entry.add(19).read()) };
            if first.is_ascii_digit() {
                let fd = number_of(entry.wrapping_add(19));
                if fd != socket && fd as isize != dir && count < MAX_FDS {
                    fds[count] = fd;
                    count += 1;
                }
            }
            at += usize::from(len);
        }
    }
    call!(nr::CLOSE, dir);
    count
}

/// Sends everything; whether there was somebody to hear it.
fn send_all(socket: i32, mut at: *const u8, mut len: usize) -> bool {
    while len > 0 {
        let sent = call!(nr::SENDTO, socket, at, len, MSG_NOSIGNAL, 0, 0);
        match sent {
            n if n > 0 => {
                at = at.wrapping_add(n as usize);
                len -= n as usize;
            }
            -4 => {}
            _ => return false,
        }
    }
    true
}

/// Called with the stack as the kernel left it: argc, argv, 0, envp, 0, auxv.
pub extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: this is the layout of the initial stack.
    let (argc, argv0) = unsafe { (stack.read(), stack.add(1).read()) };
    let mut at = stack.wrapping_add(argc + 2);
    // SAFETY: the environment's pointers end with a null, the auxiliary vector with type 0.
    let name = unsafe {
        while at.read() != 0 {
            at = at.add(1);
        }
        at = at.add(1);
        loop {
            match at.read() {
                0 => exit(255),
                AT_EXECFN => break at.add(1).read(),
                _ => at = at.add(2),
            }
        }
    };
    let all = !0u64;
    let mut blocked = 0u64;
    call!(nr::RT_SIGPROCMASK, SIG_BLOCK_SET, &raw const all, &raw mut blocked, 8);
    let program = number_of(name as *const u8);
    let (socket, mark) = find_socket(program);
    if mark == TOLD_MARK {
        let ignored = ignored(STOPS.into_iter());
        close_all_but(socket);
        attend(socket, ignored | blocked)
    }
    let ignored = ignored(1..=64);
    let umask = call!(nr::UMASK, 0o077) as u32;
    let mut hello = Hello {
        magic: MAGIC,
        nfds: 0,
        argc: argc as u32,
        umask,
        blocked,
        ignored,
        cwd_len: 0,
        // the strings of argv and of the environment lie before the program's name, one after the other
        block_len: (name - argv0) as u32,
        ctty: -1,
        spare: 0,
        fds: [0; MAX_FDS],
    };
    hello.nfds = descriptors(socket, &mut hello.fds) as u32;
    if mark == SOCKET_MARK {
        hello.ctty = give_up_terminal(&hello.fds[..hello.nfds as usize]);
    }
    let mut cwd = MaybeUninit::<[u8; MAX_CWD]>::uninit();
    let got = call!(nr::GETCWD, cwd.as_mut_ptr(), MAX_CWD);
    hello.cwd_len = if got > 1 { got as u32 - 1 } else { 0 };
    introduce(socket, &hello, cwd.as_ptr().cast(), argv0 as *const u8);
    close_all_but(socket);
    attend(socket, ignored | blocked)
}

/// Whoever reads or writes the command's streams waits for the command alone.
fn close_all_but(socket: i32) {
    if socket > 0 {
        call!(nr::CLOSE_RANGE, 0, socket - 1, 0);
    }
    call!(nr::CLOSE_RANGE, socket + 1, u32::MAX, 0);
}

/// Sends the hello with the descriptors, the directory and the strings: at once when there is room, so that the supervisor
/// is woken once.
fn introduce(socket: i32, hello: &Hello, cwd: *const u8, block: *const u8) {
    let nfds = hello.nfds as usize;
    let control = Control { len: 16 + 4 * nfds, level: 1, kind: 1, fds: hello.fds };
    let parts = [
        Iov { base: addr_of!(*hello).cast(), len: size_of::<Hello>() },
        Iov { base: cwd, len: hello.cwd_len as usize },
        Iov { base: block, len: hello.block_len as usize },
    ];
    let message = Message {
        name: 0,
        name_len: 0,
        iov: parts.as_ptr(),
        iov_len: parts.len(),
        control: addr_of!(control).cast(),
        control_len: if nfds == 0 { 0 } else { control.len },
        flags: 0,
    };
    let sent = call!(nr::SENDMSG, socket, &raw const message, MSG_NOSIGNAL);
    if sent <= 0 {
        die(SIGKILL);
    }
    let mut sent = sent as usize;
    for part in &parts {
        let done = if sent < part.len { sent } else { part.len };
        sent -= done;
        if !send_all(socket, part.base.wrapping_add(done), part.len - done) {
            die(SIGKILL);
        }
    }
}

/// A session leader gives its terminal up, for the command to take it as its own. Returns the descriptor's number, or -1.
fn give_up_terminal(fds: &[i32]) -> i32 {
    let own = call!(nr::GETPID);
    if call!(nr::GETSID, 0) != own {
        return -1;
    }
    for &fd in fds {
        let mut session = 0i32;
        if call!(nr::IOCTL, fd, TIOCGSID, &raw mut session) == 0 && session as isize == own {
            call!(nr::IOCTL, fd, TIOCNOTTY, 0);
            // giving it up hung us up; that signal is no one's business
            for signal in [SIGHUP, SIGCONT] {
                disposition(signal, 1);
                disposition(signal, 0);
            }
            return fd;
        }
    }
    -1
}

/// Forwards signals and waits for the verdict. `unheeded` are those the command ignores or holds back.
fn attend(socket: i32, unheeded: u64) -> ! {
    let stops = STOPS.into_iter().fold(0, |set, signal| set | bit(signal)) & !unheeded;
    let others = !stops;
    // neither blocks: a signal can go again, taken away by one that follows it
    let heard = |set: &u64| call!(nr::SIGNALFD4, -1isize, &raw const *set, 8, 0o2_004_000) as i32;
    let (signals, stopping) = (heard(&others), heard(&stops));
    loop {
        let wait = |fd| PollFd { fd, events: 1, revents: 0 };
        let mut polled = [wait(socket), wait(signals), wait(stopping)];
        if call!(nr::POLL, polled.as_mut_ptr(), polled.len(), -1isize) < 0 {
            continue;
        }
        if polled[1].revents != 0 {
            let mut info = [0u32; 32];
            if call!(nr::READ, signals, info.as_mut_ptr(), 128) == 128 {
                forward(socket, info[0]);
            }
        }
        if polled[2].revents != 0
            && let Some(signal) = STOPS.into_iter().find(|&signal| pending() & stops & bit(signal) != 0)
        {
            stop(socket, signal);
        }
        if polled[0].revents != 0 {
            let verdict = hear(socket);
            match verdict.kind & !ALIVE {
                EMPTY => exit(0),
                EXITED | SIGNALED => {
                    if verdict.kind & ALIVE != 0 && call!(nr::FORK) == 0 {
                        // the holder stays in the group, so that the group can be signalled
                        continue;
                    }
                    if verdict.kind & !ALIVE == EXITED {
                        exit(verdict.value & 0xff)
                    }
                    // nothing dies of one that kills nobody, and we shall not be stopped by it
                    if kills(verdict.value) { die(verdict.value) } else { exit(128) }
                }
                _ => die(SIGKILL),
            }
        }
    }
}

fn hear(socket: i32) -> Verdict {
    let mut verdict = Verdict { kind: 0, value: 0 };
    let mut got = 0;
    while got < size_of::<Verdict>() {
        let to = (&raw mut verdict).cast::<u8>().wrapping_add(got);
        match call!(nr::READ, socket, to, size_of::<Verdict>() - got) {
            n if n > 0 => got += n as usize,
            -4 => {}
            // the supervisor is gone, and with it the command
            _ => die(SIGKILL),
        }
    }
    verdict
}

/// Forwards one signal. A supervisor that has told the end, or is gone, is heard of next.
fn forward(socket: i32, signal: u32) {
    send_all(socket, (&raw const signal).cast(), 4);
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Bits of the signals that came and are held back.
fn pending() -> u64 {
    let mut set = 0u64;
    call!(nr::RT_SIGPENDING, &raw mut set, 8);
    set
}

/// Has the command stopped, and lets the signal stop us as the kernel would have stopped the command.
///
/// It is never taken out of what came: a SIGCONT that follows it at once takes it away, and then nothing stops. Nor does
/// anything where our group is an orphan's; then the command goes on as well.
fn stop(socket: i32, signal: u32) {
    forward(socket, signal);
    let open = !bit(signal);
    let all = !0u64;
    call!(nr::RT_SIGPROCMASK, SIG_BLOCK_SET, &raw const open, 0, 8);
    call!(nr::RT_SIGPROCMASK, SIG_BLOCK_SET, &raw const all, 0, 8);
    // what goes on after a stop was told to, and that is still to be forwarded
    if pending() & bit(SIGCONT) == 0 {
        forward(socket, SIGCONT);
    }
}
