//! A backend as it is, on which nothing is done: shares are weighed and not held, boxes are noted and not started.

use super::Log;
use crate::target::is_same_daemon;
use async_trait::async_trait;
use futures::StreamExt;
use hmz_api::kinds::Share;
use hmz_api::rest::Effect;
use hmz_drivers::{
    Admitted, BoxEvents, BoxKey, BoxSpec, BoxState, Driver, DriverError, Ending, Facts, Labels, ObservedBox, ProgressSink,
    Promised, Purpose, RemoveOutcome, Started, Target, Want, is_same_box,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stands in for a process that is not there.
const NO_PID: i32 = 1;

/// The backend.
pub(super) struct Onlooker {
    pub inner: Arc<dyn Driver>,
    pub log: Log,
    pub would: Mutex<Would>,
}

/// What would be other than it is.
#[derive(Debug, Default)]
pub(super) struct Would {
    /// Shares that would be held, with where.
    held: Vec<(Target, Promised)>,
    /// Boxes that would run.
    started: Vec<(Target, ObservedBox)>,
    /// Boxes and holds that would be gone.
    gone: Vec<BoxKey>,
}

impl Onlooker {
    fn would(&self) -> MutexGuard<'_, Would> {
        self.would.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Driver for Onlooker {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        self.inner.probe(target).await
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        let (promised, gone) = {
            let would = self.would();
            let other = |p: &Promised| !wants.iter().any(|w| is_same_box(&w.key, &p.key));
            let on = would.held.iter().filter(|(at, p)| is_same_daemon(at, target) && other(p));
            (on.map(|(_, p)| p.clone()).collect::<Vec<_>>(), would.gone.clone())
        };
        let admitted = match self.inner.weigh(target, wants, &promised, &gone).await? {
            Some(admitted) => admitted,
            None => {
                for want in wants {
                    let why = format!("whether {} has room is known only when it is asked for it", target.runtime.at());
                    self.log.note(want.run.unwrap_or(want.key.uid), Effect::Unsure { why });
                }
                let share = |w: &Want| Share { cpus: w.cpus, memory: w.memory, gpus: Vec::new() };
                Admitted::Held(wants.iter().map(share).collect())
            }
        };
        let mut would = self.would();
        for want in wants {
            would.held.retain(|(_, p)| !is_same_box(&p.key, &want.key));
        }
        if let Admitted::Held(shares) = &admitted {
            let provider = target.runtime.provider();
            for (want, share) in wants.iter().zip(shares) {
                let (key, name) = (want.key.clone(), format!("'{}' of the same plan", want.key.role));
                let promised = Promised { key, name, provider: provider.to_owned(), share: share.clone() };
                would.held.push((target.clone(), promised));
            }
        }
        Ok(admitted)
    }

    async fn renew(&self, _: &Target, _: &[BoxKey]) -> Result<(), DriverError> {
        Ok(())
    }

    // one whose share is held already may be on a daemon that does not answer any more
    async fn ensure_image(&self, target: &Target, _: &str, _: ProgressSink) -> Result<(), DriverError> {
        self.inner.probe(target).await.map(drop)
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        let _ = self.inner.probe(target).await?;
        let effect = Effect::Start {
            role: spec.key.role.clone(),
            image: spec.image.clone(),
            share: spec.share.clone(),
            runtime: target.runtime.clone(),
            told: None,
        };
        self.log.note(spec.key.uid, effect);
        let name = format!("{} to be", spec.key.role);
        let seen = ObservedBox {
            id: name.clone(),
            name: name.clone(),
            labels: Labels {
                purpose: Purpose::Box,
                key: Some(spec.key.clone()),
                run: spec.run,
                provider: target.runtime.provider().to_owned(),
                host: String::new(),
                role: spec.key.role.clone(),
                share: spec.share.clone(),
            },
            state: BoxState::Running(NO_PID),
            created: None,
            program: None,
        };
        self.would().started.push((target.clone(), seen));
        Ok(Started { id: name.clone(), name, pid: NO_PID, node: None, reach: None })
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        let mut listed = self.inner.list(target).await?;
        let would = self.would();
        listed.retain(|one| !one.key.as_ref().is_some_and(|key| would.gone.iter().any(|gone| is_same_box(gone, key))));
        listed.extend(would.started.iter().filter(|(at, _)| is_same_daemon(at, target)).map(|(_, seen)| seen.clone()));
        Ok(listed)
    }

    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError> {
        // what it has not done yet it asks nobody to undo
        let was_to_be = {
            let mut would = self.would();
            let before = would.started.len() + would.held.len();
            would.started.retain(|(_, seen)| !seen.key.as_ref().is_some_and(|k| is_same_box(k, key)));
            would.held.retain(|(_, p)| !is_same_box(&p.key, key));
            before > would.started.len() + would.held.len()
        };
        let there = self.inner.list(target).await?;
        let mut outcome = if was_to_be { RemoveOutcome::Removed } else { RemoveOutcome::Absent };
        for one in there.iter().filter(|one| one.key.as_ref().is_some_and(|k| is_same_box(k, key))) {
            outcome = RemoveOutcome::Removed;
            if one.purpose == Purpose::Box {
                let (container, runtime) = (one.name.clone(), target.runtime.clone());
                self.log.note(key.uid, Effect::Remove { container, runtime });
            }
        }
        self.would().gone.push(key.clone());
        Ok(outcome)
    }

    async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        self.inner.ending(target, id).await
    }

    async fn events(&self, _: &Target) -> Result<BoxEvents, DriverError> {
        Ok(futures::stream::pending().boxed())
    }
}
