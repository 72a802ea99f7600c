//! What the spinner of a run says: who is working, and for how long.

use super::clean::one_line;
use hmz_api::journal::{Event, Record};

/// Follows a run's records.
#[derive(Debug, Clone, PartialEq)]
pub struct Working {
    started: f64,
    begun: bool,
    /// Agents in a turn and since when, oldest first.
    turns: Vec<(String, f64)>,
}

impl Working {
    /// A run that was asked for at `now`, in seconds since the epoch.
    pub fn new(now: f64) -> Self {
        Self { started: now, begun: false, turns: Vec::new() }
    }

    /// Takes note of a record.
    pub fn note(&mut self, record: &Record) {
        match &record.event {
            Event::Begins => {
                self.begun = true;
                self.turns.push((one_line(&record.agent), record.at));
            }
            Event::Ends { .. } | Event::Failed { .. } => {
                if let Some(at) = self.turns.iter().position(|(agent, _)| *agent == one_line(&record.agent)) {
                    self.turns.remove(at);
                }
            }
            Event::Ended { .. } => self.turns.clear(),
            _ => {}
        }
    }

    /// `starting · 3s`, `coder is working · 12s`, `2 turns working · 40s`; nothing between turns.
    pub fn text(&self, now: f64) -> Option<String> {
        let since = |then: f64| (now - then).max(0.0).floor();
        match self.turns.as_slice() {
            [] if self.begun => None,
            [] => Some(format!("starting · {}s", since(self.started))),
            [(agent, at)] => Some(format!("{agent} is working · {}s", since(*at))),
            [(_, oldest), ..] => Some(format!("{} turns working · {}s", self.turns.len(), since(*oldest))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_who_is_at_work() {
        let record = |agent: &str, at: f64, event: Event| Record {
            at,
            agent: agent.into(),
            cli: String::new(),
            model: String::new(),
            session: String::new(),
            event,
        };
        let ends = || Event::Ends { seconds: 1.0, answer: String::new() };
        let mut working = Working::new(10.0);
        assert_eq!(working.text(13.9).as_deref(), Some("starting · 3s"));
        working.note(&record("coder", 20.0, Event::Begins));
        assert_eq!(working.text(32.0).as_deref(), Some("coder is working · 12s"));
        working.note(&record("tester", 30.0, Event::Begins));
        assert_eq!(working.text(60.0).as_deref(), Some("2 turns working · 40s"));
        working.note(&record("coder", 61.0, ends()));
        assert_eq!(working.text(61.0).as_deref(), Some("tester is working · 31s"));
        working.note(&record("tester", 62.0, ends()));
        assert_eq!(working.text(63.0), None);
    }
}
