//! How a daemon is reached, as settings write it.

use crate::reference::RuntimeRef;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// How the daemon is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Endpoint {
    /// What the docker CLI here reaches: DOCKER_HOST, the current context, the rootless socket, the usual one.
    #[default]
    Local,
    /// A socket: `unix:///PATH`.
    Unix(String),
    /// A daemon that listens: `tcp://HOST:PORT`, with TLS when the runtime has a `tls_dir`.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port, 1 or more.
        port: u16,
    },
    /// A host of ssh: `ssh://[USER@]HOST[:PORT]`.
    Ssh(SshAddress),
    /// A host that is saved as an ssh runtime: `ssh:NAME`.
    Saved(String),
    /// A docker context: `context:NAME`.
    Context(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ssh(address) => write!(f, "ssh://{address}"),
            Self::Saved(name) => write!(f, "ssh:{name}"),
            Self::Context(name) => write!(f, "context:{name}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = crate::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).ok_or_else(|| {
            crate::Error::usage(format!(
                "'{text}' is not a docker endpoint: local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>"
            ))
        })
    }
}

fn read(text: &str) -> Option<Endpoint> {
    if text == "local" {
        return Some(Endpoint::Local);
    }
    if let Some(path) = text.strip_prefix("unix://") {
        let fine = path.starts_with('/') && path.len() > 1 && !path.contains(['\n', '\0', '?']);
        return fine.then(|| Endpoint::Unix(path.to_owned()));
    }
    if let Some(rest) = text.strip_prefix("tcp://") {
        let (host, port) = rest.rsplit_once(':')?;
        return Some(Endpoint::Tcp { host: tcp_host(host)?.to_owned(), port: port_of(port)? });
    }
    if let Some(rest) = text.strip_prefix("ssh://") {
        return rest.parse().ok().map(Endpoint::Ssh);
    }
    if let Some(name) = text.strip_prefix("ssh:") {
        return RuntimeRef::check_name(name).is_ok().then(|| Endpoint::Saved(name.to_owned()));
    }
    let name = text.strip_prefix("context:")?;
    RuntimeRef::check_name(name).is_ok().then(|| Endpoint::Context(name.to_owned()))
}

fn tcp_host(text: &str) -> Option<&str> {
    if let Some(six) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return six.parse::<std::net::Ipv6Addr>().is_ok().then_some(six);
    }
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (!text.is_empty() && !text.starts_with('-') && text.bytes().all(ok)).then_some(text)
}

fn port_of(text: &str) -> Option<u16> {
    Some(text).filter(|t| t.bytes().all(|b| b.is_ascii_digit())).and_then(|t| t.parse().ok()).filter(|p| *p > 0)
}

/// Whether `text` may stand for a host, an alias or a login on a command line of ssh: it is never taken for an option.
pub fn is_ssh_word(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'%' | b'+' | b'-');
    text.bytes().next().is_some_and(first) && text.bytes().all(ok)
}

/// Where ssh goes to: `[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshAddress {
    /// The login; `None`: what ssh's configuration says.
    pub user: Option<String>,
    /// A host, or an alias of ssh's configuration.
    pub host: String,
    /// The port; `None`: what ssh's configuration says.
    pub port: Option<u16>,
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for SshAddress {
    type Err = crate::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || crate::Error::usage(format!("'{text}' is not an ssh host, as [user@]host[:port]"));
        let (user, rest) = text.rsplit_once('@').map_or((None, text), |(user, rest)| (Some(user), rest));
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(port_of(port).ok_or_else(wrong)?)),
            None => (rest, None),
        };
        if !is_ssh_word(host) || !user.is_none_or(is_ssh_word) {
            return Err(wrong());
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

/// Where an agent's CLI runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Harness {
    /// In the box: the image needs the CLI.
    #[default]
    Env,
    /// Here, supervised.
    Local,
    /// In a second box on another runtime.
    On(RuntimeRef),
}

impl fmt::Display for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env => f.write_str("env"),
            Self::Local => f.write_str("local"),
            Self::On(runtime) => write!(f, "{runtime}"),
        }
    }
}

impl FromStr for Harness {
    type Err = crate::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "env" => Ok(Self::Env),
            "local" => Ok(Self::Local),
            other => match other.parse::<RuntimeRef>() {
                Ok(runtime) if runtime.name.is_some() => Ok(Self::On(runtime)),
                _ => Err(crate::Error::usage(format!(
                    "'{other}' is not where a harness runs: env, local or <ssh|docker|swarm|apple-container|slurm>:<runtime name>"
                ))),
            },
        }
    }
}

macro_rules! as_text {
    ($type:ty, $name:literal, $about:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $about})
            }
        }
    };
}

as_text!(
    Endpoint,
    "Endpoint",
    "local, unix:///PATH, tcp://HOST:PORT, ssh://[USER@]HOST[:PORT], ssh:<ssh host> or context:<docker context>"
);
as_text!(Harness, "Harness", "where an agent's CLI runs: env (in the box), local (here), or <backend>:<name>");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_said_back() {
        for text in [
            "local",
            "unix:///run/docker.sock",
            "tcp://gpubox:2376",
            "tcp://10.0.0.1:2375",
            "tcp://[::1]:2376",
            "ssh://gpubox",
            "ssh://me@gpubox:2222",
            "ssh:gpubox",
            "context:far.away",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_none_says_what_is() {
        for text in [
            "",
            "Local",
            "unix://x",
            "unix:///",
            "unix:///x?y",
            "tcp://gpubox",
            "tcp://:2376",
            "tcp://h:0",
            "tcp://h:70000",
            "tcp://h:+1",
            "tcp://-h:1",
            "tcp://h/x:1",
            "tcp://[x]:1",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@h",
            "ssh://h:0",
            "ssh://h:x",
            "ssh://h/x",
            "ssh://h?x",
            "ssh:",
            "ssh:-x",
            "context:",
            "context:a/b",
            "http://h:1",
        ] {
            let said = text.parse::<Endpoint>().unwrap_err().message;
            assert!(said.starts_with(&format!("'{text}' is not a docker endpoint: local, unix:///PATH, ")), "{said}");
        }
    }
}
