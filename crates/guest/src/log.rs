//! What a box's first process says of itself, on its standard error, which is the container's log: a JSON object a line, as the
//! other processes log. When it was, the log's keeper knows.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io::Write as _;

/// The trace a `traceparent` names.
pub(crate) fn trace_of(traceparent: &str) -> Option<&str> {
    let trace = traceparent.split('-').nth(1)?;
    (trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit())).then_some(trace)
}

/// Says something, which holds no quote. A daemon that is away and does not take what the box wrote keeps nobody waiting: what it
/// has no room for is not said.
pub(crate) fn line(trace: Option<&str>, message: &str) {
    let stderr = std::io::stderr();
    // a pipe that takes anything takes a line
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if !matches!(poll(&mut polled, Some(&now)), Ok(1)) || polled[0].revents() != PollFlags::OUT {
        return;
    }
    let trace = trace.map_or_else(String::new, |trace| format!(",\"trace_id\":\"{trace}\""));
    let text =
        format!("{{\"level\":\"INFO\",\"target\":\"hmz_guest\",\"process\":\"guest\",\"message\":\"{message}\"{trace}}}\n");
    // nobody may be keeping a log
    let _ = stderr.lock().write_all(text.as_bytes());
}
