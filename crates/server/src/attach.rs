//! Runs that belong to a verb: when the verb's stream ends without the run having ended, the run is cancelled.

use hmz_api::clock::{Clock, SystemClock};
use hmz_api::kinds::annotation;
use hmz_api::{Error, Kind, Run};
use hmz_store::{Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often runs are looked for that a verb owns and none is attached to. The second look in a row that finds one cancels
/// it: a verb attaches after it has made its run, and finds the next daemon when one was killed.
const REATTACH: Duration = Duration::from_secs(10);

/// How many attempts a cancellation makes against other writers of the run.
const ATTEMPTS: u32 = 16;

/// Who is attached to what.
#[derive(Debug)]
pub struct Attached {
    counts: Mutex<HashMap<String, usize>>,
    left: mpsc::UnboundedSender<String>,
}

/// One verb's hold on a run. Dropping it only sends a message.
#[derive(Debug)]
pub struct Hold {
    run: String,
    attached: Arc<Attached>,
    ended: bool,
}

impl Attached {
    /// The record, and the names of runs whose verb left them.
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (left, leavers) = mpsc::unbounded_channel();
        (Arc::new(Self { counts: Mutex::default(), left }), leavers)
    }

    /// Attaches a verb to a run.
    pub fn hold(self: &Arc<Self>, run: &str) -> Hold {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(run.to_owned()).or_default() += 1;
        Hold { run: run.to_owned(), attached: Arc::clone(self), ended: false }
    }

    fn is_held(&self, run: &str) -> bool {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).contains_key(run)
    }
}

impl Hold {
    /// The run has ended: letting go means nothing any more.
    pub const fn ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.attached.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.run) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.run);
                if !self.ended {
                    // nobody listens any more when the daemon itself ends, and then the run goes on
                    let _ = self.attached.left.send(self.run.clone());
                }
            }
        }
    }
}

/// Cancels the runs whose verbs left, and those that no verb comes to.
pub async fn watch(store: Store, attached: Arc<Attached>, mut leavers: mpsc::UnboundedReceiver<String>) {
    let orphans = async {
        let mut before = HashSet::new();
        loop {
            tokio::time::sleep(REATTACH).await;
            let mut runs = store.list::<Run>().await.unwrap_or_default();
            runs.retain(|run| {
                let owned = run.metadata.annotations.contains_key(annotation::ATTACHED);
                owned && !run.status.is_complete() && !attached.is_held(run.name())
            });
            for run in runs.iter().filter(|run| before.contains(&run.metadata.uid)) {
                tell(&store, run.name()).await;
            }
            before = runs.into_iter().map(|run| run.metadata.uid).collect();
        }
    };
    let leaving = async {
        while let Some(run) = leavers.recv().await {
            tell(&store, &run).await;
        }
    };
    tokio::join!(orphans, leaving);
}

async fn tell(store: &Store, run: &str) {
    tracing::info!(run, "its verb is gone: the run is cancelled");
    if let Err(e) = cancel(store, run).await {
        tracing::warn!(run, "could not cancel: {e}");
    }
}

/// Marks a run as cancelled; its controller does the rest. One that has ended stays as it is.
///
/// # Errors
/// `NotFound`, or a store that fails.
pub async fn cancel(store: &Store, name: &str) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        let Some(mut run) = store.get::<Run>(name).await? else {
            return Err(Error::not_found(format!("there is no {} '{name}'", Run::KIND.to_ascii_lowercase())));
        };
        if run.status.is_complete() || run.metadata.annotations.contains_key(annotation::CANCEL) {
            return Ok(());
        }
        run.metadata.annotations.insert(annotation::CANCEL.into(), SystemClock.now().to_string());
        match store.update(run).await {
            Err(StoreError::Conflict { .. }) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
    Err(Error::failed(format!("run '{name}' changes too often to be cancelled")))
}
