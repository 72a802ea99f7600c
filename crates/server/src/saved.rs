//! What is done to a saved runtime beside using it: it is added to settings.yaml and its daemon asked, asked again, removed, or
//! imported from ssh's configuration. The same for a verb in its own process and for the API: none of it needs the store.

mod detect;
mod references;
mod ssh_config;

use crate::paths::Paths;
use crate::settings::SettingsFile;
use crate::world;
use async_trait::async_trait;
use hmz_api::clock::SystemClock;
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_api::rest::{
    AddRuntime, AddedRuntime, Applied, CheckState, Checked, DaemonHas, FoundSshHost, ImportSsh, ImportedSsh, RemovedRuntime,
};
use hmz_api::{Backend, Error, ErrorKind, RuntimeRef};
use hmz_controllers::environment::plan::DEFAULT_IMAGE;
use hmz_drivers::docker::{self, DockerDriver, Limits, SavedHosts};
use hmz_drivers::swarm::SwarmDriver;
use hmz_drivers::{Driver, DriverError, Facts, Target, lacking, ssh};
use hmz_manifest::settings::edit::Edited;
use hmz_manifest::settings::saved::{self, SshHost};
use hmz_manifest::settings::{self, Settings, file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a daemon may take to say what it has, and what its GPUs say.
const CHECKING: Duration = Duration::from_secs(25);

/// The runtimes of one HMZ_HOME's settings.yaml, and the ways to ask their daemons.
#[derive(Clone)]
pub struct SavedRuntimes {
    file: SettingsFile,
    env: BTreeMap<String, String>,
    docker: Arc<DockerDriver>,
    /// After the driver, whose ssh has its sockets there.
    _sockets: Arc<Sockets>,
}

/// A directory of this process's own, which is made when it is needed and gone with it.
struct Sockets(PathBuf);

impl Drop for Sockets {
    fn drop(&mut self) {
        // it is seldom there at all
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The ssh hosts of settings.yaml as it is now, which endpoints of docker runtimes name.
struct Hosts(SettingsFile);

#[async_trait]
impl SavedHosts for Hosts {
    async fn find(&self, name: &str) -> Option<RuntimeSpec> {
        let (file, host) = (self.0.clone(), RuntimeRef::named(Backend::Ssh, name));
        let found = blocking(move || {
            let text = file::read_text(&file.path)?.unwrap_or_default();
            spec_in(&settings::read(&text, &file.path.display().to_string(), &file.context)?, &host)
        });
        found.await.ok().flatten()
    }
}

/// What a daemon said, or how it did not.
type Said = Result<Facts, (CheckState, String)>;

impl SavedRuntimes {
    /// Those of these paths. `env` says what `~` and endpoint `local` are.
    pub fn new(paths: &Paths, env: &BTreeMap<String, String>) -> Self {
        // longer than all of the question may take, whose end is told in its own words
        let limits = Limits { call: CHECKING * 2, ..Limits::default() };
        let file = world::settings_file(paths, env);
        let sockets = paths.runtime.join(format!("k{}", std::process::id()));
        // nothing is made here, so nothing will carry an instance or hold a guest
        let hosts = Arc::new(Hosts(file.clone()));
        let who = world::identity("", env, sockets.clone(), PathBuf::new(), hosts, Arc::new(SystemClock));
        let docker = Arc::new(DockerDriver::with_limits(who, limits));
        Self { file, env: env.clone(), docker, _sockets: Arc::new(Sockets(sockets)) }
    }

    fn path(&self) -> String {
        self.file.path.display().to_string()
    }

    fn text(&self) -> Result<String, Error> {
        Ok(file::read_text(&self.file.path)?.unwrap_or_default())
    }

    fn read(&self, text: &str) -> Result<Settings, Error> {
        Ok(settings::read(text, &self.path(), &self.file.context)?)
    }

    /// Which runtime is meant: `docker/gpubox` in any of its spellings, `docker` for the default, or the name alone where one
    /// is saved by it.
    ///
    /// # Errors
    /// When it is none, or the name alone is not enough.
    pub fn named(&self, typed: &str) -> Result<RuntimeRef, Error> {
        if typed.contains([':', '@', '/']) || Backend::from_word(typed).is_some() {
            return typed.parse();
        }
        RuntimeRef::check_name(typed)?;
        let settings = self.read(&self.text()?)?;
        let saved: Vec<&RuntimeRef> = settings.runtimes.iter().map(|(runtime, _)| runtime).collect();
        let of_name: Vec<&RuntimeRef> = saved.iter().copied().filter(|r| r.name.as_deref() == Some(typed)).collect();
        match of_name.as_slice() {
            [one] => Ok((*one).clone()),
            [] => {
                let near = hmz_manifest::nearest(typed, saved.iter().filter_map(|r| r.name.as_deref()));
                let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
                Err(Error::not_found(format!("no runtime is saved as '{typed}'{near}"))
                    .hint(format!("hmz runtime add docker {typed}")))
            }
            several => {
                let names: Vec<String> = several.iter().map(|r| r.path()).collect();
                Err(Error::usage(format!("'{typed}' is saved as {}: say which", names.join(" and "))))
            }
        }
    }

    /// Saves one more runtime and asks its daemon.
    ///
    /// # Errors
    /// When it is saved already, when a field is wrong, or when the file cannot be changed; then nothing is saved. A daemon that
    /// does not answer is no error.
    pub async fn add(&self, request: AddRuntime) -> Result<AddedRuntime, Error> {
        let AddRuntime { runtime, mut fields, detect, docker_endpoint } = request;
        if detect && fields.get("container").is_some_and(|c| !c.is_null() && c != "") {
            return Err(Error::usage("a runtime that works in a running container hands out nothing that could be detected"));
        }
        // what is refused is refused before anybody is asked
        let spec = self.tried(&runtime, &fields).await?;
        let mut detected = saved::Fields::new();
        let mut said = None;
        if detect {
            let answer = self.ask(&runtime, &spec, docker_endpoint.as_deref()).await;
            if let Ok(facts) = &answer {
                detected = detect::fields(runtime.backend, &fields, facts);
                fields.extend(detected.clone());
            }
            said = Some(answer);
        }
        let (this, name, written) = (self.clone(), runtime.clone(), fields.clone());
        blocking(move || {
            let origin = this.path();
            file::change(&this.file.path, |text| saved::add(text, &origin, &name, &written, &this.file.context))
        })
        .await?;
        let spec = self.spec(&runtime).await?.unwrap_or(spec);
        let said = match said {
            Some(said) => said,
            None => self.ask(&runtime, &spec, docker_endpoint.as_deref()).await,
        };
        Ok(AddedRuntime { path: self.path(), detected, checked: judged(runtime, &spec, said) })
    }

    /// The spec an entry would be read as.
    async fn tried(&self, runtime: &RuntimeRef, fields: &saved::Fields) -> Result<RuntimeSpec, Error> {
        let (this, runtime, fields) = (self.clone(), runtime.clone(), fields.clone());
        blocking(move || {
            let text = this.text()?;
            match saved::add(&text, &this.path(), &runtime, &fields, &this.file.context)? {
                Edited::Changed(text) => Ok(spec_in(&this.read(&text)?, &runtime)?.unwrap_or_default()),
                Edited::Unchanged => Ok(RuntimeSpec::default()),
            }
        })
        .await
    }

    /// What is saved of a runtime; `None` when nothing is.
    async fn spec(&self, runtime: &RuntimeRef) -> Result<Option<RuntimeSpec>, Error> {
        let (this, runtime) = (self.clone(), runtime.clone());
        blocking(move || spec_in(&this.read(&this.text()?)?, &runtime)).await
    }

    /// Asks a saved runtime's daemon, or the default's with nothing saved; `None` when it is not saved.
    ///
    /// # Errors
    /// When settings.yaml, or its entry, cannot be read.
    pub async fn check(&self, runtime: &RuntimeRef, docker_endpoint: Option<&str>) -> Result<Option<Checked>, Error> {
        let spec = match runtime.name {
            Some(_) => self.spec(runtime).await?,
            None => Some(RuntimeSpec::of(runtime.backend)),
        };
        let Some(spec) = spec else { return Ok(None) };
        Ok(Some(self.check_as(runtime, &spec, docker_endpoint).await))
    }

    /// The same for a runtime that was declared elsewhere.
    pub async fn check_as(&self, runtime: &RuntimeRef, spec: &RuntimeSpec, docker_endpoint: Option<&str>) -> Checked {
        judged(runtime.clone(), spec, self.ask(runtime, spec, docker_endpoint).await)
    }

    async fn ask(&self, runtime: &RuntimeRef, spec: &RuntimeSpec, docker_endpoint: Option<&str>) -> Said {
        if !matches!(runtime.backend, Backend::Docker | Backend::Swarm | Backend::Ssh) {
            return Err((CheckState::NotAsked, format!("asking {}s is not supported yet", runtime.backend.noun())));
        }
        let local_endpoint = match (&spec.endpoint, docker_endpoint) {
            (Endpoint::Local, Some(endpoint)) => Some(endpoint.to_owned()),
            (Endpoint::Local, None) => Some(docker::resolve_local(&self.env).map_err(|e| unasked(runtime, e))?),
            _ => None,
        };
        let target = Target { runtime: runtime.clone(), spec: spec.clone(), local_endpoint };
        let asked = async {
            match runtime.backend {
                Backend::Ssh => ssh::probe(&target).await,
                Backend::Swarm => SwarmDriver::new(Arc::clone(&self.docker)).probe(&target).await,
                _ => self.docker.probe(&target).await,
            }
        };
        let deadline = tokio::time::Instant::now() + CHECKING;
        let mut facts = match tokio::time::timeout_at(deadline, asked).await {
            Ok(answer) => answer.map_err(|e| unasked(runtime, e))?,
            Err(_) => return Err((CheckState::NoAnswer, format!("it did not answer within {}s", CHECKING.as_secs()))),
        };
        // what its GPUs say is more than what it says: without them it answers all the same
        let image = spec.image.as_deref().unwrap_or(DEFAULT_IMAGE);
        let lists = !spec.gpus.is_empty() || facts.gpus.as_ref().is_some_and(|ids| !ids.is_empty());
        if lists
            && runtime.backend == Backend::Docker
            && let Ok(Ok(answers)) = tokio::time::timeout_at(deadline, self.docker.gpus(&target, image)).await
        {
            facts.gpu_answers = answers;
        }
        Ok(facts)
    }

    /// Takes a runtime out of settings.yaml.
    ///
    /// # Errors
    /// `NotFound` when it is not saved; when the file cannot be changed.
    pub async fn remove(&self, runtime: &RuntimeRef) -> Result<RemovedRuntime, Error> {
        let (this, runtime) = (self.clone(), runtime.clone());
        blocking(move || {
            let origin = this.path();
            let mut left = String::new();
            let done = file::change(&this.file.path, |text| {
                let edited = saved::remove(text, &origin, &runtime, &this.file.context)?;
                if let Edited::Changed(text) = &edited {
                    left.clone_from(text);
                }
                Ok(edited)
            });
            done.map_err(|e| if e.kind == ErrorKind::NotFound { not_saved(&runtime) } else { e })?;
            let dangling = this.read(&left).map(|settings| references::to(&settings, &runtime)).unwrap_or_default();
            Ok(RemovedRuntime { runtime, path: origin, dangling })
        })
        .await
    }

    /// The hosts of ssh's configuration.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn ssh_hosts(&self, config: Option<&str>) -> Result<Vec<FoundSshHost>, Error> {
        let (this, config) = (self.clone(), config.map(str::to_owned));
        blocking(move || {
            let settings = this.read(&this.text()?)?;
            let saved = |host: &SshHost| host.runtime().filter(|runtime| settings.get(runtime).is_some());
            let hosts = this.found(config.as_deref())?;
            Ok(hosts.iter().map(|host| FoundSshHost { alias: host.alias.clone(), saved: saved(host) }).collect())
        })
        .await
    }

    /// Saves hosts of ssh's configuration, all in one change.
    ///
    /// # Errors
    /// When it has no host of a name that was asked for, or one of them cannot be imported; then none is.
    pub async fn import(&self, request: ImportSsh) -> Result<ImportedSsh, Error> {
        let this = self.clone();
        blocking(move || {
            let mut hosts = this.found(request.config.as_deref())?;
            let missing: Vec<&str> =
                request.names.iter().filter(|name| !hosts.iter().any(|h| h.alias == **name)).map(String::as_str).collect();
            if !missing.is_empty() {
                return Err(Error::refused(format!("ssh config has no host {}", missing.join(", "))));
            }
            let chosen = !request.names.is_empty();
            hosts.retain(|host| !chosen || request.names.contains(&host.alias));
            let origin = this.path();
            let (mut done, mut left) = (Vec::new(), Vec::new());
            file::change(&this.file.path, |before| {
                (done, left) = (Vec::new(), Vec::new());
                let mut text = before.to_owned();
                for host in &hosts {
                    let runtime = host.runtime();
                    let new = runtime.as_ref().is_some_and(|r| !is_there(&text, &origin, r));
                    match (saved::import(&text, &origin, host, &this.file.context), runtime) {
                        (Ok(edited), Some(runtime)) => {
                            let word = match (edited, new) {
                                (Edited::Unchanged, _) => Applied::Unchanged,
                                (Edited::Changed(changed), new) => {
                                    text = changed;
                                    if new { Applied::Created } else { Applied::Configured }
                                }
                            };
                            done.push((runtime, word));
                        }
                        // of all there are, one that cannot be is no reason to leave the others
                        (Err(e), _) if !chosen && e.kind == ErrorKind::Refused => left.push(e.message),
                        (Err(e), _) if !chosen && host_is_odd(host) => left.push(e.message),
                        (Err(e), _) => return Err(e),
                        (Ok(_), None) => {}
                    }
                }
                Ok(if text == before { Edited::Unchanged } else { Edited::Changed(text) })
            })?;
            Ok(ImportedSsh { path: origin, hosts: done, left })
        })
        .await
    }

    fn found(&self, config: Option<&str>) -> Result<Vec<SshHost>, Error> {
        let home = self.file.context.home.clone().unwrap_or_else(|| PathBuf::from("/"));
        let own = home.join(".ssh/config");
        let read = config.map_or(own.as_path(), Path::new);
        let unread = |e: std::io::Error| Error::failed(format!("The ssh config could not be read: {}: {e}", read.display()));
        let other = (read != own).then(|| read.display().to_string());
        let names = ssh_config::hosts(read, &home).map_err(unread)?;
        Ok(names.into_iter().map(|alias| SshHost { alias, config: other.clone() }).collect())
    }
}

/// Whether ssh would not take it as a destination on a command line either.
fn host_is_odd(host: &SshHost) -> bool {
    !hmz_api::kinds::is_ssh_word(&host.alias)
}

fn is_there(text: &str, origin: &str, runtime: &RuntimeRef) -> bool {
    saved::place(runtime).and_then(|path| settings::edit::get(text, origin, &path)).is_ok_and(|found| found.is_some())
}

fn not_saved(runtime: &RuntimeRef) -> Error {
    let name = runtime.name.as_deref().unwrap_or_default();
    Error::not_found(format!("no {} runtime is saved as '{name}'", runtime.backend))
}

fn spec_in(settings: &Settings, runtime: &RuntimeRef) -> Result<Option<RuntimeSpec>, Error> {
    match settings.get(runtime) {
        None => Ok(None),
        Some(Ok(spec)) => Ok(Some(spec.clone())),
        Some(Err(report)) => Err(report.clone().into()),
    }
}

/// Why a daemon said nothing; whose it is is said already.
fn unasked(runtime: &RuntimeRef, error: DriverError) -> (CheckState, String) {
    let why = match error {
        DriverError::Unreachable { why, .. } => why,
        other => other.to_string(),
    };
    let at = runtime.at();
    let own = why.strip_prefix(&format!("could not connect to {at}: ")).or_else(|| why.strip_prefix(&format!("{at}: ")));
    (CheckState::NoAnswer, own.unwrap_or(&why).to_owned())
}

fn judged(runtime: RuntimeRef, spec: &RuntimeSpec, said: Said) -> Checked {
    match said {
        Err((state, why)) => Checked { runtime, state, why, has: None, lacks: Vec::new() },
        Ok(facts) => {
            let lacks = lacking(spec, &facts);
            let state = if lacks.is_empty() { CheckState::Answers } else { CheckState::Lacks };
            let Facts { version, cpus, memory, gpus, gpu_memory, home, runtimes, nodes, .. } = facts;
            let has = Some(DaemonHas { version, cpus, memory, gpus, gpu_memory, home, runtimes, nodes });
            Checked { runtime, state, why: String::new(), has, lacks }
        }
    }
}

/// Reading and replacing a file, and waiting for its lock, beside whatever else this process does.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(Error::new(ErrorKind::Internal, e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtimes() -> (tempfile::TempDir, SavedRuntimes) {
        let dir = tempfile::tempdir().unwrap();
        let said = |name: &str| (name.to_owned(), dir.path().display().to_string());
        let env = BTreeMap::from([said("HOME"), said("HMZ_HOME"), said("XDG_RUNTIME_DIR")]);
        let paths = Paths::from_env(&env).unwrap();
        let saved = SavedRuntimes::new(&paths, &env);
        (dir, saved)
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_never_answers_is_waited_for_so_long() {
        let (dir, saved) = runtimes();
        let socket = dir.path().join("d.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let accepted = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        let spec = RuntimeSpec { endpoint: Endpoint::Unix(socket.display().to_string()), ..RuntimeSpec::default() };
        let checked = saved.check_as(&RuntimeRef::named(Backend::Docker, "x"), &spec, None).await;
        assert_eq!((checked.state, checked.why.as_str()), (CheckState::NoAnswer, "it did not answer within 25s"));
        accepted.abort();
    }

    #[test]
    fn whose_answer_it_is_is_said_once() {
        let runtime = RuntimeRef::named(Backend::Docker, "x");
        let why = |error| unasked(&runtime, error).1;
        assert_eq!(why(DriverError::Unreachable { at: "docker@x".into(), why: "refused".into() }), "refused");
        assert_eq!(why(DriverError::Refused("could not connect to docker@x: no ca.pem".into())), "no ca.pem");
        assert_eq!(
            why(DriverError::Refused("docker@x: ssh:far: ssh host 'far' not found".into())),
            "ssh:far: ssh host 'far' not found"
        );
        assert_eq!(why(DriverError::Refused("docker context 'y' not found".into())), "docker context 'y' not found");
    }

    #[tokio::test]
    async fn a_name_alone_is_enough_where_one_is_saved_by_it() {
        let (_dir, saved) = runtimes();
        let text = "runtimes:\n  docker: {here: {}, both: {}, typo: {cpsu: 1}}\n  ssh: {both: {host: h}}\n";
        std::fs::write(&saved.file.path, text).unwrap();
        let named = |typed: &str| saved.named(typed).map(|r| r.path()).map_err(|e| e.message);
        for (typed, path) in [
            ("here", "docker/here"),
            ("typo", "docker/typo"),
            ("docker", "docker"),
            ("ssh@both", "ssh/both"),
            ("docker:no", "docker/no"),
        ] {
            assert_eq!(named(typed).as_deref(), Ok(path));
        }
        for (typed, said) in [
            ("both", "'both' is saved as docker/both and ssh/both: say which"),
            ("hree", "no runtime is saved as 'hree'; did you mean 'here'?"),
            ("podman/x", "'podman' is not a backend; one of local, ssh, docker, swarm, apple-container, slurm"),
        ] {
            assert_eq!(named(typed).unwrap_err(), said);
        }
        // an entry that cannot be read is no entry that is not there
        let typo = saved.check(&RuntimeRef::named(Backend::Docker, "typo"), None).await.unwrap_err();
        assert!(typo.message.contains("unknown field 'cpsu', did you mean 'cpus'?"), "{typo}");
        assert_eq!(saved.check(&RuntimeRef::named(Backend::Docker, "no"), None).await, Ok(None));
    }
}
