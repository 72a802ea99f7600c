//! Admission: a short critical section under a lock on the daemon, in which a hold is made for each box wanted, or none.
//!
//! The lock is the container of one fixed name: whoever creates it is inside. A holder that stalls loses it to whoever
//! takes over, notices because the lock is no longer the one it made, and starts over; a hold is only ever made before
//! that check, so whoever comes after sees it. A lock is taken over once it is old, or at once when its holder was a
//! process of this machine and has ended. What such a holder had asked of the daemon may still come to be: a hold, for
//! which no box is started before its environment is admitted anew.

use super::api::{Answer, Fault, encoded};
use super::holder::Holder;
use super::labels::{self, Listed};
use super::session::Session;
use super::{capacity, empty_image, gpus, names};
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, Purpose, Shortage, Want, is_same_box};
use hmz_api::failpoint;
use hmz_api::kinds::Share;
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How old anybody's hold gets before it is removed, by the daemon's clock: its owner is not coming back.
const LITTER: Duration = Duration::from_secs(600);

/// How often those are asked that were not there to ask when the lock was not held.
const ROUNDS: usize = 8;

enum Inside {
    Done(Admitted),
    /// Somebody holds a GPU by a number that may be another word for one of ours.
    Unasked,
    /// The lock was taken over meanwhile.
    Lost,
}

/// Admits a gang.
///
/// # Errors
/// The daemon does not answer, or the lock cannot be had.
pub async fn admit(session: &Session<'_>, wants: &[Want]) -> Result<Admitted, DriverError> {
    let with_gpus = wants.iter().any(|w| w.gpus.is_some_and(|n| n > 0));
    let mut total = session.total(with_gpus).await?;
    for _ in 0..ROUNDS {
        let mut asked = None;
        if with_gpus {
            // who waits for room asks nobody: those that are silent alone would not be the reason
            if let Some(short) = is_short(session, &total, wants, true).await? {
                return Ok(Admitted::Short(short));
            }
            // that takes seconds, and nobody waits for it who wants none
            (total.gpus.answers, asked) = gpus::ask::of_wants(session, &total.gpus.ids, wants).await?;
        }
        if let Some(admitted) = admitted(session, &total, asked.as_deref(), wants).await? {
            return Ok(admitted);
        }
    }
    Err(DriverError::Transient(format!("{}: its GPUs are taken by other names faster than they are asked", session.at())))
}

/// Admits a gang, by what is known of the GPUs; `asked` are those that were asked. `None`: there is another to ask.
async fn admitted(
    session: &Session<'_>,
    total: &capacity::Total,
    asked: Option<&[String]>,
    wants: &[Want],
) -> Result<Option<Admitted>, DriverError> {
    // while there is no room, those who wait for it do not crowd the lock: a look tells each of them
    if let Some(short) = is_short(session, total, wants, false).await? {
        return Ok(Some(Admitted::Short(short)));
    }
    // nor do those of this process stand in each other's way
    let turn = tokio::time::timeout(session.limits.call, session.shared.admitting.lock()).await;
    let _turn = turn.map_err(|_| busy(session))?;
    if let Some(short) = is_short(session, total, wants, false).await? {
        return Ok(Some(Admitted::Short(short)));
    }
    let began = Instant::now();
    loop {
        let lock = take_lock(session, began).await?;
        failpoint::pass("docker.lock");
        let inside = critical(session, &lock, total, asked, wants).await;
        failpoint::pass("docker.admitted");
        let released = session.remove_id(&lock).await;
        failpoint::pass("docker.released");
        match inside? {
            Inside::Done(admitted) => {
                // a lock that could not be released ages out
                if let Err(e) = released {
                    tracing::warn!("the admission lock is left to age out: {e}");
                }
                session.shared.is_full.store(matches!(admitted, Admitted::Short(_)), Ordering::Relaxed);
                return Ok(Some(admitted));
            }
            Inside::Unasked => return released.map(|()| None),
            Inside::Lost if began.elapsed() > session.limits.call => return Err(busy(session)),
            Inside::Lost => {}
        }
    }
}

