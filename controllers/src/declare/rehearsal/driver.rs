//! A backend as it is, on which nothing is done: shares are weighed and not held, boxes are noted and not started.

use super::Log;
use super::answers::Answers;
use crate::target::is_same_daemon;
use async_trait::async_trait;
use futures::StreamExt;
use hmz_api::kinds::Share;
use hmz_api::rest::Effect;
use hmz_drivers::{
    Admitted, BoxEvents, BoxKey, BoxSpec, BoxState, Driver, DriverError, Ending, Facts, Labels, ObservedBox, ProgressSink,
    Promised, Purpose, RemoveOutcome, Started, Target, Want, is_same_box,
};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// What stands in for a process that is not there.
const NO_PID: i32 = 1;

/// The backend.
pub(super) struct Onlooker {
    pub answers: Answers,
    pub log: Log,
    pub would: Mutex<Would>,
}

/// What would be other than it is.
#[derive(Debug, Default)]
pub(super) struct Would {
    /// Shares that would be held, with where.
    pub held: Vec<(Target, Promised)>,
    /// Boxes that would run.
    started: Vec<(Target, ObservedBox)>,
    /// Boxes and holds that are there and would be gone.
    pub gone: Vec<(Target, BoxKey)>,
    /// Images that would be pulled, with where.
    pulled: Vec<(Target, String)>,
    /// What was asked for, and what each daemon would say to it at the last.
    pub asked: Vec<Asked>,
}

/// One question for room.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub target: Target,
    pub wants: Vec<Want>,
    /// What those that ask with it are promised there.
    pub promised: Vec<Promised>,
    /// Whether there would be none.
    pub is_short: bool,
}

impl Would {
    /// What others than these hold there from now on.
    pub fn promised_but(&self, target: &Target, but: &dyn Fn(&BoxKey) -> bool) -> Vec<Promised> {
        let on = self.held.iter().filter(|(at, p)| is_same_daemon(at, target) && !but(&p.key));
        on.map(|(_, p)| p.clone()).collect()
    }

    /// Whose that is.
    pub fn holders_but(&self, target: &Target, but: &dyn Fn(&BoxKey) -> bool) -> BTreeSet<Uuid> {
        let on = self.held.iter().filter(|(at, p)| is_same_daemon(at, target) && !but(&p.key));
        on.map(|(_, p)| p.key.uid).collect()
    }

    /// What is gone there.
    pub fn gone_from(&self, target: &Target) -> Vec<BoxKey> {
        self.gone.iter().filter(|(at, _)| is_same_daemon(at, target)).map(|(_, key)| key.clone()).collect()
    }

    /// Whether one that is there is not gone by now.
    fn is_left(&self, one: &ObservedBox) -> bool {
        !one.key.as_ref().is_some_and(|key| self.gone.iter().any(|(_, gone)| is_same_box(gone, key)))
    }

    fn note(&mut self, asked: Asked) {
        let same = |a: &Asked| {
            a.wants.len() == asked.wants.len()
                && a.wants.iter().zip(&asked.wants).all(|(a, b)| is_same_box(&a.key, &b.key))
                && is_same_place(&a.target, &asked.target)
        };
        self.asked.retain(|a| !same(a));
        self.asked.push(asked);
    }
}

/// Whether they are one runtime of one daemon: another of that daemon hands out by itself.
pub(super) fn is_same_place(a: &Target, b: &Target) -> bool {
    a.runtime == b.runtime && is_same_daemon(a, b)
}

/// The share that one would have where nobody can say whether it is there. GPUs that are not known by their ids are as many.
fn hoped(want: &Want) -> Share {
    let gpus = want.gpus.unwrap_or(0).min(1024) as usize;
    Share { cpus: want.cpus, memory: want.memory, gpus: vec!["?".to_owned(); gpus] }
}

