//! What a stand-in and its supervisor say to each other over one stream socket. Native byte order: both are one machine.
//!
//! The stand-in begins with a [`Hello`] (its descriptors ride on the first byte), its directory, and the block of its
//! argument and environment strings as they lie on its stack; afterwards it sends the numbers of signals, four bytes
//! each. The supervisor sends [`Verdict`]s, or the box's guest, which may have been given the socket: what a stand-in does by one is
//! harmless whatever it says.

/// The first word of a [`Hello`].
pub const MAGIC: u32 = 0x7a6d_6831;

/// Most descriptors a stand-in hands over.
pub const MAX_FDS: usize = 64;

/// The socket's SO_PEEK_OFF is this plus the number of the descriptor the stand-in was executed from: how it finds it.
pub const SOCKET_MARK: i32 = 0x2000_0000;

/// The same of a stand-in that keeps its terminal: the command has one of its own elsewhere, and this one's changes of size
/// and its end have to be heard here.
pub const KEEPS_TERMINAL_MARK: i32 = 0x3000_0000;

/// The same of one of which all is known: it does not introduce itself.
pub const TOLD_MARK: i32 = 0x1000_0000;

/// Largest block of strings, in bytes: what the kernel allows an exec (6 MiB).
pub const MAX_BLOCK: usize = 6 << 20;

/// Longest directory, in bytes.
pub const MAX_CWD: usize = 4096;

/// The fixed head of what a stand-in says of itself.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u32,
    /// How many of `fds` count.
    pub nfds: u32,
    /// How many of the block's strings are arguments; the others are the environment.
    pub argc: u32,
    /// The umask.
    pub umask: u32,
    /// Signals blocked: bit n-1 is signal n.
    pub blocked: u64,
    /// Signals ignored: bit n-1 is signal n.
    pub ignored: u64,
    /// Bytes of the directory.
    pub cwd_len: u32,
    /// Bytes of the block.
    pub block_len: u32,
    /// The number of the descriptor that was its controlling terminal as a session leader, or -1. It has given it up.
    pub ctty: i32,
    /// Not used.
    pub spare: u32,
    /// The numbers the descriptors have in the command.
    pub fds: [i32; MAX_FDS],
}

/// What a stand-in is told.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// [`EXITED`], [`SIGNALED`] or [`EMPTY`], with [`ALIVE`] when processes of the command's session live on.
    pub kind: u32,
    /// The status or the signal.
    pub value: u32,
}

impl Verdict {
    /// Its bytes.
    pub fn bytes(self) -> [u8; 8] {
        let (kind, value) = (self.kind.to_ne_bytes(), self.value.to_ne_bytes());
        [kind[0], kind[1], kind[2], kind[3], value[0], value[1], value[2], value[3]]
    }
}

/// Whether a command can have died of a signal: there is one, and its default is not to stop or to do nothing.
pub const fn kills(signal: u32) -> bool {
    // CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH
    !matches!(signal, 17..=23 | 28) && signal >= 1 && signal <= 64
}

/// It exited.
pub const EXITED: u32 = 1;
/// It died of a signal.
pub const SIGNALED: u32 = 2;
/// The last process of its session has ended.
pub const EMPTY: u32 = 3;
/// Flag of the first two: somebody has to stay in the process group, to be signalled.
pub const ALIVE: u32 = 0x100;
