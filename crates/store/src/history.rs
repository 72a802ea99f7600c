//! The last changes, kept in memory within bounds, and the streams that read them.
//!
//! A watcher has no buffer of its own: it reads from here at its own pace. One that falls behind what is remembered is
//! told so once and its stream ends. Whoever watches one resource is woken by its changes alone.

use crate::backend::WatchEvent;
use crate::error::StoreError;
use futures::Stream;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
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
    /// Who watches one resource, by its kind and name.
    ones: HashMap<&'static str, HashMap<String, Vec<Arc<One>>>>,
}

impl Kept {
    fn last(&self) -> u64 {
        self.events.back().map_or(self.floor, |event| event.revision)
    }
}

/// What a watcher of one resource has not read.
#[derive(Default)]
struct One(Mutex<Unread>);

#[derive(Default)]
struct Unread {
    /// The revision from which on there may be changes of it; before there are none.
    from: Option<u64>,
    waker: Option<Waker>,
}

impl One {
    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, revision: u64) {
        let mut unread = self.unread();
        unread.from.get_or_insert(revision);
        let waker = unread.waker.take();
        drop(unread);
        waker.into_iter().for_each(Waker::wake);
    }
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
        let kept = Mutex::new(Kept { events: VecDeque::new(), floor: revision, ones: HashMap::new() });
        Arc::new(Self { kept, limit, last: watch::Sender::new(revision) })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change and wakes the watchers. Called in the order of revisions.
    pub(crate) fn push(&self, event: WatchEvent) {
        let revision = event.revision;
        let mut kept = self.kept();
        let ones = kept.ones.get(event.kind).and_then(|of| of.get(&event.name)).cloned();
        kept.events.push_back(Arc::new(event));
        while kept.events.len() > self.limit {
            if let Some(gone) = kept.events.pop_front() {
                kept.floor = gone.revision;
            }
        }
        drop(kept);
        self.last.send_replace(revision);
        ones.iter().flatten().for_each(|one| one.tell(revision));
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

impl Drop for History {
    fn drop(&mut self) {
        // they are told that it is closed
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        for one in kept.ones.values().flat_map(HashMap::values).flatten() {
            one.tell(u64::MAX);
        }
    }
}

/// A watcher of one resource.
struct OfOne {
    history: Weak<History>,
    kind: &'static str,
    name: String,
    one: Arc<One>,
    cursor: u64,
    ended: bool,
}

impl OfOne {
    fn of(history: &Arc<History>, kind: &'static str, name: &str, since: Option<u64>) -> Self {
        let one = Arc::<One>::default();
        let mut kept = history.kept();
        // what is already remembered counts as seen when no revision was named
        let cursor = since.unwrap_or_else(|| kept.last());
        one.unread().from = Some(cursor.saturating_add(1));
        kept.ones.entry(kind).or_default().entry(name.to_owned()).or_default().push(one.clone());
        drop(kept);
        Self { history: Arc::downgrade(history), kind, name: name.to_owned(), one, cursor, ended: false }
    }
}

impl Stream for OfOne {
    type Item = Result<WatchEvent, StoreError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let mut unread = self.one.unread();
            // before it is looked: what comes meanwhile wakes
            unread.waker = Some(cx.waker().clone());
            let from = unread.from.take();
            drop(unread);
            let Some(history) = self.history.upgrade() else {
                self.ended = true;
                return Poll::Ready(Some(Err(StoreError::Closed)));
            };
            let Some(from) = from else { return Poll::Pending };
            let mut cursor = self.cursor.max(from.saturating_sub(1));
            let wanted = Wanted { kind: Some(self.kind), name: Some(self.name.clone()) };
            let read = history.next(&wanted, &mut cursor);
            self.cursor = cursor;
            match read {
                Ok(None) => {}
                Ok(Some(event)) => {
                    // there may be more
                    self.one.unread().from = Some(cursor.saturating_add(1));
                    return Poll::Ready(Some(Ok(event)));
                }
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl Drop for OfOne {
    fn drop(&mut self) {
        let Some(history) = self.history.upgrade() else { return };
        let mut kept = history.kept();
        let Some(of) = kept.ones.get_mut(self.kind) else { return };
        if let Some(ones) = of.get_mut(&self.name) {
            ones.retain(|one| !Arc::ptr_eq(one, &self.one));
            if ones.is_empty() {
                of.remove(&self.name);
            }
        }
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

    pub(crate) fn of_one(history: &Arc<History>, kind: &'static str, name: &str, since: Option<u64>) -> Self {
        Self::new(OfOne::of(history, kind, name, since))
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
