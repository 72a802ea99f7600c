//! A session over one ordered stream of bytes, for boxes that are not on this kernel: everything that crosses is copied.
//!
//! [`frame`] is how it is written, [`mux`] one side of it without any I/O, [`handshake`] how the two ends prove themselves and
//! find a session again after its stream was cut, `client` the side that works in the box; [`crate::Client`]
//! is its face. The guest's side is in the guest.
//! docs/decisions/0008-the-channel.md says why.

mod carry;
mod client;
mod dial;
mod engine;
pub mod frame;
pub mod handshake;
pub mod mux;
mod pace;
mod pump;
pub mod terminal;

pub use carry::{CARRIED, Carried, carry, run_in, said_in};
pub use pump::write_all;

pub(crate) use client::{Channel, Source};

use crate::{Bytes, Fence, Spawn, Status, Welcome, WireError};
use serde::{Deserialize, Serialize};

/// Most streams a command may have.
pub const MAX_STREAMS: usize = crate::MAX_FDS;

/// Why a channel is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The peer sent what no peer of ours sends: the session is over.
    #[error("the channel's peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The stream was cut: another one may go on.
    #[error("the channel was cut: {0}")]
    Cut(#[from] std::io::Error),
    /// The other end said no.
    #[error("{0}")]
    Refused(String),
    /// The other end could not prove that it is the box's guest, or the other way round.
    #[error("the two ends of the channel do not have the same key")]
    Unproved,
}

impl From<ChannelError> for WireError {
    fn from(e: ChannelError) -> Self {
        match e {
            ChannelError::Protocol(what) => Self::Protocol(what),
            ChannelError::Cut(e) => Self::Io(e),
            other => Self::Io(std::io::Error::other(other.to_string())),
        }
    }
}

/// From the side that works in the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The first message.
    Hello {
        /// Whether its connection keeps a leased box alive.
        owner: bool,
        /// What its commands may write.
        fence: Option<Fence>,
        /// How long it outlives its stream, in milliseconds.
        window_ms: u64,
    },
    /// Start a command; `Spawn::fds` is empty, the streams say it.
    Spawn(Box<Spawn>, SpawnStreams),
    /// Signal its process group.
    Signal {
        /// Which command.
        id: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Whoever waited for it is gone: kill its session.
    Close {
        /// Which command.
        id: u64,
    },
    /// A terminal of it has another size.
    Resize {
        /// Which command.
        id: u64,
        /// Which of its streams.
        index: u8,
        /// The size.
        size: Size,
    },
    /// The session is over: kill what it started. The stream ends when nothing is left of it.
    Bye,
    /// As [`crate::ToGuest::Measure`].
    Measure,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// The answer to a `Hello`.
    Welcome(Box<Welcome>),
    /// The `Hello` was refused; the session ends.
    Refused(String),
    /// Its exec succeeded.
    Started {
        /// Which command.
        id: u64,
    },
    /// It could not be started. Its streams end.
    SpawnFailed {
        /// Which command.
        id: u64,
        /// The errno of the step that failed.
        errno: i32,
    },
    /// It ended. Told at once, though a child of it holds a stream or much of its output is on its way.
    Exited {
        /// Which command.
        id: u64,
        /// How.
        status: Status,
        /// Whether processes of its session live on.
        alive: bool,
        /// Of each stream it could write: how many bytes had been written when it ended.
        written: Vec<(u8, u64)>,
    },
    /// The last process of an ended command's session has ended.
    Empty {
        /// Which command.
        id: u64,
    },
    /// The programs on the box's PATH changed.
    Programs(Vec<String>),
    /// As [`crate::FromGuest::Ran`].
    Ran {
        /// Which command.
        id: u64,
        /// How it ended.
        status: Status,
        /// Nanoseconds from its start to its end.
        nanos: u64,
    },
}

/// The streams of a command, by index.
pub type SpawnStreams = Vec<StreamSpec>;

/// One object behind one or more of a command's descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// What it is.
    pub kind: StreamKind,
    /// The numbers it has in the command.
    pub numbers: Vec<i32>,
}

/// What the guest makes for a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamKind {
    /// `/dev/null`, and nothing is copied.
    Null,
    /// A pipe it reads.
    Input,
    /// A pipe it writes.
    Output,
    /// A socket.
    Both,
    /// A terminal.
    Terminal(Box<TerminalSettings>),
}

impl StreamKind {
    /// Whether bytes go to the command.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Input | Self::Both | Self::Terminal(_))
    }

    /// Whether bytes come from the command.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Output | Self::Both | Self::Terminal(_))
    }
}

/// What a terminal is like, as the kernel's `termios` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSettings {
    /// Input, output, control and local modes.
    pub modes: [u32; 4],
    /// The special characters, by index.
    pub codes: Bytes,
    /// Its size.
    pub size: Size,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
    /// Width in pixels, or 0.
    pub width: u16,
    /// Height in pixels, or 0.
    pub height: u16,
}

/// A message as a frame's body.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ChannelError> {
    postcard::to_stdvec(message).map_err(|_| ChannelError::Protocol("a message that cannot be encoded"))
}

/// A frame's body as a message.
///
/// # Errors
/// When it is none.
pub fn decode<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ChannelError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(ChannelError::Protocol("a message that does not decode")),
    }
}
