//! The sweep: what this instance has on a daemon and the store does not want is removed.
//!
//! Everything of ours on a daemon was written to the store before it was made. So the daemon is listed first and the store
//! read afterwards: what is listed and not wanted then will not be wanted. Only boxes and holds of this very instance, whose
//! name is the one their labels derive (the driver says so by giving their key), are touched; never by user or process.

use crate::core::{Action, ReconcileError, Reconciler};
use crate::environment::execute::remove;
use crate::environment::plan::is_down;
use crate::index::{Index, Place};
use crate::runtime;
use crate::target::target;
use crate::world::{InUse, World};
use async_trait::async_trait;
use hmz_api::Resource;
use hmz_api::RuntimeRef;
use hmz_api::kinds::{Environment, Run, Runtime, condition};
use hmz_drivers::{BoxKey, Driver, ObservedBox, Purpose, Target};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Which boxes and holds are ours and not wanted. Pure.
pub fn plan(instance: &str, listed: &[ObservedBox], environments: &[Resource<Environment>]) -> Vec<BoxKey> {
    let wanted = |key: &BoxKey| {
        environments.iter().any(|e| e.metadata.uid == Some(key.uid) && e.status.incarnation == key.incarnation && !is_down(e))
    };
    let ours = |b: &&ObservedBox| matches!(b.purpose, Purpose::Box | Purpose::Hold);
    let mut keys: Vec<BoxKey> = listed.iter().filter(ours).filter_map(|b| b.key.clone()).collect();
    keys.retain(|key| key.instance == instance && !wanted(key));
    keys.sort();
    keys.dedup();
    keys
}

/// Holds of ours on a daemon for boxes that run on another one: they came to be after nobody waited for them any more, and
/// the next runtime of a list had been asked. `before` was read before the daemon was listed, so that a box of theirs on
/// this daemon is listed. Pure.
pub fn late(instance: &str, listed: &[ObservedBox], before: &[Resource<Environment>]) -> Vec<BoxKey> {
    let runs = |key: &BoxKey| {
        let same = |e: &&Resource<Environment>| e.metadata.uid == Some(key.uid) && e.status.incarnation == key.incarnation;
        before.iter().find(same).is_some_and(|e| e.status.container_id.is_some())
    };
    let holds = listed.iter().filter(|b| b.purpose == Purpose::Hold).filter_map(|b| b.key.as_ref());
    let boxed = |key: &BoxKey| listed.iter().any(|b| b.purpose == Purpose::Box && b.key.as_ref() == Some(key));
    holds.filter(|key| key.instance == instance && runs(key) && !boxed(key)).cloned().collect()
}

/// Every environment and every run there is.
pub type All<'a> = (&'a [Resource<Environment>], &'a [Resource<Run>]);

/// What is in use of the files here, by what one daemon lists; `all` is every environment and run, where that daemon may have
/// every box. Pure.
pub fn in_use(instance: &str, listed: &[ObservedBox], all: Option<All<'_>>) -> InUse {
    let boxes: Vec<BoxKey> = listed.iter().filter_map(|b| b.key.clone()).collect();
    let Some((environments, runs)) = all else { return InUse { boxes, programs: None } };
    let ours = |b: &&ObservedBox| b.purpose == Purpose::Box && b.key.as_ref().is_some_and(|k| k.instance == instance);
    let programs: Option<Vec<PathBuf>> = listed.iter().filter(ours).map(|b| b.program.clone()).collect();
    // a box that is not on this daemon is on another one; a runner starts its supervisors from the program it is itself
    let is_seen = |e: &Resource<Environment>| listed.iter().filter(ours).any(|b| b.key.as_ref().map(|k| k.uid) == e.metadata.uid);
    let has_box =
        |e: &Resource<Environment>| e.status.container_id.is_some() || e.status.conditions.is_true(condition::SCHEDULED);
    let all_seen = environments.iter().all(|e| is_down(e) || !has_box(e) || is_seen(e));
    let no_runner = runs.iter().all(|r| r.status.is_complete());
    InUse { boxes, programs: programs.filter(|_| all_seen && no_runner) }
}

/// The environments that boxes and holds of ours are of, as the store has them now.
async fn named(world: &World, listed: &[ObservedBox]) -> Result<Vec<Resource<Environment>>, ReconcileError> {
    let ours = listed.iter().filter_map(|b| b.key.as_ref()).filter(|key| key.instance == world.instance);
    let mut found = Vec::new();
    for uid in ours.map(|key| key.uid).collect::<BTreeSet<_>>() {
        found.extend(world.store.by_uid::<Environment>(uid).await?);
    }
    Ok(found)
}

