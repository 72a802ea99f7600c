//! `hmz sh`: a command in a box with the caller's terminal, or with its three streams.

use crate::AnchorError;
use hmz_api::launch::BoxAddress;
use hmz_wire::{Bytes, Status};

/// Runs `argv` in the box, on a terminal of its own when `tty`, and waits for its end.
///
/// # Errors
/// When the box cannot be worked in, the command cannot be started, or the terminal cannot be had.
pub fn shell(address: &BoxAddress, argv: Vec<Bytes>, tty: bool) -> Result<Status, AnchorError> {
    let _ = (address, argv, tty);
    Err(AnchorError::Refused("a shell in a box is not built yet".into()))
}
