//! The way to a docker daemon, with saved hosts and docker's contexts looked up: data, which says nothing of anybody's keys
//! but in which files they are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How a daemon is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// At a socket here.
    Unix(PathBuf),
    /// At a port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// With TLS.
        tls: Option<TlsFiles>,
    },
    /// At the socket of a host of ssh.
    Ssh(SshHost),
}

/// What TLS is made with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The authority the daemon's certificate has to be of.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate will do, as a context may say.
    pub unverified: bool,
}

/// A host as ssh is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshHost {
    /// Where to.
    pub to: String,
    /// Options before it: nothing of ours.
    pub options: Vec<String>,
}

/// How a box is reached that descriptors cannot cross into: by an exec of its daemon's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Its daemon.
    pub way: Way,
    /// A socket here that leads to it while whoever made that is there: the shorter way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<PathBuf>,
    /// What is executed in the box.
    pub exec: Exec,
}

/// What is executed in a container to reach its guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Exec {
    /// The program and its arguments; the guest's own program comes first.
    pub argv: Vec<String>,
    /// Whom it runs as, as `UID[:GID]`; absent: as whom the container runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Variables it gets besides, as `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

impl Exec {
    /// As the container's own user, with its own variables.
    pub fn of(argv: Vec<String>) -> Self {
        Self { argv, ..Self::default() }
    }
}
