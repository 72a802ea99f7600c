//! Who is in a critical section, as a process that others on its machine can look for.
//!
//! The mark names a process by the machine's boot, its pid namespace, its pid and its start time. Whoever shares boot and
//! namespace can tell that it has ended, and need not wait for its lock to grow old; to anybody else the mark says nothing.
//! That a holder is gone is never what admission's safety rests on: one that lives and lost its lock notices and starts over.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::str::FromStr;

/// A process: `BOOT/NAMESPACE/PID:START`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    boot: String,
    namespace: u64,
    pid: i32,
    /// Clock ticks after boot.
    start: u64,
}

impl Holder {
    /// This process; `None` where the system does not say.
    pub fn own() -> Option<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
        Some(Self { boot, namespace, pid, start: stat(pid)?.0 })
    }

    /// Whether it has certainly ended: it is a process of this machine's and of this namespace, and there is none such.
    pub fn is_gone(&self) -> bool {
        let (Some(own), Some(pid)) = (Self::own(), Pid::from_raw(self.pid)) else { return false };
        if own.boot != self.boot || own.namespace != self.namespace {
            return false;
        }
        // the kernel says so of anybody's processes; what is in /proc it may hide
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        stat(self.pid).is_some_and(|(start, state)| start != self.start || matches!(state, b'Z' | b'X'))
    }
}

/// Start time and state of a process.
fn stat(pid: i32) -> Option<(u64, u8)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name in parentheses may hold anything
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    Some((fields.nth(18)?.parse().ok()?, state))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}:{}", self.boot, self.namespace, self.pid, self.start)
    }
}

impl FromStr for Holder {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        let (Some(boot), Some(namespace), Some(process), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(());
        };
        let (pid, start) = process.split_once(':').ok_or(())?;
        Ok(Self {
            boot: boot.to_owned(),
            namespace: namespace.parse().map_err(|_| ())?,
            pid: pid.parse().ok().filter(|pid| *pid > 0).ok_or(())?,
            start: start.parse().map_err(|_| ())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_this_process_is_there() {
        let own = Holder::own().unwrap();
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        assert!(!own.is_gone());
        for odd in ["", "a/1/2", "a/1/2:3/4", "a/x/2:3", "a/1/0:3", "a/1/-1:3", "a/1/2:x"] {
            assert_eq!(odd.parse::<Holder>(), Err(()), "{odd}");
        }
    }

    #[test]
    fn only_a_process_of_this_boot_and_namespace_is_said_to_be_gone() {
        let own = Holder::own().unwrap();
        let mut child = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let theirs = Holder { pid, start: stat(pid).unwrap().0, ..own.clone() };
        assert!(!theirs.is_gone());
        // the pid was used again
        assert!(Holder { start: theirs.start + 1, ..theirs.clone() }.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(theirs.is_gone());
        assert!(!Holder { boot: "another".into(), ..theirs.clone() }.is_gone());
        assert!(!Holder { namespace: 1, ..theirs }.is_gone());
    }
}
