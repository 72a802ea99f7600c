//! Where a box is made: the directory it works in, whom it runs as, and where its guest comes from.
//!
//! Here, all of it is looked at here. On a daemon elsewhere nothing but the daemon is asked: a hold of the box's own, which
//! is never started, has the directory and the guest's volume mounted, and the archive of it tells whose the directory is
//! and whether the guest is there. So it counts as its box does, and goes with it.
//!
//! A guest is brought to a daemon once by its digest. A volume that holds it whole says so in a file that is written last; one
//! that does not is never written again, so that no box ever sees half a guest.

use super::admission::{self, Unmade};
use super::api::{Fault, encoded};
use super::container::User;
use super::labels::Listed;
use super::names;
use super::session::Session;
use crate::error::DriverError;
use crate::types::{BoxSpec, Purpose};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The label of a volume that holds a guest: its digest.
const GUEST_LABEL: &str = "hmz.guest";
/// Where the directory and the volume are in the hold that looks.
const WORK: &str = "/work";
const GUEST: &str = "/guest";
/// The file that is written last.
const WHOLE: &str = "whole";
/// How much of an archive is read for the owner of a directory, in bytes.
const HEAD: usize = 64 << 10;
/// How long a guest may take on its way.
const UPLOAD: Duration = Duration::from_secs(900);
/// How old another guest's volume gets before it is removed, when nothing uses it.
const UNUSED: SignedDuration = SignedDuration::from_hours(1);

/// Where a box is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Whom it runs as.
    pub user: User,
    /// The workdir as the daemon mounts it.
    pub workdir: PathBuf,
    /// The volume with the guest, on a daemon elsewhere.
    pub volume: Option<String>,
}

/// Looks at where a box is to be made, and brings the guest there.
///
/// # Errors
/// There is no such directory, the share is no longer held, or the daemon does not answer.
pub async fn find(session: &Session<'_>, spec: &BoxSpec) -> Result<Site, DriverError> {
    let machine = session.machine().await?;
    let said = User::said(&session.target.spec);
    if machine.here {
        has_workdir(session, spec).await?;
        // root in the containers of a rootless daemon is the user here
        let own = if machine.rootless { User { uid: 0, gid: 0 } } else { User { uid: session.who.uid, gid: session.who.gid } };
        let user = said.unwrap_or(own);
        if user.uid != own.uid {
            give_files(session, spec, user)?;
        }
        let workdir = tokio::fs::canonicalize(&spec.workdir).await.unwrap_or_else(|_| spec.workdir.clone());
        return Ok(Site { user, workdir, volume: None });
    }
    let digest =
        digest(&spec.guest.program).map_err(|e| DriverError::Transient(format!("{}: {e}", spec.guest.program.display())))?;
    let mut volume = volume_of(session, &digest).await?;
    let mut turn = None;
    loop {
        if volume.is_none() && turn.is_none() {
            // one at a time brings it; the rest finds it there
            turn = Some(session.shared.bringing.lock().await);
            volume = volume_of(session, &digest).await?;
        }
        let name = volume
            .clone()
            .unwrap_or_else(|| format!("hmz-guest-{}-{}", &digest[..16], &Uuid::new_v4().simple().to_string()[..8]));
        let hold = looking_hold(session, spec, &name, &digest).await?;
        let owner = owner(session, spec, &hold).await?.filter(|_| !machine.podman);
        if !is_whole(session, &hold).await? {
            if volume.take().is_some() {
                continue; // somebody else brings it at this moment, or never did
            }
            bring(session, spec, &hold).await?;
            forget_unused(session, &digest).await;
        }
        let user = said.or(owner).ok_or_else(|| {
            let (at, dir) = (session.at(), spec.workdir.display());
            let why = if machine.podman { "is podman" } else { "remaps users" };
            DriverError::Refused(format!("{at} {why}, so that whose {dir} is cannot be told: say exec_user of the runtime"))
        })?;
        return Ok(Site { user, workdir: spec.workdir.clone(), volume: Some(name) });
    }
}

