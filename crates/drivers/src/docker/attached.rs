//! A container that runs already and is not ours (`container:`): never started, counted, limited or stopped.
//!
//! What stands for an environment in it is a mark on the daemon: a container that is never started, with the labels and the
//! name of a box, so that it is found, listed and removed as one. It holds no share. The guest goes in by archive, into a
//! directory of the environment's own, and comes out before the mark does; two environments in one container have nothing in
//! common but that. Each session is held by a guest of its own, which an exec starts.

use super::admission::create_shell;
use super::api::{Fault, encoded};
use super::labels::{self, Listed};
use super::session::Session;
use super::{life, names, usage};
use crate::error::DriverError;
use crate::types::{Admitted, BoxKey, BoxSpec, BoxState, Purpose, Shortage, Started, Want};
use bytes::Bytes;
use hmz_api::kinds::Share;
use hmz_api::way::Exec;
use hmz_api::{Cpus, Memory};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How long a guest may take on its way in.
const UPLOAD: Duration = Duration::from_secs(900);
/// How long the guest may take to come out.
const LEAVE: Duration = Duration::from_secs(60);
/// How often the mark's name may turn out to be taken by something that is then gone.
const TRIES: usize = 4;
/// How much of an archive is read to see whether something is there, in bytes.
const HEAD: usize = 4 << 10;

/// A container as it was found.
struct Found {
    id: String,
    name: String,
    pid: i32,
    /// What it has: its own limits, else its machine.
    cpus: Cpus,
    memory: Memory,
}

fn cannot(session: &Session<'_>, container: &str, why: &str) -> DriverError {
    DriverError::Refused(format!("{}: cannot work in the container {container}: {why}", session.at()))
}

/// Why nobody can work in a container now, as a clause of what its runtime lacks; `None`: it runs.
///
/// # Errors
/// The daemon does not answer.
pub async fn lacks(session: &Session<'_>, container: &str) -> Result<Option<String>, DriverError> {
    Ok(match session.inspect_raw(container).await?.map(|raw| life::state(&raw)) {
        Some(BoxState::Running(_)) => None,
        Some(_) => Some(format!("its container {container} is not running")),
        None => Some(format!("it has no container {container}")),
    })
}

async fn find(session: &Session<'_>, container: &str) -> Result<Found, DriverError> {
    let raw = session.inspect_raw(container).await?;
    let raw = raw.ok_or_else(|| cannot(session, container, "there is none of that name"))?;
    let BoxState::Running(pid) = life::state(&raw) else { return Err(cannot(session, container, "it is not running")) };
    let text = |at: &str| raw.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let machine = session.facts().await?;
    let (cpus, memory) = usage::limits(&raw);
    Ok(Found {
        id: text("/Id"),
        name: text("/Name").trim_start_matches('/').to_owned(),
        pid,
        cpus: cpus.unwrap_or(machine.cpus),
        memory: memory.unwrap_or(machine.memory),
    })
}

/// Whether what is asked for is there. Nothing is held: what the container has is everybody's in it.
///
/// # Errors
/// It does not run, or the daemon does not answer.
pub async fn admit(session: &Session<'_>, container: &str, wants: &[Want]) -> Result<Admitted, DriverError> {
    let found = find(session, container).await?;
    let at = session.at();
    let short = |want: &Want| {
        let role = &want.key.role;
        if let Some(cpus) = want.cpus.filter(|cpus| *cpus > found.cpus) {
            return Some(format!("{at}: the container {container} has {} CPUs, and '{role}' asks for {cpus}", found.cpus));
        }
        if let Some(memory) = want.memory.filter(|memory| *memory > found.memory) {
            let (has, asks) = (found.memory.in_words(), memory.in_words());
            return Some(format!("{at}: the container {container} has {has} of memory, and '{role}' asks for {asks}"));
        }
        let gpus = want.gpus.filter(|n| *n > 0)?;
        Some(format!("{at} hands out no GPUs of the container {container}, and '{role}' asks for {gpus}"))
    };
    if let Some(message) = wants.iter().find_map(short) {
        return Ok(Admitted::Short(Shortage { message, could_fit: false }));
    }
    Ok(Admitted::Held(wants.iter().map(|w| Share { cpus: w.cpus, memory: w.memory, gpus: Vec::new() }).collect()))
}

/// The directory in the container that is an environment's own.
fn dir_of(key: &BoxKey) -> String {
    format!("/.hmz-{}", &names::hex_digest(format!("{}/{}/{}", key.instance, key.uid, key.incarnation).as_bytes())[..12])
}

