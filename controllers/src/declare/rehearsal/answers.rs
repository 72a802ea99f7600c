//! What daemons answer in one rehearsal. Each is asked once for what it is, has and holds, so that a plan is of one moment; one
//! that does not answer is not asked again, so that it costs a plan one time-out, however much is planned on it.

use crate::target::known_endpoint;
use hmz_drivers::{
    Admitted, BoxKey, Driver, DriverError, Ending, Facts, ObservedBox, Promised, Scales, Target, Want, ask_for_gpus,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A backend, asked by a rehearsal.
pub(super) struct Answers {
    inner: Arc<dyn Driver>,
    kept: Mutex<Kept>,
}

/// What was answered.
#[derive(Default)]
struct Kept {
    /// Why daemons cannot be reached.
    away: BTreeMap<Daemon, String>,
    facts: ByTarget<Facts>,
    boxes: ByTarget<Vec<ObservedBox>>,
    /// By their images.
    images: BTreeMap<String, ByTarget<Option<bool>>>,
    /// Without GPUs, and with them; none where each question is answered by itself.
    scales: [ByTarget<Option<Box<dyn Scales>>>; 2],
}

/// A daemon by its address, or, where only its machine can tell that, by its runtime.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Daemon {
    At(String),
    Of(String),
}

/// What was answered for each target, by the names of their runtimes.
struct ByTarget<T>(BTreeMap<String, Vec<(Target, Arc<T>)>>);

impl<T> Default for ByTarget<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByTarget<T> {
    fn get(&self, target: &Target) -> Option<Arc<T>> {
        let of_runtime = self.0.get(&target.runtime.resource_name())?;
        of_runtime.iter().find(|(at, _)| at == target).map(|(_, answer)| answer.clone())
    }

    fn keep(&mut self, target: &Target, answer: T) -> Arc<T> {
        let answer = Arc::new(answer);
        self.0.entry(target.runtime.resource_name()).or_default().push((target.clone(), answer.clone()));
        answer
    }
}

impl Answers {
    /// Of a backend as it is.
    pub fn of(inner: Arc<dyn Driver>) -> Self {
        Self { inner, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, unless that daemon did not answer before.
    async fn ask<T>(&self, target: &Target, question: impl Future<Output = Result<T, DriverError>>) -> Result<T, DriverError> {
        let daemon = daemon(target);
        if let Some(why) = self.kept().away.get(&daemon) {
            return Err(DriverError::Unreachable { at: target.runtime.at(), why: why.clone() });
        }
        let answer = question.await;
        if let Err(DriverError::Unreachable { why, .. }) = &answer {
            self.kept().away.insert(daemon, why.clone());
        }
        answer
    }

    /// As [`Driver::probe`].
    pub async fn probe(&self, target: &Target) -> Result<Facts, DriverError> {
        let known = self.kept().facts.get(target);
        if let Some(facts) = known {
            return Ok(Facts::clone(&facts));
        }
        let facts = self.ask(target, self.inner.probe(target)).await?;
        self.kept().facts.keep(target, facts.clone());
        Ok(facts)
    }

    /// As [`Driver::list`].
    pub async fn list(&self, target: &Target) -> Result<Arc<Vec<ObservedBox>>, DriverError> {
        let known = self.kept().boxes.get(target);
        if let Some(boxes) = known {
            return Ok(boxes);
        }
        let boxes = self.ask(target, self.inner.list(target)).await?;
        Ok(self.kept().boxes.keep(target, boxes))
    }

    /// As [`Driver::has_image`].
    pub async fn has_image(&self, target: &Target, image: &str) -> Result<Option<bool>, DriverError> {
        let known = self.kept().images.get(image).and_then(|of_image| of_image.get(target));
        if let Some(is_there) = known {
            return Ok(*is_there);
        }
        let is_there = self.ask(target, self.inner.has_image(target, image)).await?;
        self.kept().images.entry(image.to_owned()).or_default().keep(target, is_there);
        Ok(is_there)
    }

    /// As [`Driver::weigh`].
    pub async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        gone: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        let gpus = ask_for_gpus(wants);
        let known = self.kept().scales[usize::from(gpus)].get(target);
        let scales = match known {
            Some(scales) => scales,
            None => {
                let scales = self.ask(target, self.inner.scales(target, gpus)).await?;
                self.kept().scales[usize::from(gpus)].keep(target, scales)
            }
        };
        match &*scales {
            Some(scales) => Ok(Some(scales.weigh(wants, promised, gone))),
            None => self.ask(target, self.inner.weigh(target, wants, promised, gone)).await,
        }
    }

    /// As [`Driver::ending`].
    pub async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        self.ask(target, self.inner.ending(target, id)).await
    }
}

fn daemon(target: &Target) -> Daemon {
    let address = known_endpoint(&target.spec, target.local_endpoint.as_deref());
    address.map_or_else(|| Daemon::Of(target.runtime.resource_name()), Daemon::At)
}
