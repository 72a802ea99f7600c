//! How a new stream finds its session: a datagram socket with an abstract name, which holds nothing open and needs no
//! directory. What is passed through it is a stream and what its opener said; whether that proves anything the session judges.

use super::HostError;
use hmz_wire::channel::handshake::{self, Open, Opening};
use hmz_wire::channel::{ChannelError, decode, encode};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr, socket_with, sockopt,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an opener may take for a word, and a session to take a stream.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A stream whose opener has spoken.
pub(crate) struct Opener {
    /// The stream.
    pub(crate) stream: UnixStream,
    /// What was said.
    pub(crate) opening: Opening,
}

impl Opener {
    /// Hears an opener out.
    ///
    /// # Errors
    /// When it is none, or silent.
    pub(crate) fn hear(mut stream: UnixStream, claimed: impl FnOnce(&Open) -> bool) -> Result<Self, ChannelError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let opening = handshake::hear(&mut stream, claimed)?;
        Ok(Self { stream, opening })
    }

    /// Whether it begins a session.
    pub(crate) fn begins(&self) -> bool {
        self.opening.open.stream == 0
    }
}

fn name(session: &[u8; 16]) -> rustix::io::Result<SocketAddrUnix> {
    let hex: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("hmz-channel-{hex}").as_bytes())
}

/// Where a session takes streams.
#[derive(Debug)]
pub(crate) struct Door(OwnedFd);

impl Door {
    /// Opens that of a session.
    ///
    /// # Errors
    /// When there is one of that name.
    pub(crate) fn open(session: &[u8; 16]) -> std::io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        bind(&socket, &name(session)?)?;
        Ok(Self(socket))
    }

    /// The next stream that was passed on; `None` when there is none, or what came is nothing of ours.
    pub(crate) fn next(&self) -> Option<Opener> {
        let mut bytes = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        let mut fds = control.drain().filter_map(|ancillary| match ancillary {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let stream = UnixStream::from(fds.next()?.next()?);
        Some(Opener { stream, opening: decode(&bytes[..got]).ok()? })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Passes a stream on to its session.
///
/// # Errors
/// When there is no such session; the stream's opener has been told.
pub(crate) fn pass_on(mut opener: Opener) -> Result<(), HostError> {
    let sent = (|| -> Result<(), HostError> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        let body = encode(&opener.opening)?;
        let fds = [opener.stream.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let to = name(&opener.opening.open.session)?;
        sendmsg_addr(&socket, &to, &[IoSlice::new(&body)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    })();
    if sent.is_err() {
        let why = "the session is over: it was without a stream for too long, or its box was restarted";
        handshake::conclude(&mut opener.stream, &handshake::Verdict::Refused(why.into()))?;
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_wire::channel::handshake::{Answer, Challenge};
    use std::io::Write;

    fn opening(session: [u8; 16]) -> Opening {
        Opening {
            open: Open { version: 1, session, stream: 1, nonce: [255; 32], received: u64::MAX },
            challenge: Challenge { version: 1, nonce: [255; 32], claimed: true },
            answer: Answer::Proof([255; 32]),
        }
    }

    #[test]
    fn a_stream_is_passed_on_and_rubbish_is_not() {
        let session = handshake::random().expect("a session");
        let door = Door::open(&session).expect("a door");
        assert!(door.next().is_none());
        assert!(Door::open(&session).is_err(), "a session has one");
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        pass_on(Opener { stream: theirs, opening: opening(session) }).expect("it is there");
        let mut got = door.next().expect("a stream");
        assert!(got.opening == opening(session));
        got.stream.write_all(b"x").expect("it is ours");
        std::io::Read::read_exact(&mut ours, &mut [0]).expect("it is the stream");
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).expect("a socket");
        rustix::net::sendto(&socket, b"rubbish", SendFlags::empty(), &name(&session).expect("a name")).expect("sent");
        assert!(door.next().is_none());
        drop(door);
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        assert!(pass_on(Opener { stream: theirs, opening: opening(session) }).is_err());
        assert!(std::io::Read::read(&mut ours, &mut [0; 9]).expect("a word") > 0);
    }
}
