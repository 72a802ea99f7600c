//! Works a queue off.

use super::action::Rest;
use super::meter::{self, Meter};
use super::queue::Lane;
use super::{Action, Backoff, Queue, ReconcileError};
use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

/// How many times a resync it is until one that is settled is looked at again.
const LONG: u32 = 20;

/// How long work in hand may take to end once a drain began; what is not done then is dropped and gone on with after a restart.
const DRAIN: Duration = Duration::from_secs(5);

/// Drives one kind. Every await may be the last one: what it does has to be right when begun again from the store.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// For logs.
    fn name(&self) -> &'static str;

    /// Looks at `key` and drives it one way on.
    async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError>;

    /// What others that keep it waiting have in common with it, such as a daemon: of them only so many are worked on at once.
    fn lane(&self, key: &str) -> Option<Lane> {
        let _ = key;
        None
    }
}

/// How a reconciler is run.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many keys at once.
    pub concurrency: usize,
    /// How many of one lane.
    pub of_lane: usize,
    /// When a key is looked at again though nobody asked; a fifth of it is random.
    pub resync: Duration,
    /// How long to wait after a failure.
    pub backoff: Backoff,
}

/// Where looks are asked for. Clones ask the same queue.
#[derive(Debug, Clone)]
pub struct Requests(mpsc::UnboundedSender<Request>);

/// A key, how long from now it is to be looked at, and why.
pub type Request = (Arc<str>, Duration, &'static str);

impl Requests {
    /// The two ends. What is asked for is deduplicated as soon as it is received, so that the channel stays short.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<Request>) {
        let (send, receive) = mpsc::unbounded_channel();
        (Self(send), receive)
    }

    /// Asks for a look now.
    pub fn ask(&self, key: impl Into<Arc<str>>, reason: &'static str) {
        self.ask_after(key, Duration::ZERO, reason);
    }

    /// Asks for a look after a while.
    pub fn ask_after(&self, key: impl Into<Arc<str>>, after: Duration, reason: &'static str) {
        // nobody receives once a drain began; then nothing more is looked at
        let _ = self.0.send((key.into(), after, reason));
    }
}

/// Works until `stop`, then ends what is in hand (for 5 s at most). What it does is counted.
pub async fn work(
    reconciler: &dyn Reconciler,
    options: Options,
    seed: u64,
    mut requests: mpsc::UnboundedReceiver<Request>,
    stop: CancellationToken,
    meter: &Meter,
) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut queue = Queue::<Arc<str>>::default();
    let mut failures: HashMap<Arc<str>, u32> = HashMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < options.concurrency
            && let Some((key, reason)) = queue.take(Instant::now(), options.of_lane, |key| reconciler.lane(key))
        {
            // there whatever is logged, so that each line tells what it is about
            let span = tracing::error_span!(
                hmz_telemetry::LOOK,
                kind = reconciler.name(),
                key = %key,
                reason,
                run = Empty,
                trace_id = Empty,
                parent_id = Empty
            );
            let began = Instant::now();
            running.push(async move { (reconciler.reconcile(&key).await, key, began.elapsed()) }.instrument(span));
        }
        meter.has(queue.waiting(), running.len());
        let next = if running.len() < options.concurrency { queue.next_at() } else { None };
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some((result, key, took)) = running.next(), if !running.is_empty() => {
                queue.done(&key);
                meter.ended(how(&result), took);
                let after = settle(reconciler.name(), &key, result, &options, &mut failures, &mut random);
                if let Some(after) = after {
                    queue.ask(key, Instant::now() + after, "requeued");
                }
            }
            Some((key, after, reason)) = requests.recv() => queue.ask(key, Instant::now() + after, reason),
            () = due => {}
        }
    }
    let rest = async { while running.next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, rest).await.is_err() {
        tracing::debug!(kind = reconciler.name(), "left work in hand; it goes on after the next start");
    }
}

fn how(result: &Result<Action, ReconcileError>) -> meter::Result {
    match result {
        Ok(_) => meter::Result::Done,
        Err(error) if error.is_conflict() => meter::Result::Conflict,
        Err(_) => meter::Result::Failed,
    }
}

