//! How long commands ran in their boxes, as their guests measured it. A guest is asked to measure with the first command of a
//! connection, and only where somebody hears: otherwise nothing more is said than without this.

use crate::client::Shared;
use crate::{Bytes, Status};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A command that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What was started.
    pub program: Bytes,
    /// How it ended.
    pub status: Status,
    /// How long it ran, from its start to its end; it ended just now.
    pub took: Duration,
}

type Hear = Box<dyn Fn(Ran) + Send + Sync>;

static HEARD: OnceLock<Hear> = OnceLock::new();

/// Has every command that this process starts in a box told to `hear`, which must not block. The first who asks is the one that
/// hears.
pub fn observe(hear: impl Fn(Ran) + Send + Sync + 'static) {
    let _ = HEARD.set(Box::new(hear));
}

/// What is known here of a command that is measured.
#[derive(Debug)]
pub(crate) struct Asked {
    program: Bytes,
    at: Instant,
}

impl Asked {
    /// Of a command that is about to be asked for; `None` where nobody hears.
    pub(crate) fn of(program: &Bytes) -> Option<Self> {
        HEARD.get().map(|_| Self { program: program.clone(), at: Instant::now() })
    }
}

/// A guest says how long a command ran, which it may say once of what was asked for.
pub(crate) fn tell(shared: &Shared, id: u64, status: Status, nanos: u64) {
    let (Some(asked), Some(hear)) = (shared.measured(id), HEARD.get()) else { return };
    // no longer than since it was asked for, whatever a guest says
    let took = Duration::from_nanos(nanos).min(asked.at.elapsed());
    hear(Ran { program: asked.program, status, took });
}
