//! One listing for all who want one at once.
//!
//! Whoever asks is given one that was begun after it asked, so it sees everything that was there by then. Those who come
//! while one is made share the next, however many they are.

use super::labels::Listed;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Every container with the labels of the contract.
#[derive(Debug)]
pub struct Listing {
    /// The containers.
    pub boxes: Vec<Listed>,
    /// The daemon's clock.
    pub now: Option<Timestamp>,
}

/// What is made for all who want it at once.
#[derive(Debug)]
pub struct Shared<T, E> {
    /// Counts askers, beginnings and ends, so that each is before or after another.
    order: AtomicU64,
    last: Mutex<Option<Made<T, E>>>,
}

#[derive(Debug)]
struct Made<T, E> {
    began: u64,
    ended: u64,
    answer: Result<Arc<T>, E>,
}

impl<T, E> Default for Shared<T, E> {
    fn default() -> Self {
        Self { order: AtomicU64::new(0), last: Mutex::default() }
    }
}

impl<T, E: Clone> Shared<T, E> {
    /// One that was begun after this call. A failure that ended after it will do as well: nobody waits for two.
    ///
    /// # Errors
    /// What `make` failed with, for whomever it was called.
    pub async fn get(&self, make: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let came = self.next();
        let mut last = self.last.lock().await;
        if let Some(made) = &*last {
            let since = if made.answer.is_ok() { made.began } else { made.ended };
            if since > came {
                return made.answer.clone();
            }
        }
        let began = self.next();
        // who gives up in the middle leaves it to the next in line
        let answer = make.await.map(Arc::new);
        *last = Some(Made { began, ended: self.next(), answer: answer.clone() });
        answer
    }

    fn next(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// Asks fifty times at once while one that was begun before is made; what each was given, and how many were made.
    async fn asked(fails: bool) -> (Vec<Result<usize, usize>>, usize) {
        let (shared, made) = (Shared::<usize, usize>::default(), AtomicUsize::new(0));
        let make = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let nth = made.fetch_add(1, Ordering::SeqCst);
            if fails { Err(nth) } else { Ok(nth) }
        };
        let one = async || shared.get(make()).await.map(|nth| *nth);
        let late = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            futures::future::join_all((0..50).map(|_| one())).await
        };
        let (_, all) = tokio::join!(one(), late);
        (all, made.load(Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_while_one_is_made_share_the_next() {
        let (all, made) = asked(false).await;
        assert_eq!((all, made), (vec![Ok(1); 50], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_everybodys_who_waited_for_it() {
        let (all, made) = asked(true).await;
        assert_eq!((all, made), (vec![Err(0); 50], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_holds_nobody_up() {
        let shared = Shared::<usize, usize>::default();
        let never = tokio::time::timeout(Duration::from_secs(1), shared.get(std::future::pending()));
        let (gave_up, other) = tokio::join!(never, shared.get(async { Ok(7) }));
        assert!(gave_up.is_err());
        assert_eq!(other.map(|seven| *seven), Ok(7));
    }
}
