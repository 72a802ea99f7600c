//! How one who works in a box reaches its guest: data that is handed from a driver to a session, possibly in another
//! process. It says how to open a connection and holds none.

use crate::way::Reach;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The way to a box's guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Link {
    /// A Unix socket in a directory both sides have, over which descriptors themselves cross: the same kernel.
    Direct {
        /// The guest's socket here.
        socket: String,
        /// The box's pid 1 as this machine sees it; the socket's peer must be it.
        pid: i32,
    },
    /// One ordered stream of bytes, in which all that crosses is copied: any other place.
    Stream(Box<StreamLink>),
    /// Not known yet: the box is being started, and a file will say what became of it.
    Awaited {
        /// The file, a [`Told`](crate::launch::Told) in JSON. It appears whole.
        file: String,
        /// Which of the boxes it tells of.
        role: String,
    },
}

/// A stream to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLink {
    /// How a fresh stream is opened. It is opened again when one is cut.
    pub dial: Dial,
    /// What both ends prove to have, without saying it. One a box; whoever has it can start commands there.
    pub key: LinkKey,
    /// How long a session outlives its stream, in milliseconds: one that is re-made within it goes on, else it is lost.
    #[serde(default = "default_window")]
    pub window_ms: u64,
}

/// Ten seconds.
fn default_window() -> u64 {
    10_000
}

impl StreamLink {
    /// A link with the usual window of 10 s.
    pub fn new(dial: Dial, key: LinkKey) -> Self {
        Self { dial, key, window_ms: default_window() }
    }

    /// How long a session outlives its stream.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
}

/// How a fresh stream is opened. What is on its other side is the guest's relay (`hmz guest connect`) or the guest itself
/// (`hmz guest serve`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Dial {
    /// A program here whose standard input and output are the stream, such as `ssh HOST hmz guest serve` or `docker exec -i
    /// ID /.hmz/hmz guest connect …`. Never a shell's line.
    Program {
        /// The program, absolute, and its arguments. No secret is in them: other users see them.
        argv: Vec<String>,
        /// Its whole environment.
        env: BTreeMap<String, String>,
    },
    /// `docker exec -i` by the Engine API itself.
    Engine {
        /// The daemon's socket here: `unix://PATH`.
        endpoint: String,
        /// The container's id.
        container: String,
        /// What is executed in it.
        argv: Vec<String>,
    },
    /// The same on a daemon that may be of another machine.
    Daemon {
        /// How it is reached, and what is executed.
        reach: Reach,
        /// The container's id.
        container: String,
        /// The whole environment of a program that is needed on the way, as ssh may be.
        env: BTreeMap<String, String>,
    },
}

impl Link {
    /// The guest's own program in the box, where the way there names it.
    pub fn guest(&self) -> Option<&str> {
        match self {
            Self::Stream(link) => match &link.dial {
                Dial::Engine { argv, .. } => argv.first().map(String::as_str),
                Dial::Daemon { reach, .. } => reach.exec.argv.first().map(String::as_str),
                Dial::Program { .. } => None,
            },
            Self::Direct { .. } | Self::Awaited { .. } => None,
        }
    }
}

/// What the two ends of a stream prove to have: 256 bits. It is in no argument, label, log or message: its `Debug` says
/// nothing, and it is passed over pipes and in the stream itself only.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKey([u8; 32]);

impl LinkKey {
    /// A key of these bytes, which nobody can guess.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(…)")
    }
}

impl Serialize for LinkKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for LinkKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // an error must not hold what was read
        let wrong = || serde::de::Error::custom("a link's key is 64 hexadecimal digits");
        let text = String::deserialize(from).map_err(|_| wrong())?;
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_crosses_as_json() {
        let dial = Dial::Program { argv: vec!["/usr/bin/ssh".into(), "host".into()], env: BTreeMap::new() };
        for link in [
            Link::Direct { socket: "/s".into(), pid: 7 },
            Link::Awaited { file: "/e/boxes.json".into(), role: "box".into() },
            Link::Stream(Box::new(StreamLink::new(dial, LinkKey::new(std::array::from_fn(|n| n as u8))))),
        ] {
            let text = serde_json::to_string(&link).expect("JSON");
            assert_eq!(serde_json::from_str::<Link>(&text).expect("a link"), link, "{text}");
        }
    }

    #[test]
    fn a_key_is_not_told() {
        let key = LinkKey::new([0xab; 32]);
        assert_eq!(format!("{key:?}"), "LinkKey(…)");
        for wrong in ["\"abcd\"", "\"zz\"", "7", &format!("\"{}\"", "é".repeat(32))] {
            let error = serde_json::from_str::<LinkKey>(wrong).expect_err("no key").to_string();
            assert!(error.starts_with("a link's key is 64"), "{error}");
        }
    }
}
