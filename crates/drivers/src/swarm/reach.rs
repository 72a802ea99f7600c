//! Reaching a box: the daemon of the node its task landed on, and the guest that is put beside it there.
//!
//! The node is the manager itself, or it is reached as the runtime's `nodes` say, or else over ssh at the address the swarm knows
//! it by. Each box has its own copy of the guest, among its container's own files: so nothing is left on a node when a box goes.

use super::manager::Manager;
use super::nodes::Node;
use super::place::Placed;
use super::service::{AS, OURS, WHOLE};
use crate::docker::api::{Fault, encoded};
use crate::docker::container::User;
use crate::docker::session::Session;
use crate::docker::{DockerDriver, account, life, programs, site, usage};
use crate::error::DriverError;
use crate::types::{BoxSpec, Started, Target};
use bytes::Bytes;
use hmz_api::failpoint;
use hmz_api::kinds::{Endpoint, RuntimeSpec, SshAddress};
use hmz_api::rest::Usage;
use hmz_api::way::Exec;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How much of an archive is read for what is first in it, in bytes.
const HEAD: usize = 64 << 10;
/// How long a guest may take on its way.
const UPLOAD: Duration = Duration::from_secs(900);

/// Puts the guest beside a box that runs, if it is not there, and says where the box is.
///
/// # Errors
/// Its node cannot be reached, or the box has ended meanwhile.
pub async fn reach(
    manager: &Manager<'_>,
    docker: &DockerDriver,
    spec: &BoxSpec,
    placed: &Placed,
) -> Result<Started, DriverError> {
    let Placed { service, task } = placed;
    let at = manager.at();
    let nodes = manager.nodes().await?;
    let gone = || DriverError::Transient(format!("{at}: the node of {} has left the swarm", service.name));
    let node = nodes.into_iter().find(|n| n.id == task.node).ok_or_else(gone)?;
    let target = target_of(manager, &node, &service.name).await?;
    let hostname = &node.hostname;
    // the box has never been worked in: a node that cannot be reached now is refused as one that never could
    let unreached = |error: DriverError| match error {
        DriverError::Unreachable { why, .. } => {
            let text = format!("{at}: could not reach the node {hostname}, where its task landed: {why}");
            DriverError::Refused(format!("{text}; say how in the runtime's nodes"))
        }
        other => other,
    };
    let session = docker.session(&target).await.map_err(unreached)?;
    // another daemon knows nothing of the container, as one does whose box has ended: that would be tried for ever
    if !is_of(&session.machine().await.map_err(unreached)?.info, &node) {
        let text = format!("{at}: the daemon reached as the node {hostname}, where its task landed, is not that node's");
        return Err(DriverError::Refused(format!("{text}; say how in the runtime's nodes")));
    }
    let container = task.container.clone().unwrap_or_default();
    bring(manager, &session, spec, &container).await.map_err(unreached)?;
    failpoint::pass("swarm.guest");
    let reach = Some(life::reach(&session, Exec::of(hmz_wire::relay_argv())).await?);
    Ok(Started { id: container, name: service.name.clone(), pid: task.pid, node: Some(hostname.clone()), reach })
}

/// What the container of a task uses, asked of the daemon of its node.
///
/// # Errors
/// Its node has left the swarm or cannot be reached, or it does not run.
pub async fn usage(manager: &Manager<'_>, docker: &DockerDriver, id: &str, node: Option<&str>) -> Result<Usage, DriverError> {
    let (at, name) = (manager.at(), node.unwrap_or("unknown"));
    let found = manager.nodes().await?.into_iter().find(|n| n.hostname == name);
    let node = found.ok_or_else(|| DriverError::Transient(format!("{at}: the node {name} is not in the swarm")))?;
    let target = target_of(manager, &node, id).await?;
    let session = docker.session(&target).await?;
    if !is_of(&session.machine().await?.info, &node) {
        return Err(DriverError::Refused(format!("{at}: the daemon reached as the node {name} is not that node's")));
    }
    usage::usage(&session, id).await
}

/// Whether the daemon that says this of itself is a node's.
fn is_of(info: &Value, node: &Node) -> bool {
    info.pointer("/Swarm/NodeID").and_then(Value::as_str) == Some(node.id.as_str())
}

/// The daemon of a node.
async fn target_of(manager: &Manager<'_>, node: &Node, service: &str) -> Result<Target, DriverError> {
    let (target, at) = (manager.session.target, manager.at());
    let endpoint = match target.spec.nodes.get(&node.hostname) {
        None if node.id == manager.node() => return Ok(target.clone()),
        Some(said) => match said.parse::<SshAddress>() {
            _ if manager.session.who.hosts.find(said).await.is_some() => Endpoint::Saved(said.clone()),
            Ok(address) => Endpoint::Ssh(address),
            Err(error) => return Err(DriverError::Refused(format!("{at}: node {}: {}", node.hostname, error.message))),
        },
        None => {
            let known = Some(node.address.as_str()).filter(|a| !matches!(*a, "" | "0.0.0.0" | "::"));
            let address = known.and_then(|a| a.parse::<SshAddress>().ok()).ok_or_else(|| {
                DriverError::Refused(format!(
                    "{at}: the node {} the task of {service} landed on says no address to reach it at: name it in the runtime's nodes",
                    node.hostname
                ))
            })?;
            Endpoint::Ssh(address)
        }
    };
    let spec = RuntimeSpec { endpoint, ..RuntimeSpec::default() };
    Ok(Target { runtime: target.runtime.clone(), spec, local_endpoint: None })
}

