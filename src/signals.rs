//! The signals that end a verb, for one that has something to do before it ends with 128+n.

use crate::edge;
use hmz_api::Error;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit status of a verb that a signal ends.
pub fn ended(number: i32) -> ExitCode {
    ExitCode::from(status(number))
}

/// The same as a number.
pub fn status(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(255)
}

/// SIGINT, SIGTERM and SIGHUP, each only when it was not ignored from the start (`nohup` works).
#[derive(Debug)]
pub struct Signals {
    all: [(i32, Option<Signal>); 3],
}

impl Signals {
    /// Takes them from now on.
    ///
    /// # Errors
    /// When they cannot be taken.
    pub fn new() -> Result<Self, Error> {
        let ignored = ignored();
        let take = |number: i32, kind: SignalKind| {
            if ignored & (1 << (number - 1)) != 0 {
                return Ok((number, None));
            }
            signal(kind).map(|s| (number, Some(s))).map_err(|e| edge::io("signals", &e))
        };
        Ok(Self { all: [take(2, SignalKind::interrupt())?, take(15, SignalKind::terminate())?, take(1, SignalKind::hangup())?] })
    }

    /// The number of the next one that comes.
    pub async fn next(&mut self) -> i32 {
        let [a, b, c] = &mut self.all;
        let one = async |slot: &mut (i32, Option<Signal>)| match &mut slot.1 {
            // a stream of signals has no end
            Some(stream) => match stream.recv().await {
                Some(()) => slot.0,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        };
        tokio::select! {
            n = one(a) => n,
            n = one(b) => n,
            n = one(c) => n,
        }
    }
}

/// The signals this process ignores, as a mask: bit n-1 is signal n.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| text.lines().find_map(|l| l.strip_prefix("SigIgn:").map(|v| v.trim().to_owned())))
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .unwrap_or(0)
}
