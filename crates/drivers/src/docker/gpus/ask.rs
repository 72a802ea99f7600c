//! GPUs are asked whether they answer, each by a container that has it alone, no network, and is thrown away.
//!
//! Whoever asks may go away at any moment: its containers are asked to their end and removed all the same, and those of a
//! process that died are removed by the next that asks, or by the sweep.

use super::answers::Heard;
use super::{number_again, requests};
use crate::docker::api::{Api, encoded};
use crate::docker::container::over;
use crate::docker::holder::Holder;
use crate::docker::labels::{self, Listed};
use crate::docker::listing::Listing;
use crate::docker::session::{Machine, Session};
use crate::docker::{image, names};
use crate::error::DriverError;
use crate::gpus::{GpuAnswers, bare};
use crate::types::{Purpose, Want};
use hmz_api::failpoint;
use serde_json::{Value, json};
use std::time::Duration;

/// How many are asked together.
const TOGETHER: usize = 32;
/// Most that is read of what one says.
const MOST_SAID: usize = 1 << 16;
/// How old a container that asks gets, by the daemon's clock, before whoever made it is taken for gone, where it cannot be looked for:
/// so many times what one is waited for.
const LITTER: u32 = 8;

/// What is known of the GPUs that a runtime hands out, once those of which nothing is known were asked, with the images that want
/// some; and which those are, where any are asked.
///
/// # Errors
/// The daemon does not answer.
pub async fn of_wants(
    session: &Session<'_>,
    ids: &[String],
    wants: &[Want],
) -> Result<(GpuAnswers, Option<Vec<String>>), DriverError> {
    let mut images: Vec<&String> =
        wants.iter().filter(|w| w.gpus.is_some_and(|n| n > 0)).filter_map(|w| w.image.as_ref()).collect();
    images.sort();
    images.dedup();
    if images.is_empty() || ids.is_empty() {
        return Ok((session.shared.gpus.answers(), None));
    }
    let (machine, all) = (session.machine().await?, session.all().await?);
    let held = all.boxes.iter().filter(|l| l.counts(all.now, session.limits.hold_age)).flat_map(|l| &l.share.gpus);
    let ids = number_again(ids, held, &machine.info);
    for image in images {
        of_ids(session, &ids, image).await?;
    }
    Ok((session.shared.gpus.answers(), Some(ids)))
}

/// What is known of these once those of which nothing is known were asked, with an image. One that is not on the daemon asks
/// nothing, and its box will.
///
/// # Errors
/// The daemon does not answer.
pub async fn of_ids(session: &Session<'_>, ids: &[String], image: &str) -> Result<GpuAnswers, DriverError> {
    let (known, runtime) = (&session.shared.gpus, session.target.spec.runtime.as_deref());
    let with = format!("{image} {}", runtime.unwrap_or_default());
    let _turn = known.asking.lock().await;
    let stale = known.stale(ids, &with, session.limits.gpus_known);
    if stale.is_empty() {
        return Ok(known.answers());
    }
    let machine = session.machine().await?;
    // podman gives none by this API, and says nothing
    if machine.podman {
        return Ok(known.answers());
    }
    let Some(image_labels) = image::labels_if_there(session, image).await? else { return Ok(known.answers()) };
    let left = cleared(session, &*session.all().await?).await;
    let answers = known.answers();
    // where one stays that cannot be killed, the next would stay beside it
    let (kept, stale): (Vec<String>, Vec<String>) =
        stale.into_iter().partition(|id| left.iter().any(|gpu| answers.same(gpu) == answers.same(id)));
    for id in kept {
        known.keep(&id, &with);
    }
    for some in stale.chunks(TOGETHER) {
        let mut asking = Vec::new();
        for id in some {
            let body = body(session, &machine, id, image, &image_labels);
            asking.push((id, tokio::spawn(asked(session.api.clone(), body, session.limits.gpu_answers))));
        }
        for (id, heard) in asking {
            let heard = heard.await.unwrap_or(Heard::Unknown);
            tracing::debug!(gpu = id, ?heard, "a GPU was asked whether it answers");
            known.note(id, &with, heard);
        }
    }
    Ok(known.answers())
}