/// Puts the guest into a container, whole or not at all as far as the box is concerned.
async fn bring(manager: &Manager<'_>, session: &Session<'_>, spec: &BoxSpec, id: &str) -> Result<(), DriverError> {
    if has(session, id, WHOLE).await? {
        return Ok(());
    }
    // nothing of the box has run yet but the shell that waits
    if let Some(program) = programs::missing(session, id, &spec.programs).await? {
        return Err(DriverError::NoProgram { program, image: spec.image.clone() });
    }
    let who = manager.session.who;
    let user = if manager.is_here {
        User { uid: who.uid, gid: who.gid }
    } else {
        let found = site::owner_at(session, id, &spec.workdir.to_string_lossy()).await?;
        found.flatten().ok_or_else(|| {
            let (at, dir) = (manager.at(), spec.workdir.display());
            DriverError::Refused(format!("{at}: whose {dir} is cannot be told on the node its task landed on"))
        })?
    };
    account::write(session, id, user).await?;
    let name = match user.uid {
        0 => "root",
        uid if uid == who.uid => who.user_name.as_str(),
        _ => account::SPARE,
    };
    let (program, scratch, word) =
        (spec.guest.program.clone(), spec.guest.scratch.clone(), format!("{}:{} {name}\n", user.uid, user.gid));
    let archive = tokio::task::spawn_blocking(move || archived(&program, &scratch, user, &word)).await;
    let archive = archive.map_err(|e| DriverError::Transient(e.to_string()))?;
    let archive = archive.map_err(|e| DriverError::Transient(format!("{}: {e}", spec.guest.program.display())))?;
    let put = session.api.put_tar_within(&format!("/containers/{id}/archive?path=/"), Bytes::from(archive), UPLOAD).await;
    put.map(drop).map_err(|f| session.fault(f))
}

/// Whether a container has a file.
async fn has(session: &Session<'_>, id: &str, path: &str) -> Result<bool, DriverError> {
    match session.api.get_bytes(&format!("/containers/{id}/archive?path={}", encoded(path)), HEAD).await {
        Ok(_) => Ok(true),
        Err(Fault::Said(404, words)) if words.contains("No such container") => {
            Err(DriverError::Transient(format!("{}: the box ended before its guest was there", session.at())))
        }
        Err(Fault::Said(404, _)) => Ok(false),
        Err(fault) => Err(session.fault(fault)),
    }
}

/// What is put into a box: the guest, the directory of its socket, the box's scratch, whom the guest is to be, and last the file
/// that says that all of it is there.
fn archived(program: &Path, scratch: &Path, user: User, word: &str) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut put = |path: &Path, mode: u32, owner: User, content: Option<&[u8]>| -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_uid(owner.uid.into());
        header.set_gid(owner.gid.into());
        header.set_size(content.map_or(0, <[u8]>::len) as u64);
        if content.is_none() {
            header.set_entry_type(tar::EntryType::Directory);
        }
        let path = path.strip_prefix("/").unwrap_or(path);
        archive.append_data(&mut header, path, content.unwrap_or_default())
    };
    let root = User { uid: 0, gid: 0 };
    let ours = Path::new(OURS);
    put(ours, 0o755, root, None)?;
    put(&ours.join("run"), 0o700, user, None)?;
    // what an image has itself, such as /tmp, is left as it is
    let mut above = PathBuf::from("/");
    let parts: Vec<_> = scratch.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    for (n, part) in parts.iter().enumerate() {
        above.push(part);
        if n + 1 == parts.len() {
            put(&above, 0o700, user, None)?;
        } else if n > 0 {
            put(&above, 0o755, root, None)?;
        }
    }
    let content = fs_err::read(program)?;
    put(Path::new(hmz_wire::GUEST_PROGRAM), 0o755, root, Some(&content))?;
    put(Path::new(AS), 0o644, root, Some(word.as_bytes()))?;
    put(Path::new(WHOLE), 0o644, root, Some(b""))?;
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_daemon_is_told_from_the_one_of_a_node_by_the_id_the_swarm_gave_it() {
        let node = Node::of(&json!({"ID": "n1"})).unwrap();
        for (info, own) in [
            (json!({"Swarm": {"NodeID": "n1", "LocalNodeState": "active"}}), true),
            (json!({"Swarm": {"NodeID": "n2", "LocalNodeState": "active"}}), false),
            (json!({"Swarm": {"NodeID": "", "LocalNodeState": "inactive"}}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_of(&info, &node), own, "{info}");
        }
    }
}
