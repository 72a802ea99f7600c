//! The raw system calls, and the memory functions a compiler takes for granted.

use core::arch::{asm, global_asm};

global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    // the precompiled core names it; nothing here unwinds
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
    main = sym crate::start,
);

/// A system call with up to six arguments; the result is negative for an errno.
///
/// # Safety
/// The arguments must be what the call `nr` takes: pointers to memory that is the caller's for as long as the call goes.
pub unsafe fn syscall(nr: usize, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the kernel clobbers rcx and r11 only; what the arguments point to is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") nr => ret, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3],
            in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: both ranges are the caller's and do not overlap.
    unsafe { asm!("rep movsb", inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack)) };
    to
}

/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the range is the caller's.
    unsafe { asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") byte as u8, options(nostack)) };
    to
}
