//! What runs inside a box: its first process, and one spawner a connection below it.
//!
//! The first process ([`main`]) listens on a Unix socket in a directory that is mounted from outside, takes peers from
//! outside the box's pid namespace only, reaps, and ends with its lease, and all that runs in the box with it. It
//! needs nothing of the image: no shell, no C library, no user database.
#![deny(unsafe_code)]

mod fence;
mod init;
mod programs;
mod session;
mod spawn;
mod sys;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    socket: PathBuf,
    lease: Option<Duration>,
}

/// Why it does not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UsageError {
    #[error("--socket PATH is missing")]
    NoSocket,
    #[error("{0} needs a value")]
    NoValue(&'static str),
    #[error("--lease is a whole number of seconds")]
    Lease,
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
}

fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Arguments, UsageError> {
    let (mut socket, mut lease) = (None, None);
    while let Some(arg) = args.next() {
        if arg == "--socket" {
            socket = Some(PathBuf::from(args.next().ok_or(UsageError::NoValue("--socket"))?));
        } else if arg == "--lease" {
            let value = args.next().ok_or(UsageError::NoValue("--lease"))?;
            let seconds: u32 = value.to_str().and_then(|v| v.parse().ok()).ok_or(UsageError::Lease)?;
            lease = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        } else {
            return Err(UsageError::Unknown(arg));
        }
    }
    Ok(Arguments { socket: socket.ok_or(UsageError::NoSocket)?, lease })
}

/// The guest: `--socket PATH [--lease SECONDS]`, without a lease or with one of 0 until it is told to end. To be called
/// with the arguments after the word `guest`, while the process has one thread.
///
/// It forks a process a connection, and returns in those too. Returns 0 when the lease is over or a signal from outside ended it, 2 for wrong arguments, and 1 when it could not
/// begin; the last two say why in one line on standard error.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match parse(args) {
        Ok(arguments) => arguments,
        Err(e) => {
            eprintln!("hmz guest: error: {e}");
            return ExitCode::from(2);
        }
    };
    match init::run(&arguments.socket, arguments.lease) {
        Ok(init::Role::First) => ExitCode::SUCCESS,
        // zero promises the first process that nothing of the session is left
        Ok(init::Role::Spawner(stream, told)) => match session::serve(stream, told) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(e) => {
            eprintln!("hmz guest: error: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Arguments, UsageError> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments() {
        let socket = PathBuf::from("/s");
        assert_eq!(parsed(&["--socket", "/s"]), Ok(Arguments { socket: socket.clone(), lease: None }));
        assert_eq!(parsed(&["--lease", "0", "--socket", "/s"]), Ok(Arguments { socket: socket.clone(), lease: None }));
        let lease = Some(Duration::from_secs(120));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "120"]), Ok(Arguments { socket, lease }));
        assert_eq!(parsed(&[]), Err(UsageError::NoSocket));
        assert_eq!(parsed(&["--socket"]), Err(UsageError::NoValue("--socket")));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "-1"]), Err(UsageError::Lease));
        assert_eq!(parsed(&["--accept-any"]), Err(UsageError::Unknown("--accept-any".into())));
    }
}
