//! The first words of a stream: both ends prove that they have the box's key, and say how far they got.
//!
//! `Open → Challenge → Answer → Verdict`. A guest without a key yet says so, and takes it from its first peer. Each proof
//! covers both nonces, the session and the number of its stream, so none can be used again.

use super::{ChannelError, decode, encode};
use hmac::{Hmac, Mac};
use hmz_api::link::LinkKey;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Sha256;
use std::io::{Read, Write};

/// The version of the frames and of what is in them; both ends must have the same.
pub const CHANNEL_VERSION: u32 = 1;

/// How every stream begins: whatever else is at the other end (a shell's message of the day) is told apart.
const MAGIC: [u8; 8] = *b"hmz-chan";

/// Longest word, in bytes.
const MAX_WORD: usize = 4096;

/// From whoever opens a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// [`CHANNEL_VERSION`].
    pub version: u32,
    /// The session, chosen by whoever begins it.
    pub session: [u8; 16],
    /// Which stream of the session: 0 begins it.
    pub stream: u32,
    /// Never used before.
    pub nonce: [u8; 32],
    /// How many numbered frames have been received.
    pub received: u64,
}

/// From whoever answers in the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// [`CHANNEL_VERSION`].
    pub version: u32,
    /// Never used before.
    pub nonce: [u8; 32],
    /// Whether it has a key.
    pub claimed: bool,
}

/// From whoever opens a stream.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To a guest that has no key: this is its key.
    Claim([u8; 32]),
    /// To one that has.
    Proof([u8; 32]),
}

/// The last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Frames follow.
    Accepted {
        /// The guest's proof.
        proof: [u8; 32],
        /// How many numbered frames it has received.
        received: u64,
    },
    /// The stream ends.
    Refused(String),
}

/// What an opener said, for the one who decides.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its first word.
    pub open: Open,
    /// What it was challenged with.
    pub challenge: Challenge,
    /// Its answer.
    pub answer: Answer,
}

/// Whose proof it is: so that one end cannot be made to prove the other.
#[derive(Debug, Clone, Copy)]
enum Side {
    Opener,
    Guest,
}

fn mac(key: &LinkKey, side: Side, open: &Open, challenge: &Challenge) -> Result<Hmac<Sha256>, ChannelError> {
    // a key of any length is good
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).map_err(|_| ChannelError::Unproved)?;
    mac.update(match side {
        Side::Opener => b"opener",
        Side::Guest => b"guest ",
    });
    mac.update(&encode(open)?);
    mac.update(&encode(challenge)?);
    Ok(mac)
}

impl Opening {
    /// The key that it claims the guest with, or that it proves to have: `known` is the guest's own, when it has one.
    ///
    /// # Errors
    /// When it proves nothing.
    pub fn key(&self, known: Option<&LinkKey>) -> Result<LinkKey, ChannelError> {
        match (&self.answer, known) {
            (Answer::Proof(proof), Some(key)) => {
                let mac = mac(key, Side::Opener, &self.open, &self.challenge)?;
                mac.verify_slice(proof).map_err(|_| ChannelError::Unproved)?;
                Ok(key.clone())
            }
            (Answer::Claim(key), None) if !self.challenge.claimed => Ok(LinkKey::new(*key)),
            _ => Err(ChannelError::Unproved),
        }
    }

    /// The guest's last word to one who has proved itself.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn accept(&self, key: &LinkKey, received: u64) -> Result<Verdict, ChannelError> {
        let proof = mac(key, Side::Guest, &self.open, &self.challenge)?.finalize().into_bytes().into();
        Ok(Verdict::Accepted { proof, received })
    }
}

/// Opens a stream; returns how many numbered frames the guest has received.
///
/// # Errors
/// When the stream fails or is silent, its other end refuses, or does not prove itself.
pub fn open(stream: &mut (impl Read + Write), key: &LinkKey, open: &Open) -> Result<u64, ChannelError> {
    stream.write_all(&MAGIC)?;
    write_word(stream, open)?;
    read_magic(stream)?;
    let challenge: Challenge = read_word(stream)?;
    if challenge.version != CHANNEL_VERSION {
        return Err(ChannelError::Refused(format!(
            "the box's guest speaks version {} of the channel, and we {CHANNEL_VERSION}",
            challenge.version
        )));
    }
    if !challenge.claimed && open.stream > 0 {
        // a guest that began the session with us would have a key
        return Err(ChannelError::Unproved);
    }
    let answer = if challenge.claimed {
        Answer::Proof(mac(key, Side::Opener, open, &challenge)?.finalize().into_bytes().into())
    } else {
        Answer::Claim(*key.bytes())
    };
    write_word(stream, &answer)?;
    match read_word(stream)? {
        Verdict::Refused(why) => Err(ChannelError::Refused(why)),
        Verdict::Accepted { proof, received } => {
            mac(key, Side::Guest, open, &challenge)?.verify_slice(&proof).map_err(|_| ChannelError::Unproved)?;
            Ok(received)
        }
    }
}

/// Hears an opener out, without judging it; `claimed` is what it is told of the guest.
///
/// # Errors
/// When the stream fails, or no opener is at its other end.
pub fn hear(stream: &mut (impl Read + Write), claimed: impl FnOnce(&Open) -> bool) -> Result<Opening, ChannelError> {
    read_magic(stream)?;
    let open: Open = read_word(stream)?;
    let challenge = Challenge { version: CHANNEL_VERSION, nonce: random()?, claimed: claimed(&open) };
    stream.write_all(&MAGIC)?;
    write_word(stream, &challenge)?;
    if open.version != CHANNEL_VERSION {
        return Err(ChannelError::Protocol("another version"));
    }
    let answer = read_word(stream)?;
    Ok(Opening { open, challenge, answer })
}

