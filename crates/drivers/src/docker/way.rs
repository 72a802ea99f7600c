//! The way to a daemon: what an endpoint comes down to once saved hosts and docker's contexts are looked up.

use super::DockerIdentity;
use super::context;
use super::endpoint::{resolve_local, with_tls};
use crate::error::DriverError;
use crate::types::Target;
use async_trait::async_trait;
use hmz_api::kinds::{Endpoint, RuntimeSpec, SshAddress};
pub use hmz_api::way::{SshHost, TlsFiles, Way};
use std::path::PathBuf;

/// Hosts that are saved as ssh runtimes.
#[async_trait]
pub trait SavedHosts: Send + Sync + 'static {
    /// What was saved under that name; `None` when nothing was, or it cannot be read.
    async fn find(&self, name: &str) -> Option<RuntimeSpec>;
}

/// No host is saved.
pub struct NoHosts;

#[async_trait]
impl SavedHosts for NoHosts {
    async fn find(&self, _name: &str) -> Option<RuntimeSpec> {
        None
    }
}

/// A host by its address alone: the rest is what ssh's own configuration says.
fn host_at(address: &SshAddress) -> SshHost {
    let mut options = Vec::new();
    if let Some(user) = &address.user {
        options.extend(["-l".to_owned(), user.clone()]);
    }
    if let Some(port) = address.port {
        options.extend(["-p".to_owned(), port.to_string()]);
    }
    SshHost { to: address.host.clone(), options }
}

/// A saved host, with everything that was saved of it.
pub(crate) fn saved_host(spec: &RuntimeSpec) -> Option<SshHost> {
    let mut options = Vec::new();
    if let Some(config) = &spec.config {
        options.extend(["-F".to_owned(), config.clone()]);
    }
    if let Some(user) = &spec.user {
        options.extend(["-l".to_owned(), user.clone()]);
    }
    if let Some(port) = spec.port {
        options.extend(["-p".to_owned(), port.to_string()]);
    }
    let to = spec.alias.as_ref().or(spec.host.as_ref())?.clone();
    let mut option = |name: &str, value: &str| options.extend(["-o".to_owned(), format!("{name}={}", quoted(value))]);
    if let (Some(host), true) = (&spec.host, spec.alias.is_some()) {
        option("HostName", host);
    }
    if let Some(file) = &spec.identity_file {
        option("IdentityFile", file);
    }
    if let Some(jump) = &spec.proxy_jump {
        option("ProxyJump", jump);
    }
    for (name, value) in &spec.options {
        option(name, value);
    }
    Some(SshHost { to, options })
}

/// A value as ssh's configuration has it: in quotes when a space is in it.
fn quoted(value: &str) -> String {
    if value.contains(char::is_whitespace) { format!("\"{value}\"") } else { value.to_owned() }
}

/// What a target's endpoint comes down to, and what people are told of it.
///
/// # Errors
/// A host or a context that is not there, or an address that is none.
pub async fn resolve(target: &Target, who: &DockerIdentity) -> Result<(Way, String), DriverError> {
    let at = target.runtime.at();
    let said = match (&target.spec.endpoint, &target.local_endpoint) {
        (Endpoint::Local, None) => {
            let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
            resolve_local(&env)?
        }
        (Endpoint::Local, Some(said)) => said.clone(),
        (other, _) => other.to_string(),
    };
    let (address, tls) = with_tls(&said);
    let endpoint = address.parse::<Endpoint>().map_err(|e| DriverError::Refused(format!("{at}: {}", e.message)))?;
    let way = match endpoint {
        Endpoint::Local => return Err(DriverError::Refused(format!("{at}: local does not say which daemon that is"))),
        Endpoint::Unix(path) => Way::Unix(path.into()),
        Endpoint::Tcp { host, port } => {
            let dir = target.spec.tls_dir.as_ref().map(PathBuf::from);
            let saved = dir.map(|dir| TlsFiles {
                ca: Some(dir.join("ca.pem")),
                own: Some((dir.join("cert.pem"), dir.join("key.pem"))),
                unverified: false,
            });
            Way::Tcp { host, port, tls: saved.or(tls) }
        }
        Endpoint::Ssh(address) => Way::Ssh(host_at(&address)),
        Endpoint::Saved(name) => {
            let found = who.hosts.find(&name).await.and_then(|spec| saved_host(&spec));
            let host = found.ok_or_else(|| DriverError::Refused(format!("{at}: ssh:{name}: ssh host '{name}' not found")))?;
            Way::Ssh(host)
        }
        Endpoint::Context(name) => match context::find(&who.docker_config_dir, &name).map_err(|e| in_runtime(&at, e))? {
            // a context that is a socket here is one like any other
            way @ Way::Unix(_) => {
                let Way::Unix(path) = &way else { return Ok((way, said)) };
                let text = format!("unix://{}", path.display());
                return Ok((way, text));
            }
            way => way,
        },
    };
    Ok((way, said))
}

