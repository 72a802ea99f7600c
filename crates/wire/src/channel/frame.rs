//! The frames of a stream: `length (u32) kind (u8) body`, little endian. The length counts the body alone.
//!
//! Numbered frames ([`Frame::is_numbered`]) are counted by both ends and sent again when a stream is replaced; the others
//! are of one stream. What is too long, empty where nothing may be empty, or of an unknown kind ends the session.

use super::ChannelError;

/// Most bytes of data one frame holds. Nothing waits behind more than one of them.
pub const MAX_DATA: usize = 16 << 10;

/// Largest message, in bytes.
pub const MAX_MESSAGE: usize = crate::MAX_FRAME;

/// Bytes before a body.
const HEAD: usize = 5;

/// One stream of a command in one direction: the command's id and which of its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// The command.
    pub command: u64,
    /// Its index in [`super::SpawnStreams`].
    pub index: u8,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message, encoded.
    Message(Vec<u8>),
    /// Bytes of a stream; not empty.
    Data(StreamId, Vec<u8>),
    /// No more bytes of this stream come.
    End(StreamId),
    /// The receiver of a stream takes no more of it; its sender answers with `End`.
    Stop(StreamId),
    /// The sender of a stream may have sent so many bytes of it in all.
    Credit(StreamId, u64),
    /// So many numbered frames have arrived.
    Ack(u64),
    /// Answer with the same number.
    Ping(u64),
    /// The answer.
    Pong(u64),
}

impl Frame {
    /// Whether it is counted, kept until it is acknowledged, and sent again.
    pub fn is_numbered(&self) -> bool {
        !matches!(self, Self::Ack(_) | Self::Ping(_) | Self::Pong(_))
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Message(_) => 1,
            Self::Data(..) => 2,
            Self::End(_) => 3,
            Self::Stop(_) => 4,
            Self::Credit(..) => 5,
            Self::Ack(_) => 6,
            Self::Ping(_) => 7,
            Self::Pong(_) => 8,
        }
    }

    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.push(self.kind());
        let mut stream = |id: &StreamId| {
            out.extend_from_slice(&id.command.to_le_bytes());
            out.push(id.index);
        };
        match self {
            Self::Message(body) => out.extend_from_slice(body),
            Self::Data(id, bytes) => {
                stream(id);
                out.extend_from_slice(bytes);
            }
            Self::End(id) | Self::Stop(id) => stream(id),
            Self::Credit(id, total) => {
                stream(id);
                out.extend_from_slice(&total.to_le_bytes());
            }
            Self::Ack(n) | Self::Ping(n) | Self::Pong(n) => out.extend_from_slice(&n.to_le_bytes()),
        }
        let len = (out.len() - HEAD) as u32;
        out[..4].copy_from_slice(&len.to_le_bytes());
        out
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let number = |at: usize| body.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let stream = || Some(StreamId { command: number(0)?, index: *body.get(8)? });
        let exactly = |len: usize| (body.len() == len).then_some(());
        Some(match kind {
            1 => Self::Message(body.to_vec()),
            2 if body.len() > 9 => Self::Data(stream()?, body[9..].to_vec()),
            3 => exactly(9).and(stream().map(Self::End))?,
            4 => exactly(9).and(stream().map(Self::Stop))?,
            5 => Self::Credit(exactly(17).and(stream())?, number(9)?),
            6 => Self::Ack(exactly(8).and(number(0))?),
            7 => Self::Ping(exactly(8).and(number(0))?),
            8 => Self::Pong(exactly(8).and(number(0))?),
            _ => return None,
        })
    }

    /// Longest body of a kind; `None`: there is no such kind.
    fn longest(kind: u8) -> Option<usize> {
        match kind {
            1 => Some(MAX_MESSAGE),
            2 => Some(9 + MAX_DATA),
            3..=8 => Some(17),
            _ => None,
        }
    }
}

/// Bytes of a stream made into frames. Holds no more than what was given and not taken.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// How much of `bytes` has been taken.
    taken: usize,
}

impl Decoder {
    /// Adds what was read.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` when more bytes are needed.
    ///
    /// # Errors
    /// When no peer of ours sends what was read. Nothing after it is looked at.
    pub fn take(&mut self) -> Result<Option<Frame>, ChannelError> {
        let rest = &self.bytes[self.taken..];
        let Some(head) = rest.get(..HEAD) else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = head[4];
        // before its body has come, so that nothing too long is waited for
        if Frame::longest(kind).is_none_or(|longest| len > longest) {
            return Err(ChannelError::Protocol("a frame of an unknown kind, or one that is too long"));
        }
        let Some(body) = rest.get(HEAD..HEAD + len) else { return Ok(None) };
        let frame = Frame::decode(kind, body).ok_or(ChannelError::Protocol("a frame that does not decode"))?;
        self.taken += HEAD + len;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream() -> impl Strategy<Value = StreamId> {
        (any::<u64>(), any::<u8>()).prop_map(|(command, index)| StreamId { command, index })
    }

    fn frames() -> impl Strategy<Value = Frame> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(Frame::Message),
            (stream(), proptest::collection::vec(any::<u8>(), 1..200)).prop_map(|(id, bytes)| Frame::Data(id, bytes)),
            stream().prop_map(Frame::End),
            stream().prop_map(Frame::Stop),
            (stream(), any::<u64>()).prop_map(|(id, n)| Frame::Credit(id, n)),
            any::<u64>().prop_map(Frame::Ack),
            any::<u64>().prop_map(Frame::Ping),
            any::<u64>().prop_map(Frame::Pong),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_as_they_went_however_they_are_cut(
            sent in proptest::collection::vec(frames(), 0..20),
            cuts in proptest::collection::vec(1usize..50, 1..20),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let (mut decoder, mut got, mut at) = (Decoder::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                if at == bytes.len() { break }
                let to = (at + cut).min(bytes.len());
                decoder.feed(&bytes[at..to]);
                at = to;
                while let Some(frame) = decoder.take().expect("a frame") { got.push(frame) }
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn whatever_comes_is_refused_or_stays_within_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = decoder.take() {
                match frame {
                    Frame::Message(body) => prop_assert!(body.len() <= MAX_MESSAGE),
                    Frame::Data(_, data) => prop_assert!(!data.is_empty() && data.len() <= MAX_DATA),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn what_no_peer_sends() {
        let id = StreamId { command: 1, index: 0 };
        let long = |kind: u8, len: u32| [&len.to_le_bytes()[..], &[kind]].concat();
        let mut empty = Frame::Data(id, vec![1]).encode();
        empty.pop();
        empty[0] = 9;
        let mut short = Frame::Ack(1).encode();
        short.pop();
        short[0] = 7;
        for wrong in [long(0, 1), long(9, 0), long(2, 9 + MAX_DATA as u32 + 1), long(1, MAX_MESSAGE as u32 + 1), empty, short] {
            let mut decoder = Decoder::default();
            decoder.feed(&wrong);
            assert!(matches!(decoder.take(), Err(ChannelError::Protocol(_))), "{wrong:?}");
        }
        let mut decoder = Decoder::default();
        decoder.feed(&long(1, MAX_MESSAGE as u32));
        assert_eq!(decoder.take().ok(), Some(None));
    }
}
