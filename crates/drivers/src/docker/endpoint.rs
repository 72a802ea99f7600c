//! What endpoint `local` means: what the docker command line here would reach.

use super::context;
use super::way::{TlsFiles, Way, of_docker_host};
use crate::error::DriverError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Where docker listens unless told otherwise.
const USUAL: &str = "/var/run/docker.sock";
/// What stands behind an address whose daemon proves itself with TLS, before the directory of the certificates.
const VERIFIED: &str = "?tls=";
/// The same where it need not.
const UNVERIFIED: &str = "?tls-unverified=";
/// Largest configuration file read, in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// The address the docker command line reaches with this environment, as `unix:///var/run/docker.sock`: DOCKER_HOST,
/// else the context of DOCKER_CONTEXT or of `config.json`, else the usual socket, else the rootless one when only that is there.
/// A context that is no socket here is `context:NAME`; the directory of DOCKER_HOST's certificates stands behind its address,
/// and [`with_tls`] takes it off.
///
/// # Errors
/// A context that is not there, or an address that is none.
pub fn resolve_local(env: &BTreeMap<String, String>) -> Result<String, DriverError> {
    resolve(env, Path::new(USUAL))
}

fn resolve(env: &BTreeMap<String, String>, usual: &Path) -> Result<String, DriverError> {
    let var = |name: &str| env.get(name).map(String::as_str).filter(|v| !v.is_empty());
    let config = config_dir(env);
    if let Some(host) = var("DOCKER_HOST") {
        let certificates = var("DOCKER_CERT_PATH").map(PathBuf::from).or(config);
        let tls = match (var("DOCKER_TLS_VERIFY"), var("DOCKER_TLS")) {
            (Some(_), _) => Some(VERIFIED),
            (None, Some(_)) => Some(UNVERIFIED),
            (None, None) => None,
        };
        return said(host, tls.zip(certificates), usual);
    }
    let context = match (var("DOCKER_CONTEXT"), &config) {
        (Some(name), _) => Some(name.to_owned()),
        (None, Some(dir)) => current_context(dir)?,
        (None, None) => None,
    };
    match (context.filter(|name| name != "default"), config) {
        (Some(name), Some(dir)) => match context::find(&dir, &name)? {
            Way::Unix(path) => Ok(format!("unix://{}", path.display())),
            _ => Ok(format!("context:{name}")),
        },
        (Some(name), None) => Err(DriverError::Refused(format!("docker context '{name}' not found"))),
        (None, _) => {
            let rootless = var("XDG_RUNTIME_DIR").map(|dir| Path::new(dir).join("docker.sock"));
            let there = |path: &Path| path.symlink_metadata().is_ok();
            let path = match rootless {
                Some(rootless) if !there(usual) && there(&rootless) => rootless,
                _ => usual.to_owned(),
            };
            Ok(format!("unix://{}", path.display()))
        }
    }
}

/// The directory of docker's own configuration: DOCKER_CONFIG, else `~/.docker`.
pub fn config_dir(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let var = |name: &str| env.get(name).filter(|v| !v.is_empty());
    var("DOCKER_CONFIG").map(PathBuf::from).or_else(|| var("HOME").map(|home| Path::new(home).join(".docker")))
}

