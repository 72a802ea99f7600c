//! Frames and messages between a supervisor here and the guest in a box, in the *direct* mode: one Unix stream socket a
//! session, length-prefixed frames, descriptors by SCM_RIGHTS on a frame's first byte.
//!
//! Neither end trusts the other: a frame is at most [`MAX_FRAME`] bytes and carries at most [`MAX_FDS`] descriptors,
//! and what does not decode ends the connection.
#![forbid(unsafe_code)]

mod awaited;
pub mod channel;
mod client;
mod connection;
mod message;
mod peer;
mod ran;

pub use awaited::located;
pub use channel::handshake::box_key;
pub use channel::write_all;
pub use client::{Client, ClientError, Command, CommandEvent};
pub use connection::{Reader, WireError, Writer, split};
pub use message::{Bytes, Fence, FromGuest, Spawn, Status, ToGuest, VERSION, Welcome};
pub use peer::{Peer, peer_of};
pub use ran::{Ran, observe};

/// Largest frame, in bytes: argv and environment are bounded by the kernel at 6 MiB (ARG_MAX with an 8 MiB stack is 2 MiB).
pub const MAX_FRAME: usize = 8 << 20;

/// Most descriptors one frame carries; the kernel's own limit is 253.
pub const MAX_FDS: usize = 64;

/// Where the guest's own binary is in a box.
pub const GUEST_PROGRAM: &str = "/.hmz/hmz";

/// Where the directory of the guest's socket is mounted in a box.
pub const GUEST_SOCKET_DIR: &str = "/.hmz/run";

/// The box's variable that holds the words put before every command, a line each. No command sees it.
pub const WRAPPER: &str = "HMZ_WRAPPER";

/// The socket's name in its directory, on both sides.
pub const SOCKET_NAME: &str = "g.sock";

/// What is executed in a box to reach its first process: a copier of bytes between its standard streams and the socket.
pub fn relay_argv() -> Vec<String> {
    [GUEST_PROGRAM, "guest", "connect", "--socket", &format!("{GUEST_SOCKET_DIR}/{SOCKET_NAME}")].map(str::to_owned).to_vec()
}