/// Removes containers that ask and whose makers are gone, whoever they were.
///
/// # Errors
/// The daemon does not answer.
pub async fn tidy(session: &Session<'_>) -> Result<(), DriverError> {
    cleared(session, &*session.all().await?).await;
    Ok(())
}

/// Removes them, as far as they go in the time that an answer is waited for. The GPUs of those that stay and that nobody waits for
/// any more.
async fn cleared(session: &Session<'_>, all: &Listing) -> Vec<String> {
    let within = session.limits.gpu_answers;
    let is_gone = |one: &Listed| one.holder.as_ref().is_some_and(Holder::is_gone);
    let asks = all.boxes.iter().filter(|l: &&Listed| l.purpose == Purpose::Probe);
    let over = asks.map(|l| (l, is_gone(l))).filter(|(l, is_gone)| *is_gone || l.age(all.now) > within);
    let stays = over.map(|(one, is_gone)| async move {
        if is_gone || one.age(all.now) >= within * LITTER {
            match tokio::time::timeout(within, session.remove_id(&one.id)).await {
                Ok(Ok(())) => return None,
                Ok(Err(e)) => tracing::warn!("{} is left: {e}", one.name),
                Err(_) => tracing::warn!("{} is left: it does not go", one.name),
            }
        }
        Some(bare(one.asks.as_deref()?).to_owned())
    });
    futures::future::join_all(stays).await.into_iter().flatten().collect()
}

/// A container that asks one. It gets the GPU as a box of the runtime would, and nothing else of the machine.
fn body(session: &Session<'_>, machine: &Machine, id: &str, image: &str, image_labels: &Value) -> Value {
    let requests = requests(&[id.to_owned()], &machine.info);
    let written = labels::write_probe(session.who, id);
    let mut host = json!({
        "NetworkMode": "none",
        "DeviceRequests": requests,
        "CapDrop": ["ALL"],
        "SecurityOpt": if machine.selinux { vec!["no-new-privileges", "label=disable"] } else { vec!["no-new-privileges"] },
        "RestartPolicy": {"Name": "no"},
        "Init": false,
        "PidsLimit": 64,
        // whatever the daemon's own way is, what is said has to be read
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
    });
    if let (Some(runtime), Some(host)) = (&session.target.spec.runtime, host.as_object_mut()) {
        host.insert("Runtime".into(), runtime.clone().into());
    }
    json!({
        "Image": image,
        "Entrypoint": ["nvidia-smi"],
        "Cmd": ["--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"],
        "Env": super::void(&requests),
        // so that what it says comes as it is, not in frames
        "Tty": true,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": over(written, image_labels),
        "HostConfig": host,
    })
}

/// Makes a container, hears it out and removes it.
async fn asked(api: Api, body: Value, within: Duration) -> Heard {
    let name = names::of_probe();
    let heard = tokio::time::timeout(within, heard(&api, &body, &name)).await;
    failpoint::pass("docker.probe");
    // one that was not even made is not there; one that stays is swept
    let remove = async move { api.delete(&format!("/containers/{name}?force=1&v=1")).await };
    match heard {
        Ok(heard) => {
            let _ = remove.await;
            heard.unwrap_or(Heard::Unknown)
        }
        // what hangs in the kernel takes its time to go, and nobody waits for that
        Err(_) => {
            tokio::spawn(remove);
            Heard::Unknown
        }
    }
}

/// `None`: it did not come so far that something was said.
async fn heard(api: &Api, body: &Value, name: &str) -> Option<Heard> {
    api.post(&format!("/containers/create?name={}", encoded(name)), Some(body)).await.ok()?;
    api.post(&format!("/containers/{name}/start"), None).await.ok()?;
    let ended = api.post(&format!("/containers/{name}/wait"), None).await.ok()?;
    let (said, _) = api.get_bytes(&format!("/containers/{name}/logs?stdout=1&stderr=1"), MOST_SAID).await.ok()?;
    Some(Heard::read(ended.json.get("StatusCode").and_then(Value::as_i64), &String::from_utf8_lossy(&said)))
}