fn in_runtime(at: &str, error: DriverError) -> DriverError {
    match error {
        DriverError::Refused(text) => DriverError::Refused(format!("{at}: {text}")),
        other => other,
    }
}

/// The way of an address in docker's own spelling, which may leave parts out; `None` when it is none we go.
pub fn of_docker_host(text: &str, tls: Option<TlsFiles>) -> Option<Way> {
    if let Some(rest) = text.strip_prefix("tcp://") {
        let rest = rest.trim_end_matches('/');
        let usual = if tls.is_some() { 2376 } else { 2375 };
        let whole = if rest.rsplit(']').next()?.contains(':') { rest.to_owned() } else { format!("{rest}:{usual}") };
        return match format!("tcp://{whole}").parse().ok()? {
            Endpoint::Tcp { host, port } => Some(Way::Tcp { host, port, tls }),
            _ => None,
        };
    }
    match text.trim_end_matches('/').parse().ok()? {
        Endpoint::Unix(path) => Some(Way::Unix(path.into())),
        Endpoint::Ssh(address) => Some(Way::Ssh(host_at(&address))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_saved_of_a_host_is_told_to_ssh() {
        let spec = RuntimeSpec {
            host: Some("10.0.0.1".into()),
            alias: Some("far".into()),
            user: Some("me".into()),
            port: Some(2222),
            identity_file: Some("/my keys/k".into()),
            proxy_jump: Some("hop".into()),
            options: [("Compression".to_owned(), "yes".to_owned())].into(),
            config: Some("/cfg".into()),
            ..RuntimeSpec::default()
        };
        let host = saved_host(&spec).unwrap();
        let words =
            "-F|/cfg|-l|me|-p|2222|-o|HostName=10.0.0.1|-o|IdentityFile=\"/my keys/k\"|-o|ProxyJump=hop|-o|Compression=yes";
        assert_eq!((host.to.as_str(), host.options.join("|").as_str()), ("far", words));
        let bare = saved_host(&RuntimeSpec { host: Some("h".into()), ..RuntimeSpec::default() }).unwrap();
        assert_eq!((bare.to.as_str(), bare.options.len()), ("h", 0));
        assert_eq!(saved_host(&RuntimeSpec::default()), None);
    }

    #[test]
    fn addresses_of_docker_may_leave_the_port_out() {
        let tls = TlsFiles { ca: None, own: None, unverified: true };
        let tcp = |host: &str, port, tls| Some(Way::Tcp { host: host.into(), port, tls });
        assert_eq!(of_docker_host("tcp://h", None), tcp("h", 2375, None));
        assert_eq!(of_docker_host("tcp://h/", Some(tls.clone())), tcp("h", 2376, Some(tls)));
        assert_eq!(of_docker_host("tcp://[::1]:7", None), tcp("::1", 7, None));
        assert_eq!(
            of_docker_host("ssh://me@h", None),
            Some(Way::Ssh(SshHost { to: "h".into(), options: vec!["-l".into(), "me".into()] }))
        );
        assert_eq!(of_docker_host("npipe:////./x", None), None);
    }
}
