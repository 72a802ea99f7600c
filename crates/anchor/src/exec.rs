//! A command of a flow's own in a box: no terminal, no input, bounded output.

use crate::AnchorError;
use crate::collect::Collector;
use hmz_wire::{Bytes, Client, CommandEvent, Spawn, Status};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a box has to end a command whose time is over. One that is stopped, or lies, is not waited for any longer.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What bounds a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes kept of each of the two outputs; what comes after is read and thrown away.
    pub output: usize,
    /// How long it may take before its session is killed.
    pub time: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { output: 1 << 20, time: None }
    }
}

/// How a command ended and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended; a command that was killed for its time has the status the kill gave it, or should have given it.
    pub status: Status,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
    /// Whether more was written than is kept.
    pub truncated: bool,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
}

/// Runs a command to its end. Output that a background process of it writes after its end is not waited for.
///
/// # Errors
/// When it cannot be started ([`AnchorError::Spawn`]), or the guest is gone.
pub fn run(client: &Client, argv: &[Bytes], cwd: &Path, env: &[(String, String)], limits: Limits) -> Result<Output, AnchorError> {
    ended_within(client, argv, cwd, env, limits, END_LIMIT)
}

/// The same; `end` is how long the box has to end one whose time is over.
fn ended_within(
    client: &Client,
    argv: &[Bytes],
    cwd: &Path,
    env: &[(String, String)],
    limits: Limits,
    end: Duration,
) -> Result<Output, AnchorError> {
    let Some(program) = argv.first() else {
        return Err(AnchorError::Refused("an exec step needs a program".into()));
    };
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(AnchorError::errno("open /dev/null"))?;
    let (out, out_theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let (err, err_theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(AnchorError::errno("make a pipe"))?;
    let spawn = Spawn {
        id: 0,
        program: program.clone(),
        by_name: false,
        argv: argv.to_vec(),
        env: env.iter().map(|(k, v)| (Bytes::from(k.as_bytes()), Bytes::from(v.as_bytes()))).collect(),
        cwd: Bytes::from(cwd.as_os_str().as_bytes()),
        umask: 0o022,
        blocked: 0,
        ignored: 0,
        fds: vec![0, 1, 2],
        ctty: None,
    };
    let command = client.spawn(spawn, &[null.as_fd(), out_theirs.as_fd(), err_theirs.as_fd()])?;
    drop((null, out_theirs, err_theirs));
    let out = Collector::start(out, limits.output)?;
    let err = Collector::start(err, limits.output)?;
    let mut deadline = limits.time.map(|time| Instant::now() + time);
    let mut timed_out = false;
    let status = loop {
        let event = match deadline {
            Some(at) => match command.next_within(at.saturating_duration_since(Instant::now())) {
                Some(event) => event,
                None if timed_out => break Status::Signaled(libc::SIGKILL),
                None => {
                    timed_out = true;
                    command.close()?;
                    deadline = Some(Instant::now() + end);
                    continue;
                }
            },
            None => command.next(),
        };
        match event {
            CommandEvent::Started | CommandEvent::Empty => {}
            CommandEvent::Failed(errno) => {
                return Err(AnchorError::Spawn {
                    program: String::from_utf8_lossy(program).into_owned(),
                    source: std::io::Error::from_raw_os_error(errno),
                });
            }
            CommandEvent::Exited(status, _) => break status,
            CommandEvent::Lost | CommandEvent::Told(_) => return Err(hmz_wire::ClientError::Gone.into()),
        }
    };
    let (stdout, more_out) = out.finish();
    let (stderr, more_err) = err.finish();
    Ok(Output { status, stdout, stderr, truncated: more_out || more_err, timed_out })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_wire::{FromGuest, ToGuest, VERSION, Welcome, split};
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    #[test]
    fn a_box_that_does_not_end_a_command_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let welcome = Welcome {
            version: VERSION,
            hostname: "h".into(),
            uid: 0,
            gid: 0,
            boot_id: "b".into(),
            env: Vec::new(),
            programs: Vec::new(),
            fence: "none".into(),
        };
        // it starts the command, and hears of nothing after that
        let guest = std::thread::spawn(move || {
            let (mut ears, mouth) = split(listener.accept().expect("a client").0).expect("two halves");
            ears.recv::<ToGuest>().expect("a hello");
            mouth.send(&FromGuest::Welcome(Box::new(welcome)), &[]).expect("it is heard");
            let Ok(Some((ToGuest::Spawn(spawn), _held))) = ears.recv::<ToGuest>() else { panic!("a command") };
            mouth.send(&FromGuest::Started { id: spawn.id }, &[]).expect("it is heard");
            while ears.recv::<ToGuest>().is_ok_and(|word| word.is_some()) {}
        });
        let client = Client::connect(&socket, std::process::id() as i32, false, None).expect("a guest");
        let (running, (tell, told)) = (client.clone(), channel());
        std::thread::spawn(move || {
            let soon = Duration::from_millis(50);
            let limits = Limits { time: Some(soon), ..Limits::default() };
            tell.send(ended_within(&running, &[Bytes::from(&b"x"[..])], Path::new("/"), &[], limits, soon))
        });
        let output = told.recv_timeout(Duration::from_secs(60)).expect("its end").expect("an end");
        assert_eq!((output.status, output.timed_out), (Status::Signaled(libc::SIGKILL), true));
        client.shutdown();
        guest.join().expect("the guest");
    }
}
