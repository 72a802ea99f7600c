//! A command's descriptors here, each copied by a thread. A descriptor is never changed: others share it.

use super::client::{Channel, Inbound, Inner, Outbound};
use super::frame::{MAX_DATA, StreamId};
use super::terminal::make_raw;
use super::{SpawnStreams, StreamKind, StreamSpec, TerminalSettings};
use crate::ClientError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, PoisonError};

/// A thread's stack, in bytes.
const STACK: usize = 128 << 10;

/// A descriptor of a command's here. A terminal is given back as it was.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) fd: OwnedFd,
    before: Option<Termios>,
}

impl Here {
    /// A terminal gives every byte that is typed as it is: the box's is the one to understand it.
    fn new(fd: OwnedFd, is_terminal: bool) -> Self {
        let before = if is_terminal { tcgetattr(&fd).ok() } else { None };
        if before.is_some() {
            // one that is gone is none to be changed
            let _ = make_raw(&fd);
        }
        Self { fd, before }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // one that is gone needs nothing back
            let _ = tcsetattr(&self.fd, OptionalActions::Now, before);
        }
    }
}

/// A descriptor that is copied.
struct Copied {
    fd: Arc<Here>,
    kind: StreamKind,
}

/// The streams of a command, and what is copied for them, by index.
pub(crate) struct Streams {
    /// What the guest is told.
    pub(crate) specs: SpawnStreams,
    copied: Vec<Option<Copied>>,
}

/// Sorts a command's descriptors. Two of one object are one stream, so that what is written to both keeps its order.
///
/// # Errors
/// When one cannot be looked at or duplicated.
pub(crate) fn sort(numbers: &[i32], fds: &[BorrowedFd<'_>]) -> Result<Streams, ClientError> {
    let mut streams = Streams { specs: Vec::new(), copied: Vec::new() };
    let mut seen: HashMap<(u64, u64, u8), usize> = HashMap::new();
    for (number, fd) in numbers.iter().zip(fds) {
        let stat = fstat(fd).map_err(std::io::Error::from)?;
        let mode = fcntl_getfl(fd).map_err(std::io::Error::from)? & OFlags::RWMODE;
        let is_tty = rustix::termios::isatty(fd);
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if device == (1, 3) => StreamKind::Null,
            FileType::CharacterDevice if is_tty => StreamKind::Terminal(Box::new(TerminalSettings::of(fd)?)),
            FileType::Socket => StreamKind::Both,
            _ if mode == OFlags::WRONLY || (mode == OFlags::RDWR && *number != 0) => StreamKind::Output,
            _ => StreamKind::Input,
        };
        let key = (stat.st_dev, stat.st_ino, u8::from(kind.is_read()) + 2 * u8::from(kind.is_written()));
        if let Some(at) = seen.get(&key) {
            streams.specs[*at].numbers.push(*number);
            continue;
        }
        seen.insert(key, streams.specs.len());
        streams.copied.push(match kind {
            StreamKind::Null => None,
            _ => {
                let here = Here::new(fd.try_clone_to_owned()?, matches!(kind, StreamKind::Terminal(_)));
                Some(Copied { fd: Arc::new(here), kind: kind.clone() })
            }
        });
        streams.specs.push(StreamSpec { kind, numbers: vec![*number] });
    }
    Ok(streams)
}

impl Streams {
    /// The number of a terminal among them.
    pub(crate) fn terminal(&self) -> Option<i32> {
        let terminal = self.specs.iter().find(|spec| matches!(spec.kind, StreamKind::Terminal(_)));
        terminal.and_then(|spec| spec.numbers.first().copied())
    }

    /// Has the mux know them, before the command is asked for.
    pub(crate) fn open(&self, inner: &mut Inner, command: u64) -> Result<(), ClientError> {
        // before anything is changed
        let bells = self.copied.iter().map(|_| Channel::bell()).collect::<std::io::Result<Vec<_>>>()?;
        for ((index, copied), over) in self.copied.iter().enumerate().zip(bells) {
            let Some(copied) = copied else { continue };
            let id = StreamId { command, index: index as u8 };
            if matches!(copied.kind, StreamKind::Terminal(_)) {
                inner.remember(id, &copied.fd);
            }
            if copied.kind.is_read() {
                inner.mux.open_sender(id);
                inner.outbound.insert(id, Outbound { change: Arc::new(Condvar::new()), over });
            }
            if copied.kind.is_written() {
                inner.mux.open_receiver(id);
                let change = Arc::new(Condvar::new());
                inner.inbound.insert(id, Inbound { waiting: VecDeque::new(), ended: false, written: 0, change });
            }
        }
        Ok(())
    }

