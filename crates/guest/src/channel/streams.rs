//! What a command has for its descriptors: pipes, sockets and terminals made here, of which we keep the other end.
//!
//! Our ends are never waited on: they are descriptions of their own, so that making them non-blocking changes nothing for
//! the command.

use hmz_wire::channel::frame::StreamId;
use hmz_wire::channel::mux::{Mux, WINDOW};
use hmz_wire::channel::{Size, StreamKind, StreamSpec};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What our end of a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    Terminal,
}

/// A command's descriptors, with the numbers they get.
pub(crate) type Given = Vec<(i32, OwnedFd)>;

/// One of a command's streams, seen from our end.
#[derive(Debug)]
pub(crate) struct Stream {
    id: StreamId,
    kind: Kind,
    /// `None` once both directions are over.
    end: Option<OwnedFd>,
    /// Whether bytes for the command may come or wait.
    to_command: bool,
    /// Whether bytes of the command's may come.
    from_command: bool,
    /// Bytes for the command; at most the window.
    waiting: VecDeque<Vec<u8>>,
    /// How much of the first of them is written.
    written: usize,
    /// No more come for the command.
    ending: bool,
    /// Whether the command can write at all.
    is_written: bool,
    /// Bytes of the command's that were read.
    read: u64,
}

/// Makes the object of a stream; our end and the command's. The mux knows the stream already.
fn make(kind: &StreamKind) -> rustix::io::Result<(Option<(Kind, OwnedFd)>, OwnedFd)> {
    let pair = match kind {
        StreamKind::Null => {
            let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            return Ok((None, null));
        }
        StreamKind::Input => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            ((Kind::Pipe, ours), theirs)
        }
        StreamKind::Output => {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            ((Kind::Pipe, ours), theirs)
        }
        StreamKind::Both => {
            let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            ((Kind::Socket, ours), theirs)
        }
        StreamKind::Terminal(settings) => {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let ours = openpt(flags)?;
            grantpt(&ours)?;
            unlockpt(&ours)?;
            let theirs = ioctl_tiocgptpeer(&ours, flags)?;
            settings.apply(&theirs).map_err(|_| Errno::NOTTY)?;
            ((Kind::Terminal, ours), theirs)
        }
    };
    let ((kind, ours), theirs) = pair;
    fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
    Ok((Some((kind, ours)), theirs))
}

/// Opens the streams of a command: those we copy, and its descriptors with the numbers they get. When one cannot be made
/// all are ended.
///
/// # Errors
/// The errno.
pub(crate) fn open(command: u64, specs: &[StreamSpec], mux: &mut Mux) -> Result<(Vec<Stream>, Given), i32> {
    let id_of = |index: usize| StreamId { command, index: index as u8 };
    for (index, spec) in specs.iter().enumerate() {
        if spec.kind.is_read() {
            mux.open_receiver(id_of(index));
        }
        if spec.kind.is_written() {
            mux.open_sender(id_of(index));
        }
    }
    let mut streams = Vec::new();
    let mut given = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let made = make(&spec.kind).and_then(|(ours, theirs)| {
            for number in &spec.numbers {
                given.push((*number, rustix::io::fcntl_dupfd_cloexec(&theirs, 0)?));
            }
            Ok(ours)
        });
        match made {
            Ok(None) => {}
            Ok(Some((kind, end))) => streams.push(Stream {
                id: id_of(index),
                kind,
                end: Some(end),
                to_command: spec.kind.is_read(),
                from_command: spec.kind.is_written(),
                is_written: spec.kind.is_written(),
                waiting: VecDeque::new(),
                written: 0,
                ending: false,
                read: 0,
            }),
            Err(errno) => {
                for index in 0..specs.len() {
                    mux.stop(id_of(index));
                    mux.end(id_of(index));
                }
                return Err(errno.raw_os_error());
            }
        }
    }
    Ok((streams, given))
}

