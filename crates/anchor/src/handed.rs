//! The supervisor's side of a relay: in a second box nothing reaches the box that the CLI's commands land in. Each stand-in
//! is handed to whoever started the supervisor, and names are asked for there; or, where no descriptor comes out of the second
//! box, what it was given is the stream of a guest in the other.

use crate::config::Passage;
use crate::policy::Target;
use crate::{AnchorError, sys};
use hmz_api::link::LinkKey;
use hmz_wire::{Bytes, Client, Fence, Reader, Writer, split};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The descriptor on which a supervisor in a second box finds its relay.
pub(crate) const RELAY: i32 = 4;

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// Is this name on the box's PATH?
    Has(String),
    /// A stand-in, whose socket rides along: the program it stands for, and whether that may be found by its name.
    Begin(Bytes, bool),
}

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The box is reached; whether what crosses into it is copied.
    Reached(bool),
    /// Whether it has that name.
    Has(bool),
}

/// The relay, as a supervisor has it.
#[derive(Debug)]
pub(crate) struct Handed {
    ears: Mutex<Reader>,
    mouth: Writer,
    copied: bool,
}

/// The stream of a guest in the box, which the relay carries.
#[derive(Debug)]
pub(crate) struct Carried {
    stream: UnixStream,
    key: LinkKey,
    guest: String,
}

/// What a supervisor was given to reach the box with.
#[derive(Debug)]
pub(crate) enum Relay {
    /// Nothing: it reaches the box itself.
    None,
    Handed(Handed),
    Carried(Carried),
}

/// How long nothing may be heard of a guest whose stream is carried: a cut of the way to the second box, which is gone over
/// within its own window, is not its end.
const WINDOW: Duration = Duration::from_secs(60);

fn none() -> AnchorError {
    AnchorError::Refused("a supervisor is started by hmz itself: it has no relay".into())
}

fn socket() -> Result<UnixStream, AnchorError> {
    sys::take_fd(RELAY).map(UnixStream::from).ok_or_else(none)
}

impl Relay {
    /// This process's, once it says that the box is reached.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn take(passage: &Passage) -> Result<Self, AnchorError> {
        Ok(match passage {
            Passage::Own => Self::None,
            Passage::Handed => Self::Handed(Handed::over(socket()?)?),
            Passage::Carried { key, guest } => {
                Self::Carried(Carried { stream: socket()?, key: key.clone(), guest: guest.clone() })
            }
        })
    }

    /// As one or the other.
    pub(crate) fn split(self) -> (Option<Handed>, Option<Carried>) {
        match self {
            Self::None => (None, None),
            Self::Handed(handed) => (Some(handed), None),
            Self::Carried(carried) => (None, Some(carried)),
        }
    }
}

impl Carried {
    /// A connection to the guest with this fence, and its program in the box.
    ///
    /// # Errors
    /// When the box cannot be worked in.
    pub(crate) fn connect(self, fence: Fence) -> Result<(Client, String), AnchorError> {
        Ok((Client::over(self.stream, self.key, WINDOW, Some(fence))?, self.guest))
    }
}

impl Handed {
    fn over(socket: UnixStream) -> Result<Self, AnchorError> {
        let (mut ears, mouth) = split(socket).map_err(hmz_wire::ClientError::from)?;
        match ears.recv::<Told>().map_err(hmz_wire::ClientError::from)? {
            Some((Told::Reached(copied), _)) => Ok(Self { ears: Mutex::new(ears), mouth, copied }),
            _ => Err(none()),
        }
    }

    /// Whether a name is on the box's PATH. One that is not told is taken to be: its command then fails as one.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mouth.send(&Said::Has(name.to_owned()), &[]).is_err() {
            return true;
        }
        !matches!(ears.recv::<Told>(), Ok(Some((Told::Has(false), _))))
    }

    /// Whether what crosses into the box is copied.
    pub(crate) fn is_copied(&self) -> bool {
        self.copied
    }

    /// Hands a stand-in over. Without a relay its socket closes, which it takes for our end.
    pub(crate) fn begin(&self, socket: &UnixStream, target: Target) {
        let _ = self.mouth.send(&Said::Begin(target.program, target.by_name), &[socket.as_fd()]);
    }
}
