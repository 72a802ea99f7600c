//! What becomes of an environment that stands alone when nowhere has room for it: it waits, for as long as it declares, or is
//! refused, which is final until it is declared otherwise. Pure.

use super::outcome::{self, REFUSED};
use super::plan::remaining;
use crate::run::refusal;
use hmz_api::condition::ConditionStatus::False;
use hmz_api::kinds::condition::SCHEDULED;
use hmz_api::kinds::{Admission, Environment};
use hmz_api::{Error, Resource};
use jiff::Timestamp;
use std::time::Duration;

/// How long it goes on waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For as long as it takes.
    Endless,
    /// No longer than this.
    Left(Duration),
    /// No more: it is refused.
    Over,
}

impl Patience {
    /// When it asks again, where it would after `pause`; `None`: never.
    pub fn pause(self, pause: Duration) -> Option<Duration> {
        match self {
            Self::Endless => Some(pause),
            Self::Left(rest) => Some(rest.min(pause)),
            Self::Over => None,
        }
    }
}

/// It was given no room, and `Scheduled` says why: what it declares for that. `faults` are those of settings.yaml that may be the
/// cause.
pub fn no_room(env: &mut Resource<Environment>, faults: &[String], now: Timestamp) -> Patience {
    let since = *env.status.waiting_since.get_or_insert(now);
    let waited = match (env.spec.admission.unwrap_or_default(), env.spec.wait_for) {
        (Admission::Refuse, _) => String::new(),
        (Admission::Wait, None) => return Patience::Endless,
        (Admission::Wait, Some(limit)) => match remaining(since, limit.duration(), now) {
            Some(rest) => return Patience::Left(rest),
            None => refusal::waited(limit),
        },
    };
    let why = env.status.conditions.get(SCHEDULED).map(|c| c.message.as_str()).unwrap_or_default();
    let error = refusal::with_faults(Error::refused(format!("{why}{waited}")), faults);
    env.status.refused_generation = Some(env.metadata.generation);
    env.status.waiting_since = None;
    outcome::not_held(env, False, REFUSED, &refusal::message(&error), now);
    Patience::Over
}