impl Stream {
    /// Which one it is.
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Whether nothing more can come of it.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_none()
    }

    /// Our end, and what it is to be asked for: to be read, to be written, and whether anything at all.
    pub(crate) fn interest(&self, mux: &Mux) -> Option<(BorrowedFd<'_>, bool, bool)> {
        let end = self.end.as_ref()?.as_fd();
        let read = self.from_command && mux.room(self.id).is_some_and(|room| room > 0);
        let write = self.to_command && (!self.waiting.is_empty() || self.ending);
        // an error is told unasked. That is how the end of a pipe's reader is seen; but where output waits for the peer it
        // would be told again and again
        let idle = self.to_command && !self.from_command;
        (read || write || idle).then_some((end, read, write))
    }

    /// Takes bytes for the command.
    pub(crate) fn give(&mut self, bytes: Vec<u8>, mux: &mut Mux) {
        if self.to_command {
            self.waiting.push_back(bytes);
            self.write(mux);
        } else {
            mux.consumed(self.id, bytes.len());
        }
    }

    /// No more bytes come for the command.
    pub(crate) fn finish(&mut self, mux: &mut Mux) {
        self.ending = true;
        self.write(mux);
    }

    /// The peer wants no more of what the command writes.
    pub(crate) fn unwanted(&mut self) {
        self.from_command = false;
        if self.kind == Kind::Socket
            && let Some(end) = &self.end
        {
            // one that is closed needs no shutting
            let _ = rustix::net::shutdown(end, rustix::net::Shutdown::Read);
        }
        self.close_when_over();
    }

    /// The size of a terminal.
    pub(crate) fn resize(&self, size: Size) {
        if let (Kind::Terminal, Some(end)) = (self.kind, &self.end) {
            // a terminal that is gone has no size
            let _ = size.apply(end);
        }
    }

    /// How many bytes the command has written by now; `None` when it cannot write.
    pub(crate) fn written_by_command(&self) -> Option<u64> {
        let end = self.end.as_ref().filter(|_| self.from_command);
        let unread = end.and_then(|end| rustix::io::ioctl_fionread(end).ok());
        self.is_written.then(|| self.read + unread.unwrap_or(0))
    }

    /// Reads what there is room for.
    pub(crate) fn read(&mut self, buffer: &mut [u8], mux: &mut Mux) {
        let Some(end) = self.end.as_ref().filter(|_| self.from_command) else { return };
        let Some(room) = mux.room(self.id).filter(|room| *room > 0) else { return };
        let room = room.min(buffer.len());
        match rustix::io::read(end, &mut buffer[..room]) {
            Ok(0) => self.drained(mux),
            Ok(n) => {
                self.read += n as u64;
                mux.data(self.id, buffer[..n].to_vec());
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            // EIO is how a terminal says that nobody has its other side any more
            Err(_) => self.drained(mux),
        }
    }

    fn drained(&mut self, mux: &mut Mux) {
        self.from_command = false;
        mux.end(self.id);
        if self.kind == Kind::Terminal {
            self.refuse(mux);
        }
        self.close_when_over();
    }

    /// Writes what the command's side takes.
    pub(crate) fn write(&mut self, mux: &mut Mux) {
        let mut gone = 0;
        while let (Some(end), Some(first)) = (self.end.as_ref().filter(|_| self.to_command), self.waiting.front()) {
            match rustix::io::write(end, &first[self.written..]) {
                Ok(n) => {
                    gone += n;
                    self.written += n;
                    if self.written == first.len() {
                        self.waiting.pop_front();
                        self.written = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.refuse(mux);
                    break;
                }
            }
        }
        if gone > 0 {
            mux.consumed(self.id, gone);
        }
        // the written part of the first has been consumed already
        debug_assert!((self.waiting.iter().map(Vec::len).sum::<usize>() - self.written) as u64 <= WINDOW);
        if self.to_command && self.ending && self.waiting.is_empty() {
            self.to_command = false;
            match (self.kind, &self.end) {
                (Kind::Socket, Some(end)) => drop(rustix::net::shutdown(end, rustix::net::Shutdown::Write)),
                // whoever was at the terminal is gone: it hangs up
                (Kind::Terminal, _) => {
                    self.from_command = false;
                    mux.end(self.id);
                }
                _ => {}
            }
        }
        self.close_when_over();
    }

    /// The command's side was seen closed, and nothing is left to be read.
    pub(crate) fn broken(&mut self, mux: &mut Mux) {
        self.refuse(mux);
        self.close_when_over();
    }

    /// Wants no more for the command.
    fn refuse(&mut self, mux: &mut Mux) {
        if self.to_command {
            self.to_command = false;
            self.waiting.clear();
            self.written = 0;
            mux.stop(self.id);
        }
    }

    fn close_when_over(&mut self) {
        if !self.to_command && !self.from_command {
            self.end = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_wire::channel::frame::Decoder;
    use hmz_wire::channel::mux::Event;
    use std::time::Instant;

    #[test]
    fn a_full_window_waits_behind_a_piece_that_is_written_in_part() {
        let (mut mux, mut peer) = (Mux::default(), Mux::default());
        let spec = StreamSpec { kind: StreamKind::Input, numbers: vec![0] };
        let (mut streams, given) = open(1, &[spec], &mut mux).expect("a pipe");
        let stream = &mut streams[0];
        let whole = |bytes: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.feed(bytes);
            decoder.take().expect("a frame").expect("a whole one")
        };
        peer.open_sender(stream.id());
        let mut sent = 0;
        // the command reads a little of what fills its pipe: a part of a piece is written, and a window waits behind it
        for read in [0, 20_000] {
            rustix::io::read(&given[0].1, &mut vec![0; read]).expect("a pipe");
            stream.write(&mut mux);
            loop {
                while let Some(bytes) = mux.next(Instant::now()) {
                    peer.receive(whole(&bytes), Instant::now()).expect("a credit, or an acknowledgement");
                }
                let Some(room @ 1..) = peer.room(stream.id()) else { break };
                peer.data(stream.id(), vec![7; room.min(10_000)]);
                let bytes = peer.next(Instant::now()).expect("what was given to it");
                if let Some(Event::Data(_, bytes)) = mux.receive(whole(&bytes), Instant::now()).expect("within its credit") {
                    sent += bytes.len() as u64;
                    stream.give(bytes, &mut mux);
                }
                mux.acknowledge();
            }
        }
        assert!(stream.written > 0 && stream.waiting.len() > 1);
        assert!(sent > WINDOW, "{sent}");
    }

    #[test]
    fn what_a_command_does_not_take_any_more_is_dropped_with_the_part_that_was_written() {
        let mut mux = Mux::default();
        let spec = StreamSpec { kind: StreamKind::Input, numbers: vec![0] };
        let (mut streams, given) = open(1, &[spec], &mut mux).expect("a pipe");
        let stream = &mut streams[0];
        // more than the pipe holds
        stream.give(vec![7; 100_000], &mut mux);
        assert!(stream.written > 0 && stream.waiting.len() == 1);
        drop(given);
        stream.write(&mut mux);
        assert!(stream.is_over() && stream.waiting.is_empty());
    }
}
