//! The seccomp filter on the CLI's tree, as data.
//!
//! `execve` and `execveat` wait for the supervisor. Making a process non-dumpable is answered without doing it, since its
//! memory could not be read any more. An io_uring could run what no filter sees, so there is none; and what is called
//! through another architecture's numbers does not exist.

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

const fn load(offset: u32) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_W | BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

const fn jump(kind: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | kind | BPF_K) as u16, jt, jf, k }
}

const fn ret(k: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k }
}

/// The program.
pub(crate) const PROGRAM: [sock_filter; 14] = [
    load(ARCH),
    jump(BPF_JEQ, AUDIT_ARCH_X86_64, 0, 8), // to ENOSYS
    load(NR),
    jump(BPF_JGE, X32_BIT, 6, 0),                   // to ENOSYS
    jump(BPF_JEQ, SYS_execve as u32, 7, 0),         // to USER_NOTIF
    jump(BPF_JEQ, SYS_execveat as u32, 6, 0),       // to USER_NOTIF
    jump(BPF_JEQ, SYS_io_uring_setup as u32, 3, 0), // to ENOSYS
    jump(BPF_JEQ, SYS_prctl as u32, 0, 5),          // else to ALLOW
    load(ARG0_LOW),
    jump(BPF_JEQ, PR_SET_DUMPABLE, 1, 3), // to "done", else to ALLOW
    ret(SECCOMP_RET_ERRNO | ENOSYS as u32),
    ret(SECCOMP_RET_ERRNO),
    ret(SECCOMP_RET_USER_NOTIF),
    ret(SECCOMP_RET_ALLOW),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel does.
    fn verdict(arch: u32, nr: u32, arg0: u32) -> u32 {
        let (mut at, mut value) = (0usize, 0u32);
        loop {
            let step = PROGRAM[at];
            let code = u32::from(step.code);
            if code == BPF_RET | BPF_K {
                return step.k;
            }
            if code == BPF_LD | BPF_W | BPF_ABS {
                value = match step.k {
                    NR => nr,
                    ARCH => arch,
                    _ => arg0,
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
}