/// Reads a small JSON file; `None` when it is not there.
///
/// # Errors
/// Words that name the file when it cannot be read or is no JSON.
pub fn read_json(path: &Path) -> Result<Option<Value>, String> {
    let file = match fs_err::File::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let mut text = String::new();
    file.take(MAX_CONFIG).read_to_string(&mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    // the place and not the content is named: the file holds sign-ins
    serde_json::from_str(&text).map(Some).map_err(|e| format!("{}:{}:{}: not JSON", path.display(), e.line(), e.column()))
}

fn current_context(dir: &Path) -> Result<Option<String>, DriverError> {
    let config = read_json(&dir.join("config.json")).map_err(DriverError::Refused)?;
    let name = config.as_ref().and_then(|c| c.get("currentContext")).and_then(Value::as_str).filter(|n| !n.is_empty());
    Ok(name.map(str::to_owned))
}

/// The address that is meant, and the files of TLS where it is what DOCKER_HOST says beside the variables of TLS.
pub fn with_tls(said: &str) -> (&str, Option<TlsFiles>) {
    let parts = said.split_once(VERIFIED).map(|parts| (parts, false));
    let Some(((address, dir), unverified)) = parts.or_else(|| said.split_once(UNVERIFIED).map(|parts| (parts, true))) else {
        return (said, None);
    };
    let there = |file: &str| Some(Path::new(dir).join(file)).filter(|path| path.is_file());
    // without a certificate of its own a client is nobody to the daemon, and without an authority's it believes none
    let own = there("cert.pem").zip(there("key.pem"));
    let ca = (!unverified).then(|| Path::new(dir).join("ca.pem"));
    (address, Some(TlsFiles { ca, own, unverified }))
}

/// What DOCKER_HOST says; with how TLS is written behind it and where its files are.
fn said(host: &str, tls: Option<(&str, PathBuf)>, usual: &Path) -> Result<String, DriverError> {
    let refused = |why: &str| Err(DriverError::Refused(format!("DOCKER_HOST is '{host}', {why}")));
    match host.trim() {
        "unix://" => Ok(format!("unix://{}", usual.display())),
        text => match of_docker_host(text, tls.as_ref().map(|_| TlsFiles { ca: None, own: None, unverified: false })) {
            Some(Way::Unix(path)) => Ok(format!("unix://{}", path.display())),
            Some(Way::Tcp { host, port, .. }) => {
                let address = hmz_api::kinds::Endpoint::Tcp { host, port };
                Ok(tls.map_or_else(|| address.to_string(), |(how, dir)| format!("{address}{how}{}", dir.display())))
            }
            Some(Way::Ssh(_)) => Ok(text.to_owned()),
            None => refused("which is none of unix:///PATH, tcp://HOST:PORT and ssh://[USER@]HOST[:PORT]"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        env: BTreeMap<String, String>,
    }

    impl Place {
        fn new(env: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let at = |v: &str| v.replace('@', dir.path().to_str().unwrap());
            let env = env.iter().map(|(k, v)| ((*k).to_owned(), at(v))).collect();
            Self { dir, env }
        }
        fn file(self, path: &str, text: &str) -> Self {
            let path = self.dir.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
            self
        }
        fn context(self, config: &str, name: &str, host: &str) -> Self {
            let folder = crate::docker::names::hex_digest(name.as_bytes());
            let meta = format!(r#"{{"Name":"{name}","Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#);
            self.file(&format!("{config}/contexts/meta/{folder}/meta.json"), &meta)
        }
        fn answer(&self) -> String {
            let at = self.dir.path().to_str().unwrap();
            match resolve(&self.env, &self.dir.path().join("usual.sock")) {
                Ok(text) => text.replace(at, "@"),
                Err(e) => e.to_string().replace(at, "@"),
            }
        }
    }

    #[test]
    fn the_files_of_tls_stand_behind_an_address() {
        let place = Place::new(&[]).file("c/cert.pem", "").file("c/key.pem", "");
        let dir = place.dir.path().join("c");
        let own = Some((dir.join("cert.pem"), dir.join("key.pem")));
        let text = |how: &str| format!("tcp://h:1{how}{}", dir.display());
        let verified = TlsFiles { ca: Some(dir.join("ca.pem")), own: own.clone(), unverified: false };
        assert_eq!(with_tls(&text(VERIFIED)), ("tcp://h:1", Some(verified)));
        assert_eq!(with_tls(&text(UNVERIFIED)), ("tcp://h:1", Some(TlsFiles { ca: None, own, unverified: true })));
        assert_eq!(with_tls("tcp://h:1"), ("tcp://h:1", None));
    }

    #[test]
    fn what_local_means() {
        let config = r#"{"currentContext":"mine"}"#;
        let cases: Vec<(&str, Place, &str)> =
            vec![
                ("nothing", Place::new(&[]), "unix://@/usual.sock"),
                ("host", Place::new(&[("DOCKER_HOST", "unix:///x.sock"), ("DOCKER_CONTEXT", "gone")]), "unix:///x.sock"),
                ("empty host", Place::new(&[("DOCKER_HOST", "")]), "unix://@/usual.sock"),
                ("bare unix", Place::new(&[("DOCKER_HOST", "unix://")]), "unix://@/usual.sock"),
                ("tcp", Place::new(&[("DOCKER_HOST", "tcp://h:1")]), "tcp://h:1"),
                ("tcp of the usual port", Place::new(&[("DOCKER_HOST", "tcp://h")]), "tcp://h:2375"),
                ("ssh", Place::new(&[("DOCKER_HOST", "ssh://h")]), "ssh://h"),
                (
                    "tcp with TLS",
                    Place::new(&[("DOCKER_HOST", "tcp://h:1"), ("DOCKER_TLS_VERIFY", "1"), ("HOME", "@/home")]),
                    "tcp://h:1?tls=@/home/.docker",
                ),
                (
                    "tcp with TLS of any daemon, with certificates elsewhere",
                    Place::new(&[("DOCKER_HOST", "tcp://h"), ("DOCKER_TLS", "1"), ("DOCKER_CERT_PATH", "@/c"), ("HOME", "@")]),
                    "tcp://h:2376?tls-unverified=@/c",
                ),
                (
                    "a socket is without TLS",
                    Place::new(&[("DOCKER_HOST", "unix:///x.sock"), ("DOCKER_TLS_VERIFY", "1"), ("HOME", "@/home")]),
                    "unix:///x.sock",
                ),
                (
                    "relative",
                    Place::new(&[("DOCKER_HOST", "unix://x")]),
                    "DOCKER_HOST is 'unix://x', which is none of unix:///PATH, tcp://HOST:PORT and ssh://[USER@]HOST[:PORT]",
                ),
                (
                    "context of the variable over the file's",
                    Place::new(&[("DOCKER_CONTEXT", "other"), ("HOME", "@/home")])
                        .file("home/.docker/config.json", config)
                        .context("home/.docker", "other", "unix:///other.sock"),
                    "unix:///other.sock",
                ),
                (
                    "current context",
                    Place::new(&[("HOME", "@/home")]).file("home/.docker/config.json", config).context(
                        "home/.docker",
                        "mine",
                        "unix:///mine.sock",
                    ),
                    "unix:///mine.sock",
                ),
                (
                    "DOCKER_CONFIG over HOME",
                    Place::new(&[("HOME", "@/home"), ("DOCKER_CONFIG", "@/cfg")])
                        .file("home/.docker/config.json", config)
                        .context("home/.docker", "mine", "unix:///mine.sock"),
                    "unix://@/usual.sock",
                ),
                (
                    "context over ssh",
                    Place::new(&[("HOME", "@/home"), ("DOCKER_CONTEXT", "far")]).context("home/.docker", "far", "ssh://me@far"),
                    "context:far",
                ),
                (
                    "a context that is none of ours",
                    Place::new(&[("HOME", "@/home"), ("DOCKER_CONTEXT", "odd")]).context("home/.docker", "odd", "npipe://x"),
                    "docker context 'odd' is 'npipe://x', which is none of unix:///PATH, tcp://HOST:PORT and ssh://HOST",
                ),
                ("no such context", Place::new(&[("HOME", "@/home"), ("DOCKER_CONTEXT", "x")]), "docker context 'x' not found"),
                (
                    "the default context by name",
                    Place::new(&[("HOME", "@/home"), ("DOCKER_CONTEXT", "default")]).file("home/.docker/config.json", config),
                    "unix://@/usual.sock",
                ),
                (
                    "a file that is no JSON",
                    Place::new(&[("DOCKER_CONFIG", "@/cfg")]).file("cfg/config.json", "{\"auths\": secret"),
                    "@/cfg/config.json:1:11: not JSON",
                ),
                ("rootless", Place::new(&[("XDG_RUNTIME_DIR", "@/run")]).file("run/docker.sock", ""), "unix://@/run/docker.sock"),
                (
                    "rootless beside the usual one",
                    Place::new(&[("XDG_RUNTIME_DIR", "@/run")]).file("run/docker.sock", "").file("usual.sock", ""),
                    "unix://@/usual.sock",
                ),
                ("no rootless", Place::new(&[("XDG_RUNTIME_DIR", "@/run")]), "unix://@/usual.sock"),
            ];
        for (name, place, expected) in cases {
            assert_eq!(place.answer(), expected, "{name}");
        }
    }
}
