//! Events of the daemon: that something happened to some box, not what. How a box ended is noted on the way.

use super::api::{Fault, encoded};
use super::ending::Endings;
use super::session::{Session, unreachable};
use crate::driver::BoxEvents;
use crate::error::DriverError;
use futures::StreamExt as _;
use hmz_api::labels::{PURPOSE, UID};
use hyper::Method;
use serde_json::{Value, json};

/// What of a container's life is of interest; commands run in one are not.
/// Podman has names of its own for some.
const KINDS: [&str; 12] =
    ["create", "start", "kill", "oom", "die", "died", "stop", "pause", "unpause", "rename", "destroy", "remove"];

/// Events until the connection breaks, which is the stream's last item.
///
/// # Errors
/// The daemon does not answer.
pub async fn events(session: &Session<'_>, endings: &Endings) -> Result<BoxEvents, DriverError> {
    // whose a container is is looked at here: podman's events are not to be had by the name of a label
    let filters = json!({"type": ["container"], "event": KINDS}).to_string();
    let path = format!("/events?filters={}", encoded(&filters));
    let lines = session.api.stream(Method::GET, &path, &[], false).await.map_err(|f| session.fault(f))?;
    let (at, api, endings) = (session.at(), session.api.clone(), endings.clone());
    let stream = futures::stream::unfold(Some(lines), move |lines| {
        let (at, api, endings) = (at.clone(), api.clone(), endings.clone());
        async move {
            let mut lines = lines?;
            loop {
                let broken = |why: &str| Some((Err(unreachable(&at, &api, why)), None));
                match lines.next().await {
                    Ok(Some(event)) if !is_of_box(&event) => {}
                    Ok(Some(event)) => {
                        endings.note(&event);
                        return Some((Ok(()), Some(lines)));
                    }
                    Ok(None) => return broken("it ended its events"),
                    Err(Fault::Silent(why) | Fault::Said(_, why)) => return broken(&why),
                }
            }
        }
    });
    Ok(stream.boxed())
}

/// Whether it is of a container with our labels. Locks come and go with each admission and change nothing a controller looks
/// at.
fn is_of_box(event: &Value) -> bool {
    let attribute = |name: &str| event.pointer("/Actor/Attributes").and_then(|a| a.get(name)).and_then(Value::as_str);
    attribute(UID).is_some() && attribute(PURPOSE) != Some("lock")
}
