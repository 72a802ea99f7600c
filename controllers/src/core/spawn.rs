//! The one place that starts tasks. Everything else is futures inside them, so that ending the task ends all of it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// A task that ends when this is dropped.
#[derive(Debug)]
pub struct Spawned(JoinHandle<()>);

/// Starts a task on the current runtime.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Spawned {
    Spawned(tokio::spawn(future))
}

impl Spawned {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Future for Spawned {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(|ended| {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "the controllers ended in a fault");
            }
        })
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.0.abort();
    }
}
