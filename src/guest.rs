//! The program boxes are given: the small one embedded at build time, or where there is none this one.

use hmz_server::GuestProgram;

/// The program.
#[cfg(guest_embedded)]
pub fn program() -> GuestProgram {
    GuestProgram::Embedded(include_bytes!(concat!(env!("OUT_DIR"), "/guest")))
}

/// The program.
#[cfg(not(guest_embedded))]
pub fn program() -> GuestProgram {
    GuestProgram::Own
}
