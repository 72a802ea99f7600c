//! A watch that outlives its daemon: when the stream breaks, the next daemon is found or started, and what went away
//! meanwhile is told as if it had been seen going.

use futures::stream::{BoxStream, StreamExt, unfold};
use hmz_api::rest::{Event, WatchLine};
use hmz_api::{AnyResource, Error};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;

/// How often in a row a stream that broke is opened again.
const LOST: u32 = 5;

/// One connection's lines.
pub type Lines = BoxStream<'static, Result<WatchLine, Error>>;

struct State<F> {
    open: F,
    lines: Lines,
    known: BTreeMap<String, AnyResource>,
    /// What the listing of a stream that was opened again has had so far.
    listed: Option<BTreeSet<String>>,
    /// The listing has been told as whole.
    told: bool,
    due: VecDeque<WatchLine>,
    lost: u32,
    ended: bool,
}

/// The lines of `first`, and of what `open` opens when that breaks. There is one bookmark.
pub fn steady<F, O>(first: Lines, open: F) -> Lines
where
    F: Fn() -> O + Send + 'static,
    O: Future<Output = Result<Lines, Error>> + Send,
{
    let state = State {
        open,
        lines: first,
        known: BTreeMap::new(),
        listed: None,
        told: false,
        due: VecDeque::new(),
        lost: 0,
        ended: false,
    };
    unfold(state, |mut state| async move {
        loop {
            if let Some(line) = state.due.pop_front() {
                return Some((Ok(line), state));
            }
            if state.ended {
                return None;
            }
            let broke = match state.lines.next().await {
                Some(Ok(line)) => {
                    state.take(line);
                    continue;
                }
                Some(Err(e)) => e,
                None => Error::failed("the daemon ended"),
            };
            state.lost += 1;
            match (state.open)().await {
                Ok(lines) if state.lost < LOST => {
                    state.lines = lines;
                    state.listed = Some(BTreeSet::new());
                }
                other => {
                    if let Some(e) = other.err().or(Some(broke)).filter(|_| state.lost >= LOST) {
                        state.ended = true;
                        return Some((Err(e), state));
                    }
                }
            }
        }
    })
    .boxed()
}

/// Events that outlive their daemon as well: the next one has all of them, and those that were told are not told again.
pub fn events<F, O>(first: BoxStream<'static, Result<Event, Error>>, open: F) -> BoxStream<'static, Result<Event, Error>>
where
    F: Fn() -> O + Send + 'static,
    O: Future<Output = Result<BoxStream<'static, Result<Event, Error>>, Error>> + Send,
{
    let told: BTreeMap<(Uuid, String, String), (u64, Timestamp)> = BTreeMap::new();
    unfold((first, told, 0, open), |(mut lines, mut told, mut lost, open)| async move {
        loop {
            if lost > LOST {
                return None;
            }
            let broke = match lines.next().await {
                Some(Ok(event)) => {
                    lost = 0;
                    let key = (event.uid, event.reason.clone(), event.message.clone());
                    if told.insert(key, (event.count, event.last)) == Some((event.count, event.last)) {
                        continue;
                    }
                    return Some((Ok(event), (lines, told, lost, open)));
                }
                Some(Err(e)) => e,
                None => Error::failed("the daemon ended"),
            };
            lost += 1;
            let error = match open().await {
                Ok(again) if lost <= LOST => {
                    lines = again;
                    continue;
                }
                Ok(_) => broke,
                Err(e) => e,
            };
            if lost > LOST {
                return Some((Err(error), (lines, told, lost, open)));
            }
        }
    })
    .boxed()
}

impl<F> State<F> {
    fn take(&mut self, line: WatchLine) {
        self.lost = 0;
        match line {
            WatchLine::Modified(resource) => {
                let metadata = resource.metadata();
                let (name, uid) = (metadata.name.clone(), metadata.uid);
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                if let Some(before) = self.known.insert(name, resource.clone())
                    && before.metadata().uid != uid
                {
                    self.due.push_back(WatchLine::Deleted(before));
                }
                self.due.push_back(WatchLine::Modified(resource));
            }
            WatchLine::Deleted(resource) => {
                self.known.remove(&resource.metadata().name);
                self.due.push_back(WatchLine::Deleted(resource));
            }
            WatchLine::Bookmark => {
                if let Some(listed) = self.listed.take() {
                    let (left, gone) = std::mem::take(&mut self.known).into_iter().partition(|(name, _)| listed.contains(name));
                    self.known = left;
                    let gone: BTreeMap<String, AnyResource> = gone;
                    self.due.extend(gone.into_values().map(WatchLine::Deleted));
                }
                if !self.told {
                    self.told = true;
                    self.due.push_back(WatchLine::Bookmark);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::kinds::FlowSpec;
    use hmz_api::{Flow, Resource};
    use std::sync::Mutex;

    fn there(name: &str) -> WatchLine {
        let mut flow = Resource::<Flow>::new(name, serde_json::from_str::<FlowSpec>(r#"{"steps": []}"#).unwrap());
        flow.metadata.uid = Some(uuid::Uuid::nil());
        WatchLine::Modified(AnyResource::Flow(Box::new(flow)))
    }

    fn stream(lines: Vec<WatchLine>) -> Lines {
        futures::stream::iter(lines.into_iter().map(Ok)).boxed()
    }

    #[tokio::test]
    async fn what_went_while_the_daemon_was_away_is_told() {
        let next = Mutex::new(vec![stream(vec![there("a"), there("c"), WatchLine::Bookmark])]);
        let open = move || {
            let next = next.lock().unwrap().pop().ok_or_else(|| Error::failed("nobody is there"));
            std::future::ready(next)
        };
        let told: Vec<String> = steady(stream(vec![there("a"), there("b"), WatchLine::Bookmark]), open)
            .map(|line| match line {
                Ok(WatchLine::Modified(r)) => format!("+{}", r.metadata().name),
                Ok(WatchLine::Deleted(r)) => format!("-{}", r.metadata().name),
                Ok(WatchLine::Bookmark) => "=".into(),
                Err(e) => e.message,
            })
            .collect()
            .await;
        assert_eq!(told, ["+a", "+b", "=", "+a", "+c", "-b", "nobody is there"]);
    }

    #[tokio::test]
    async fn an_event_is_told_once_whatever_becomes_of_the_daemon() {
        let event = |reason: &str, count: u64| {
            let at = Timestamp::from_second(count as i64).unwrap();
            let (uid, kind_of) = (Uuid::nil(), hmz_api::rest::EventType::Normal);
            let (kind, name, message) = ("Run".into(), "r".into(), String::new());
            Ok(Event { kind, name, uid, kind_of, reason: reason.into(), message, count, first: at, last: at })
        };
        let first = futures::stream::iter(vec![event("a", 1), event("b", 1)]).boxed();
        let next = Mutex::new(vec![futures::stream::iter(vec![event("a", 1), event("b", 2), event("c", 1)]).boxed()]);
        let open = move || {
            let next = next.lock().unwrap().pop().ok_or_else(|| Error::failed("nobody is there"));
            std::future::ready(next)
        };
        let told = events(first, open).map(|one| one.map_or_else(|e| e.message, |e| format!("{}{}", e.reason, e.count)));
        assert_eq!(told.collect::<Vec<_>>().await, ["a1", "b1", "b2", "c1", "nobody is there"]);
    }
}