/// Makes the mark and brings the guest in, or finds both there.
///
/// # Errors
/// The container does not run, has no such directory, takes no guest, or the daemon does not answer.
pub async fn start(session: &Session<'_>, spec: &BoxSpec) -> Result<Started, DriverError> {
    let container = session.target.spec.container.as_deref().unwrap_or_default();
    let found = find(session, container).await?;
    if !is_there(session, &found.id, &spec.workdir.to_string_lossy()).await? {
        let (at, dir) = (session.at(), spec.workdir.display());
        return Err(DriverError::Refused(format!("{at} has no {dir}: there is no such directory in the container {container}")));
    }
    life::has_programs(session, spec, &found.id).await?;
    mark(session, spec, &found).await?;
    match enter(session, spec, &found, container).await {
        Ok(started) => Ok(started),
        Err(e) => {
            if !matches!(e, DriverError::Unreachable { .. }) {
                let _ = life::remove(session, &spec.key).await;
            }
            Err(e)
        }
    }
}

async fn enter(session: &Session<'_>, spec: &BoxSpec, found: &Found, container: &str) -> Result<Started, DriverError> {
    let dir = dir_of(&spec.key);
    let program = program_in(&dir);
    if !is_whole(session, &found.id, &dir).await? {
        bring(session, &found.id, &dir, &spec.guest.program).await?.map_err(|fault| match fault {
            Fault::Said(_, words) => cannot(session, container, &format!("the guest cannot be brought in: {words}")),
            silent @ Fault::Silent(_) => session.fault(silent),
        })?;
    }
    let runtime = &session.target.spec;
    let mut env = runtime.exec_env.clone();
    if !runtime.exec_wrapper.is_empty() {
        env.push(format!("{}={}", hmz_wire::WRAPPER, runtime.exec_wrapper.join("\n")));
    }
    let argv = [program.as_str(), "guest", "serve"].map(str::to_owned).to_vec();
    let reach = life::reach(session, Exec { argv, user: runtime.exec_user.clone(), env }).await?;
    Ok(Started { id: found.id.clone(), name: found.name.clone(), pid: found.pid, node: None, reach: Some(reach) })
}

/// The mark of an environment in that container.
async fn mark(session: &Session<'_>, spec: &BoxSpec, found: &Found) -> Result<(), DriverError> {
    let name = names::of_box(&session.prefix(), &spec.key);
    for _ in 0..TRIES {
        if let Some(there) = session.inspect(&name).await? {
            if there.purpose != Purpose::Box || there.key.as_ref() != Some(&spec.key) {
                return Err(session.foreign(&name));
            }
            if there.attached.as_ref() == Some(&found.id) {
                return Ok(());
            }
            // the container was made anew under its name
            leave(session, &there).await?;
            session.remove_id(&there.id).await?;
        }
        let none = Share::default();
        let mut map = labels::write(session.who, session.provider(), session.name_prefix(), &spec.key, spec.run, &none, "box");
        map.insert(labels::ATTACHED.to_owned(), found.id.clone().into());
        let scratch = spec.guest.scratch.parent().unwrap_or(&spec.guest.scratch);
        let dirs = format!("{}\n{}", dir_of(&spec.key), scratch.display());
        map.insert(labels::ATTACHED_DIRS.to_owned(), dirs.into());
        match create_shell(session, &name, map, json!([])).await {
            Ok(_) => return Ok(()),
            Err(fault) if fault.status() == Some(409) => {}
            Err(fault) => return Err(session.fault(fault)),
        }
    }
    Err(DriverError::Transient(format!("{}: the name {name} is taken and free by turns", session.at())))
}

/// Whether a path is there in a container.
async fn is_there(session: &Session<'_>, id: &str, path: &str) -> Result<bool, DriverError> {
    match session.api.get_bytes(&format!("/containers/{id}/archive?path={}", encoded(path)), HEAD).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.status() == Some(404) => Ok(false),
        Err(fault) => Err(session.fault(fault)),
    }
}

fn program_in(dir: &str) -> String {
    format!("{dir}/hmz")
}

/// What is there once all before it in the archive is.
fn whole_in(dir: &str) -> String {
    format!("{dir}/whole")
}

/// Whether a guest in a container has come in and has not begun to come out.
async fn is_whole(session: &Session<'_>, id: &str, dir: &str) -> Result<bool, DriverError> {
    Ok(is_there(session, id, &whole_in(dir)).await? && is_there(session, id, &program_in(dir)).await?)
}

