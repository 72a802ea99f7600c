//! What a session's supervisor or proxy logs, when whoever started it names a file. Its standard error is none: it is the
//! CLI's, and told to people when the CLI ends.

use hmz_telemetry::{Ended, Guard, Process, TraceContext};
use hmz_wire::Status;
use std::os::unix::fs::OpenOptionsExt as _;
use tracing::span::EnteredSpan;

/// The variable that names the file.
pub const FILE: &str = "HMZ_LOG_FILE";
/// The variable that names the run.
pub const RUN: &str = "HMZ_LOG_RUN";

/// A session that logs; it does until this is dropped.
pub(crate) struct Session {
    _span: EnteredSpan,
    _guard: Guard,
}

/// Begins, in a process of that name, of a session in that environment.
pub(crate) fn session(name: &'static str, environment: &str) -> Option<Session> {
    let path = std::env::var_os(FILE)?;
    // a session goes on without its log
    let file = std::fs::File::options().create(true).append(true).mode(0o600).open(path).ok()?;
    let guard = hmz_telemetry::start(Process { name, filter: "info", ansi: false, target: true, file: Some(file) });
    let (context, run) = (TraceContext::of_environment(), std::env::var(RUN).unwrap_or_default());
    let span = hmz_telemetry::span!("session", context, run, env = environment).entered();
    commands(&context);
    Some(Session { _span: span, _guard: guard })
}

/// Has every command that this process starts in a box told as a span of the guest's below `context`, where there is a collector;
/// its arguments are not told. The guest says how long it ran, and the end is when that is heard, so that a box with another
/// clock makes no other order.
pub fn commands(context: &TraceContext) {
    if !hmz_telemetry::collects() {
        return;
    }
    let context = context.clone();
    hmz_wire::observe(move |ran| {
        let program = String::from_utf8_lossy(&ran.program);
        let span = Ended::just_now("command", context.child(), ran.took).of("guest").with("program", &*program);
        match ran.status {
            Status::Exited(status) => span.with("exit_status", status).tell(),
            Status::Signaled(signal) => span.with("signal", signal).tell(),
        }
    });
}
