//! How a box ended, from the daemon's events: who killed it is in no container's state, and a box that removes itself has
//! none left.
//!
//! What was heard is kept here for a while, and the daemon is asked for the events it still has when that does not explain
//! it. Both forget, and a daemon that was started since knows nothing. That memory was lacking the kernel is asked as well.

use super::api::{Lines, encoded};
use super::kernel_log::lacked_memory;
use super::session::Session;
use crate::error::DriverError;
use crate::types::Ending;
use hyper::Method;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Containers that are remembered.
const REMEMBERED: usize = 512;
/// How long an end that is under way is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a removal that began with a kill is waited for.
const REMOVAL: Duration = Duration::from_secs(3);
/// How long before its end a want of memory counts as its cause, in seconds.
const CAUSE: i64 = 10;
/// Events that tell of an end.
const KINDS: [&str; 6] = ["start", "kill", "oom", "die", "died", "stop"];

/// What events said of one container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Heard {
    id: String,
    ending: Ending,
    /// When it last lacked memory, in seconds.
    oom_at: Option<i64>,
    /// When it ended, in seconds.
    died_at: Option<i64>,
}

impl Heard {
    fn event(&mut self, event: &Value) {
        let attribute = |name: &str| event.pointer("/Actor/Attributes").and_then(|a| a.get(name)).and_then(Value::as_str);
        let at = event.get("time").and_then(Value::as_i64).unwrap_or_default();
        let action = event.get("Action").or_else(|| event.get("status")).and_then(Value::as_str);
        match action.unwrap_or_default() {
            "start" => *self = Self { id: std::mem::take(&mut self.id), ..Self::default() },
            "kill" => match attribute("signal") {
                Some("15" | "2") => self.ending.stopped = true,
                // podman does not say which
                Some("9") | None => self.ending.killed = true,
                Some(_) => {}
            },
            "stop" => self.ending.stopped = true,
            "oom" => self.oom_at = Some(at),
            "die" | "died" => {
                self.ending.code = attribute("exitCode").and_then(|code| code.parse().ok());
                self.died_at = Some(at);
            }
            _ => {}
        }
    }

    fn ending(&self) -> Ending {
        // the daemon may hear of the two the other way round
        let oom = matches!((self.oom_at, self.died_at), (Some(oom), Some(died)) if (died - oom).abs() <= CAUSE);
        Ending { oom, ..self.ending.clone() }
    }

    /// Whether there is nothing more to learn.
    fn explains(&self) -> bool {
        let ending = self.ending();
        let by_kill = ending.code.is_none_or(|code| code == 137);
        self.died_at.is_some() && (!by_kill || ending.oom || ending.stopped || ending.killed)
    }
}

/// What was heard of containers, the latest ones.
#[derive(Debug, Clone, Default)]
pub struct Endings(Arc<Mutex<VecDeque<Heard>>>);

impl Endings {
    /// Takes note of an event.
    pub fn note(&self, event: &Value) {
        let Some(id) = event.pointer("/Actor/ID").and_then(Value::as_str) else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut heard = match all.iter().position(|h| h.id == id).and_then(|at| all.remove(at)) {
            Some(heard) => heard,
            None => Heard { id: id.to_owned(), ..Heard::default() },
        };
        heard.event(event);
        all.push_back(heard);
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }

    fn of(&self, id: &str) -> Option<Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|h| h.id == id).cloned()
    }
}

/// How a container ended.
///
/// # Errors
/// The daemon does not answer.
pub async fn ending(session: &Session<'_>, heard: &Endings, id: &str) -> Result<Option<Ending>, DriverError> {
    let wait = format!("/containers/{}/wait", encoded(id));
    match tokio::time::timeout(PATIENCE, session.api.post(&wait, None)).await {
        Err(_) => return Ok(None), // it does not end
        Ok(Err(fault)) if fault.status() != Some(404) => return Err(session.fault(fault)),
        Ok(_) => {}
    }
    let Some(mut ending) = known(session, heard, id).await? else { return Ok(None) };
    if ending.killed && !ending.stopped {
        let gone = format!("{wait}?condition=removed");
        // removed already is an answer too
        ending.removed = match tokio::time::timeout(REMOVAL, session.api.post(&gone, None)).await {
            Ok(answer) => answer.map_or_else(|fault| fault.status() == Some(404), |_| true),
            Err(_) => false,
        };
    }
    Ok(Some(ending))
}

