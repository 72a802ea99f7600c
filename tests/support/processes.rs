//! Processes that belong to a test, told by a variable in their environment that nobody else has.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;

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
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // the name before it may hold anything
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
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