/// Says the last word.
///
/// # Errors
/// When the stream fails.
pub fn conclude(stream: &mut impl Write, verdict: &Verdict) -> Result<(), ChannelError> {
    write_word(stream, verdict)
}

/// Bytes nobody can guess.
///
/// # Errors
/// When the system gives none.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The key of a box, derived from a secret and the box's identity: it need be stored nowhere.
pub fn box_key(secret: &[u8], identity: &str) -> LinkKey {
    // a key of any length is good, so there is always one
    let mac = Hmac::<Sha256>::new_from_slice(secret).map(|mut mac| {
        mac.update(b"hmz box ");
        mac.update(identity.as_bytes());
        mac.finalize().into_bytes().into()
    });
    LinkKey::new(mac.unwrap_or_default())
}

fn read_magic(stream: &mut impl Read) -> Result<(), ChannelError> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic)?;
    if magic == MAGIC { Ok(()) } else { Err(ChannelError::Protocol("its first bytes are not ours")) }
}

fn write_word(stream: &mut impl Write, word: &impl Serialize) -> Result<(), ChannelError> {
    let body = encode(word)?;
    let mut bytes = (body.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    stream.write_all(&bytes)?;
    Ok(stream.flush()?)
}

fn read_word<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, ChannelError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > MAX_WORD {
        return Err(ChannelError::Protocol("a first word that is too long"));
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    decode(&body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn key(byte: u8) -> LinkKey {
        LinkKey::new([byte; 32])
    }

    fn first() -> Open {
        Open { version: CHANNEL_VERSION, session: [7; 16], stream: 0, nonce: [9; 32], received: 5 }
    }

    /// What the opener with one key hears of a guest with another; the guest's finding.
    fn meet(ours: &LinkKey, theirs: Option<&LinkKey>, answer_with: Option<&LinkKey>) -> (Result<u64, ChannelError>, bool) {
        let (mut a, mut b) = UnixStream::pair().expect("a pair");
        std::thread::scope(|scope| {
            let guest = scope.spawn(move || {
                let opening = hear(&mut b, |_| theirs.is_some()).expect("an opening");
                let found = opening.key(theirs);
                let verdict = match (&found, answer_with) {
                    (_, Some(key)) => opening.accept(key, 11).expect("a verdict"),
                    (Ok(key), None) => opening.accept(key, 11).expect("a verdict"),
                    (Err(e), None) => Verdict::Refused(e.to_string()),
                };
                conclude(&mut b, &verdict).expect("it hears");
                found.is_ok()
            });
            (open(&mut a, ours, &first()), guest.join().expect("the guest"))
        })
    }

    #[test]
    fn both_prove_the_same_key() {
        assert!(matches!(meet(&key(1), Some(&key(1)), None), (Ok(11), true)));
        assert!(matches!(meet(&key(1), None, None), (Ok(11), true)), "the first one claims it");
        assert!(matches!(meet(&key(1), Some(&key(2)), None), (Err(ChannelError::Refused(_)), false)));
        // a guest that says yes to everybody has proved nothing
        assert!(matches!(meet(&key(1), Some(&key(2)), Some(&key(2))), (Err(ChannelError::Unproved), false)));
    }

    #[test]
    fn a_proof_is_of_one_stream_alone() {
        let challenge = Challenge { version: CHANNEL_VERSION, nonce: [1; 32], claimed: true };
        let proof = mac(&key(1), Side::Opener, &first(), &challenge).expect("a mac").finalize().into_bytes().into();
        let good = Opening { open: first(), challenge: challenge.clone(), answer: Answer::Proof(proof) };
        assert!(good.key(Some(&key(1))).is_ok());
        let others = [
            Opening { open: Open { stream: 4, ..first() }, ..good.clone() },
            Opening { open: Open { session: [8; 16], ..first() }, ..good.clone() },
            Opening { open: Open { received: 6, ..first() }, ..good.clone() },
            Opening { challenge: Challenge { nonce: [2; 32], ..challenge }, ..good.clone() },
            Opening { answer: Answer::Claim([1; 32]), ..good.clone() },
        ];
        for other in others {
            assert!(other.key(Some(&key(1))).is_err());
        }
        // nor is the guest's the opener's
        let Ok(Verdict::Accepted { proof, .. }) = good.accept(&key(1), 0) else { panic!("a verdict") };
        assert!(Opening { answer: Answer::Proof(proof), ..good }.key(Some(&key(1))).is_err());
    }

    #[test]
    fn what_is_no_guest_is_told() {
        let (mut a, mut b) = UnixStream::pair().expect("a pair");
        b.write_all(b"Welcome to build-box!\n").expect("it hears");
        assert!(matches!(open(&mut a, &key(1), &first()), Err(ChannelError::Protocol(_))));
        let (mut a, mut b) = UnixStream::pair().expect("a pair");
        b.write_all(&MAGIC).expect("it hears");
        b.write_all(&[255, 255]).expect("it hears");
        assert!(matches!(open(&mut a, &key(1), &first()), Err(ChannelError::Protocol(_))));
        let (mut a, b) = UnixStream::pair().expect("a pair");
        drop(b);
        assert!(matches!(open(&mut a, &key(1), &first()), Err(ChannelError::Cut(_))));
    }

    #[test]
    fn keys_of_boxes_differ() {
        assert_eq!(box_key(b"secret", "a/1"), box_key(b"secret", "a/1"));
        assert_ne!(box_key(b"secret", "a/1"), box_key(b"secret", "a/2"));
        assert_ne!(box_key(b"secret", "a/1"), box_key(b"other", "a/1"));
        assert_ne!(box_key(b"", ""), LinkKey::new([0; 32]));
    }
}