/// The workdir is never created: one that is missing is refused in our own words.
async fn has_workdir(session: &Session<'_>, spec: &BoxSpec) -> Result<(), DriverError> {
    if tokio::fs::metadata(&spec.workdir).await.is_ok_and(|m| m.is_dir()) {
        return Ok(());
    }
    let (at, dir) = (session.at(), spec.workdir.display());
    Err(DriverError::Refused(format!("{at} has no {dir} to run a container: no directory to give the container")))
}

fn no_directory(session: &Session<'_>, spec: &BoxSpec) -> DriverError {
    let (at, dir, on) = (session.at(), spec.workdir.display(), session.api.address());
    DriverError::Refused(format!("{at} has no {dir} to run a container: no directory to give the container on {on}"))
}

/// Makes the box's socket directory and scratch those of another user, whom the box runs as.
fn give_files(session: &Session<'_>, spec: &BoxSpec, user: User) -> Result<(), DriverError> {
    for dir in [&spec.guest.socket_dir, &spec.guest.scratch] {
        if let Err(e) = std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid)) {
            let (at, who) = (session.at(), session.target.spec.exec_user.clone().unwrap_or_default());
            let text =
                format!("{at}: commands cannot run as exec_user {who}, since {} cannot be given to it: {e}", dir.display());
            return Err(DriverError::Refused(text));
        }
    }
    Ok(())
}

/// A further hold of the box, with the directory and the volume mounted; its id.
async fn looking_hold(session: &Session<'_>, spec: &BoxSpec, volume: &str, digest: &str) -> Result<String, DriverError> {
    let (listed, now) = session.of_key(&spec.key).await?;
    let counts = |l: &&Listed| l.counts(now, session.limits.hold_age);
    if !listed.iter().filter(counts).any(|l| matches!(l.purpose, Purpose::Hold | Purpose::Box)) {
        return Err(admission::aged_out(session, &spec.key));
    }
    let next = listed.iter().map(|l| l.generation).max().unwrap_or(0) + 1;
    let mounts = json!([
        {"Type": "bind", "Source": spec.workdir, "Target": WORK, "ReadOnly": true},
        {"Type": "volume", "Source": volume, "Target": GUEST,
            "VolumeOptions": {"NoCopy": true, "Labels": {GUEST_LABEL: digest}}},
    ]);
    admission::create_hold_with(session, &spec.key, spec.run, &spec.share, next, mounts).await.map_err(|unmade| match unmade {
        Unmade::Said(Fault::Said(_, words)) if is_missing(&words) => no_directory(session, spec),
        unmade => unmade.into_error(session),
    })
}

/// Whether a daemon says that what was to be mounted is not there.
pub fn is_missing(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    words.contains("bind source path does not exist") || words.contains("no such file or directory")
}

/// Whose the directory is; `None` when a daemon that remaps users does not tell.
async fn owner(session: &Session<'_>, spec: &BoxSpec, hold: &str) -> Result<Option<User>, DriverError> {
    owner_at(session, hold, WORK).await?.ok_or_else(|| no_directory(session, spec))
}

/// Whose a directory in a container is: `None` when there is none, and of that when the daemon does not tell.
///
/// # Errors
/// The daemon does not answer.
pub async fn owner_at(session: &Session<'_>, container: &str, path: &str) -> Result<Option<Option<User>>, DriverError> {
    let found = session.api.get_bytes(&format!("/containers/{container}/archive?path={}", encoded(path)), HEAD).await;
    let archive = match found {
        Ok((archive, _)) => archive,
        Err(Fault::Said(404, _)) => return Ok(None),
        Err(fault) => return Err(session.fault(fault)),
    };
    let mut archive = tar::Archive::new(archive.as_slice());
    let Some(Ok(first)) = archive.entries().ok().and_then(|mut all| all.next()) else { return Ok(Some(None)) };
    let header = first.header();
    if !header.entry_type().is_dir() {
        return Ok(None);
    }
    let id = |n: std::io::Result<u64>| n.ok().and_then(|n| u32::try_from(n).ok());
    Ok(Some(id(header.uid()).zip(id(header.gid())).map(|(uid, gid)| User { uid, gid })))
}