/// What is listed of ours, but for boxes that are known to be wanted: in most cases nothing. What the index does not know may be
/// wanted all the same, and what it still takes to be wanted is swept the next time.
fn doubtful(world: &World, index: &Index, listed: &[ObservedBox]) -> Vec<ObservedBox> {
    let ours = |one: &&ObservedBox| {
        let known = |key: &BoxKey| one.purpose == Purpose::Box && index.wants(key.uid, key.incarnation);
        one.key.as_ref().is_some_and(|key| key.instance == world.instance && !known(key))
    };
    listed.iter().filter(ours).cloned().collect()
}

/// The controller; its keys are runtimes.
pub(crate) struct Sweep(pub(crate) World, pub(crate) Arc<Index>);

#[async_trait]
impl Reconciler for Sweep {
    fn name(&self) -> &'static str {
        "sweep"
    }

    async fn reconcile(&self, key: &str) -> Result<Action, ReconcileError> {
        let world = &self.0;
        let Some(runtime) = world.store.part(key, |runtime: &Resource<Runtime>| runtime.spec.clone()).await? else {
            return Ok(Action::gone());
        };
        let Ok(reference) = key.parse::<RuntimeRef>() else { return Ok(Action::gone()) };
        let Some(driver) = world.drivers.get(&reference.backend) else { return Ok(Action::await_change()) };
        // one that does not go keeps no other from going
        let mut stays = None;
        for endpoint in runtime::endpoints(world, &self.1, key, &runtime) {
            let place: Option<Place> = endpoint.as_deref().map(|endpoint| (key.into(), endpoint.into()));
            let used = match place.and_then(|place| self.1.lent(&place)).filter(|listed| self.is_clean(listed)) {
                Some(listed) => in_use(&world.instance, &listed, None),
                None => {
                    let target = target(&reference, Some(&runtime), endpoint.as_deref());
                    match self.sweep(&**driver, &target, &mut stays).await? {
                        Some(used) => used,
                        None => continue,
                    }
                }
            };
            // what stays is looked at again the next time
            if let Err(e) = world.files.sweep(&used).await {
                tracing::warn!("the sweep: {}", e.message);
            }
        }
        stays.map_or_else(|| Ok(Action::await_change()), Err)
    }
}

impl Sweep {
    /// Whether nothing that was listed a moment ago is to be looked at more closely, as nearly always. By such a listing nothing
    /// is taken away.
    fn is_clean(&self, listed: &[ObservedBox]) -> bool {
        let probed = listed.iter().any(|b| b.purpose == Purpose::Probe);
        !probed && !self.1.may_be_all(listed.len()) && doubtful(&self.0, &self.1, listed).is_empty()
    }

