//! Where new uids come from, so that a simulation can be replayed.

use uuid::Uuid;

/// A source of uids; each is different from all before it.
pub trait Ids: Send + Sync + 'static {
    /// A new one.
    fn uid(&self) -> Uuid;
}

/// Random ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uid(&self) -> Uuid {
        Uuid::new_v4()
    }
}
