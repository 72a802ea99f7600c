//! What runs inside a box: its first process, and one spawner a connection below it.
//!
//! The first process ([`main`]) listens on a Unix socket in a directory that is mounted from outside, takes peers from
//! outside the box's pid namespace only, reaps, and ends with its lease, and all that runs in the box with it. It
//! needs nothing of the image: no shell, no C library, no user database.
#![deny(unsafe_code)]

mod channel;
mod fence;
mod file;
mod init;
mod programs;
mod session;
mod spawn;
mod sys;
mod tree;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    socket: PathBuf,
    lease: Option<Duration>,
    channel: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    First(Arguments),
    Connect(PathBuf),
    Serve,
    File(file::Asked),
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
    #[error("file takes make DIR, show FILE, prove FILE HERE THERE, remove FILE or clear DIR…")]
    File,
    #[error("unknown argument {0:?}")]
    Unknown(OsString),
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Task, UsageError> {
    let mut args = args.peekable();
    if args.next_if(|arg| arg == "file").is_some() {
        let words: Vec<OsString> = args.collect();
        return file::Asked::of(&words).map(Task::File).ok_or(UsageError::File);
    }
    let word = args.next_if(|arg| arg == "connect" || arg == "serve");
    let (mut socket, mut lease, mut channel) = (None, None, false);
    while let Some(arg) = args.next() {
        if word.as_ref().is_some_and(|word| word == "serve" || arg != "--socket") {
            return Err(UsageError::Unknown(arg));
        }
        if arg == "--channel" {
            channel = true;
        } else if arg == "--socket" {
            socket = Some(PathBuf::from(args.next().ok_or(UsageError::NoValue("--socket"))?));
        } else if arg == "--lease" {
            let value = args.next().ok_or(UsageError::NoValue("--lease"))?;
            let seconds: u32 = value.to_str().and_then(|v| v.parse().ok()).ok_or(UsageError::Lease)?;
            lease = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        } else {
            return Err(UsageError::Unknown(arg));
        }
    }
    if word.as_ref().is_some_and(|word| word == "serve") {
        return Ok(Task::Serve);
    }
    let socket = socket.ok_or(UsageError::NoSocket)?;
    Ok(if word.is_some() { Task::Connect(socket) } else { Task::First(Arguments { socket, lease, channel }) })
}

/// The guest: `--socket PATH [--lease SECONDS] [--channel]` as a box's first process, without a lease or with one of 0 until
/// it is told to end; `connect --socket PATH` as the relay to it; `serve` where there is none;
/// `file …` for what a session asks of the box's files. To be called with the arguments
/// after the word `guest`, while the process has one thread.
///
/// It forks a process a connection, and returns in those too. Returns 0 when the lease is over or a signal from outside ended it, 2 for wrong arguments, and 1 when it could not
/// begin; the last two say why in one line on standard error.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let task = match parse(args) {
        Ok(task) => task,
        Err(e) => {
            eprintln!("hmz guest: error: {e}");
            return ExitCode::from(2);
        }
    };
    let done = match task {
        Task::First(arguments) => first(&arguments).map_err(|e| e.to_string()),
        Task::Connect(socket) => channel::connect(&socket).map(|()| ExitCode::SUCCESS).map_err(|e| e.to_string()),
        Task::File(asked) => file::answer(&asked).map_err(|e| e.to_string()),
        Task::Serve => channel::serve().map(|()| ExitCode::SUCCESS).map_err(|e| e.to_string()),
    };
    done.unwrap_or_else(|e| {
        eprintln!("hmz guest: error: {e}");
        ExitCode::FAILURE
    })
}

/// The first process, and the process of each connection.
fn first(arguments: &Arguments) -> Result<ExitCode, init::InitError> {
    // zero promises the first process that nothing of the session is left
    let good = match init::run(&arguments.socket, arguments.lease, arguments.channel)? {
        init::Role::First => true,
        init::Role::Spawner(stream, told) => session::serve(stream, told).is_ok(),
        init::Role::Opener(stream, told, keyhole) => open(stream, told, &keyhole),
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A peer from inside: the session it begins, or the way to the one it goes on with. Whether nothing is left of it.
fn open(stream: UnixStream, told: OwnedFd, keyhole: &init::Keyhole) -> bool {
    // one that cannot be given a key any more is as one whose key nobody knows
    match channel::Opener::hear(stream, |_| keyhole.key.is_some() || keyhole.closed) {
        Ok(opener) if opener.begins() => !matches!(
            channel::hold(opener, keyhole.key.as_ref(), told),
            Err(channel::HostError::Io(_) | channel::HostError::Spawner(_))
        ),
        Ok(opener) => {
            // there was no session, and it was told
            let _ = channel::pass_on(opener);
            true
        }
        // nothing was started
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Task, UsageError> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments() {
        let socket = PathBuf::from("/s");
        let first = |lease, channel| Ok(Task::First(Arguments { socket: socket.clone(), lease, channel }));
        assert_eq!(parsed(&["--socket", "/s"]), first(None, false));
        assert_eq!(parsed(&["--lease", "0", "--socket", "/s"]), first(None, false));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "120", "--channel"]), first(Some(Duration::from_secs(120)), true));
        assert_eq!(parsed(&["connect", "--socket", "/s"]), Ok(Task::Connect(socket.clone())));
        assert_eq!(parsed(&["serve"]), Ok(Task::Serve));
        assert_eq!(parsed(&[]), Err(UsageError::NoSocket));
        assert_eq!(parsed(&["connect"]), Err(UsageError::NoSocket));
        assert_eq!(parsed(&["--socket"]), Err(UsageError::NoValue("--socket")));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "-1"]), Err(UsageError::Lease));
        assert_eq!(parsed(&["--accept-any"]), Err(UsageError::Unknown("--accept-any".into())));
        assert_eq!(parsed(&["connect", "--channel"]), Err(UsageError::Unknown("--channel".into())));
        assert_eq!(parsed(&["serve", "--socket"]), Err(UsageError::Unknown("--socket".into())));
    }
}
