//! Docker's contexts, as its command line keeps them: `contexts/meta/<digest>/meta.json` and `contexts/tls/<digest>`.

use super::endpoint::read_json;
use super::names::hex_digest;
use super::way::{TlsFiles, Way, of_docker_host};
use crate::error::DriverError;
use serde_json::Value;
use std::path::Path;

fn refused(text: String) -> DriverError {
    DriverError::Refused(text)
}

/// The way of a context, with its TLS material.
///
/// # Errors
/// There is no such context, or it is no docker daemon that is reached from here.
pub fn find(config_dir: &Path, name: &str) -> Result<Way, DriverError> {
    let folder = hex_digest(name.as_bytes());
    let meta = read_json(&config_dir.join("contexts/meta").join(&folder).join("meta.json")).map_err(refused)?;
    let meta = meta.ok_or_else(|| refused(format!("docker context '{name}' not found")))?;
    let docker = meta.pointer("/Endpoints/docker").unwrap_or(&Value::Null);
    let host = docker.get("Host").and_then(Value::as_str).unwrap_or_default();
    if host.is_empty() {
        return Err(refused(format!("docker context '{name}' names no docker endpoint")));
    }
    let dir = config_dir.join("contexts/tls").join(&folder).join("docker");
    let there = |file: &str| Some(dir.join(file)).filter(|path| path.is_file());
    let unverified = docker.get("SkipTLSVerify").and_then(Value::as_bool).unwrap_or(false);
    let (ca, own) = (there("ca.pem"), there("cert.pem").zip(there("key.pem")));
    let tls = (ca.is_some() || own.is_some() || unverified).then_some(TlsFiles { ca, own, unverified });
    of_docker_host(host, tls).ok_or_else(|| {
        refused(format!("docker context '{name}' is '{host}', which is none of unix:///PATH, tcp://HOST:PORT and ssh://HOST"))
    })
}
