//! What nobody can know before, however exactly it is rehearsed: who of several that ask for the same room asks first, and
//! whether one that asks once does so before room is given back or after.
//!
//! A rehearsal asks in one order. Where each answer would be the same in any other, that order is as good as any; where one
//! would not, whom it concerns is told so.

use super::driver::{Asked, Onlooker, Would};
use crate::target::is_same_daemon;
use hmz_drivers::{Admitted, BoxKey, Promised, Want};
use std::collections::BTreeSet;
use uuid::Uuid;

/// What is not known of one question for room.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The boxes it was asked for.
    pub of: BTreeSet<Uuid>,
    /// The runtime, as refusals say it.
    pub at: String,
    pub what: What,
}

/// Why.
#[derive(Debug)]
pub(super) enum What {
    /// These have the room now, and may not have it when they ask later.
    Contended(BTreeSet<Uuid>),
    /// It has no room there since it asked before room was given back.
    Before,
    /// It has room there since it asked after room was given back.
    After,
}

/// The doubts about what daemons of one backend were asked. One that does not answer any more has none.
pub(super) async fn of(onlooker: &Onlooker) -> Vec<Doubt> {
    let asked = onlooker.would().asked.clone();
    let mut doubts = Vec::new();
    for one in asked {
        if let Some(what) = about(onlooker, &one).await {
            let of = one.wants.iter().map(|want| want.key.uid).collect();
            doubts.push(Doubt { of, at: one.target.runtime.at(), what });
        }
    }
    doubts
}

async fn about(onlooker: &Onlooker, asked: &Asked) -> Option<What> {
    let own = |key: &BoxKey| {
        asked.wants.iter().map(|want| want.key.uid).chain(asked.promised.iter().map(|p| p.key.uid)).any(|uid| uid == key.uid)
    };
    let (is_there, others, gone) = {
        let would = onlooker.would();
        let others = would.promised_but(&asked.target, &own);
        (asked.wants.iter().all(|want| is_held(&would, asked, want)), others, would.gone_from(&asked.target))
    };
    if is_there {
        let (mine, given_back): (Vec<BoxKey>, Vec<BoxKey>) = gone.into_iter().partition(own);
        if given_back.is_empty() {
            return None;
        }
        return is_short(onlooker, asked, &others, &mine).await?.then_some(What::After);
    }
    if !asked.is_short || (others.is_empty() && gone.is_empty()) {
        return None;
    }
    if is_short(onlooker, asked, &[], &gone).await? {
        return None;
    }
    let holders: BTreeSet<Uuid> = others.iter().map(|p| p.key.uid).collect();
    Some(if holders.is_empty() { What::Before } else { What::Contended(holders) })
}

fn is_held(would: &Would, asked: &Asked, want: &Want) -> bool {
    would.held.iter().any(|(at, p)| hmz_drivers::is_same_box(&p.key, &want.key) && is_same_daemon(at, &asked.target))
}

/// Whether there would be no room beside these, when those are gone.
async fn is_short(onlooker: &Onlooker, asked: &Asked, others: &[Promised], gone: &[BoxKey]) -> Option<bool> {
    let promised: Vec<Promised> = others.iter().chain(&asked.promised).cloned().collect();
    let answer = onlooker.inner.weigh(&asked.target, &asked.wants, &promised, gone).await.ok()??;
    Some(matches!(answer, Admitted::Short(_)))
}
