//! Which processes live below this one, as `/proc` tells: the level that is looked at, whatever event was lost.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Whether it has ended and only waits to be reaped.
    pub dead: bool,
}

/// Reads the line of `/proc/PID/stat`. A command's name may hold anything, so the last `)` ends it.
fn parse(stat: &[u8]) -> Option<Process> {
    let pid = std::str::from_utf8(stat.split(|&b| b == b' ').next()?).ok()?.parse().ok()?;
    let rest = std::str::from_utf8(&stat[stat.iter().rposition(|&b| b == b')')? + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, session: number()?, dead })
}

/// Every process that can be seen.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut buffer = [0; 512];
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else { continue };
        // the fields wanted are within the first 512 bytes: the name has at most 64
        let Ok(mut file) = File::open(format!("/proc/{pid}/stat")) else { continue };
        if let Ok(len) = file.read(&mut buffer)
            && let Some(process) = parse(&buffer[..len])
        {
            found.push(process);
        }
    }
    found
}

/// Whether a signal has its default effect on a process: it neither blocks, ignores nor catches it.
pub(crate) fn has_default(pid: i32, signal: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| default_in(&status, signal))
}

fn default_in(status: &str, signal: i32) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let masks = [mask("SigBlk"), mask("SigIgn"), mask("SigCgt")];
    masks.iter().all(|mask| mask.is_some_and(|mask| mask & (1 << (signal - 1)) == 0))
}

/// Those below `root`, without those `but` names and theirs.
pub(crate) fn below(root: i32, but: &HashSet<i32>, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        // taken out, so that a list read while it changed cannot go in a circle
        for process in children.remove(&parent).unwrap_or_default() {
            if !but.contains(&process.pid) {
                open.push(process.pid);
                found.push(process);
            }
        }
    }
    found
}

/// The children of this process, dead ones included; `None` where the kernel does not tell. Exact, because its caller
/// is the only one to reap them and has one thread.
pub(crate) fn children(me: i32) -> Option<HashSet<i32>> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).ok()?;
    text.split_ascii_whitespace().map(|pid| pid.parse().ok()).collect()
}

/// Kills all below `root` but `but` and theirs, and says whether any was alive.
pub(crate) fn kill_below(root: i32, but: &HashSet<i32>) -> bool {
    let mut any = false;
    // again at once, because one may have forked between the look and its death
    for _ in 0..4 {
        let alive: Vec<_> = below(root, but, &all()).into_iter().filter(|p| !p.dead).collect();
        if alive.is_empty() {
            break;
        }
        any = true;
        for process in alive {
            crate::sys::kill(process.pid, libc::SIGKILL);
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, group: pid, session: pid, dead: false }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let found = parse(b"42 (a) b (c) 1) S 7 41 40 34816 0 0").expect("a process");
        assert_eq!(found, Process { pid: 42, parent: 7, group: 41, session: 40, dead: false });
        assert!(parse(b"42 (x) Z 1 42 42").expect("a process").dead);
        assert_eq!(parse(b"42 (x"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn what_a_process_does_with_a_signal() {
        let status = |blocked: u64, ignored: u64, caught: u64| {
            format!("Name:\tx\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n")
        };
        let bit = 1 << (libc::SIGTSTP - 1);
        assert!(default_in(&status(0, 0, 0), libc::SIGTSTP));
        assert!(default_in(&status(!bit, !bit, !bit), libc::SIGTSTP));
        for (blocked, ignored, caught) in [(bit, 0, 0), (0, bit, 0), (0, 0, bit)] {
            assert!(!default_in(&status(blocked, ignored, caught), libc::SIGTSTP));
        }
        assert!(!default_in("Name:\tx\n", libc::SIGTSTP));
    }

    #[test]
    fn only_those_below_and_not_spared() {
        let all = [process(2, 1), process(3, 2), process(4, 1), process(5, 4), process(6, 0), process(7, 6)];
        let mut pids: Vec<_> = below(1, &HashSet::from([4]), &all).iter().map(|p| p.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [2, 3]);
    }

    #[test]
    fn a_circle_ends() {
        assert_eq!(below(1, &HashSet::new(), &[process(1, 2), process(2, 1)]).len(), 2);
    }
}
