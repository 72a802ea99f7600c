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
    /// How it ended; a command that was killed for its time has the status the kill gave it.
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
    let deadline = limits.time.map(|time| Instant::now() + time);
    let mut timed_out = false;
    let status = loop {
        let event = match deadline {
            Some(at) if !timed_out => match command.next_within(at.saturating_duration_since(Instant::now())) {
                Some(event) => event,
                None => {
                    timed_out = true;
                    command.close()?;
                    continue;
                }
            },
            _ => command.next(),
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
            CommandEvent::Lost => return Err(hmz_wire::ClientError::Gone.into()),
        }
    };
    let (stdout, more_out) = out.finish();
    let (stderr, more_err) = err.finish();
    Ok(Output { status, stdout, stderr, truncated: more_out || more_err, timed_out })
}
