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
mod log;
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
    user: Option<(u32, u32)>,
    trace: Option<String>,
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
    #[error("--user is UID:GID")]
    User,
    #[error("--trace is a traceparent")]
    Trace,
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
    let (mut socket, mut lease, mut channel, mut user, mut trace) = (None, None, false, None, None);
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
        } else if arg == "--user" {
            let value = args.next().ok_or(UsageError::NoValue("--user"))?;
            let ids = value.to_str().and_then(|v| v.split_once(':')).and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
            user = Some(ids.ok_or(UsageError::User)?);
        } else if arg == "--trace" {
            let value = args.next().ok_or(UsageError::NoValue("--trace"))?;
            trace = Some(value.to_str().and_then(log::trace_of).ok_or(UsageError::Trace)?.to_owned());
        } else {
            return Err(UsageError::Unknown(arg));
        }
    }
    if word.as_ref().is_some_and(|word| word == "serve") {
        return Ok(Task::Serve);
    }
    let socket = socket.ok_or(UsageError::NoSocket)?;
    Ok(if word.is_some() { Task::Connect(socket) } else { Task::First(Arguments { socket, lease, channel, user, trace }) })
}

/// The guest: `--socket PATH [--lease SECONDS] [--channel] [--user UID:GID] [--trace TRACEPARENT]` as a box's first process, without a lease or with one
/// of 0 until it is told to end, and as that user, who it need not be yet; `connect --socket PATH` as the relay to it; `serve`
/// where there is none; `file …` for what a session asks of the box's files. To be called with the arguments
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
    if let Some((uid, gid)) = arguments.user {
        init::become_user(uid, gid)?;
    }
    let tell = |message: &str| log::line(arguments.trace.as_deref(), message);
    // zero promises the first process that nothing of the session is left
    let good = match init::run(&arguments.socket, arguments.lease, arguments.channel, || tell("the box begins"))? {
        init::Role::First => {
            tell("the box ends");
            true
        }
        init::Role::Spawner(stream, told) => {
            tell("a session begins");
            session::serve(stream, told).is_ok()
        }
        init::Role::Opener(stream, told, keyhole) => {
            tell("a session begins or goes on");
            open(stream, told, &keyhole)
        }
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
        let first =
            |lease, channel| Ok(Task::First(Arguments { socket: socket.clone(), lease, channel, user: None, trace: None }));
        assert_eq!(parsed(&["--socket", "/s"]), first(None, false));
        assert_eq!(parsed(&["--lease", "0", "--socket", "/s"]), first(None, false));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "120", "--channel"]), first(Some(Duration::from_secs(120)), true));
        assert_eq!(parsed(&["connect", "--socket", "/s"]), Ok(Task::Connect(socket.clone())));
        assert_eq!(parsed(&["serve"]), Ok(Task::Serve));
        assert_eq!(parsed(&[]), Err(UsageError::NoSocket));
        assert_eq!(parsed(&["connect"]), Err(UsageError::NoSocket));
        assert_eq!(parsed(&["--socket"]), Err(UsageError::NoValue("--socket")));
        assert_eq!(parsed(&["--socket", "/s", "--lease", "-1"]), Err(UsageError::Lease));
        let as_user = Arguments { socket: socket.clone(), lease: None, channel: false, user: Some((7, 8)), trace: None };
        assert_eq!(parsed(&["--socket", "/s", "--user", "7:8"]), Ok(Task::First(as_user)));
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let traced = Arguments { socket: socket.clone(), lease: None, channel: false, user: None, trace: Some(id.into()) };
        let of = |trace: &str| parsed(&["--socket", "/s", "--trace", trace]);
        assert_eq!(of(&format!("00-{id}-00f067aa0ba902b7-01")), Ok(Task::First(traced)));
        for wrong in ["", "00", "00-x-y-01", "00-\"-00f067aa0ba902b7-01"] {
            assert_eq!(of(wrong), Err(UsageError::Trace));
        }
        for wrong in ["", "7", "7:", "me:8", "-1:8"] {
            assert_eq!(parsed(&["--socket", "/s", "--user", wrong]), Err(UsageError::User));
        }
        assert_eq!(parsed(&["--accept-any"]), Err(UsageError::Unknown("--accept-any".into())));
        assert_eq!(parsed(&["connect", "--channel"]), Err(UsageError::Unknown("--channel".into())));
        assert_eq!(parsed(&["serve", "--socket"]), Err(UsageError::Unknown("--socket".into())));
    }
}
