//! Events of the daemon: that something happened to some box, not what.

use super::api::{Fault, encoded};
use super::session::{Session, unreachable};
use crate::driver::BoxEvents;
use crate::error::DriverError;
use futures::StreamExt as _;
use hmz_api::labels::{PURPOSE, UID};
use hyper::Method;
use serde_json::{Value, json};

/// What of a container's life is of interest; commands run in one are not.
const KINDS: [&str; 8] = ["create", "start", "die", "oom", "pause", "unpause", "rename", "destroy"];

/// Events until the connection breaks, which is the stream's last item.
///
/// # Errors
/// The daemon does not answer.
pub async fn events(session: &Session<'_>) -> Result<BoxEvents, DriverError> {
    let filters = json!({"type": ["container"], "label": [UID], "event": KINDS}).to_string();
    let path = format!("/events?filters={}", encoded(&filters));
    let lines = session.api.stream(Method::GET, &path, &[], false).await.map_err(|f| session.fault(f))?;
    let (at, api) = (session.at(), session.api.clone());
    let stream = futures::stream::unfold(Some(lines), move |lines| {
        let (at, api) = (at.clone(), api.clone());
        async move {
            let mut lines = lines?;
            loop {
                let broken = |why: &str| Some((Err(unreachable(&at, &api, why)), None));
                match lines.next().await {
                    Ok(Some(event)) if is_of_lock(&event) => {}
                    Ok(Some(_)) => return Some((Ok(()), Some(lines))),
                    Ok(None) => return broken("it ended its events"),
                    Err(Fault::Silent(why) | Fault::Said(_, why)) => return broken(&why),
                }
            }
        }
    });
    Ok(stream.boxed())
}

/// Locks come and go with each admission and change nothing a controller looks at.
fn is_of_lock(event: &Value) -> bool {
    event.pointer("/Actor/Attributes").and_then(|a| a.get(PURPOSE)).and_then(Value::as_str) == Some("lock")
}
