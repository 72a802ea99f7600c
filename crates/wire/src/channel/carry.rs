//! Carries a stream between this process's standard streams and an exec of a docker daemon's, for whoever cannot reach that
//! daemon by itself and starts a program for it: that program, once it has a socket that leads there.

use super::engine::{self, Deframer};
use hmz_api::way::{Exec, Way};
use serde::{Deserialize, Serialize};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

/// The variable that says what a program of ours is to carry, as JSON of [`Carried`].
pub const CARRIED: &str = "HMZ_CARRIED";

/// How much is copied at once.
const PIECE: usize = 64 << 10;

/// What is to be carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// How the daemon is reached.
    pub way: Way,
    /// The container's id.
    pub container: String,
    /// What is executed in it.
    pub exec: Exec,
}

/// Executes something in a container that reads nothing and ends by itself, and waits for that; what it complained.
///
/// # Errors
/// When the daemon is not there, is silent for `patience`, or says no.
pub fn run_in(socket: &Path, container: &str, what: &Exec, patience: Duration) -> io::Result<String> {
    let mut stream = engine::exec(socket, container, what, patience)?;
    let (mut deframer, mut buffer) = (Deframer::default(), vec![0; 4096]);
    while deframer.read(&mut stream, &mut buffer)? > 0 {}
    Ok(String::from_utf8_lossy(deframer.complaint()).trim().to_owned())
}

/// The same of something that says something: its output, of which no more than `most` bytes are read.
///
/// # Errors
/// When the daemon is not there, is silent for `patience`, or says no.
pub fn said_in(socket: &Path, container: &str, what: &Exec, most: usize, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = engine::exec(socket, container, what, patience)?;
    let (mut deframer, mut buffer, mut said) = (Deframer::default(), vec![0; 4096], Vec::new());
    loop {
        match deframer.read(&mut stream, &mut buffer)? {
            0 => return Ok(said),
            len if said.len() + len > most => return Err(io::Error::other("it says too much")),
            len => said.extend_from_slice(&buffer[..len]),
        }
    }
}

/// Executes something in a container and copies until that ends, or until this process's standard input does, which ends the
/// process. `opened` is called when the stream is there. What the exec complained is said on the standard error.
///
/// # Errors
/// When the daemon is not there, is silent for `patience`, or says no.
pub fn carry(socket: &Path, container: &str, what: &Exec, patience: Duration, opened: impl FnOnce()) -> io::Result<()> {
    let mut stream = engine::exec(socket, container, what, patience)?;
    opened();
    stream.set_read_timeout(None)?;
    // whoever holds our standard streams waits as long as it likes
    stream.set_write_timeout(None)?;
    let mut there = stream.try_clone()?;
    std::thread::Builder::new().name("carry".into()).spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; PIECE];
        while let Ok(len @ 1..) = stdin.read(&mut buffer) {
            if there.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = there.shutdown(Shutdown::Both);
    })?;
    let (mut deframer, mut buffer) = (Deframer::default(), vec![0; PIECE]);
    let mut stdout = io::stdout().lock();
    while let Ok(len @ 1..) = deframer.read(&mut stream, &mut buffer) {
        if stdout.write_all(&buffer[..len]).and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
    let _ = io::stderr().write_all(deframer.complaint());
    Ok(())
}
