//! Processes that belong to a test, told by a variable in their environment that nobody else has.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::time::Duration;

/// The pids of the processes whose environment has `NAME=value`, without this one.
pub fn with_variable(variable: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid as u32 != own && has_variable(*pid, variable))
        .collect()
}

fn has_variable(pid: i32, variable: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.split(|b| *b == 0).any(|said| said == variable.as_bytes()))
}

/// The command line of a process, for messages.
pub fn line(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}

/// Whether a process is there and is no zombie.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !is_over(&stat))
}

/// Sends a signal to every process with that variable, and says how many there were.
pub fn signal_all(variable: &str, signal: Signal) -> usize {
    let mut sent = 0;
    for pid in with_variable(variable) {
        let Some(fd) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
        // looked at once more with the process held, since a pid may have come round to another one
        if has_variable(pid, variable) && pidfd_send_signal(&fd, signal).is_ok() {
            sent += 1;
        }
    }
    sent
}

/// A process, told from a later one of the same pid by when it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The pid.
    pub pid: i32,
    start: String,
    /// The command line it had when it was looked at.
    pub line: String,
}

/// Whether it has ended with all its threads: the first of them may be a zombie while others hold what the process had open, such as
/// a lock.
fn is_over(stat: &[String]) -> bool {
    let threads = stat.get(17).and_then(|n| n.parse::<u32>().ok()).unwrap_or_default();
    matches!(stat[0].as_str(), "Z" | "X") && threads <= 1
}

/// The fields of `/proc/PID/stat` behind the name, which may hold anything.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

impl Process {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start: stat(pid)?.get(19)?.clone(), line: line(pid) })
    }

    /// Whether it is there and is no zombie.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.get(19) == Some(&self.start) && !is_over(&stat))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let fd = pidfd_open(Pid::from_raw(self.pid).expect("a pid"), PidfdFlags::empty()).expect("the process is there");
        assert!(self.is_alive(), "{self:?} has ended");
        pidfd_send_signal(&fd, signal).unwrap_or_else(|e| panic!("signal {signal:?} to {self:?}: {e}"));
    }

    /// Sees that it ends.
    #[track_caller]
    pub fn assert_gone(&self) {
        super::eventually(&format!("the end of {self:?}"), Duration::from_secs(60), || (!self.is_alive()).then_some(()));
    }

    /// It and all that descends from it now.
    pub fn tree(&self) -> Vec<Self> {
        let pids = fs::read_dir("/proc").expect("/proc").filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let all: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, stat(pid)?.get(1)?.parse().ok()?))).collect();
        let mut found = vec![self.pid];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            found.extend(
                all.iter().filter(|(pid, of)| *of == parent && !found.contains(pid)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
            );
            at += 1;
        }
        found.into_iter().filter_map(Self::of).collect()
    }
}
