//! Who is at the other end of a Unix socket.

use crate::WireError;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::os::fd::AsFd;

/// The process that connected, or that called `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its pid as this process's pid namespace sees it; 0 when it is not of this namespace or below it.
    pub pid: i32,
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
}

/// The peer of a connected Unix socket, as it was when it connected or listened.
///
/// # Errors
/// When the socket is none.
pub fn peer_of(socket: impl AsFd) -> Result<Peer, WireError> {
    let got = getsockopt(&socket.as_fd(), PeerCredentials).map_err(|e| WireError::Io(e.into()))?;
    Ok(Peer { pid: got.pid(), uid: got.uid(), gid: got.gid() })
}