/// Brings a guest into a container, over what is there of it.
///
/// # Errors
/// Its program cannot be read here; inside: the daemon does not take it.
async fn bring(session: &Session<'_>, id: &str, dir: &str, program: &Path) -> Result<Result<(), Fault>, DriverError> {
    let (file, name) = (program.to_owned(), dir.trim_start_matches('/').to_owned());
    let archive = tokio::task::spawn_blocking(move || archived(&file, &name)).await;
    let archive = archive.map_err(|e| DriverError::Transient(e.to_string()))?;
    let archive = archive.map_err(|e| DriverError::Transient(format!("{}: {e}", program.display())))?;
    let path = format!("/containers/{id}/archive?path=/");
    Ok(session.api.put_tar_within(&path, Bytes::from(archive), UPLOAD).await.map(|_| ()))
}

fn archived(program: &Path, dir: &str) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    archive.append_data(&mut header, format!("{dir}/"), std::io::empty())?;
    let content = fs_err::read(program)?;
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, program_in(dir), content.as_slice())?;
    // the last: one that was cut off has none
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(0);
    archive.append_data(&mut header, whole_in(dir), std::io::empty())?;
    archive.into_inner()
}

/// Takes what is ours out of the container that a mark stands for. One that does not run keeps it, since nobody can take it out;
/// one that is gone has none.
///
/// # Errors
/// The daemon does not answer, or something of ours is still there: the mark has to stay.
pub async fn leave(session: &Session<'_>, mark: &Listed) -> Result<(), DriverError> {
    let Some(id) = &mark.attached else { return Ok(()) };
    // no directory of anybody else's, whatever a label says
    let is_ours = |dir: &&String| dir.starts_with("/.hmz-") || dir.starts_with("/tmp/hmz-");
    let dirs: Vec<String> = mark.attached_dirs.iter().filter(is_ours).filter(|d| !d.contains("/..")).cloned().collect();
    let Some(own) = dirs.first().filter(|dir| dir.starts_with("/.hmz-")) else { return Ok(()) };
    if !is_in(session, id, own).await? {
        return Ok(());
    }
    let Err(why) = clear(session, id, own, &dirs).await? else { return Ok(()) };
    // it may have ended meanwhile
    if is_in(session, id, own).await? {
        return Err(DriverError::Transient(format!("{}: {own} is still in a container: {why}", session.at())));
    }
    tracing::warn!("{}: something may stay in a container: {why}", session.at());
    Ok(())
}

/// Whether the directory that goes last is in a container that runs.
async fn is_in(session: &Session<'_>, id: &str, own: &str) -> Result<bool, DriverError> {
    let Some(raw) = session.inspect_raw(id).await? else { return Ok(false) };
    if !matches!(life::state(&raw), BoxState::Running(_)) {
        tracing::warn!("{}: {own} stays in a container that is not running", session.at());
        return Ok(false);
    }
    is_there(session, id, own).await
}

/// Has the guest remove directories; inside: why they may still be there.
async fn clear(session: &Session<'_>, id: &str, own: &str, dirs: &[String]) -> Result<Result<(), String>, DriverError> {
    // half of a guest clears nothing
    if !is_whole(session, id, own).await?
        && let Err(fault) = bring(session, id, own, &session.who.guest).await?
    {
        return Ok(Err(fault.to_string()));
    }
    let mut argv = vec![program_in(own), "guest".into(), "file".into(), "clear".into()];
    // the program itself last
    argv.extend(dirs.iter().rev().cloned());
    let what = Exec { user: Some("0:0".into()), ..Exec::of(argv) };
    let socket = session.api.road().socket().await.map_err(|why| session.fault(Fault::Silent(why)))?;
    let id = id.to_owned();
    let done = tokio::task::spawn_blocking(move || hmz_wire::channel::run_in(&socket, &id, &what, LEAVE)).await;
    Ok(match done.map_err(|e| DriverError::Transient(e.to_string()))? {
        Ok(complaint) if complaint.is_empty() => Ok(()),
        Ok(complaint) => Err(complaint),
        Err(e) => Err(e.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_environment_has_a_directory_of_its_own() {
        let key = |incarnation| BoxKey { instance: "i".into(), uid: uuid::Uuid::nil(), incarnation, role: "box".into() };
        assert_ne!(dir_of(&key(1)), dir_of(&key(2)));
        assert!(dir_of(&key(1)).starts_with("/.hmz-") && dir_of(&key(1)).len() == 18);
    }

    #[test]
    fn the_word_that_it_is_whole_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "text").unwrap();
        let archive = archived(&program, ".hmz-1").unwrap();
        let mut archive = tar::Archive::new(archive.as_slice());
        let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        assert_eq!(names.collect::<Vec<_>>(), [".hmz-1/", ".hmz-1/hmz", ".hmz-1/whole"]);
    }
}
