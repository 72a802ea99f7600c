//! What an admission would answer, without one: no lock is taken and nothing is made.

use super::admission::had;
use super::capacity::{self, Held, Total};
use super::labels;
use super::listing::Listing;
use super::session::Session;
use crate::driver::Scales;
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, Promised, Want};
use std::sync::Arc;
use std::time::Duration;

/// What a daemon has and holds, as one runtime hands it out.
pub struct Look {
    at: String,
    provider: String,
    hostname: String,
    hold_age: Duration,
    total: Total,
    all: Arc<Listing>,
}

/// Looks at it once; `gpus`: at those it has too.
///
/// # Errors
/// The daemon does not answer.
pub async fn look(session: &Session<'_>, gpus: bool) -> Result<Look, DriverError> {
    Ok(Look {
        at: session.at(),
        provider: session.provider().to_owned(),
        hostname: session.who.hostname.clone(),
        hold_age: session.limits.hold_age,
        total: session.total(gpus).await?,
        all: session.all().await?,
    })
}

impl Scales for Look {
    /// Weighs a gang beside what the daemon holds and what others are `promised`; what is to be `gone` holds nothing.
    fn weigh(&self, wants: &[Want], promised: &[Promised], gone: &[BoxKey]) -> Admitted {
        let promised_keys = promised.iter().map(|p| &p.key);
        let keys = wants.iter().map(|w| &w.key).chain(gone).chain(promised_keys);
        let (listed, now) = (&self.all.boxes, self.all.now);
        let mut held = labels::held(listed, now, self.hold_age, &self.provider, keys);
        held.extend(promised.iter().map(|p| Held {
            name: p.name.clone(),
            host: self.hostname.clone(),
            cpus: p.share.cpus.unwrap_or_default(),
            memory: p.share.memory.unwrap_or_default(),
            gpus: p.share.gpus.clone(),
            own: p.provider == self.provider,
        }));
        let had: Vec<Vec<String>> = wants.iter().map(|want| had(listed, now, &self.provider, self.hold_age, want)).collect();
        let granted = capacity::grant(&self.at, &self.total, &held, wants, &had);
        granted.map_or_else(Admitted::Short, Admitted::Held)
    }
}