    /// Copies. What no thread can be had for ends at once.
    pub(crate) fn start(self, channel: &Arc<Channel>, command: u64) {
        for (index, copied) in self.copied.into_iter().enumerate() {
            let Some(Copied { fd, kind }) = copied else { continue };
            let id = StreamId { command, index: index as u8 };
            let work = |name: &str, run: fn(&Channel, StreamId, &OwnedFd)| {
                let (own, fd) = (Arc::clone(channel), Arc::clone(&fd));
                let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK);
                thread.spawn(move || run(&own, id, &fd.fd)).is_ok()
            };
            if kind.is_written() && !work("copy-out", output) {
                finish_output(channel, id);
            }
            if kind.is_read() && !work("copy-in", input) {
                finish_input(channel, id);
            }
        }
    }
}

/// Writes out what the command writes, until it ends or nobody takes it.
fn output(channel: &Channel, id: StreamId, to: &OwnedFd) {
    loop {
        let bytes = {
            let mut inner = channel.inner();
            loop {
                if inner.lost {
                    break None;
                }
                let Some(inbound) = inner.inbound.get_mut(&id) else { break None };
                if let Some(bytes) = inbound.waiting.pop_front() {
                    break Some(bytes);
                }
                if inbound.ended {
                    break None;
                }
                let change = Arc::clone(&inbound.change);
                inner = change.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let Some(bytes) = bytes else { break };
        let good = write_all(to, &bytes).is_ok();
        let mut inner = channel.inner();
        if !good {
            break;
        }
        inner.mux.consumed(id, bytes.len());
        if let Some(inbound) = inner.inbound.get_mut(&id) {
            inbound.written += bytes.len() as u64;
        }
        inner.settle(id.command);
        drop(inner);
        channel.wake();
        channel.pass_on();
    }
    finish_output(channel, id);
}

fn finish_output(channel: &Channel, id: StreamId) {
    let mut inner = channel.inner();
    // of one that has ended there is nothing to stop
    inner.mux.stop(id);
    inner.inbound.remove(&id);
    inner.settle(id.command);
    drop(inner);
    channel.wake();
    channel.pass_on();
}

/// Reads what the command is to read, no more than there is room for, until it ends or nobody wants it.
fn input(channel: &Channel, id: StreamId, from: &OwnedFd) {
    let mut buffer = vec![0u8; MAX_DATA];
    loop {
        let (room, over) = {
            let mut inner = channel.inner();
            loop {
                let found = inner.outbound.get(&id).map(|o| (Arc::clone(&o.change), Arc::clone(&o.over)));
                let (Some((change, over)), Some(room), false) = (found, inner.mux.room(id), inner.lost) else { break (0, None) };
                if room > 0 {
                    break (room, Some(over));
                }
                inner = change.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let Some(over) = over else { break };
        let mut fds = [PollFd::new(from, PollFlags::IN), PollFd::new(&*over, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(_) => break,
            Ok(_) => {}
        }
        if !fds[1].revents().is_empty() {
            break;
        }
        match rustix::io::read(from, &mut buffer[..room]) {
            Ok(0) => break,
            Ok(n) => {
                channel.inner().mux.data(id, buffer[..n].to_vec());
                channel.wake();
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => break,
        }
    }
    finish_input(channel, id);
}

fn finish_input(channel: &Channel, id: StreamId) {
    let mut inner = channel.inner();
    inner.mux.end(id);
    inner.outbound.remove(&id);
    drop(inner);
    channel.wake();
}

/// Writes everything; a description somebody made non-blocking is waited for.
///
/// # Errors
/// What the kernel says, `EPIPE` when nobody reads any more.
pub fn write_all(to: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
