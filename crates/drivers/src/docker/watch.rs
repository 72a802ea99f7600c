//! Events of the daemon: that something happened to a box, and to which, not what. How a box ended is noted on the way.
//!
//! What happens to a container that is not ours happens to the environments in it: their marks say which it is.

use super::api::{Fault, encoded};
use super::ending::Endings;
use super::labels::{ATTACHED, Listed};
use super::session::{Session, unreachable};
use crate::driver::{BoxEvent, BoxEvents};
use crate::error::DriverError;
use futures::StreamExt as _;
use hmz_api::labels::{ENV_UID, PURPOSE, UID};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::HashMap;

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
    // after the stream has begun: a mark that is made meanwhile is told of by it
    let marks = Marks::of(&session.all().await?.boxes);
    let (at, api, endings) = (session.at(), session.api.clone(), endings.clone());
    let stream = futures::stream::unfold(Some((lines, marks)), move |state| {
        let (at, api, endings) = (at.clone(), api.clone(), endings.clone());
        async move {
            let (mut lines, mut marks) = state?;
            loop {
                let broken = |why: &str| Some((Err(unreachable(&at, &api, why)), None));
                match lines.next().await {
                    Ok(Some(event)) if !marks.concerned(&event) => {}
                    Ok(Some(event)) => {
                        endings.note(&event);
                        return Some((Ok(marks.told(&event)), Some((lines, marks))));
                    }
                    Ok(None) => return broken("it ended its events"),
                    Err(Fault::Silent(why) | Fault::Said(_, why)) => return broken(&why),
                }
            }
        }
    });
    Ok(stream.boxed())
}

/// The marks there are, and the containers they stand in for environments in.
#[derive(Debug, Default)]
struct Marks(HashMap<String, String>);

impl Marks {
    fn of(listed: &[Listed]) -> Self {
        Self(listed.iter().filter_map(|one| Some((one.id.clone(), one.attached.clone()?))).collect())
    }

    /// Whether one names the container that an event is of.
    fn name(&self, event: &Value) -> bool {
        let id = event.pointer("/Actor/ID").and_then(Value::as_str);
        id.is_some_and(|id| self.0.values().any(|attached| attached == id))
    }

    /// What is told of an event. Labels that were copied name the environment they were copied from, which then looks for nothing,
    /// but what they are on may be one that environments are in.
    fn told(&self, event: &Value) -> BoxEvent {
        let uid = event.pointer("/Actor/Attributes").and_then(|all| all.get(ENV_UID)).and_then(Value::as_str);
        let uid = uid.and_then(|uid| uid.parse().ok()).filter(|_| !self.name(event));
        uid.map_or(BoxEvent::Any, BoxEvent::Of)
    }

    /// Whether an event is of a container with our labels, or of one that such a mark names. Locks come and go with each admission,
    /// and so does what asks GPUs: they change nothing a controller looks at, and who waits for room would be woken to ask again.
    fn concerned(&mut self, event: &Value) -> bool {
        let id = event.pointer("/Actor/ID").and_then(Value::as_str).unwrap_or_default();
        let attribute = |name: &str| event.pointer("/Actor/Attributes").and_then(|a| a.get(name)).and_then(Value::as_str);
        if attribute(UID).is_none() {
            return self.name(event);
        }
        let action = event.get("Action").or_else(|| event.get("status")).and_then(Value::as_str);
        match (attribute(ATTACHED), action) {
            (Some(_), Some("destroy" | "remove")) => drop(self.0.remove(id)),
            (Some(attached), _) => drop(self.0.insert(id.to_owned(), attached.to_owned())),
            (None, _) => {}
        }
        !matches!(attribute(PURPOSE), Some("lock" | "probe")) || self.name(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_whose_box_it_is_of_where_that_is_known() {
        let uid = uuid::Uuid::from_u128(7);
        let event = |attributes: Value| json!({"Action": "die", "Actor": {"ID": "c", "Attributes": attributes}});
        let ours = event(json!({UID: "7", ENV_UID: uid.to_string()}));
        assert_eq!(Marks::default().told(&ours), BoxEvent::Of(uid));
        assert_eq!(Marks::default().told(&event(json!({UID: "7", ENV_UID: "none"}))), BoxEvent::Any);
        // one that is not ours, and that environments are in, be it of an image that was made from a box
        let marks = Marks([("m".to_owned(), "c".to_owned())].into());
        assert_eq!(marks.told(&event(json!({"name": "db"}))), BoxEvent::Any);
        assert_eq!(marks.told(&ours), BoxEvent::Any);
    }

    #[test]
    fn what_happens_to_a_container_concerns_the_environments_in_it_for_as_long_as_they_are() {
        let event =
            |action: &str, id: &str, attributes: Value| json!({"Action": action, "Actor": {"ID": id, "Attributes": attributes}});
        let mark = json!({UID: "7", PURPOSE: "box", ATTACHED: "theirs"});
        let mut marks = Marks::default();
        let die = event("die", "theirs", json!({"name": "db"}));
        assert!(!marks.concerned(&die));
        assert!(marks.concerned(&event("create", "m1", mark.clone())) && marks.concerned(&event("create", "m2", mark.clone())));
        assert!(marks.concerned(&die) && !marks.concerned(&event("die", "other", json!({}))));
        assert!(marks.concerned(&event("destroy", "m1", mark.clone())) && marks.concerned(&die));
        assert!(marks.concerned(&event("remove", "m2", mark)) && !marks.concerned(&die));
        for purpose in ["lock", "probe"] {
            assert!(!marks.concerned(&event("create", "l", json!({UID: "7", PURPOSE: purpose}))), "{purpose}");
        }
    }
}
