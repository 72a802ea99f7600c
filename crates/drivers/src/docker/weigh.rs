//! What an admission would answer, without one: no lock is taken and nothing is made.

use super::admission::had;
use super::capacity::{self, Held};
use super::labels;
use super::session::Session;
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, Promised, Want};

/// Weighs a gang beside what the daemon holds and what others are `promised`; what is to be `gone` holds nothing.
///
/// # Errors
/// The daemon does not answer.
pub async fn weigh(
    session: &Session<'_>,
    wants: &[Want],
    promised: &[Promised],
    gone: &[BoxKey],
) -> Result<Admitted, DriverError> {
    let total = session.total(wants.iter().any(|w| w.gpus.is_some_and(|n| n > 0))).await?;
    let all = session.all().await?;
    let (listed, now) = (&all.boxes, all.now);
    let promised_keys = promised.iter().map(|p| &p.key);
    let keys: Vec<&BoxKey> = wants.iter().map(|w| &w.key).chain(gone).chain(promised_keys).collect();
    let mut held = labels::held(listed, now, session.limits.hold_age, session.provider(), &keys);
    held.extend(promised.iter().map(|p| Held {
        name: p.name.clone(),
        host: session.who.hostname.clone(),
        cpus: p.share.cpus.unwrap_or_default(),
        memory: p.share.memory.unwrap_or_default(),
        gpus: p.share.gpus.clone(),
        own: p.provider == session.provider(),
    }));
    let had: Vec<Vec<String>> = wants.iter().map(|want| had(session, listed, now, want)).collect();
    let granted = capacity::grant(&session.at(), &total, &held, wants, &had);
    Ok(granted.map_or_else(Admitted::Short, Admitted::Held))
}
