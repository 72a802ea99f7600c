//! The port on which metrics are told to whoever asks, when there is one. It has nothing else, and nobody signs in: so it is on
//! the loopback interface, unless somebody said otherwise in so many words.

use super::{CONTENT_TYPE, Metrics};
use crate::routes::Failure;
use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use hmz_api::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// The address `PORT` or `ADDRESS:PORT` means; `anywhere`: also one that other machines reach.
///
/// # Errors
/// It is none, or one that other machines may reach and nobody said so.
pub(crate) fn address(text: &str, anywhere: bool) -> Result<SocketAddr, Error> {
    let wrong = || Error::usage(format!("'{text}' is no address for metrics: write 9464, or 127.0.0.1:9464"));
    let address = match text.parse::<u16>() {
        Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        Err(_) => text.parse().map_err(|_| wrong())?,
    };
    if address.ip().is_loopback() || anywhere {
        return Ok(address);
    }
    Err(Error::usage(format!("metrics at {address} would be told to other machines, and nobody signs in there"))
        .hint("on this machine alone: 127.0.0.1; if it is meant: --metrics-anywhere"))
}

/// Binds it. What is returned answers until it is dropped.
///
/// # Errors
/// When the address cannot be had.
pub(crate) async fn serve(address: SocketAddr, metrics: Metrics) -> Result<impl Future<Output = ()> + use<>, Error> {
    let failed = |e: std::io::Error| Error::failed(format!("metrics cannot be told at {address}: {e}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(address = %bound, "metrics");
    let app = Router::new().route("/metrics", get(told)).with_state(metrics);
    Ok(async move {
        if let Err(e) = axum::serve(listener, app).await {
            tracing::warn!("metrics are not told any more: {e}");
        }
        std::future::pending().await
    })
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
