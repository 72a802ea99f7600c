//! The processes below one: who they are, and their end.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;

/// The children of `pid`, of all its threads.
fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match std::fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // the thread is gone, or this kernel makes no such lists
            Err(_) if task.path().exists() => return children_by_parent(pid),
            Err(_) => {}
        }
    }
    found
}

/// The same, by asking every process for its parent.
fn children_by_parent(pid: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|one| parent(*one) == Some(pid)).collect()
}

/// All processes below `pid`, parents first.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut seen: HashSet<i32> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(&next) = found.get(at) {
        found.extend(children(next).into_iter().filter(|child| seen.insert(*child)));
        at += 1;
    }
    found
}

/// Whether `pid` is `root` or below it.
pub(crate) fn is_below(pid: i32, root: i32) -> bool {
    let mut at = pid;
    loop {
        if at == root {
            return true;
        }
        match parent(at) {
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
}

/// The parent of a process; `None` when it is gone.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name in parentheses may hold anything
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Kills everything below this process and reaps it, until nothing is left. Orphans must come to this process (it is a
/// subreaper), and no other thread may wait for children.
pub(crate) fn sweep() {
    loop {
        kill_below();
        if nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::__WALL)) == Err(nix::errno::Errno::ECHILD) {
            return;
        }
    }
}

/// Kills everything that is below this process now.
pub(crate) fn kill_below() {
    for pid in descendants(std::process::id() as i32) {
        // one that has ended meanwhile needs no kill
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
