//! The supervisor's side of a relay: in a second box nothing reaches the box that the CLI's commands land in, so each stand-in
//! is handed to whoever started the supervisor, and names are asked for there.

use crate::policy::Target;
use crate::{AnchorError, sys};
use hmz_wire::{Bytes, Reader, Writer, split};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

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

/// The relay of this process, once it says that the box is reached.
///
/// # Errors
/// When there is none.
pub(crate) fn take() -> Result<Handed, AnchorError> {
    let none = || AnchorError::Refused("a supervisor is started by hmz itself: it has no relay".into());
    let socket = sys::take_fd(RELAY).ok_or_else(none)?;
    let (mut ears, mouth) = split(UnixStream::from(socket)).map_err(hmz_wire::ClientError::from)?;
    match ears.recv::<Told>().map_err(hmz_wire::ClientError::from)? {
        Some((Told::Reached(copied), _)) => Ok(Handed { ears: Mutex::new(ears), mouth, copied }),
        _ => Err(none()),
    }
}

impl Handed {
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