/// When to look at a key again after a reconcile of it; `None`: when asked.
fn settle(
    kind: &str,
    key: &Arc<str>,
    result: Result<Action, ReconcileError>,
    options: &Options,
    failures: &mut HashMap<Arc<str>, u32>,
    random: &mut StdRng,
) -> Option<Duration> {
    match result {
        Ok(action) => {
            failures.remove(key);
            match action.after {
                Some(after) => Some(after),
                None if action.rest == Rest::Gone || options.resync.is_zero() => None,
                None => {
                    let times = if action.rest == Rest::Long { LONG } else { 1 };
                    Some((options.resync * times).mul_f64(1.0 - 0.2 * random.random::<f64>()))
                }
            }
        }
        Err(error) => {
            let count = failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
            // somebody else's write is no failure of ours, but a livelock must not spin either
            let after = if error.is_conflict() && *count <= 3 {
                Duration::from_millis(1)
            } else {
                options.backoff.delay(*count, random.random::<f64>())
            };
            if error.is_conflict() {
                tracing::debug!(kind, %key, %error, "looks again");
            } else {
                tracing::warn!(kind, %key, %error, ?after, "tries again");
            }
            Some(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::spawn;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// Takes a second a look, fails as often as told, and notes what overlapped.
    struct Slow {
        meter: Arc<Meter>,
        now: Mutex<BTreeMap<String, usize>>,
        most: Mutex<usize>,
        looks: Mutex<Vec<(String, u64)>>,
        failures: Mutex<u32>,
    }

    impl Default for Slow {
        fn default() -> Self {
            let meter = Arc::new(Meter::new("slow"));
            Self { meter, now: Mutex::default(), most: Mutex::default(), looks: Mutex::default(), failures: Mutex::default() }
        }
    }

    struct Slowly(Arc<Slow>, Instant);

    #[async_trait]
    impl Reconciler for Slowly {
        fn name(&self) -> &'static str {
            "slow"
        }

        async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError> {
            {
                let mut now = self.0.now.lock().unwrap();
                *now.entry(key.to_owned()).or_default() += 1;
                assert_eq!(now[key], 1, "two looks at {key} at once");
                let mut most = self.0.most.lock().unwrap();
                *most = (*most).max(now.values().sum());
            }
            let began = self.1.elapsed().as_secs();
            tokio::time::sleep(Duration::from_secs(1)).await;
            *self.0.now.lock().unwrap().get_mut(key).unwrap() -= 1;
            self.0.looks.lock().unwrap().push((key.to_owned(), began));
            let mut failures = self.0.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(ReconcileError::Other("not yet".into()));
            }
            Ok(Action::gone())
        }
    }

    fn at_work(slow: &Arc<Slow>) -> (Requests, CancellationToken, crate::core::Spawned) {
        let (requests, receive) = Requests::channel();
        let meter = Arc::clone(&slow.meter);
        let (stop, reconciler) = (CancellationToken::new(), Slowly(slow.clone(), Instant::now()));
        let backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(5), jitter: 0.0 };
        let options = Options { concurrency: 2, of_lane: 2, resync: Duration::ZERO, backoff };
        let stopped = stop.clone();
        let task = spawn(async move { work(&reconciler, options, 1, receive, stopped, &meter).await });
        (requests, stop, task)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_looked_at_once_at_a_time_and_never_more_than_so_many() {
        let slow = Arc::new(Slow::default());
        let (requests, _stop, _task) = at_work(&slow);
        for _ in 0..5 {
            for key in ["a", "b", "c"] {
                requests.ask(key, "");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*slow.most.lock().unwrap(), 2);
        let mut looks: Vec<String> = slow.looks.lock().unwrap().iter().map(|l| l.0.clone()).collect();
        looks.sort();
        // what was asked while it was looked at happened once, afterwards
        assert_eq!(looks, ["a", "a", "b", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_later_and_later() {
        let slow = Arc::new(Slow { failures: Mutex::new(4), ..Slow::default() });
        let (requests, _stop, _task) = at_work(&slow);
        requests.ask("a", "");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began: Vec<u64> = slow.looks.lock().unwrap().iter().map(|l| l.1).collect();
        // each a second long, then 2, 4, 5 and 5 seconds of pause
        assert_eq!(began, [0, 3, 8, 14, 20]);
        let counted = slow.meter.figures();
        assert_eq!((counted.done, counted.failures, counted.conflicts), (1, 4, 0));
        assert_eq!((counted.queued, counted.working, counted.took), (0, 0, Duration::from_secs(5)));
        let within = |limit| counted.latencies.iter().find(|(bound, _)| *bound == Duration::from_millis(limit)).unwrap().1;
        assert_eq!((within(500), within(1000), within(300_000)), (0, 5, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_what_is_in_hand_and_begins_nothing() {
        let slow = Arc::new(Slow::default());
        let (requests, stop, task) = at_work(&slow);
        for key in ["a", "b", "c"] {
            requests.ask(key, "");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let counted = slow.meter.figures();
        assert_eq!((counted.queued, counted.working, counted.done), (1, 2, 0));
        stop.cancel();
        task.await;
        let mut looks: Vec<String> = slow.looks.lock().unwrap().iter().map(|l| l.0.clone()).collect();
        looks.sort();
        assert_eq!(looks, ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_task_ends_it_where_it_is() {
        let slow = Arc::new(Slow::default());
        let (requests, _stop, task) = at_work(&slow);
        requests.ask("a", "");
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(task);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(slow.looks.lock().unwrap().is_empty());
    }
}
