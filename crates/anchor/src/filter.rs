//! The seccomp filter on the CLI's tree, as data.
//!
//! `execve` and `execveat` wait for the supervisor; only the one it has just made the stand-in's does not wait again, which
//! it is known by: it bears a ticket. Making a process non-dumpable is answered without doing it, since its memory could
//! not be read any more. An io_uring could run what no filter sees, so there is none; and what is called through another
//! architecture's numbers does not exist.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, ENOSYS, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    SECCOMP_RET_USER_NOTIF, SYS_execve, SYS_execveat, SYS_io_uring_setup, SYS_prctl, sock_filter,
};

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const X32_BIT: u32 = 0x4000_0000;
const PR_SET_DUMPABLE: u32 = 4;
/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
const ARG0_LOW: u32 = 16;
const ARG4_HIGH: u32 = 52;
const ARG5_LOW: u32 = 56;
const ARG5_HIGH: u32 = 60;

/// What the supervisor puts into the registers of a thread whose exec it made the stand-in's, so that the kernel does not
/// ask about it again: 96 random bits of a session, where `execveat` looks at nothing. It takes 32 bits of its fifth
/// argument and no sixth. A thread has it between its stop and its exec, and the filter alone compares it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket([u32; 3]);

impl Ticket {
    /// Of random bytes.
    pub(crate) fn of(random: [u8; 12]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([random[at], random[at + 1], random[at + 2], random[at + 3]]);
        Self([word(0), word(4), word(8)])
    }

    /// The fifth argument that bears it, with these flags.
    pub(crate) fn flags(self, flags: i32) -> u64 {
        u64::from(self.0[0]) << 32 | u64::from(flags as u32)
    }

    /// The sixth.
    pub(crate) fn rest(self) -> u64 {
        u64::from(self.0[2]) << 32 | u64::from(self.0[1])
    }
}

const fn load(offset: u32) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

const fn jump(kind: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | kind | BPF_K) as u16, jt, jf, k }
}

const fn ret(k: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k }
}

/// The program of a session with this ticket.
pub(crate) const fn program(ticket: Ticket) -> [sock_filter; 20] {
    let [first, second, third] = ticket.0;
    [
        load(ARCH),
        jump(BPF_JEQ, AUDIT_ARCH_X86_64, 0, 14), // to ENOSYS
        load(NR),
        jump(BPF_JGE, X32_BIT, 12, 0),                  // to ENOSYS
        jump(BPF_JEQ, SYS_execve as u32, 13, 0),        // to USER_NOTIF
        jump(BPF_JEQ, SYS_execveat as u32, 4, 0),       // to the ticket
        jump(BPF_JEQ, SYS_io_uring_setup as u32, 9, 0), // to ENOSYS
        jump(BPF_JEQ, SYS_prctl as u32, 0, 11),         // else to ALLOW
        load(ARG0_LOW),
        jump(BPF_JEQ, PR_SET_DUMPABLE, 7, 9), // to "done", else to ALLOW
        load(ARG4_HIGH),
        jump(BPF_JEQ, first, 0, 6), // else to USER_NOTIF
        load(ARG5_LOW),
        jump(BPF_JEQ, second, 0, 4), // else to USER_NOTIF
        load(ARG5_HIGH),
        jump(BPF_JEQ, third, 3, 2), // to ALLOW, else to USER_NOTIF
        ret(SECCOMP_RET_ERRNO | ENOSYS as u32),
        ret(SECCOMP_RET_ERRNO),
        ret(SECCOMP_RET_USER_NOTIF),
        ret(SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel does.
    fn verdict(arch: u32, nr: u32, arg0: u32) -> u32 {
        verdict_of(arch, nr, [u64::from(arg0), 0, 0, 0, 0, 0])
    }

    const TICKET: Ticket = Ticket([7, 8, 9]);

    fn verdict_of(arch: u32, nr: u32, args: [u64; 6]) -> u32 {
        let program = program(TICKET);
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            if code == BPF_RET | BPF_K {
                return step.k;
            }
            if code == BPF_LD | BPF_W | BPF_ABS {
                value = match step.k {
                    NR => nr,
                    ARCH => arch,
                    at => (args[(at as usize - 16) / 8] >> if at % 8 == 0 { 0 } else { 32 }) as u32,
                };
            } else {
                let yes = if code == BPF_JMP | BPF_JEQ | BPF_K { value == step.k } else { value >= step.k };
                at += usize::from(if yes { step.jt } else { step.jf });
            }
            at += 1;
        }
    }

    #[test]
    fn says_what_it_promises() {
        let own = AUDIT_ARCH_X86_64;
        let enosys = SECCOMP_RET_ERRNO | ENOSYS as u32;
        assert_eq!(verdict(own, SYS_execve as u32, 0), SECCOMP_RET_USER_NOTIF);
        assert_eq!(verdict(own, SYS_execveat as u32, 0), SECCOMP_RET_USER_NOTIF);
        assert_eq!(verdict(own, SYS_io_uring_setup as u32, 0), enosys);
        assert_eq!(verdict(own, SYS_prctl as u32, PR_SET_DUMPABLE), SECCOMP_RET_ERRNO);
        assert_eq!(verdict(own, SYS_prctl as u32, 38), SECCOMP_RET_ALLOW);
        assert_eq!(verdict(own, libc::SYS_read as u32, 4), SECCOMP_RET_ALLOW);
        assert_eq!(verdict(own, X32_BIT | SYS_execve as u32, 0), enosys);
        assert_eq!(verdict(own, X32_BIT | 520, 0), enosys);
        assert_eq!(verdict(0x4000_0003, 11, 0), enosys);
        assert_eq!(verdict(0x4000_0003, SYS_execve as u32, 0), enosys);
    }

    #[test]
    fn only_the_whole_ticket_on_an_execveat_passes() {
        let flags = libc::AT_EMPTY_PATH;
        let good = [3, 4, 5, 6, TICKET.flags(flags), TICKET.rest()];
        let ask = |nr: i64, args| verdict_of(AUDIT_ARCH_X86_64, nr as u32, args);
        assert_eq!(ask(SYS_execveat, good), SECCOMP_RET_ALLOW);
        // the kernel reads the flags alone
        assert_eq!(TICKET.flags(flags) as i32, flags);
        assert_eq!(ask(SYS_execve, good), SECCOMP_RET_USER_NOTIF);
        for wrong in [Ticket([0, 8, 9]), Ticket([7, 0, 9]), Ticket([7, 8, 0]), Ticket([0, 0, 0])] {
            let args = [3, 4, 5, 6, wrong.flags(flags), wrong.rest()];
            assert_eq!(ask(SYS_execveat, args), SECCOMP_RET_USER_NOTIF);
        }
        let words = [1, 2, 3].map(u32::to_ne_bytes);
        let mut random = [0; 12];
        random.copy_from_slice(words.as_flattened());
        assert!(Ticket::of(random) == Ticket([1, 2, 3]));
    }
}
