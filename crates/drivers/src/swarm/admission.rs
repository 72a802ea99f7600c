//! Admission to a swarm: as to a docker daemon, a short critical section under a lock that is a service of one fixed name, in which
//! a hold is made for each box wanted, or none.
//!
//! A hold is the box's own service before it has a task. So there is never a hold beside its box, and who makes the box of it says
//! which version of it he saw: a hold that somebody took or renewed meanwhile is not started.
//!
//! What is counted is what the runtime was saved to hand out; whether a node has room is the scheduler's to say, when the task is
//! there.

use super::manager::{Manager, is_outdated};
use super::names;
use super::seen::Service;
use crate::docker::api::Fault;
use crate::docker::capacity::{self, Gpus, Held, Total};
use crate::docker::holder::Holder;
use crate::docker::listing::Shared;
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, Purpose, Shortage, Want};
use hmz_api::kinds::Share;
use hmz_api::{Cpus, Memory, failpoint};
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How old anybody's hold gets before it is removed, by the swarm's clock: its owner is not coming back.
const LITTER: Duration = Duration::from_secs(600);
/// How often a hold may be changed by somebody else while it is looked at.
const TRIES: usize = 4;

/// Those of this process who ask one swarm for shares.
#[derive(Debug, Default)]
pub struct Askers {
    /// Held by whoever asks under the lock.
    turn: tokio::sync::Mutex<()>,
    /// Whether the last of them found no room.
    is_full: AtomicBool,
    /// The listing of all the services, and the swarm's clock.
    all: Shared<(Vec<Service>, Option<Timestamp>), Fault>,
}

impl Askers {
    async fn services(&self, manager: &Manager<'_>) -> Result<Arc<(Vec<Service>, Option<Timestamp>)>, DriverError> {
        self.all.get(manager.listed(&[])).await.map_err(|f| manager.session.fault(f))
    }
}

enum Inside {
    Done(Admitted),
    /// The lock was taken over meanwhile.
    Lost,
}

/// Admits a gang.
///
/// # Errors
/// The manager does not answer, or the lock cannot be had.
pub async fn admit(manager: &Manager<'_>, askers: &Askers, wants: &[Want]) -> Result<Admitted, DriverError> {
    if let Some(short) = no_gpus(manager, wants) {
        return Ok(Admitted::Short(short));
    }
    // as on a docker daemon: while there is no room a look tells each, and those of this process ask one after another
    if let Some(short) = is_short(manager, askers, wants).await? {
        return Ok(Admitted::Short(short));
    }
    let limits = manager.session.limits;
    let _turn = tokio::time::timeout(limits.call, askers.turn.lock()).await.map_err(|_| busy(manager))?;
    if let Some(short) = is_short(manager, askers, wants).await? {
        return Ok(Admitted::Short(short));
    }
    let began = Instant::now();
    loop {
        let lock = take_lock(manager, began).await?;
        failpoint::pass("swarm.lock");
        let inside = critical(manager, askers, &lock, wants).await;
        failpoint::pass("swarm.admitted");
        let released = manager.remove_id(&lock).await;
        failpoint::pass("swarm.released");
        match inside? {
            Inside::Done(admitted) => {
                // a lock that could not be released ages out
                if let Err(e) = released {
                    tracing::warn!("the admission lock is left to age out: {e}");
                }
                askers.is_full.store(matches!(admitted, Admitted::Short(_)), Ordering::Relaxed);
                return Ok(admitted);
            }
            Inside::Lost if began.elapsed() > limits.call => return Err(busy(manager)),
            Inside::Lost => {}
        }
    }
}

/// What is short for a gang that there is no room for now, where the last one found none: nothing is made, and so nothing is
/// locked. `None` where it may fit, and where it has holds that have to go.
async fn is_short(manager: &Manager<'_>, askers: &Askers, wants: &[Want]) -> Result<Option<Shortage>, DriverError> {
    if !askers.is_full.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let all = askers.services(manager).await?;
    let (services, now) = &*all;
    if services.iter().any(|s| s.purpose == Purpose::Hold && wants.iter().any(|w| s.is_of(&w.key))) {
        return Ok(None);
    }
    let held = held(services, *now, manager.session.limits.hold_age, manager.session.provider(), wants);
    Ok(grant(manager, &held, wants).err())
}

