//! Frames on a Unix stream socket: a length, a body, and descriptors on the first byte.
//!
//! Both halves block: they are used by threads of processes that have no async runtime. Writing is atomic a frame
//! (a lock inside [`Writer`]); a [`Writer`] can be cloned.

use crate::{MAX_FDS, MAX_FRAME};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket failed or the peer went away in the middle of a frame.
    #[error("the channel failed: {0}")]
    Io(#[from] std::io::Error),
    /// The peer sent what no peer of ours sends.
    #[error("the channel's peer broke the protocol: {0}")]
    Protocol(&'static str),
}

/// The half that receives.
#[derive(Debug)]
pub struct Reader {
    stream: UnixStream,
}

/// The half that sends.
#[derive(Debug, Clone)]
pub struct Writer {
    stream: Arc<UnixStream>,
    /// Held while a frame is sent. Not needed to shut down, which ends a send that the peer does not read.
    turn: Arc<Mutex<()>>,
}

/// Both halves of a connected socket.
///
/// # Errors
/// When the descriptor cannot be duplicated.
pub fn split(stream: UnixStream) -> Result<(Reader, Writer), WireError> {
    let other = stream.try_clone()?;
    Ok((Reader { stream }, Writer { stream: Arc::new(other), turn: Arc::new(Mutex::new(())) }))
}

/// A message with its length before it.
fn frame<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let mut frame =
        postcard::to_extend(message, vec![0; 4]).map_err(|_| WireError::Protocol("a message that cannot be encoded"))?;
    let len = frame.len() - 4;
    if len > MAX_FRAME {
        return Err(WireError::Protocol("a message that is too large"));
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(frame)
}

impl Writer {
    /// Sends one message with descriptors.
    ///
    /// # Errors
    /// When the message is too large, which leaves the channel as it was; or when the peer is gone or did not read within
    /// the socket's write timeout, which ends the channel: a frame may have been cut in two.
    pub fn send<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        if fds.len() > MAX_FDS {
            return Err(WireError::Protocol("a message that is too large"));
        }
        self.put(&frame(message)?, fds)
    }

    /// Sends messages together: whoever waits for them is woken once.
    ///
    /// # Errors
    /// As [`Writer::send`]; one that is too large leaves all of them unsent.
    pub fn send_all<T: Serialize>(&self, messages: &[T]) -> Result<(), WireError> {
        let mut frames = Vec::new();
        for message in messages {
            frames.extend_from_slice(&frame(message)?);
        }
        self.put(&frames, &[])
    }

    fn put(&self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), WireError> {
        // a thread that panicked while it held the lock sent a whole frame or broke the stream, which the peer sees
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(WireError::Protocol("too many descriptors"));
        }
        let mut sent = 0;
        while sent < frame.len() {
            let done = sendmsg(&*self.stream, &[IoSlice::new(&frame[sent..])], &mut control, SendFlags::NOSIGNAL);
            match done {
                Ok(n) => {
                    sent += n;
                    // the descriptors went with the first byte
                    control.clear();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    self.shutdown();
                    return Err(WireError::Io(e.into()));
                }
            }
        }
        Ok(())
    }

    /// Shuts the socket down in both directions, which ends the reader of either side, and a send that waits.
    pub fn shutdown(&self) {
        // already shut down is as good
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Reader {
    /// Receives one message and its descriptors (close-on-exec); `None` at the end of the stream.
    ///
    /// # Errors
    /// When the peer went away inside a frame or sent what does not decode.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>, WireError> {
        let mut head = [0u8; 4];
        let mut got = 0;
        let mut fds = Vec::new();
        while got < 4 {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let message =
                match recvmsg(&self.stream, &mut [IoSliceMut::new(&mut head[got..])], &mut control, RecvFlags::CMSG_CLOEXEC) {
                    Err(rustix::io::Errno::INTR) => continue,
                    other => other.map_err(|e| WireError::Io(e.into()))?,
                };
            for ancillary in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
                    fds.extend(rights);
                }
            }
            if message.bytes == 0 {
                return if got == 0 { Ok(None) } else { Err(WireError::Protocol("the stream ended inside a frame")) };
            }
            got += message.bytes;
        }
        let len = u32::from_le_bytes(head) as usize;
        if len > MAX_FRAME {
            return Err(WireError::Protocol("a frame that is too large"));
        }
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => WireError::Protocol("the stream ended inside a frame"),
            _ => e.into(),
        })?;
        match postcard::take_from_bytes(&body) {
            Ok((message, [])) => Ok(Some((message, fds))),
            _ => Err(WireError::Protocol("a frame that does not decode")),
        }
    }

    /// Waits for a message, or the end. A receive that waits is woken by its peer's reading too, which this is not.
    ///
    /// # Errors
    /// When the kernel does not wait.
    pub fn wait(&self) -> Result<(), WireError> {
        loop {
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], None) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(WireError::Io(e.into())),
            }
        }
    }

    /// The socket, to poll or to ask for its peer.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}
