//! A process known by pid *and* start time, so that a pid used again is not taken for it.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;

/// `PID:STARTTIME`, as field 22 of `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The pid.
    pub pid: i32,
    /// Clock ticks after boot.
    pub start: u64,
}

impl ProcessId {
    /// The process that has `pid` now.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start: stat(pid)?.0 })
    }

    /// Whether it still runs (a zombie does not).
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(start, state)| start == self.start && !matches!(state, b'Z' | b'X'))
    }

    /// A descriptor that becomes readable when it ends; `None` when it has ended.
    pub fn pidfd(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::NONBLOCK).ok()?;
        // the descriptor is of whoever has the pid now: compare after it was taken
        self.is_alive().then_some(fd)
    }

    /// Sends a signal; false when it has ended.
    pub fn signal(self, signal: Signal) -> bool {
        self.pidfd().is_some_and(|fd| pidfd_send_signal(fd, signal).is_ok())
    }
}

/// Start time and state of a process.
fn stat(pid: i32) -> Option<(u64, u8)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name in parentheses may hold anything
    let rest = &text[text.rfind(')')? + 2..];
    let fields: Vec<&str> = rest.split(' ').collect();
    Some((fields.get(19)?.parse().ok()?, *fields.first()?.as_bytes().first()?))
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.start)
    }
}

impl FromStr for ProcessId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start) = text.split_once(':').ok_or(())?;
        Ok(Self { pid: pid.parse().map_err(|_| ())?, start: start.parse().map_err(|_| ())? })
    }
}
