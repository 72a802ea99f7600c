//! Images: what is there is used as it is, what is not is pulled with the user's own registry sign-in.

use super::api::{Api, Fault, encoded};
use super::credentials;
use super::session::Session;
use crate::driver::{Progress, ProgressSink};
use crate::error::DriverError;
use hmz_api::Memory;
use hyper::Method;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most layers whose progress is added up.
const MAX_LAYERS: usize = 512;

/// Has an image on the daemon.
///
/// # Errors
/// It cannot be had, in docker's own words, or the daemon does not answer.
pub async fn ensure(session: &Session<'_>, image: &str, progress: &ProgressSink) -> Result<(), DriverError> {
    if inspect(session, image).await?.is_some() {
        return Ok(());
    }
    progress(Progress { text: format!("pulling {image}") });
    let refused = |fault| match fault {
        Fault::Said(_, words) => could_not_start(&session.api, image, &words),
        silent @ Fault::Silent(_) => session.fault(silent),
    };
    let mut headers = Vec::new();
    if let Some(auth) = credentials::of_image(&session.who.docker_config_dir, image).await {
        headers.push(("x-registry-auth", auth));
    }
    // without a tag the daemon would pull them all
    let tag = if is_exact(image) { "" } else { "&tag=latest" };
    let path = format!("/images/create?fromImage={}{tag}", encoded(image));
    let mut lines = session.api.stream(Method::POST, &path, &headers, true).await.map_err(refused)?;
    let mut layers = Layers::default();
    while let Some(line) = lines.next().await.map_err(refused)? {
        let error = line.pointer("/errorDetail/message").or_else(|| line.get("error")).and_then(Value::as_str);
        if let Some(words) = error {
            return Err(could_not_start(&session.api, image, words));
        }
        if let Some(text) = layers.heard(image, &line) {
            progress(Progress { text });
        }
    }
    match inspect(session, image).await? {
        Some(_) => Ok(()),
        None => Err(DriverError::Transient(format!("{}: the pull of {image} ended before its image was there", session.at()))),
    }
}

/// Labels baked into an image; null when it has none or is not there.
///
/// # Errors
/// The daemon does not answer.
pub async fn labels(session: &Session<'_>, image: &str) -> Result<Value, DriverError> {
    Ok(labels_if_there(session, image).await?.unwrap_or(Value::Null))
}

/// The same; `None` when it is not there.
///
/// # Errors
/// The daemon does not answer.
pub async fn labels_if_there(session: &Session<'_>, image: &str) -> Result<Option<Value>, DriverError> {
    let found = inspect(session, image).await?;
    Ok(found.map(|i| i.pointer("/Config/Labels").cloned().unwrap_or(Value::Null)))
}

/// The seeds' sentence, ending in docker's own words.
pub fn could_not_start(api: &Api, image: &str, words: &str) -> DriverError {
    DriverError::Refused(format!("could not start a container of {image} on {}: {}", api.address(), words.trim()))
}

async fn inspect(session: &Session<'_>, image: &str) -> Result<Option<Value>, DriverError> {
    match session.api.get(&format!("/images/{}/json", encoded(image))).await {
        Ok(answer) => Ok(Some(answer.json)),
        Err(fault) if fault.status() == Some(404) => Ok(None),
        Err(Fault::Said(_, words)) => Err(could_not_start(&session.api, image, &words)),
        Err(silent @ Fault::Silent(_)) => Err(session.fault(silent)),
    }
}

/// Whether a tag or digest is named.
fn is_exact(image: &str) -> bool {
    image.contains('@') || image.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

/// How far each layer is.
#[derive(Default)]
struct Layers {
    each: BTreeMap<String, (u64, u64)>,
    said: String,
}

impl Layers {
    /// The line to show, when it changed.
    fn heard(&mut self, image: &str, line: &Value) -> Option<String> {
        let id = line.get("id").and_then(Value::as_str)?;
        if line.get("status").and_then(Value::as_str) == Some("Downloading") {
            let number = |name: &str| line.pointer(&format!("/progressDetail/{name}")).and_then(Value::as_u64);
            let (current, total) = (number("current")?, number("total")?);
            if self.each.len() < MAX_LAYERS || self.each.contains_key(id) {
                self.each.insert(id.to_owned(), (current, total));
            }
        } else if let Some((current, total)) = self.each.get_mut(id) {
            *current = *total;
        }
        let (current, total) =
            self.each.values().fold((0u64, 0u64), |(a, b), (c, t)| (a.saturating_add(*c), b.saturating_add(*t)));
        if total == 0 {
            return None;
        }
        let whole = |n: u64| Memory::from_bytes(n).in_words();
        let text = format!("pulling {image}: {} of {}", whole(current >> 20 << 20), whole(total));
        (text != self.said).then(|| {
            self.said.clone_from(&text);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tag_or_digest_is_told_from_a_port() {
        let exact = ["a:1", "h:5000/a:1", "a@sha256:00"].map(is_exact);
        assert_eq!((exact, ["a", "h:5000/a"].map(is_exact)), ([true; 3], [false; 2]));
    }

    #[test]
    fn progress_adds_layers_up_and_says_each_line_once() {
        let mut layers = Layers::default();
        let line = |id: &str, c: u64, t: u64| json!({"id": id, "status": "Downloading", "progressDetail": {"current": c << 20, "total": t << 20}});
        assert_eq!(layers.heard("x:1", &json!({"id": "a", "status": "Waiting"})), None);
        assert_eq!(layers.heard("x:1", &line("a", 1, 4)).as_deref(), Some("pulling x:1: 1 MiB of 4 MiB"));
        assert_eq!(layers.heard("x:1", &line("a", 1, 4)), None);
        assert_eq!(layers.heard("x:1", &line("b", 2, 6)).as_deref(), Some("pulling x:1: 3 MiB of 10 MiB"));
        let done = json!({"id": "b", "status": "Download complete"});
        assert_eq!(layers.heard("x:1", &done).as_deref(), Some("pulling x:1: 7 MiB of 10 MiB"));
    }
}
