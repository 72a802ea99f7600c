//! The box while it may still be on its way: who needs it waits, and everything before goes on.

use crate::session::Sessions;
use hmz_wire::Client;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The connection to the box and what serves its stand-ins.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(crate) client: Client,
    pub(crate) sessions: Arc<Sessions>,
}

/// A box that is said once, to be there or not.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// `None` before it is known.
    said: Mutex<Option<Option<Reached>>>,
    told: Condvar,
}

impl Late {
    /// Says what became of it; `None`: it cannot be reached, now or later.
    pub(crate) fn say(&self, reached: Option<Reached>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(reached);
        self.told.notify_all();
    }

    /// Waits until it is known.
    pub(crate) fn wait(&self) -> Option<Reached> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*said {
                Some(reached) => return reached.clone(),
                None => said = self.told.wait(said).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The connection, when there is one by now.
    pub(crate) fn client(&self) -> Option<Client> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().flatten().map(|reached| reached.client.clone()).next()
    }
}