/// GPUs of a swarm are a generic resource, of which somebody has to say the name.
pub fn no_gpus(manager: &Manager<'_>, wants: &[Want]) -> Option<Shortage> {
    let want = wants.iter().find(|w| w.gpus.is_some_and(|n| n > 0))?;
    if manager.session.target.spec.gpu_resource.is_some() {
        return None;
    }
    let (at, role, n) = (manager.at(), &want.key.role, want.gpus.unwrap_or_default());
    let message = format!(
        "{at} hands out no GPUs, and '{role}' asks for {n}: say which generic resource its nodes advertise them as in the runtime's \
         gpu_resource"
    );
    Some(Shortage { message, could_fit: false })
}

/// The shares of `wants` beside what is held.
pub fn grant(manager: &Manager<'_>, held: &[Held], wants: &[Want]) -> Result<Vec<Share>, Shortage> {
    let spec = &manager.session.target.spec;
    let total = Total {
        cpus: spec.cpus.unwrap_or(Cpus::from_millis(u64::MAX)),
        memory: spec.memory.unwrap_or(Memory::from_bytes(u64::MAX)),
        containers: spec.max_tasks.filter(|n| *n > 0),
        unit: "tasks",
        gpus: Gpus::default(),
    };
    // GPUs are the scheduler's alone
    let without: Vec<Want> = wants.iter().map(|w| Want { gpus: None, gpu_memory: None, ..w.clone() }).collect();
    if let Some(message) = capacity::gpu_memory(&manager.at(), spec.gpu_memory, None, wants) {
        return Err(Shortage { message, could_fit: false });
    }
    let kind = spec.gpu_resource.as_deref().unwrap_or_default();
    let mut shares = capacity::grant(&manager.at(), &total, held, &without, &[])?;
    for (share, want) in shares.iter_mut().zip(wants) {
        let n = usize::try_from(want.gpus.unwrap_or(0)).unwrap_or(usize::MAX).min(1024);
        share.gpus = std::iter::repeat_n(kind.to_owned(), n).collect();
    }
    Ok(shares)
}

/// The shares that count, without those of `except`.
pub fn held(services: &[Service], now: Option<Timestamp>, age: Duration, provider: &str, except: &[Want]) -> Vec<Held> {
    let counted = services.iter().filter(|s| s.counts(now, age) && !except.iter().any(|w| s.is_of(&w.key)));
    let one = |s: &Service| Held {
        name: s.name.clone(),
        host: s.host.clone(),
        cpus: s.share.cpus.unwrap_or_default(),
        memory: s.share.memory.unwrap_or_default(),
        gpus: Vec::new(),
        own: s.provider == provider,
    };
    counted.map(one).collect()
}