impl Onlooker {
    pub fn would(&self) -> MutexGuard<'_, Would> {
        self.would.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the daemon would answer beside all that would be held and gone by then, and `promised`.
    async fn ask(&self, target: &Target, wants: &[Want], promised: &[Promised]) -> Result<Option<Admitted>, DriverError> {
        let (beside, gone) = {
            let would = self.would();
            let own =
                |key: &BoxKey| wants.iter().map(|w| &w.key).chain(promised.iter().map(|p| &p.key)).any(|k| is_same_box(k, key));
            let beside = would.promised_but(target, &own).into_iter().chain(promised.iter().cloned()).collect::<Vec<_>>();
            (beside, would.gone_from(target))
        };
        let answer = self.answers.weigh(target, wants, &beside, &gone).await?;
        if let Some(answer) = &answer {
            let (wants, promised) = (wants.to_vec(), promised.to_vec());
            let is_short = matches!(answer, Admitted::Short(_));
            self.would().note(Asked { target: target.clone(), wants, promised, is_short });
        }
        Ok(answer)
    }
}

#[async_trait]
impl Driver for Onlooker {
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        self.answers.probe(target).await
    }

    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError> {
        let admitted = match self.ask(target, wants, &[]).await? {
            Some(admitted) => admitted,
            None => {
                for want in wants {
                    let why = format!("whether {} has room is known only when it is asked for it", target.runtime.at());
                    self.log.note(want.run.unwrap_or(want.key.uid), Effect::Unsure { why });
                }
                Admitted::Held(wants.iter().map(hoped).collect())
            }
        };
        // who works in a container that runs already holds nothing of its daemon
        if target.spec.container.is_some() {
            return Ok(admitted);
        }
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

    async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        _: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        self.ask(target, wants, promised).await
    }

    async fn renew(&self, _: &Target, _: &[BoxKey]) -> Result<(), DriverError> {
        Ok(())
    }

    // one whose share is held already may be on a daemon that does not answer any more
    async fn ensure_image(&self, target: &Target, image: &str, _: ProgressSink) -> Result<(), DriverError> {
        if self.answers.has_image(target, image).await? == Some(false) {
            self.would().pulled.push((target.clone(), image.to_owned()));
        }
        Ok(())
    }

    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError> {
        let _ = self.answers.probe(target).await?;
        // who works in a container that runs already is given none of its daemon
        let share = if target.spec.container.is_some() { Share::default() } else { spec.share.clone() };
        let pulls = self.would().pulled.iter().any(|(at, image)| is_same_daemon(at, target) && *image == spec.image);
        let effect = Effect::Start {
            role: spec.key.role.clone(),
            image: spec.image.clone(),
            share: share.clone(),
            runtime: target.runtime.clone(),
            pulls,
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
                share,
            },
            state: BoxState::Running(NO_PID),
            created: None,
            program: None,
        };
        self.would().started.push((target.clone(), seen));
        Ok(Started { id: name.clone(), name, pid: NO_PID, node: None, reach: None })
    }

    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError> {
        let listed = self.answers.list(target).await?;
        let would = self.would();
        let started = would.started.iter().filter(|(at, _)| is_same_daemon(at, target)).map(|(_, seen)| seen);
        Ok(listed.iter().filter(|one| would.is_left(one)).chain(started).cloned().collect())
    }

    // none of the others is copied
    async fn find(&self, target: &Target, key: &BoxKey, _: &str) -> Result<Option<BoxState>, DriverError> {
        let listed = self.answers.list(target).await?;
        let would = self.would();
        let started = would.started.iter().filter(|(at, _)| is_same_daemon(at, target)).map(|(_, seen)| seen);
        let is_it = |one: &&ObservedBox| one.purpose == Purpose::Box && one.key.as_ref().is_some_and(|k| is_same_box(k, key));
        Ok(listed.iter().chain(started).filter(is_it).find(|one| would.is_left(one)).map(|one| one.state.clone()))
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
        let there = self.answers.list(target).await?;
        let mut outcome = if was_to_be { RemoveOutcome::Removed } else { RemoveOutcome::Absent };
        for one in there.iter().filter(|one| one.key.as_ref().is_some_and(|k| is_same_box(k, key))) {
            outcome = RemoveOutcome::Removed;
            if one.purpose == Purpose::Box {
                let (container, runtime) = (one.name.clone(), target.runtime.clone());
                self.log.note(key.uid, Effect::Remove { container, runtime });
            }
            let mut would = self.would();
            if !would.gone.iter().any(|(_, gone)| is_same_box(gone, key)) {
                would.gone.push((target.clone(), key.clone()));
            }
        }
        Ok(outcome)
    }

    async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        self.answers.ending(target, id).await
    }

    async fn events(&self, _: &Target) -> Result<BoxEvents, DriverError> {
        Ok(futures::stream::pending().boxed())
    }
}