/// What is known of the end of one that does not run.
async fn known(session: &Session<'_>, heard: &Endings, id: &str) -> Result<Option<Ending>, DriverError> {
    if let Some(heard) = heard.of(id).filter(Heard::explains) {
        return Ok(Some(heard.ending()));
    }
    let past = past(session, id).await?;
    // what was heard meanwhile may be more than the daemon has kept
    let mut best = heard.of(id).filter(|h| h.explains() || past.died_at.is_none()).unwrap_or(past);
    if let Some(at) = best.died_at.filter(|_| !best.explains())
        && session.machine().await.is_ok_and(|machine| machine.here)
    {
        let of = id.to_owned();
        let lacked = tokio::task::spawn_blocking(move || lacked_memory(&of, at, CAUSE)).await;
        best.oom_at = lacked.is_ok_and(|lacked| lacked).then_some(at);
    }
    Ok(best.died_at.is_some().then(|| best.ending()))
}

/// What the daemon's own memory of events has of a container.
async fn past(session: &Session<'_>, id: &str) -> Result<Heard, DriverError> {
    let said = session.api.get("/version").await;
    let now = said.map_err(|f| session.fault(f))?.now.map_or(0, jiff::Timestamp::as_second);
    // to a second: the one that has begun is waited for, in which what belongs together still comes
    let until = now + 1;
    let filters = json!({"type": ["container"], "container": [id], "event": KINDS}).to_string();
    let path = format!("/events?since=1&until={until}&filters={}", encoded(&filters));
    let lines = session.api.stream(Method::GET, &path, &[], false).await.map_err(|f| session.fault(f))?;
    let mut heard = Heard { id: id.to_owned(), ..Heard::default() };
    // a daemon whose clock runs oddly would let it wait
    let _ = tokio::time::timeout(PATIENCE, gather(lines, &mut heard)).await;
    Ok(heard)
}

async fn gather(mut lines: Lines, heard: &mut Heard) {
    while let Ok(Some(event)) = lines.next().await {
        heard.event(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str, time: i64, attributes: Value) -> Value {
        json!({"Type": "container", "Action": action, "time": time, "Actor": {"ID": "x", "Attributes": attributes}})
    }

    fn after(events: &[Value]) -> (Ending, bool) {
        let endings = Endings::default();
        events.iter().for_each(|e| endings.note(e));
        let heard = endings.of("x").unwrap();
        (heard.ending(), heard.explains())
    }

    fn die(code: &str, time: i64) -> Value {
        event("die", time, json!({"exitCode": code}))
    }

    fn kill(signal: &str, time: i64) -> Value {
        event("kill", time, json!({"signal": signal}))
    }

    #[test]
    fn each_end_is_told_apart() {
        let of = |code, oom, stopped, killed| Ending { code: Some(code), oom, stopped, killed, ..Ending::default() };
        let none = json!({});
        assert_eq!(after(&[kill("15", 5), die("0", 5), event("stop", 5, none.clone())]), (of(0, false, true, false), true));
        assert_eq!(
            after(&[kill("15", 5), kill("9", 15), die("137", 15), event("stop", 15, none.clone())]).0,
            of(137, false, true, true)
        );
        assert_eq!(after(&[kill("9", 5), die("137", 5)]), (of(137, false, false, true), true));
        // the two come in either order
        for events in [[event("oom", 5, none.clone()), die("137", 6)], [die("137", 5), event("oom", 5, none.clone())]] {
            assert_eq!(after(&events), (of(137, true, false, false), true));
        }
        assert_eq!(after(&[die("137", 5)]), (of(137, false, false, false), false));
        assert_eq!(after(&[die("3", 5)]), (of(3, false, false, false), true));
        // a signal that ends nothing, and want of memory long ago
        assert_eq!(after(&[kill("1", 5), event("oom", 5, none.clone()), die("1", 500)]).0, of(1, false, false, false));
        // what was before it was started again is over
        assert_eq!(after(&[kill("9", 5), die("137", 5), event("start", 6, none)]), (Ending::default(), false));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let endings = Endings::default();
        for n in 0..=REMEMBERED {
            endings.note(&json!({"Action": "die", "Actor": {"ID": n.to_string()}}));
        }
        assert_eq!((endings.of("0"), endings.0.lock().unwrap().len()), (None, REMEMBERED));
        assert!(endings.of("1").is_some());
    }
}
