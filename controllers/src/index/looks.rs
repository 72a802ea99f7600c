//! When runtimes are looked at, and by which listing: what changes is told of soon where little does, and later where much
//! does, so that looks cost no more than they tell. And what a daemon listed a moment ago, for whoever else looks at it then.
//!
//! Admission never goes by such a listing, and nothing is taken away by one: whoever does either lists the daemon itself.

use super::Place;
use hmz_drivers::ObservedBox;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long more changes of what is handed out on a runtime are waited for before it is looked at.
const TOLD: Duration = Duration::from_millis(200);
/// How long after a look it is looked at again when changes go on.
const AGAIN: Duration = Duration::from_secs(1);
/// The same where many are looked at. So long ago looks count.
const BUSY: Duration = Duration::from_secs(5);
/// How many looks within that time make it a second more.
const A_SECOND_MORE: f64 = 200.0;

/// A moment of the index: of two, what happened at the later one is known to be later.
pub(crate) type Moment = u64;

/// The looks.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Runtimes that are stored and not being deleted.
    of: HashMap<String, Times>,
    /// Looks at any of them, within [`BUSY`].
    recent: VecDeque<Instant>,
    now: Moment,
    /// What daemons listed, and since when that was asked for.
    listings: HashMap<Place, (Moment, Arc<Vec<ObservedBox>>)>,
}

#[derive(Debug, Default)]
struct Times {
    /// When it was looked at last.
    looked: Option<Instant>,
    /// When something changed that it is to tell of.
    changed: Option<Moment>,
}

impl Looks {
    /// A moment after every other one.
    pub fn moment(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// A runtime is there.
    pub fn keep(&mut self, runtime: &str) {
        if !self.of.contains_key(runtime) {
            self.of.insert(runtime.to_owned(), Times::default());
        }
    }

    /// It is gone, or to go.
    pub fn forget(&mut self, runtime: &str) {
        self.of.remove(runtime);
    }

    /// It is looked at now.
    pub fn look_at(&mut self, runtime: &str) {
        let now = Instant::now();
        if let Some(times) = self.of.get_mut(runtime) {
            times.looked = Some(now);
        }
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|at| now.duration_since(*at) > BUSY) {
            self.recent.pop_front();
        }
    }

    /// Something changed that a runtime is to tell of: how long from now it is looked at. At once when it is to go, or to be
    /// listed.
    pub fn changed(&mut self, runtime: &str) -> Duration {
        let now = self.moment();
        let again = AGAIN.max(Duration::from_secs_f64(self.recent.len() as f64 / A_SECOND_MORE)).min(BUSY);
        let Some(times) = self.of.get_mut(runtime) else { return Duration::ZERO };
        times.changed = Some(now);
        let ago = times.looked.map_or(Duration::MAX, |at| at.elapsed());
        again.saturating_sub(ago).max(TOLD)
    }

    /// Has a listing that was asked for at a moment ready for others.
    pub fn lend(&mut self, place: &Place, at: Moment, boxes: &Arc<Vec<ObservedBox>>) {
        self.listings.insert(place.clone(), (at, boxes.clone()));
    }

    /// It is too old for anybody now.
    pub fn take_back(&mut self, place: &Place) {
        self.listings.remove(place);
    }

    /// What a daemon listed a moment ago.
    pub fn lent(&self, place: &Place) -> Option<Arc<Vec<ObservedBox>>> {
        self.listings.get(place).map(|(_, boxes)| boxes.clone())
    }

    /// The same, when it was asked for after everything that its runtime is to tell of.
    pub fn lent_whole(&self, place: &Place) -> Option<Arc<Vec<ObservedBox>>> {
        let times = self.of.get(&*place.0)?;
        let (at, boxes) = self.listings.get(place)?;
        times.changed.is_none_or(|changed| changed < *at).then(|| boxes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_are_told_of_soon_where_little_happens_and_later_where_much_does() {
        let mut looks = Looks::default();
        assert_eq!(looks.changed("a"), Duration::ZERO);
        looks.keep("a");
        assert_eq!(looks.changed("a"), TOLD);
        looks.look_at("a");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(looks.changed("a"), Duration::from_millis(700));
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(looks.changed("a"), TOLD);
        // many others
        for nth in 0..2000 {
            looks.keep(&format!("b{nth}"));
            looks.look_at(&format!("b{nth}"));
        }
        looks.look_at("a");
        assert_eq!(looks.changed("a"), BUSY);
        tokio::time::sleep(Duration::from_secs(6)).await;
        looks.look_at("a");
        assert_eq!(looks.changed("a"), AGAIN);
        looks.forget("a");
        assert_eq!(looks.changed("a"), Duration::ZERO);
    }

    #[test]
    fn a_listing_is_lent_until_it_is_taken_back_and_tells_of_no_later_change() {
        let (mut looks, place): (_, Place) = (Looks::default(), ("docker:a".into(), "unix:///a".into()));
        looks.keep("docker:a");
        let at = looks.moment();
        looks.lend(&place, at, &Arc::default());
        assert!(looks.lent(&place).is_some() && looks.lent_whole(&place).is_some());
        let _ = looks.changed("docker:a");
        assert!(looks.lent(&place).is_some() && looks.lent_whole(&place).is_none());
        let at = looks.moment();
        looks.lend(&place, at, &Arc::default());
        assert!(looks.lent_whole(&place).is_some());
        looks.take_back(&place);
        assert!(looks.lent(&place).is_none() && looks.lent_whole(&place).is_none());
    }
}
