//! The user's sign-in to a registry, as docker's own configuration has it: `auths`, `credsStore`, `credHelpers`.
//!
//! A sign-in that cannot be had is no sign-in: the pull then says in the registry's words what is missing. What is read
//! here goes into one request header and nowhere else.

use super::endpoint::read_json;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What docker calls its own registry.
const HUB: &str = "https://index.docker.io/v1/";
/// How long a credential helper may take; some ask a keyring.
const HELPER: Duration = Duration::from_secs(30);
/// Longest answer of a helper, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// The value of `X-Registry-Auth` for an image; `None` without a sign-in.
pub async fn of_image(config_dir: &Path, image: &str) -> Option<String> {
    let config = match read_json(&config_dir.join("config.json")) {
        Ok(config) => config?,
        Err(e) => {
            tracing::warn!("no registry sign-in: {e}");
            return None;
        }
    };
    let server = server_of(image);
    let helper = config.get("credHelpers").and_then(|h| h.get(server)).or_else(|| config.get("credsStore"));
    let auth = match helper.and_then(Value::as_str).filter(|h| !h.is_empty()) {
        Some(helper) => asked(helper, server).await,
        None => None,
    };
    let auth = auth.or_else(|| written(&config, server))?;
    Some(URL_SAFE.encode(auth.to_string()))
}

/// The registry an image is at, as `config.json` spells it.
fn server_of(image: &str) -> &str {
    match image.split_once('/') {
        Some(("docker.io" | "index.docker.io" | "registry-1.docker.io", _)) | None => HUB,
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        Some(_) => HUB,
    }
}

/// A sign-in written in the file itself.
fn written(config: &Value, server: &str) -> Option<Value> {
    let auths = config.get("auths")?.as_object()?;
    let bare = |name: &str| {
        let name = name.trim_start_matches("https://").trim_start_matches("http://");
        name.split('/').next().unwrap_or_default().to_owned()
    };
    let entry = auths.get(server).or_else(|| auths.iter().find(|(name, _)| bare(name) == bare(server)).map(|(_, e)| e))?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
    if let Some(token) = text("identitytoken") {
        return Some(json!({"identitytoken": token, "serveraddress": server}));
    }
    let decoded = STANDARD.decode(text("auth")?).ok()?;
    let pair = String::from_utf8(decoded).ok()?;
    let (user, password) = pair.trim_end_matches('\0').split_once(':')?;
    Some(json!({"username": user, "password": password, "serveraddress": server}))
}

/// A sign-in kept by `docker-credential-<helper>`.
async fn asked(helper: &str, server: &str) -> Option<Value> {
    if !helper.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return None;
    }
    let program = format!("docker-credential-{helper}");
    match tokio::time::timeout(HELPER, ask(&program, server)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => {
            tracing::warn!("no registry sign-in: {program}: {e}");
            None
        }
        Err(_) => {
            tracing::warn!("no registry sign-in: {program} does not answer");
            None
        }
    }
}

async fn ask(program: &str, server: &str) -> std::io::Result<Option<Value>> {
    let mut child = tokio::process::Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // one that does not read its input still may answer
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let mut out = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_ANSWER).read_to_end(&mut out).await?;
    }
    if !child.wait().await?.success() {
        return Ok(None); // it has none for this registry
    }
    Ok(serde_json::from_slice::<Value>(&out).ok().and_then(|a| answered(&a, server)))
}

fn answered(answer: &Value, server: &str) -> Option<Value> {
    let user = answer.get("Username").and_then(Value::as_str)?;
    let secret = answer.get("Secret").and_then(Value::as_str)?;
    if user == "<token>" {
        return Some(json!({"identitytoken": secret, "serveraddress": server}));
    }
    Some(json!({"username": user, "password": secret, "serveraddress": server}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_an_image() {
        let all = ["busybox", "me/x:1", "docker.io/me/x", "ghcr.example/x/y", "h:5000/x", "localhost/x"].map(server_of);
        assert_eq!(all, [HUB, HUB, HUB, "ghcr.example", "h:5000", "localhost"]);
    }

    #[tokio::test]
    async fn a_sign_in_in_the_file_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let auth = STANDARD.encode("me:pass:word");
        let config =
            format!(r#"{{"auths": {{"https://h:5000/v2/": {{"auth": "{auth}"}}, "t.example": {{"identitytoken": "tok"}}}}}}"#);
        fs_err::write(dir.path().join("config.json"), config).unwrap();
        let decoded = |text: String| serde_json::from_slice::<Value>(&URL_SAFE.decode(text).unwrap()).unwrap();
        let sent = decoded(of_image(dir.path(), "h:5000/x").await.unwrap());
        assert_eq!((&sent["username"], &sent["password"]), (&json!("me"), &json!("pass:word")));
        assert_eq!(decoded(of_image(dir.path(), "t.example/x").await.unwrap())["identitytoken"], "tok");
        assert_eq!(of_image(dir.path(), "busybox").await, None);
    }

    #[test]
    fn a_helpers_answer_is_read() {
        let token = json!({"Username": "<token>", "Secret": "s", "ServerURL": "x"});
        assert_eq!(answered(&token, "x"), Some(json!({"identitytoken": "s", "serveraddress": "x"})));
        assert_eq!(answered(&json!({"Username": "u"}), "x"), None);
    }
}
