//! The box while it may still be on its way: who needs it waits, and everything before goes on.

use crate::handed::Handed;
use crate::hello::Introduction;
use crate::policy::Target;
use crate::session::Sessions;
use hmz_wire::Client;
use std::collections::HashSet;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What serves the stand-ins: here, over a connection to the box, or whoever started the supervisor in a box of its own.
#[derive(Debug, Clone)]
pub(crate) enum Reached {
    Here { client: Client, sessions: Arc<Sessions> },
    Handed(Arc<Handed>),
}

/// The names on the box's PATH, as last told.
#[derive(Default)]
pub(crate) struct Names {
    told: Arc<Vec<String>>,
    known: HashSet<String>,
}

impl Names {
    pub(crate) fn of(&mut self, client: &Client) -> &HashSet<String> {
        let told = client.programs();
        if !Arc::ptr_eq(&told, &self.told) {
            self.known = told.iter().cloned().collect();
            self.told = told;
        }
        &self.known
    }
}

impl Reached {
    /// Whether a name is on the box's PATH.
    pub(crate) fn has(&self, name: &str, names: &mut Names) -> bool {
        match self {
            Self::Here { client, .. } => names.of(client).contains(name),
            Self::Handed(handed) => handed.has(name),
        }
    }

    /// Whether what crosses into the box is copied.
    pub(crate) fn is_copied(&self) -> bool {
        match self {
            Self::Here { client, .. } => client.is_copied(),
            Self::Handed(handed) => handed.is_copied(),
        }
    }

    /// Serves the stand-in at the other end of `socket`.
    pub(crate) fn begin(&self, socket: UnixStream, target: Target) {
        match self {
            Self::Here { sessions, .. } => sessions.begin(socket, target),
            Self::Handed(handed) => handed.begin(&socket, target),
        }
    }

    /// Whether a stand-in can be served that has told all before it is there.
    pub(crate) fn can_be_told(&self) -> bool {
        matches!(self, Self::Here { client, .. } if !client.is_copied())
    }

    /// Serves one that has. Where that cannot be, its socket closes, which it takes for our end.
    pub(crate) fn begin_told(&self, socket: UnixStream, target: Target, told: Introduction) {
        if let Self::Here { sessions, .. } = self {
            sessions.begin_told(socket, target, told);
        }
    }

    /// Ends the connection.
    pub(crate) fn finish(&self) {
        if let Self::Here { client, .. } = self {
            client.finish();
        }
    }
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

    /// What is known of it now.
    pub(crate) fn now(&self) -> Option<Reached> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone().flatten()
    }

    /// Ends the connection, when there is one by now.
    pub(crate) fn finish(&self) {
        if let Some(reached) = self.now() {
            reached.finish();
        }
    }
}