async fn critical(manager: &Manager<'_>, askers: &Askers, lock: &str, wants: &[Want]) -> Result<Inside, DriverError> {
    let all = askers.services(manager).await?;
    let (services, now) = (&all.0, all.1);
    let (age, provider) = (manager.session.limits.hold_age, manager.session.provider());
    let held = held(services, now, age, provider, wants);
    let granted = match grant(manager, &held, wants) {
        Ok(granted) => granted,
        Err(short) => {
            for hold in services.iter().filter(|s| s.purpose == Purpose::Hold && wants.iter().any(|w| s.is_of(&w.key))) {
                // one that stays ages out
                let _ = manager.remove_id(&hold.id).await;
            }
            return Ok(Inside::Done(Admitted::Short(short)));
        }
    };
    let mut made = Vec::new();
    let mut result = Ok(());
    for (want, share) in wants.iter().zip(&granted) {
        let of_key = || services.iter().filter(|s| s.is_of(&want.key));
        if of_key().any(|s| s.purpose == Purpose::Box && s.provider == provider && s.counts(now, age)) {
            continue;
        }
        // one past half its life is made young again
        let kept = of_key().find(|s| s.purpose == Purpose::Hold && s.share == *share && s.counts(now, age / 2));
        if kept.is_some_and(|s| s.name == manager.maker.name(&want.key)) {
            continue;
        }
        // what else there is of the key: an old hold, one of another share, what has ended
        let old: Vec<String> = of_key().map(|s| s.id.clone()).collect();
        match make(manager, want, share, &old).await {
            Ok(id) => {
                failpoint::pass("swarm.hold");
                made.push(id);
            }
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    let still_ours = match result {
        Ok(()) => is_ours(manager, lock).await,
        Err(e) => Err(e),
    };
    if !matches!(still_ours, Ok(true)) {
        for id in &made {
            manager.remove_id(id).await?;
        }
        return still_ours.map(|_| Inside::Lost);
    }
    for litter in services.iter().filter(|s| s.purpose == Purpose::Hold && !s.counts(now, LITTER.max(age))) {
        if !wants.iter().any(|w| litter.is_of(&w.key)) {
            let _ = manager.remove_id(&litter.id).await;
        }
    }
    Ok(Inside::Done(Admitted::Held(granted)))
}

/// Makes a hold in the place of what was there of its box; its id.
async fn make(manager: &Manager<'_>, want: &Want, share: &Share, old: &[String]) -> Result<String, DriverError> {
    for id in old {
        manager.remove_id(id).await?;
    }
    let body = manager.maker.hold(&want.key, want.run, share, 0);
    match manager.create(&body).await {
        Ok(id) => Ok(id),
        Err(fault) if fault.status() == Some(409) => {
            let name = manager.maker.name(&want.key);
            Err(match manager.service(&name).await? {
                Some((there, _)) if there.is_of(&want.key) => DriverError::Transient(format!("{name} is being replaced")),
                Some(_) => manager.foreign(&name),
                None => DriverError::Transient(format!("{name} went away meanwhile")),
            })
        }
        Err(fault) => Err(manager.session.fault(fault)),
    }
}

/// Makes the holds young again.
///
/// # Errors
/// One has aged out or is gone, or the manager does not answer.
pub async fn renew(manager: &Manager<'_>, keys: &[BoxKey]) -> Result<(), DriverError> {
    for key in keys {
        renewed(manager, key).await?;
    }
    Ok(())
}

async fn renewed(manager: &Manager<'_>, key: &BoxKey) -> Result<(), DriverError> {
    for _ in 0..TRIES {
        let (services, now) = manager.of_key(key).await?;
        let counts = services.iter().find(|s| s.counts(now, manager.session.limits.hold_age));
        let Some(current) = counts else { return Err(manager.aged_out(key)) };
        if current.purpose == Purpose::Box {
            return Ok(());
        }
        let body = manager.maker.hold(key, current.run, &current.share, current.version);
        match manager.update(current, &body).await {
            Ok(()) => return manager.kept(current, key).await.map(drop),
            Err(fault) if is_outdated(&fault) || fault.status() == Some(404) => {}
            Err(fault) => return Err(manager.session.fault(fault)),
        }
    }
    Err(DriverError::Transient(format!("{}: the hold of '{}' changes all the time", manager.at(), key.role)))
}

fn busy(manager: &Manager<'_>) -> DriverError {
    DriverError::Transient(format!("the admission lock of {} stays taken", manager.session.api.address()))
}

/// Waits for the lock and takes it; its id.
async fn take_lock(manager: &Manager<'_>, began: Instant) -> Result<String, DriverError> {
    let holder = Uuid::new_v4().simple().to_string();
    let body = manager.maker.lock(&holder);
    loop {
        match manager.create(&body).await {
            Ok(id) => return Ok(id),
            Err(fault) if fault.status() == Some(409) => {}
            Err(fault) => return Err(manager.session.fault(fault)),
        }
        if let Some((there, now)) = manager.service(names::LOCK).await? {
            if there.purpose != Purpose::Lock {
                return Err(manager.foreign(names::LOCK));
            }
            let is_gone = there.holder.as_ref().is_some_and(Holder::is_gone);
            if is_gone || there.age(now) >= manager.session.limits.lock_stale {
                tracing::warn!("taking over an admission lock whose holder on {} is gone", there.host);
                manager.remove_id(&there.id).await?;
                continue;
            }
        } else {
            continue;
        }
        if began.elapsed() > manager.session.limits.call {
            return Err(busy(manager));
        }
        // the swarm tells nobody in line, so each asks again, not all at once
        let jitter = u64::from(Uuid::new_v4().as_bytes()[0]) % 40;
        tokio::time::sleep(Duration::from_millis(20 + jitter)).await;
    }
}

async fn is_ours(manager: &Manager<'_>, lock: &str) -> Result<bool, DriverError> {
    Ok(manager.service(names::LOCK).await?.is_some_and(|(there, _)| there.id == lock))
}