/// What is short for a gang that there is no room for now, where the last one found none: then nothing is made, and so nothing
/// is locked. `None` where it may fit, and where it has holds that have to go; with `hoping`, also where it would if every GPU
/// answered.
async fn is_short(
    session: &Session<'_>,
    total: &capacity::Total,
    wants: &[Want],
    hoping: bool,
) -> Result<Option<Shortage>, DriverError> {
    if !session.shared.is_full.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let all = session.all().await?;
    let (listed, age) = (&all.boxes, session.limits.hold_age);
    let is_wanted = |l: &Listed| l.key.as_ref().is_some_and(|k| wants.iter().any(|w| is_same_box(&w.key, k)));
    if listed.iter().any(|l| l.purpose == Purpose::Hold && is_wanted(l)) {
        return Ok(None);
    }
    let held = labels::held(listed, all.now, age, session.provider(), wants.iter().map(|w| &w.key));
    let had: Vec<Vec<String>> = wants.iter().map(|want| had(listed, all.now, session.provider(), age, want)).collect();
    let short = |total: &capacity::Total| capacity::grant(&session.at(), total, &held, wants, &had).err();
    let mut hoped = total.clone();
    hoped.gpus.answers.silent.clear();
    Ok(short(total).filter(|_| !hoping || short(&hoped).is_some()))
}