    /// Sweeps one daemon. What is in use of the files here then; `None` where it does not answer.
    async fn sweep(
        &self,
        driver: &dyn Driver,
        target: &Target,
        stays: &mut Option<ReconcileError>,
    ) -> Result<Option<InUse>, ReconcileError> {
        let Self(world, index) = self;
        // one that does not answer is swept when it does
        let Ok(mut listed) = driver.list(target).await else { return Ok(None) };
        let mut note = |failed: Option<ReconcileError>| {
            if failed.is_some() {
                *stays = failed;
            }
        };
        if listed.iter().any(|b| b.purpose == Purpose::Probe) {
            // those that are still asked stay
            note(driver.tidy(target).await.err().map(ReconcileError::from));
        }
        let mut ours = doubtful(world, index, &listed);
        let mut environments = named(world, &ours).await?;
        if !late(&world.instance, &listed, &environments).is_empty() {
            // a box of theirs may have come to be since it was listed
            let Ok(again) = driver.list(target).await else { return Ok(None) };
            listed = again;
            for key in late(&world.instance, &listed, &environments) {
                tracing::info!(uid = %key.uid, role = key.role, "gives back a share that came late");
                // the files are those of its box elsewhere
                note(driver.remove(target, &key).await.err().map(ReconcileError::from));
            }
            ours = doubtful(world, index, &listed);
            environments = named(world, &ours).await?;
        }
        for key in plan(&world.instance, &ours, &environments) {
            tracing::info!(uid = %key.uid, incarnation = key.incarnation, role = key.role, "sweeps what nobody wants");
            note(remove(world, target, &key).await.err());
        }
        if !index.may_be_all(listed.len()) {
            return Ok(Some(in_use(&world.instance, &listed, None)));
        }
        let (environments, runs) = (world.store.list::<Environment>().await?, world.store.list::<Run>().await?);
        Ok(Some(in_use(&world.instance, &listed, Some((&environments, &runs)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_api::Backend;
    use hmz_api::condition::ConditionStatus::True;
    use hmz_api::kinds::{EnvironmentSpec, Share};
    use hmz_drivers::{BoxState, Labels};
    use uuid::Uuid;

    fn listed(purpose: Purpose, instance: &str, uid: u128, incarnation: u64) -> ObservedBox {
        let key = BoxKey { instance: instance.into(), uid: Uuid::from_u128(uid), incarnation, role: "box".into() };
        ObservedBox {
            id: "id".into(),
            name: "name".into(),
            labels: Labels {
                purpose,
                key: Some(key),
                run: None,
                provider: "here".into(),
                host: "here".into(),
                role: "box".into(),
                share: Share::default(),
            },
            state: BoxState::Running(1),
            created: None,
            program: Some(format!("/guest/{uid}/hmz").into()),
        }
    }

    #[test]
    fn programs_are_known_when_every_box_is_seen_and_no_runner_may_be_there() {
        let spec = || serde_json::from_str::<EnvironmentSpec>(r#"{"runtime": "docker:here"}"#).unwrap();
        let environment = |uid: u128, container: Option<&str>| {
            let mut made = Resource::<Environment>::new("box", spec());
            made.metadata.uid = Some(Uuid::from_u128(uid));
            made.status.container_id = container.map(str::to_owned);
            made
        };
        let all = [listed(Purpose::Box, "us", 1, 1), listed(Purpose::Box, "them", 2, 1), listed(Purpose::Hold, "us", 3, 1)];
        let known = |environments: &[Resource<Environment>], runs: &[Resource<Run>]| {
            in_use("us", &all, Some((environments, runs))).programs
        };
        let ours: Option<Vec<PathBuf>> = Some(vec!["/guest/1/hmz".into()]);
        assert_eq!(known(&[environment(1, Some("id")), environment(4, None)], &[]), ours);
        assert_eq!(in_use("us", &all, None), InUse { boxes: in_use("us", &all, Some((&[], &[]))).boxes, programs: None });
        assert_eq!(in_use("us", &all, None).boxes.len(), 3);
        // one whose box is on another daemon, or not there yet
        assert_eq!(known(&[environment(4, Some("id"))], &[]), None);
        let mut scheduled = environment(3, None);
        scheduled.status.conditions.set(condition::SCHEDULED, True, "Held", "", 1, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(known(&[scheduled], &[]), None);
        let mut run = Resource::<Run>::new("r", serde_json::from_str(r#"{"flow": "f"}"#).unwrap());
        assert_eq!(known(&[], std::slice::from_ref(&run)), None);
        run.status.conditions.set(condition::COMPLETE, True, "Succeeded", "", 1, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(known(&[], &[run]), ours);
        let mut odd = listed(Purpose::Box, "us", 1, 1);
        odd.program = None;
        assert_eq!(in_use("us", &[odd], Some((&[], &[]))).programs, None);
    }

    #[test]
    fn a_share_that_came_late_is_one_whose_box_runs_elsewhere() {
        let spec: EnvironmentSpec = serde_json::from_str(r#"{"runtime": "docker:here"}"#).unwrap();
        let mut env = Resource::<Environment>::new("box", spec);
        env.metadata.uid = Some(Uuid::from_u128(1));
        env.status.incarnation = 1;
        let hold = || listed(Purpose::Hold, "us", 1, 1);
        // it may be about to start here
        assert_eq!(late("us", &[hold()], std::slice::from_ref(&env)), []);
        env.status.container_id = Some("id".into());
        let all = [hold(), listed(Purpose::Hold, "them", 1, 1), listed(Purpose::Hold, "us", 1, 2)];
        assert_eq!(late("us", &all, std::slice::from_ref(&env)), [all[0].key.clone().unwrap()]);
        assert_eq!(late("us", &[hold(), listed(Purpose::Box, "us", 1, 1)], &[env]), []);
    }

    #[test]
    fn only_what_is_ours_and_unwanted_goes() {
        let spec: EnvironmentSpec = serde_json::from_str(r#"{"runtime": "docker:here"}"#).unwrap();
        assert_eq!(spec.runtime.backend, Backend::Docker);
        let mut wanted = Resource::<Environment>::new("box", spec);
        wanted.metadata.uid = Some(Uuid::from_u128(1));
        wanted.status.incarnation = 2;
        let mut copied = listed(Purpose::Foreign, "us", 9, 1);
        copied.labels.key = None;
        let all = [
            listed(Purpose::Box, "us", 1, 2),
            listed(Purpose::Hold, "us", 1, 1),
            listed(Purpose::Box, "us", 1, 1),
            listed(Purpose::Box, "us", 3, 1),
            listed(Purpose::Box, "them", 3, 1),
            listed(Purpose::Lock, "us", 3, 2),
            copied,
        ];
        let goes: Vec<(u128, u64)> =
            plan("us", &all, std::slice::from_ref(&wanted)).iter().map(|k| (k.uid.as_u128(), k.incarnation)).collect();
        assert_eq!(goes, [(1, 1), (3, 1)]);
        // one whose box died is not wanted any more, should its removal have been cut short
        let now = jiff::Timestamp::UNIX_EPOCH;
        crate::environment::outcome::died(&mut wanted, None, None, now);
        assert!(plan("us", &all, &[wanted]).iter().any(|k| k.uid.as_u128() == 1 && k.incarnation == 2));
    }
}
