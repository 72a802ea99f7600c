//! What is kept of one environment, and what of a resource others decide by.

use super::Place;
use crate::environment::{FINALIZER, plan::owner_run};
use hmz_api::kinds::condition;
use hmz_api::{AnyResource, Conditions};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use uuid::Uuid;

/// What is kept of an environment: a hundred bytes or so, however much is said of it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub seen: Seen,
    pub uid: Uuid,
    pub incarnation: u64,
    /// When it was made, in milliseconds.
    pub made: i64,
    /// The runtime it names.
    pub named: Arc<str>,
    /// The one it is on, where that is another one.
    pub used: Option<Arc<str>>,
    /// The address of its daemon.
    pub endpoint: Option<Arc<str>>,
    /// The process of its box, when everything of it is up.
    pub ready: Option<i32>,
    /// Whether it holds no share, and was looked at before.
    pub waits: bool,
    /// Whether its box died and nothing is started in its place.
    pub down: bool,
    /// Whether what happens on its daemon matters to it.
    pub listened: bool,
    /// Whether it keeps the daemon up.
    pub busy: bool,
    /// Whether a box of it is there, or may be.
    pub boxed: bool,
    /// The sort it is counted as.
    pub counted: u64,
    /// The listing of the store it was in last.
    pub epoch: u32,
}

/// What is kept of anything else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Other {
    pub seen: Seen,
    /// The sort it is counted as.
    pub counted: u64,
    /// The listing of the store it was in last.
    pub epoch: u32,
}

impl Entry {
    /// Runtimes it names and is on.
    pub fn runtimes(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.named).chain(&self.used)
    }

    /// Whether it is found by the same things.
    pub fn is_found_as(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.named == other.named
            && self.used == other.used
            && self.endpoint == other.endpoint
            && (self.listened, self.waits) == (other.listened, other.waits)
    }

    /// The one it is on, or is to be.
    pub fn runtime(&self) -> &Arc<str> {
        self.used.as_ref().unwrap_or(&self.named)
    }

    /// The daemon it is on, or is to be, when it is to be listened to.
    pub fn place(&self) -> Option<Place> {
        let endpoint = self.endpoint.as_ref().filter(|_| self.listened)?;
        Some((self.runtime().clone(), endpoint.clone()))
    }

    /// Whether that is this one.
    pub fn is_at(&self, place: &Place) -> bool {
        self.listened && *self.runtime() == place.0 && self.endpoint.as_ref() == Some(&place.1)
    }
}

/// What of a resource others decide by, as a digest: an equal one wakes nobody. Two that differ and have the same one are told
/// apart by the periodic look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// What its own controller looks at and does not write itself.
    pub declared: u64,
    /// What other controllers look at.
    pub observed: u64,
    /// Whether its own controller has put its finalizer on, which is news only when somebody takes that off.
    pub ours: bool,
}

impl Seen {
    /// Whether that is what it was before, to its own controller.
    pub fn is_declared_as(&self, before: &Self) -> bool {
        self.declared == before.declared && (self.ours || !before.ours)
    }
}

/// Text that is digested as it is written.
#[derive(Default)]
struct Digest(DefaultHasher);

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

pub(super) fn seen(resource: &AnyResource) -> Seen {
    let (mut declared, mut observed) = (Digest::default(), Digest::default());
    let metadata = resource.metadata();
    let ours = |finalizer: &&String| *finalizer == FINALIZER;
    (metadata.uid, metadata.generation, &metadata.annotations).hash(&mut declared.0);
    metadata.finalizers.iter().filter(|finalizer| !ours(finalizer)).for_each(|finalizer| finalizer.hash(&mut declared.0));
    metadata.deletion_timestamp.map(|at| at.as_nanosecond()).hash(&mut declared.0);
    let states = |conditions: &Conditions, into: &mut Digest| {
        for c in &conditions.0 {
            (&c.kind, &c.reason).hash(&mut into.0);
            std::mem::discriminant(&c.status).hash(&mut into.0);
        }
    };
    match resource {
        AnyResource::Environment(env) => {
            // of one that a run owns the run's controller writes this
            if owner_run(env).is_some() {
                let scheduled = env.status.conditions.get(condition::SCHEDULED);
                scheduled.map(|c| (std::mem::discriminant(&c.status), &c.reason)).hash(&mut declared.0);
                env.status.endpoint.hash(&mut declared.0);
            }
            env.status.used.hash(&mut observed.0);
            states(&env.status.conditions, &mut observed);
        }
        AnyResource::Run(run) => {
            (run.status.is_complete(), run.status.conditions.is_true(condition::RUNNING)).hash(&mut observed.0);
        }
        AnyResource::Runtime(runtime) => {
            states(&runtime.status.conditions, &mut observed);
            // writing to a digest cannot fail
            let _ = write!(observed, "{:?}", runtime.status.source);
        }
        AnyResource::Flow(_) => {}
    }
    let ours = metadata.finalizers.iter().any(|finalizer| ours(&finalizer));
    Seen { declared: declared.0.finish(), observed: observed.0.finish(), ours }
}