async fn critical(
    session: &Session<'_>,
    lock: &str,
    total: &capacity::Total,
    asked: Option<&[String]>,
    wants: &[Want],
) -> Result<Inside, DriverError> {
    let all = session.all().await?;
    let (listed, now, age) = (&all.boxes, all.now, session.limits.hold_age);
    let of = |key: &BoxKey| {
        let key = key.clone();
        listed.iter().filter(move |l| l.key.as_ref().is_some_and(|k| is_same_box(k, &key)))
    };
    let held = labels::held(listed, now, age, session.provider(), wants.iter().map(|w| &w.key));
    let gpus_held = held.iter().flat_map(|h| &h.gpus);
    if asked.is_some_and(|asked| gpus::is_unasked(&total.gpus.ids, gpus_held, &total.gpus.answers, asked)) {
        return Ok(Inside::Unasked);
    }
    // what is removed once the answer stands: holds left behind long ago, and ours that no longer stand for anything
    let litter = |l: &&Listed| l.purpose == Purpose::Hold && !l.counts(now, LITTER.max(age));
    let mut obsolete: Vec<&Listed> = listed.iter().filter(litter).collect();
    let mut made = Vec::new();
    let mut result = Ok(());
    let stands = |l: &&Listed| l.provider == session.provider() && l.counts(now, age);
    let had: Vec<Vec<String>> = wants.iter().map(|want| had(listed, now, session.provider(), age, want)).collect();
    let (granted, short) = match capacity::grant(&session.at(), total, &held, wants, &had) {
        Ok(shares) => (shares, None),
        Err(short) => (wants.iter().map(|_| Share::default()).collect(), Some(short)),
    };
    for (want, share) in wants.iter().zip(&granted) {
        let holds = of(&want.key).filter(|l| l.purpose == Purpose::Hold);
        if short.is_some() {
            obsolete.extend(holds);
            continue;
        }
        // one that was never started is adopted by its hold
        let there = of(&want.key).any(|l| l.purpose == Purpose::Box && l.runs() && stands(&l));
        // one past half its life is made anew, so that what is returned is young
        let young = |l: &Listed| l.counts(now, age / 2) && l.share == *share && l.provider == session.provider();
        let kept = holds.clone().filter(|l| !there && young(l)).max_by_key(|l| l.generation).map(|l| l.id.clone());
        obsolete.extend(holds.filter(|l| Some(&l.id) != kept.as_ref()));
        if there || kept.is_some() {
            continue;
        }
        let next = of(&want.key).map(|l| l.generation).max().unwrap_or(0) + 1;
        match create_hold(session, &want.key, want.run, share, next).await {
            Ok(id) => {
                failpoint::pass("docker.hold");
                made.push(id);
            }
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    let still_ours = match result {
        Ok(()) => is_ours(session, lock).await,
        Err(e) => Err(e),
    };
    if !matches!(still_ours, Ok(true)) {
        for id in &made {
            session.remove_id(id).await?;
        }
        return still_ours.map(|_| Inside::Lost);
    }
    for one in obsolete {
        // what stays is removed the next time, or ages out
        let _ = session.remove_id(&one.id).await;
    }
    Ok(Inside::Done(short.map_or_else(|| Admitted::Held(granted), Admitted::Short)))
}

/// The GPUs that one has already: a box or hold that is there keeps the very ones it has.
pub fn had(listed: &[Listed], now: Option<Timestamp>, provider: &str, hold_age: Duration, want: &Want) -> Vec<String> {
    let of = |l: &&Listed| l.key.as_ref().is_some_and(|k| is_same_box(k, &want.key));
    let stands = |l: &&Listed| l.provider == provider && l.counts(now, hold_age);
    let current = listed.iter().filter(of).filter(stands).max_by_key(|l| (l.purpose == Purpose::Box, l.generation));
    current.map(|l| l.share.gpus.clone()).unwrap_or_default()
}

/// Makes the holds young again by replacing each.
///
/// # Errors
/// One has aged out or is gone, or the daemon does not answer.
pub async fn renew(session: &Session<'_>, keys: &[BoxKey]) -> Result<(), DriverError> {
    for key in keys {
        let (listed, now) = session.of_key(key).await?;
        let counts = |l: &&Listed| l.counts(now, session.limits.hold_age);
        let Some(current) = listed.iter().filter(counts).max_by_key(|l| (l.purpose == Purpose::Box, l.generation)) else {
            return Err(aged_out(session, key));
        };
        if current.purpose == Purpose::Box {
            continue;
        }
        let next = listed.iter().map(|l| l.generation).max().unwrap_or(0) + 1;
        let id = create_hold(session, key, current.run, &current.share, next).await?;
        // the new one continues the old one only if that still counted when the new one was there
        let (after, now) = session.of_key(key).await?;
        if !after.iter().any(|l| l.id == current.id && l.counts(now, session.limits.hold_age)) {
            session.remove_id(&id).await?;
            return Err(aged_out(session, key));
        }
        for old in listed.iter().filter(|l| l.purpose == Purpose::Hold) {
            session.remove_id(&old.id).await?;
        }
    }
    Ok(())
}

/// The share of a box is no longer held.
pub fn aged_out(session: &Session<'_>, key: &BoxKey) -> DriverError {
    DriverError::Transient(format!("{} no longer holds the share of '{}'", session.at(), key.role))
}

fn busy(session: &Session<'_>) -> DriverError {
    DriverError::Transient(format!("the admission lock of {} stays taken", session.api.address()))
}

/// Why a hold was not made.
pub enum Unmade {
    /// The daemon said no, or nothing.
    Said(Fault),
    /// Something is there in its place, or it cannot be told.
    Other(DriverError),
}

impl Unmade {
    /// As any other failure.
    pub fn into_error(self, session: &Session<'_>) -> DriverError {
        match self {
            Self::Said(fault) => session.fault(fault),
            Self::Other(error) => error,
        }
    }
}

/// Makes a hold; its id. One of the same name that is there already is as good.
async fn create_hold(
    session: &Session<'_>,
    key: &BoxKey,
    run: Option<Uuid>,
    share: &Share,
    generation: u64,
) -> Result<String, DriverError> {
    let made = create_hold_with(session, key, run, share, generation, json!([])).await;
    made.map_err(|unmade| unmade.into_error(session))
}

/// As [`create_hold`], with something mounted.
///
/// # Errors
/// What the daemon said of it, or what is there in its place.
pub async fn create_hold_with(
    session: &Session<'_>,
    key: &BoxKey,
    run: Option<Uuid>,
    share: &Share,
    generation: u64,
    mounts: Value,
) -> Result<String, Unmade> {
    let name = names::of_hold(&session.prefix(), key, generation);
    let map = labels::write(session.who, session.provider(), session.name_prefix(), key, run, share, "hold");
    let plain = mounts == json!([]);
    match create_shell(session, &name, map, mounts).await {
        Ok(answer) => session.id_of(&answer.json).map_err(Unmade::Other),
        Err(fault) if fault.status() == Some(409) => {
            let same = |l: &Listed| l.key.as_ref() == Some(key) && l.share == *share && plain;
            let other = match session.inspect(&name).await.map_err(Unmade::Other)? {
                Some(there) if there.purpose == Purpose::Hold && same(&there) => return Ok(there.id),
                Some(there) if there.purpose == Purpose::Hold => DriverError::Transient(format!("{name} is being replaced")),
                Some(_) => session.foreign(&name),
                None => DriverError::Transient(format!("{name} went away meanwhile")),
            };
            Err(Unmade::Other(other))
        }
        Err(fault) => Err(Unmade::Said(fault)),
    }
}

/// Creates a container that is never started, from the empty image, which is brought when it is missing.
///
/// # Errors
/// What the daemon said of it.
pub async fn create_shell(session: &Session<'_>, name: &str, labels: Map<String, Value>, mounts: Value) -> Result<Answer, Fault> {
    let body = json!({
        "Image": format!("{}:{}", names::EMPTY_IMAGE, names::EMPTY_TAG),
        "Cmd": ["/never-started"],
        "Labels": labels,
        "NetworkDisabled": true,
        "HostConfig": {"NetworkMode": "none", "RestartPolicy": {"Name": "no"}, "Mounts": mounts},
    });
    let path = format!("/containers/create?name={}", encoded(name));
    match session.api.post(&path, Some(&body)).await {
        Err(fault) if fault.status() == Some(404) => {
            session.api.post_tar("/images/load?quiet=1", Bytes::from(empty_image::archive())).await?;
            match session.api.post(&path, Some(&body)).await {
                // a daemon that takes no image without a layer imports an empty tar: two blocks of zeroes
                Err(fault) if fault.status() == Some(404) => {
                    let import = format!("/images/create?fromSrc=-&repo={}&tag={}", names::EMPTY_IMAGE, names::EMPTY_TAG);
                    session.api.post_tar(&import, Bytes::from_static(&[0; 1024])).await?;
                    session.api.post(&path, Some(&body)).await
                }
                other => other,
            }
        }
        other => other,
    }
}

/// Waits for the lock and takes it; its id.
async fn take_lock(session: &Session<'_>, began: Instant) -> Result<String, DriverError> {
    let holder = Uuid::new_v4().simple().to_string();
    loop {
        match create_shell(session, names::LOCK, labels::write_lock(session.who, &holder), json!([])).await {
            Ok(answer) => return session.id_of(&answer.json),
            Err(fault) if fault.status() == Some(409) => {}
            Err(fault) => return Err(session.fault(fault)),
        }
        match session.api.get(&format!("/containers/{}/json", names::LOCK)).await {
            Ok(answer) => {
                let there = Listed::of_inspect(&answer.json).filter(|l| l.purpose == Purpose::Lock);
                let there = there.ok_or_else(|| session.foreign(names::LOCK))?;
                let is_gone = there.holder.as_ref().is_some_and(Holder::is_gone);
                if is_gone || there.age(answer.now) >= session.limits.lock_stale {
                    tracing::warn!("taking over an admission lock whose holder on {} is gone", there.host);
                    session.remove_id(&there.id).await?;
                    continue;
                }
            }
            Err(fault) if fault.status() == Some(404) => continue,
            Err(fault) => return Err(session.fault(fault)),
        }
        if began.elapsed() > session.limits.call {
            return Err(busy(session));
        }
        // the daemon tells nobody in line, so each asks again, not all at once
        let jitter = u64::from(Uuid::new_v4().as_bytes()[0]) % 40;
        tokio::time::sleep(Duration::from_millis(10 + jitter)).await;
    }
}

async fn is_ours(session: &Session<'_>, lock: &str) -> Result<bool, DriverError> {
    Ok(session.inspect(names::LOCK).await?.is_some_and(|l| l.id == lock))
}
