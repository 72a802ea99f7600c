//! The port on which metrics are told to whoever asks, when there is one. It has nothing else, and nobody signs in: so it is on
//! the loopback interface, unless somebody said otherwise in so many words. Whoever starts the daemon says where, or else
//! settings.yaml does, which may change its mind.

use super::{CONTENT_TYPE, Metrics};
use crate::routes::Failure;
use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use hmz_api::Error;
use hmz_manifest::settings::metrics as declared;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

/// How soon an address that could not be had is asked for again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long whoever is being answered is waited for when the address is another.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What became of what settings.yaml says of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Told {
    /// It says nothing of them.
    #[default]
    Nowhere,
    /// They are told at this address.
    At(SocketAddr),
    /// They are not, and why. It is tried again.
    Not(String),
    /// Whoever started the daemon said where, and that holds.
    Overruled(String),
}

/// The address `PORT` or `ADDRESS:PORT` means; `anywhere`: also one that other machines reach.
///
/// # Errors
/// It is none, or one that other machines may reach and nobody said so.
pub(crate) fn address(text: &str, anywhere: bool) -> Result<SocketAddr, Error> {
    let address = declared::address(text).map_err(Error::usage)?;
    match declared::refusal(address).filter(|_| !anywhere) {
        Some(why) => Err(Error::usage(why).hint("on this machine alone: 127.0.0.1; if it is meant: --metrics-anywhere")),
        None => Ok(address),
    }
}

/// Tells metrics where settings.yaml says, for as long as it says so.
pub(crate) async fn follow(mut wanted: watch::Receiver<Option<SocketAddr>>, metrics: Metrics, told: watch::Sender<Told>) {
    loop {
        let address = *wanted.borrow_and_update();
        let changed = match address {
            None => {
                told.send_replace(Told::Nowhere);
                wanted.changed().await
            }
            Some(address) => match Listening::begin(address, metrics.clone()).await {
                Ok(listening) => {
                    told.send_replace(Told::At(listening.address));
                    let changed = wanted.changed().await;
                    listening.end().await;
                    changed
                }
                Err(e) => {
                    let now = Told::Not(e.message);
                    if *told.borrow() != now {
                        tracing::warn!("{now:?}");
                        told.send_replace(now);
                    }
                    tokio::time::timeout(AGAIN, wanted.changed()).await.unwrap_or(Ok(()))
                }
            },
        };
        if changed.is_err() {
            // nobody can change it any more: the daemon ends
            std::future::pending::<()>().await;
        }
    }
}

/// An address at which metrics are told.
pub(crate) struct Listening {
    /// As it is bound.
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Listening {
    /// Binds it.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn begin(address: SocketAddr, metrics: Metrics) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, serving) = serve(address, metrics, async { drop(stopped.await) }).await?;
        Ok(Self { address, stop, serving: tokio::spawn(serving) })
    }

    /// Gives it back. Who keeps a connection open is hung up on.
    async fn end(self) {
        drop(self.stop);
        let mut serving = self.serving;
        if tokio::time::timeout(LAST_ANSWERS, &mut serving).await.is_err() {
            serving.abort();
        }
    }
}

/// Binds it. What is returned answers until `stop`, or until it is dropped.
///
/// # Errors
/// When the address cannot be had.
async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(SocketAddr, impl Future<Output = ()>), Error> {
    let failed = |e: std::io::Error| Error::failed(format!("metrics cannot be told at {address}: {e}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(address = %bound, "metrics");
    let app = Router::new().route("/metrics", get(told)).with_state(metrics);
    let serving = async move {
        if let Err(e) = axum::serve(listener, app).with_graceful_shutdown(stop).await {
            tracing::warn!("metrics are not told any more: {e}");
        }
    };
    Ok((bound, serving))
}

pub(crate) async fn told(State(metrics): State<Metrics>) -> Result<impl IntoResponse, Failure> {
    Ok(([("content-type", CONTENT_TYPE)], metrics.text().await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_told_unless_somebody_says_otherwise() {
        let is = |text: &str, anywhere| address(text, anywhere).map(|a| a.to_string()).map_err(|e| e.message);
        assert_eq!(is("9464", false).as_deref(), Ok("127.0.0.1:9464"));
        assert_eq!(is("[::1]:9464", false).as_deref(), Ok("[::1]:9464"));
        assert_eq!(is("0.0.0.0:9464", true).as_deref(), Ok("0.0.0.0:9464"));
        for open in ["0.0.0.0:9464", "10.0.0.1:1", "[::]:9464"] {
            assert!(is(open, false).unwrap_err().contains("other machines"), "{open}");
        }
        assert!(is("localhost", false).is_err() && is("99999", false).is_err());
    }
}
