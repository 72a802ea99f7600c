//! What the kernel says of the memory it took back: a daemon loses that word where the box is gone before it has listened, and podman
//! passes none on.
//!
//! Only of this machine's kernel, and only where this user may read its log: else nothing is known.

use rustix::time::{ClockId, clock_gettime};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// Where the log is read, a record a read.
const LOG: &str = "/dev/kmsg";
/// More than a record is long (`CONSOLE_EXT_LOG_MAX` of the kernel's printk).
const RECORD: usize = 8192;
/// What the record of a kill begins with, since Linux 5.0.
const KILL: &str = "oom-kill:";
/// The control group that lacked memory.
const GROUP: &str = "oom_memcg=";

/// How much the log's clock and the others may be apart, as a part of the time since the machine was started: nobody keeps the log's in step.
const DRIFT: i64 = 2000;

/// Whether the kernel has killed a process in the container of that id, for want of the memory that it may have, `within` so many seconds of
/// `at`, in seconds since 1970.
pub fn lacked_memory(id: &str, at: i64, within: i64) -> bool {
    killed_at(id).is_some_and(|(then, uptime)| is_near(then, at, within, uptime))
}

fn is_near(then: i64, at: i64, within: i64, uptime: i64) -> bool {
    (at - then).abs() <= within + uptime / DRIFT
}

/// When it last did so, and how long the machine runs.
fn killed_at(id: &str) -> Option<(i64, i64)> {
    let file = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(LOG).ok()?;
    let since_boot = last(file, id)?;
    // the log's clock is the monotonic one, nearly
    let (now, uptime) = (clock_gettime(ClockId::Realtime).tv_sec, clock_gettime(ClockId::Monotonic).tv_sec);
    Some((now - uptime + i64::try_from(since_boot.as_secs()).ok()?, uptime))
}

/// The time of the last record of `log` that says so, since the machine was started.
fn last(mut log: impl Read, id: &str) -> Option<Duration> {
    let mut buffer = vec![0; RECORD];
    let mut found = None;
    loop {
        match log.read(&mut buffer) {
            Ok(0) => return found,
            Ok(n) => {
                let record = String::from_utf8_lossy(buffer.get(..n).unwrap_or_default());
                found = killed_in(&record, id).or(found);
            }
            // it was overwritten before it was read: the next one is there
            Err(e) if e.kind() == ErrorKind::BrokenPipe || e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return found, // the end, as a log that is not waited for says it
        }
    }
}

/// The time of a record (`PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`) that tells of a kill in that container.
fn killed_in(record: &str, id: &str) -> Option<Duration> {
    let (head, text) = record.split_once(';')?;
    let group = text.strip_prefix(KILL)?.split(',').find_map(|part| part.strip_prefix(GROUP))?;
    // `/docker/ID`, `/system.slice/docker-ID.scope`, `/machine.slice/libpod-ID.scope`, and groups below them
    if id.is_empty() || !group.split(['/', '-', '.']).any(|part| part == id) {
        return None;
    }
    head.split(',').nth(2)?.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const ID: &str = "e3dfbe254fef1cee17382908927eaa5eb84c469223af7ae5dbc52bfff9cd4415";

    fn record(at: u64, group: &str) -> String {
        format!(
            "6,1043,{at},-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={ID},mems_allowed=0,oom_memcg={group},\
             task_memcg={group},task=sh,pid=30941,uid=0\n"
        )
    }

    #[test]
    fn a_kill_is_the_containers_whose_group_lacked_memory() {
        let at = |group: &str| killed_in(&record(582_030_137, group), ID);
        let told = Some(Duration::from_micros(582_030_137));
        for group in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/docker/{ID}/below"),
        ] {
            assert_eq!(at(&group), told, "{group}");
        }
        // another's, a group above it, the machine as a whole
        for group in [format!("/docker/{}0", &ID[1..]), "/docker".to_owned(), "/".to_owned()] {
            assert_eq!(at(&group), None, "{group}");
        }
        assert_eq!(killed_in(&record(1, "/docker/x"), ""), None);
        let swap = "6,1,2,-;Memory cgroup out of memory: Killed process 30941 (sh) oom_memcg=/docker/x\n";
        assert_eq!(
            (killed_in(swap, "x"), killed_in("oom", "x"), killed_in("6,1,x,-;oom-kill:oom_memcg=/x", "x")),
            (None, None, None)
        );
    }

    #[test]
    fn the_logs_clock_may_have_drifted_since_the_start() {
        let day = 86_400;
        assert!(is_near(1000, 1010, 10, day / 24) && !is_near(1000, 1012, 10, day / 24));
        // some seconds a day
        assert!(is_near(1000, 1012, 10, day) && is_near(1060, 1000, 10, 2 * day) && !is_near(1060, 1000, 10, day));
    }

    /// A log whose reads answer like that.
    struct Log(VecDeque<Result<String, ErrorKind>>);

    impl Read for Log {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.pop_front() {
                Some(Ok(record)) => record.as_bytes().read(buffer),
                Some(Err(kind)) => Err(kind.into()),
                None => Err(ErrorKind::WouldBlock.into()),
            }
        }
    }

    #[test]
    fn the_last_record_counts_and_one_that_was_overwritten_is_passed_over() {
        let group = format!("/docker/{ID}");
        let log = |reads: &[Result<String, ErrorKind>]| last(Log(reads.iter().cloned().collect()), ID);
        let other = || Ok("4,7,9,-;docker0: port 1 entered disabled state\n SUBSYSTEM=net\n".to_owned());
        assert_eq!(log(&[other()]), None);
        let reads = [Ok(record(5, &group)), Err(ErrorKind::BrokenPipe), other(), Ok(record(8, &group)), other()];
        assert_eq!(log(&reads), Some(Duration::from_micros(8)));
    }
}
