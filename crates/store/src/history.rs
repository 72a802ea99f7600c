//! The last changes, kept in memory within bounds, and the streams that read them.
//!
//! A watcher has no buffer of its own: it reads from here at its own pace. One that falls behind what is remembered is
//! told so once and its stream ends.

use crate::backend::WatchEvent;
use crate::error::StoreError;
use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::watch;

/// How many changes are remembered.
pub(crate) const REMEMBERED: usize = 1024;

/// Which changes a watcher is told of; the others cost it nothing but a look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub kind: Option<&'static str>,
    pub name: Option<String>,
}

impl Wanted {
    fn is(&self, event: &WatchEvent) -> bool {
        self.kind.is_none_or(|kind| kind == event.kind) && self.name.as_ref().is_none_or(|name| *name == event.name)
    }
}

struct Kept {
    events: VecDeque<Arc<WatchEvent>>,
    /// Every change after this revision is in `events`.
    floor: u64,
}

/// The last changes.
pub(crate) struct History {
    kept: Mutex<Kept>,
    limit: usize,
    last: watch::Sender<u64>,
}

impl History {
    /// A history that begins after `revision`.
    pub(crate) fn after(revision: u64, limit: usize) -> Arc<Self> {
        let kept = Mutex::new(Kept { events: VecDeque::new(), floor: revision });
        Arc::new(Self { kept, limit, last: watch::Sender::new(revision) })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change and wakes the watchers. Called in the order of revisions.
    pub(crate) fn push(&self, event: WatchEvent) {
        let revision = event.revision;
        let mut kept = self.kept();
        kept.events.push_back(Arc::new(event));
        while kept.events.len() > self.limit {
            if let Some(gone) = kept.events.pop_front() {
                kept.floor = gone.revision;
            }
        }
        drop(kept);
        self.last.send_replace(revision);
    }

    fn next(&self, wanted: &Wanted, cursor: &mut u64) -> Result<Option<WatchEvent>, StoreError> {
        let kept = self.kept();
        if *cursor < kept.floor {
            return Err(StoreError::Expired { since: *cursor });
        }
        let from = kept.events.partition_point(|e| e.revision <= *cursor);
        for event in kept.events.range(from..) {
            *cursor = event.revision;
            if wanted.is(event) {
                return Ok(Some((**event).clone()));
            }
        }
        Ok(None)
    }
}

/// A stream of changes. It ends after an error, and only then.
pub struct Watch {
    stream: Pin<Box<dyn Stream<Item = Result<WatchEvent, StoreError>> + Send>>,
}

impl Watch {
    /// A watch of any stream; for another backend.
    pub fn new(stream: impl Stream<Item = Result<WatchEvent, StoreError>> + Send + 'static) -> Self {
        Self { stream: Box::pin(stream) }
    }

    pub(crate) fn of(history: &Arc<History>, wanted: Wanted, since: Option<u64>) -> Self {
        let last = history.last.subscribe();
        // what is already remembered counts as seen when no revision was named
        let cursor = since.unwrap_or_else(|| *last.borrow());
        let history = Arc::downgrade(history);
        let state = Some((history, last, cursor, wanted));
        Self::new(futures::stream::unfold(state, move |state| async move {
            let (history, mut last, mut cursor, wanted) = state?;
            loop {
                last.borrow_and_update();
                let read = match history.upgrade() {
                    Some(history) => history.next(&wanted, &mut cursor),
                    None => Err(StoreError::Closed),
                };
                match read {
                    Err(error) => return Some((Err(error), None)),
                    Ok(Some(event)) => return Some((Ok(event), Some((history, last, cursor, wanted)))),
                    Ok(None) => {
                        if last.changed().await.is_err() {
                            return Some((Err(StoreError::Closed), None));
                        }
                    }
                }
            }
        }))
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent, StoreError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(cx)
    }
}
