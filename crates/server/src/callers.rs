//! What callers passed along, in memory only: it may hold an API key.

use hmz_api::launch::CallerContext;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// Contexts by the uid of the run or environment they came with.
#[derive(Debug, Default)]
pub struct Callers {
    known: Mutex<HashMap<Uuid, CallerContext>>,
    latest: Mutex<Option<CallerContext>>,
}

impl Callers {
    /// Keeps a context.
    pub fn put(&self, uid: Uuid, context: CallerContext) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.clone());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, context);
    }

    /// The context that came with `uid`.
    pub fn get(&self, uid: Uuid) -> Option<CallerContext> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).cloned()
    }

    /// The context of whoever called last.
    pub fn latest(&self) -> Option<CallerContext> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets it.
    pub fn forget(&self, uid: Uuid) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
    }
}