async fn is_whole(session: &Session<'_>, hold: &str) -> Result<bool, DriverError> {
    let path = format!("/containers/{hold}/archive?path={}", encoded(&format!("{GUEST}/{WHOLE}")));
    match session.api.get_bytes(&path, HEAD).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.status() == Some(404) => Ok(false),
        Err(fault) => Err(session.fault(fault)),
    }
}

/// Brings the guest into the volume: the directory of its socket, itself, and then the file that says it is whole.
async fn bring(session: &Session<'_>, spec: &BoxSpec, hold: &str) -> Result<(), DriverError> {
    let program = spec.guest.program.clone();
    let archive = tokio::task::spawn_blocking(move || archived(&program)).await;
    let archive = archive.map_err(|e| DriverError::Transient(e.to_string()))?;
    let archive = archive.map_err(|e| DriverError::Transient(format!("{}: {e}", spec.guest.program.display())))?;
    let path = format!("/containers/{hold}/archive?path={}", encoded(GUEST));
    session.api.put_tar_within(&path, Bytes::from(archive), UPLOAD).await.map(drop).map_err(|f| session.fault(f))
}

fn archived(program: &Path) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    archive.append_data(&mut header, "run/", std::io::empty())?;
    let content = fs_err::read(program)?;
    for (name, content) in [("hmz", content.as_slice()), (WHOLE, b"")] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()
}

/// The volume with that guest that is first by name.
async fn volume_of(session: &Session<'_>, digest: &str) -> Result<Option<String>, DriverError> {
    let filters = json!({"label": [format!("{GUEST_LABEL}={digest}")]}).to_string();
    let answer = session.api.get(&format!("/volumes?filters={}", encoded(&filters))).await.map_err(|f| session.fault(f))?;
    Ok(volumes(&answer.json).map(|(name, ..)| name).min())
}

fn volumes(answer: &Value) -> impl Iterator<Item = (String, String, Option<Timestamp>)> + '_ {
    let all = answer.get("Volumes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|volume| {
        let name = volume.get("Name")?.as_str()?.to_owned();
        let digest = volume.pointer("/Labels").and_then(|l| l.get(GUEST_LABEL))?.as_str()?.to_owned();
        let created = volume.get("CreatedAt").and_then(Value::as_str).and_then(|t| t.parse().ok());
        Some((name, digest, created))
    })
}

/// Removes the volumes of other guests that nothing uses and that are not new. One that is used after all is kept by the daemon,
/// and one that stays is looked at again.
async fn forget_unused(session: &Session<'_>, digest: &str) {
    let filters = json!({"label": [GUEST_LABEL], "dangling": ["true"]}).to_string();
    let Ok(answer) = session.api.get(&format!("/volumes?filters={}", encoded(&filters))).await else { return };
    let is_old =
        |created: Option<Timestamp>| created.zip(answer.now).is_some_and(|(then, now)| now.duration_since(then) > UNUSED);
    for (name, of, created) in volumes(&answer.json) {
        if of != digest && is_old(created) {
            let _ = session.api.delete(&format!("/volumes/{}", encoded(&name))).await;
        }
    }
}

/// The digest of a file, in hex; a file that has not changed is not read again.
fn digest(path: &Path) -> std::io::Result<String> {
    type Known = HashMap<(PathBuf, u64, Option<SystemTime>), String>;
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let found = fs_err::metadata(path)?;
    let key = (path.to_owned(), found.len(), found.modified().ok());
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(digest) = known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(digest.clone());
    }
    let digest = names::hex_digest(&fs_err::read(path)?);
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, digest.clone());
    Ok(digest)
}
