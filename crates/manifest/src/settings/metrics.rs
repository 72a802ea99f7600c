//! `metrics` in settings.yaml: where the daemon tells them beside its socket. Nobody signs in there, so it is on this machine
//! alone unless `anywhere` says otherwise.

use crate::de::{self, Fault};
use crate::suggest::suggestion;
use crate::tree::{Node, Value};
use schemars::JsonSchema;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where metrics are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// The address and its port.
    pub address: SocketAddr,
}

/// The fields there are, for the schema.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "a number is a port as it is written, so they are read one by one")]
pub(crate) struct MetricsFields {
    /// A port of this machine, or an address and a port: `9464`, `127.0.0.1:9464`.
    #[schemars(extend("type" = ["integer", "string"]))]
    pub listen: String,
    /// Whether it may be an address that other machines reach. Nobody signs in there.
    #[schemars(default)]
    pub anywhere: bool,
}

const FIELDS: [&str; 2] = ["listen", "anywhere"];

/// The address `PORT` or `ADDRESS:PORT` means.
///
/// # Errors
/// It is none, in one sentence.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let found = match text.parse::<u16>() {
        Ok(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Err(_) => text.parse().ok(),
    };
    found.ok_or_else(|| format!("'{text}' is no address for metrics: write 9464, or 127.0.0.1:9464"))
}

/// Why an address may not be used that nobody has said other machines may reach; `None` when it may.
pub fn refusal(address: SocketAddr) -> Option<String> {
    let reach = !address.ip().is_loopback();
    reach.then(|| format!("metrics at {address} would be told to other machines, and nobody signs in there"))
}

/// Reads what is under `metrics`; nothing where that says nothing.
pub(super) fn read(node: &Node) -> Option<Result<Metrics, Vec<Fault>>> {
    if node.is_null() {
        return None;
    }
    let Some(map) = node.map() else {
        return Some(Err(vec![Fault::new(node.at, "metrics are a mapping, such as {listen: 9464}")]));
    };
    let mut faults: Vec<Fault> = Vec::new();
    for (key, at, first) in &map.duplicates {
        faults.push(Fault::new(*at, format!("the key '{key}' is there twice, first on line {}", first.line)));
    }
    for entry in map.entries.iter().filter(|entry| !FIELDS.contains(&entry.key.as_str())) {
        let fault = Fault::new(entry.key_at, format!("unknown field '{}'", entry.key));
        faults.push(fault.suggest(suggestion(&entry.key, &FIELDS)));
    }
    if !faults.is_empty() {
        return Some(Err(faults));
    }
    Some(fields(node))
}

fn fields(node: &Node) -> Result<Metrics, Vec<Fault>> {
    let Some(listen) = node.get("listen") else {
        return Err(vec![Fault::new(node.at, "metrics say no port: {listen: 9464}")]);
    };
    // a number is a port as it is written
    let Value::Scalar { text, .. } = &listen.value.value else {
        return Err(vec![Fault::new(listen.value.at, "expected a port, or an address and a port")]);
    };
    let address = address(text).map_err(|why| vec![Fault::new(listen.value.at, why)])?;
    let anywhere = match node.get("anywhere") {
        Some(entry) => de::read::<bool>(&entry.value)?,
        None => false,
    };
    match refusal(address).filter(|_| !anywhere) {
        Some(why) => {
            let fault = Fault::new(listen.value.at, why);
            Err(vec![fault.suggest(Some("if that is meant, say 'anywhere: true' beside it".into()))])
        }
        None => Ok(Metrics { address }),
    }
}
