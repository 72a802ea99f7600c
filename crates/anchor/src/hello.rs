//! What a stand-in says of itself, put together as it arrives: whoever hears many waits for none of them.

use hmz_standin::protocol::{Hello, MAGIC, MAX_BLOCK, MAX_CWD, MAX_FDS};
use hmz_wire::Bytes;
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const HEAD: usize = size_of::<Hello>();

/// What a stand-in said.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) argv: Vec<Bytes>,
    pub(crate) env: Vec<Bytes>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) umask: u32,
    pub(crate) blocked: u64,
    pub(crate) ignored: u64,
    pub(crate) ctty: Option<i32>,
    pub(crate) fds: Vec<(i32, OwnedFd)>,
    /// What came behind it: the first of its signals.
    pub(crate) rest: Vec<u8>,
}

/// What came of a look at the socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// There is more to come.
    More,
    /// All of it.
    Whole(Box<Introduction>),
    /// It ended, or this is what no stand-in says.
    Nothing,
}

/// The beginning of an introduction.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Hearing {
    /// Takes what is there, by way of `buffer`.
    pub(crate) fn hear(&mut self, socket: &UnixStream, buffer: &mut [u8]) -> Heard {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR | Errno::AGAIN) => return Heard::More,
            Ok(got) if got.bytes > 0 => got.bytes,
            _ => return Heard::Nothing,
        };
        for ancillary in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = ancillary {
                self.fds.extend(rights);
            }
        }
        self.bytes.extend_from_slice(&buffer[..got]);
        match self.length() {
            Some(whole) if self.fds.len() <= MAX_FDS => {
                if self.bytes.len() < whole {
                    return Heard::More;
                }
                self.whole(whole)
            }
            _ => Heard::Nothing,
        }
    }

    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// How many bytes the introduction has, as far as is known; `None` when it is none.
    fn length(&self) -> Option<usize> {
        if self.bytes.len() < HEAD {
            return Some(HEAD);
        }
        let (cwd, block) = (self.word(32) as usize, self.word(36) as usize);
        (self.word(0) == MAGIC && cwd <= MAX_CWD && block <= MAX_BLOCK).then_some(HEAD + cwd + block)
    }

    /// Reads the first `whole` bytes.
    fn whole(&mut self, whole: usize) -> Heard {
        let (nfds, argc, cwd_end) = (self.word(4) as usize, self.word(8) as usize, HEAD + self.word(32) as usize);
        if nfds != self.fds.len() {
            return Heard::Nothing;
        }
        let numbers: Vec<i32> = (0..nfds).map(|i| self.word(HEAD - 4 * MAX_FDS + 4 * i) as i32).collect();
        let fds = numbers.into_iter().zip(self.fds.drain(..)).filter(|(n, _)| *n >= 0).collect();
        let block = &self.bytes[cwd_end..whole];
        let mut strings = block.strip_suffix(b"\0").unwrap_or(block).split(|&b| b == 0).map(Bytes::from);
        let argv = strings.by_ref().take(argc).collect();
        let ctty = self.word(40) as i32;
        Heard::Whole(Box::new(Introduction {
            argv,
            env: strings.collect(),
            cwd: self.bytes[HEAD..cwd_end].to_vec(),
            umask: self.word(12) & 0o777,
            blocked: self.long(16),
            ignored: self.long(24),
            ctty: (ctty >= 0).then_some(ctty),
            fds,
            rest: self.bytes[whole..].to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What is heard of bytes that come in pieces of this size, and then end.
    fn heard(bytes: &[u8], piece: usize) -> Option<Introduction> {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket");
        let mut hearing = Hearing::default();
        let mut buffer = [0; 4096];
        assert!(matches!(hearing.hear(&ours, &mut buffer), Heard::More), "nothing came yet");
        for piece in bytes.chunks(piece) {
            theirs.write_all(piece).expect("room");
            match hearing.hear(&ours, &mut buffer) {
                Heard::More => {}
                Heard::Whole(said) => return Some(*said),
                Heard::Nothing => return None,
            }
        }
        drop(theirs);
        assert!(matches!(hearing.hear(&ours, &mut buffer), Heard::Nothing), "its end is heard");
        None
    }

    fn hello(words: &[(usize, u32)], rest: &[u8]) -> Vec<u8> {
        let mut head = vec![0u8; HEAD];
        for (at, word) in words {
            head[*at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        head.extend_from_slice(rest);
        head
    }

    #[test]
    fn what_a_stand_in_says() {
        let words = [(0, MAGIC), (8, 2), (12, 0o7022), (16, 5), (32, 2), (36, 10), (40, u32::MAX)];
        for piece in [1, 7, 4096] {
            let said = heard(&hello(&words, b"/xa\0b c\0D=e\0"), piece).expect("an introduction");
            assert_eq!(said.argv, [Bytes::from(&b"a"[..]), Bytes::from(&b"b c"[..])]);
            assert_eq!(said.env, [Bytes::from(&b"D=e"[..])]);
            assert_eq!((said.cwd.as_slice(), said.umask, said.blocked, said.ctty), (&b"/x"[..], 0o022, 5, None));
            assert!(said.rest.is_empty());
        }
        let said = heard(&hello(&words, b"/xa\0b c\0D=e\0\x0f\0\0\0"), 4096).expect("an introduction");
        assert_eq!(said.rest, [15, 0, 0, 0]);
    }

    #[test]
    fn what_no_stand_in_says() {
        assert!(heard(b"", 1).is_none() && heard(b"short", 5).is_none());
        let alone = |words: &[(usize, u32)]| heard(&hello(words, b""), 4096).is_none();
        assert!(alone(&[(0, MAGIC + 1)]));
        // descriptors that did not come, lengths beyond all bounds, and an end in the middle
        assert!(alone(&[(0, MAGIC), (4, 1)]));
        assert!(alone(&[(0, MAGIC), (32, u32::MAX)]));
        assert!(alone(&[(0, MAGIC), (36, u32::MAX)]));
        assert!(heard(&hello(&[(0, MAGIC), (36, 10)], b"few"), 4096).is_none());
    }
}
