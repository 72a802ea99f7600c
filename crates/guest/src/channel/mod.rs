//! The box's side of a channel: sessions whose peer is behind one stream of bytes.
//!
//! A session is held by a process of its own, its *host*. The host has a spawner, which is the same process that serves a
//! direct connection; it makes pipes, sockets and terminals for the commands and copies between them and the stream. A
//! stream may be cut: the host lives on for the session's window, and another stream is passed to it at its *door*.

mod door;
mod host;
mod relay;
mod serve;
mod streams;

pub(crate) use door::{Opener, pass_on};
pub(crate) use host::hold;
pub(crate) use relay::connect;
pub(crate) use serve::serve;

/// Why a channel's process ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// The peer or the stream.
    #[error(transparent)]
    Channel(#[from] hmz_wire::channel::ChannelError),
    /// The spawner.
    #[error(transparent)]
    Spawner(#[from] hmz_wire::WireError),
    /// The kernel refused something every kernel gives.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// What is asked for cannot be had here.
    #[error("{0}")]
    Refused(&'static str),
}

impl From<crate::init::InitError> for HostError {
    fn from(e: crate::init::InitError) -> Self {
        Self::Io(std::io::Error::other(e.to_string()))
    }
}

impl From<rustix::io::Errno> for HostError {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Io(e.into())
    }
}

impl From<nix::Error> for HostError {
    fn from(e: nix::Error) -> Self {
        Self::Io(e.into())
    }
}
