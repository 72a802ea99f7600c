//! The trait every backend implements, and the simulated world of the controllers' tests too.

use crate::error::DriverError;
use crate::gpus::GpuAnswers;
use crate::types::{
    Admitted, BoxKey, BoxSpec, BoxState, Ending, Facts, ObservedBox, Promised, Purpose, RemoveOutcome, Started, Target, Want,
    is_same_box,
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use hmz_api::rest::Usage;
use std::sync::Arc;
use uuid::Uuid;

/// Progress of a pull, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// One line, such as `pulling python:3.12-slim: 12M of 45M`.
    pub text: String,
}

/// Who wants to hear of progress.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Something happened to some box; an event only says "look again", and may be lost, repeated or out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxEvent {
    /// To the box or the hold of the environment with this uid, whoever's that is, and to no other.
    Of(Uuid),
    /// To any.
    Any,
}

/// Events of a daemon.
pub type BoxEvents = BoxStream<'static, Result<BoxEvent, DriverError>>;

/// What a daemon has and holds as of one look, see [`Driver::scales`].
pub trait Scales: Send + Sync {
    /// As [`Driver::weigh`] answers.
    fn weigh(&self, wants: &[Want], promised: &[Promised], gone: &[BoxKey]) -> Admitted;
}

/// Whether any of them asks for GPUs.
pub fn ask_for_gpus(wants: &[Want]) -> bool {
    wants.iter().any(|want| want.gpus.is_some_and(|n| n > 0))
}

/// A backend. Every call is idempotent, may be cancelled at any await and called again, and holds nothing in memory
/// that another process would need.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Asks the daemon what it is and has.
    async fn probe(&self, target: &Target) -> Result<Facts, DriverError>;

    /// Admits a gang: in one critical section under the lock *on the daemon*, a hold for each or none. A hold (or box)
    /// of the same key that is there already counts once and is kept.
    async fn admit(&self, target: &Target, wants: &[Want]) -> Result<Admitted, DriverError>;

    /// What [`Driver::admit`] would answer now, if those `promised` were held too and those `gone` were not there any more.
    /// Changes nothing: no lock, no hold. `None`: that is known only when it is asked for.
    async fn weigh(
        &self,
        target: &Target,
        wants: &[Want],
        promised: &[Promised],
        gone: &[BoxKey],
    ) -> Result<Option<Admitted>, DriverError> {
        let scales = self.scales(target, ask_for_gpus(wants)).await?;
        Ok(scales.map(|scales| scales.weigh(wants, promised, gone)))
    }

    /// One look at the daemon, from which it is told as often as it takes what [`Driver::weigh`] would have answered at that
    /// moment; `gpus`: of wants with some too. `None`: a backend that answers each question by itself, or none.
    async fn scales(&self, target: &Target, gpus: bool) -> Result<Option<Box<dyn Scales>>, DriverError> {
        let _ = (target, gpus);
        Ok(None)
    }

    /// Asks the GPUs that the runtime hands out whether they answer, with an image that is there; those of which it is known from a
    /// moment ago are not asked again. [`Driver::admit`] does so by itself. A backend that has no way to ask knows nothing.
    async fn gpus(&self, target: &Target, image: &str) -> Result<GpuAnswers, DriverError> {
        let _ = (target, image);
        Ok(GpuAnswers::default())
    }

    /// Removes containers of [`Purpose::Probe`] that are left of processes that died.
    async fn tidy(&self, target: &Target) -> Result<(), DriverError> {
        let _ = target;
        Ok(())
    }

    /// Makes the holds young again; one that aged out meanwhile is an error (`Transient`), and admission starts over.
    async fn renew(&self, target: &Target, keys: &[BoxKey]) -> Result<(), DriverError>;

    /// Whether the image is on the daemon already, so that it is not pulled. `None`: that is not told before.
    async fn has_image(&self, target: &Target, image: &str) -> Result<Option<bool>, DriverError> {
        let _ = image;
        self.probe(target).await.map(|_| None)
    }

    /// Has the image on the daemon, pulling it when it is not there. Long; cancelled by dropping it.
    async fn ensure_image(&self, target: &Target, image: &str, progress: ProgressSink) -> Result<(), DriverError>;

    /// Finds the box the place it is started at, where that is a wait of its own; its hold is the box then. Long; cancelled by
    /// dropping it, and [`Driver::start`] goes on from there. A failure leaves neither box nor hold.
    async fn place(&self, target: &Target, spec: &BoxSpec, progress: ProgressSink) -> Result<(), DriverError> {
        let _ = (target, spec, progress);
        Ok(())
    }

    /// Makes and starts the box, adopting one of the same key that is there, and removes its hold. A failed start leaves
    /// neither box nor hold.
    async fn start(&self, target: &Target, spec: &BoxSpec) -> Result<Started, DriverError>;

    /// Every container with our labels, whoever made it.
    async fn list(&self, target: &Target) -> Result<Vec<ObservedBox>, DriverError>;

    /// The state of the box of a key, whose container was `id` when it was started; `None`: there is none. As in
    /// [`Driver::list`], without asking for any other.
    async fn find(&self, target: &Target, key: &BoxKey, id: &str) -> Result<Option<BoxState>, DriverError> {
        let _ = id;
        let is_it = |one: &ObservedBox| one.purpose == Purpose::Box && one.key.as_ref().is_some_and(|k| is_same_box(k, key));
        Ok(self.list(target).await?.into_iter().find(is_it).map(|one| one.state))
    }

    /// Removes the box and the hold of a key. Gone already is no error; one that is not ours is never touched.
    async fn remove(&self, target: &Target, key: &BoxKey) -> Result<RemoveOutcome, DriverError>;

    /// How the box of this id ended, be it there still or not; one that is about to end is waited for, some seconds. `None`: it
    /// runs, or nobody remembers. An explanation only: whether a box is there is what [`Driver::list`] says.
    async fn ending(&self, target: &Target, id: &str) -> Result<Option<Ending>, DriverError> {
        let _ = (target, id);
        Ok(None)
    }

    /// What a box that runs uses at this moment, by its id and, of a swarm, its node. One look: nothing is waited for but the
    /// answer.
    async fn usage(&self, target: &Target, id: &str, node: Option<&str>) -> Result<Usage, DriverError> {
        let _ = (id, node);
        Err(DriverError::Refused(format!("{} does not tell what its boxes use", target.runtime.at())))
    }

    /// Events of the daemon until the connection breaks.
    async fn events(&self, target: &Target) -> Result<BoxEvents, DriverError>;
}
