//! `hmz runtime add`: the flags as settings, saved and asked about.

use super::{Place, code, tell};
use crate::cli::{Add, AddBackend, AddDocker, AddSsh, AddSwarm, CheckOutput, Common, Daemon};
use crate::{edge, show};
use hmz_api::rest::{AddRuntime, CheckState};
use hmz_api::{Backend, Error, RuntimeRef};
use serde_json::{Map, Number, Value};
use std::path::Path;
use std::process::ExitCode;

pub(super) async fn run(place: &Place, args: Add) -> Result<ExitCode, Error> {
    let (backend, common, detect, fields) = match &args.backend {
        AddBackend::Docker(args) => (Backend::Docker, &args.common, args.daemon.detect, docker(args)?),
        AddBackend::Swarm(args) => (Backend::Swarm, &args.common, args.daemon.detect, swarm(args)?),
        AddBackend::Ssh(args) => (Backend::Ssh, &args.common, false, ssh(args)?),
        AddBackend::Other(words) => return Err(no_backend(words)),
    };
    RuntimeRef::check_name(&common.name)?;
    let runtime = RuntimeRef::named(backend, common.name.clone());
    let added = place.saved.add(AddRuntime { runtime, fields, detect, docker_endpoint: None }).await?;
    if common.output == Some(CheckOutput::Json) {
        show::print(&show::json_line(&added)?);
        return Ok(ended(added.checked.state, code(&added.checked)));
    }
    let path = added.checked.runtime.path();
    show::print(&format!("{path} saved in {}\n", added.path));
    if !added.detected.is_empty() {
        let found: Vec<String> = added.detected.iter().map(|(field, value)| format!("{field}: {}", plain(value))).collect();
        show::print(&format!("{path} detected: {}\n", found.join(", ")));
    }
    if added.checked.state == CheckState::NotAsked {
        show::note("runtime add", &format!("{path} is not asked what it has: {}", added.checked.why));
        return Ok(ExitCode::SUCCESS);
    }
    tell(&added.checked, None)?;
    if added.checked.state == CheckState::NoAnswer {
        let text = if detect { "nothing was detected; it is saved all the same" } else { "it is saved all the same" };
        show::note("runtime add", &format!("{text}; to ask again: hmz runtime check {path}"));
    }
    Ok(code(&added.checked))
}

/// It is saved: not being asked is no failure.
fn ended(state: CheckState, code: ExitCode) -> ExitCode {
    if state == CheckState::NotAsked { ExitCode::SUCCESS } else { code }
}

fn no_backend(words: &[std::ffi::OsString]) -> Error {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    match Backend::from_word(&word) {
        Some(backend @ (Backend::AppleContainer | Backend::Slurm)) => {
            Error::usage(format!("runtimes of {backend} are not supported yet"))
        }
        _ => Error::usage(format!("'{word}' is not a runtime backend: ssh, docker, swarm, apple-container, slurm")),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The settings that were said, in the order of the file.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn text(&mut self, field: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.0.insert(field.into(), value.clone().into());
        }
    }

    /// A number where it is one; anything else is refused by who reads it.
    fn number(&mut self, field: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.0.insert(field.into(), number(value));
        }
    }

    fn list(&mut self, field: &str, values: &[String]) {
        if !values.is_empty() {
            self.0.insert(field.into(), Value::Array(values.iter().cloned().map(Value::String).collect()));
        }
    }

    fn pairs(&mut self, field: &str, form: &str, values: &[String], read: fn(&str) -> Value) -> Result<(), Error> {
        let mut map = Map::new();
        for text in values {
            let wrong = || Error::usage(format!("{field}: '{text}' is not {form}"));
            let (key, value) = text.split_once('=').ok_or_else(wrong)?;
            map.insert(key.trim().into(), read(value));
        }
        if !map.is_empty() {
            self.0.insert(field.into(), Value::Object(map));
        }
        Ok(())
    }

    /// A path of the command line, which begins where it was typed.
    fn path(&mut self, field: &str, value: Option<&Path>) -> Result<(), Error> {
        let Some(value) = value else { return Ok(()) };
        let absolute = if value.starts_with("~") {
            value.to_owned()
        } else {
            std::path::absolute(value).map_err(|e| edge::io(field, &e))?
        };
        let text =
            absolute.into_os_string().into_string().map_err(|_| Error::usage(format!("{field}: a path has to be UTF-8")))?;
        self.0.insert(field.into(), text.into());
        Ok(())
    }

    fn common_head(&mut self, common: &Common) {
        self.text("harness", common.harness.as_ref());
    }

    fn common_tail(&mut self, common: &Common) {
        self.text("workdir", common.workdir.as_ref());
        self.list("fallback", &common.fallback);
    }

    fn daemon_head(&mut self, daemon: &Daemon) -> Result<(), Error> {
        self.text("endpoint", daemon.endpoint.as_ref());
        self.path("tls_dir", daemon.tls_dir.as_deref())
    }

    fn daemon_tail(&mut self, daemon: &Daemon) -> Result<(), Error> {
        self.pairs("default_request", "KEY=VALUE", &daemon.default_request, number)?;
        self.number("lease", daemon.lease.as_ref());
        Ok(())
    }

    fn box_fields(&mut self, daemon: &Daemon) {
        self.list("run_args", &daemon.run_args);
        self.text("name_prefix", daemon.name_prefix.as_ref());
        self.number("cpus", daemon.cpus.as_ref());
        self.number("memory", daemon.memory.as_ref());
    }
}

/// A number as such, where the text is exactly one.
fn number(text: &str) -> Value {
    let number: Option<Number> = text.trim().parse().ok();
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn docker(args: &AddDocker) -> Result<Map<String, Value>, Error> {
    let mut fields = Fields::default();
    fields.daemon_head(&args.daemon)?;
    fields.common_head(&args.common);
    fields.text("container", args.container.as_ref());
    fields.text("exec_user", args.exec_user.as_ref());
    fields.list("exec_env", &args.exec_env);
    fields.list("exec_wrapper", &args.exec_wrapper);
    fields.text("image", args.daemon.image.as_ref());
    fields.text("runtime", args.runtime.as_ref());
    fields.box_fields(&args.daemon);
    if !args.gpus.is_empty() {
        let ids = args.gpus.iter().map(|id| number(id.trim())).collect();
        fields.0.insert("gpus".into(), Value::Array(ids));
    }
    fields.number("gpu_memory", args.gpu_memory.as_ref());
    fields.number("max_containers", args.max_containers.as_ref());
    fields.daemon_tail(&args.daemon)?;
    fields.common_tail(&args.common);
    Ok(fields.0)
}

fn swarm(args: &AddSwarm) -> Result<Map<String, Value>, Error> {
    let mut fields = Fields::default();
    fields.daemon_head(&args.daemon)?;
    fields.common_head(&args.common);
    fields.text("image", args.daemon.image.as_ref());
    fields.box_fields(&args.daemon);
    fields.daemon_tail(&args.daemon)?;
    fields.common_tail(&args.common);
    fields.number("gpu_memory", args.gpu_memory.as_ref());
    fields.text("gpu_resource", args.gpu_resource.as_ref());
    fields.list("constraints", &args.constraints);
    fields.number("max_tasks", args.max_tasks.as_ref());
    fields.pairs("nodes", "HOSTNAME=SSH-HOST", &args.nodes, text)?;
    Ok(fields.0)
}

fn ssh(args: &AddSsh) -> Result<Map<String, Value>, Error> {
    let mut fields = Fields::default();
    fields.text("host", args.host.as_ref());
    fields.text("alias", args.alias.as_ref());
    fields.text("user", args.user.as_ref());
    fields.number("port", args.port.as_ref());
    fields.text("identity_file", args.identity_file.as_ref());
    fields.text("proxy_jump", args.proxy_jump.as_ref());
    fields.pairs("options", "KEYWORD=VALUE", &args.options, text)?;
    fields.path("config", args.config.as_deref())?;
    fields.common_head(&args.common);
    fields.common_tail(&args.common);
    Ok(fields.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, RuntimeAction, Verb};
    use clap::Parser;
    use hmz_api::kinds::RuntimeSpec;

    fn fields(words: &str) -> Map<String, Value> {
        let words = ["hmz", "runtime", "add"].into_iter().chain(words.split_whitespace());
        let Verb::Runtime(runtime) = Cli::try_parse_from(words).unwrap().verb else { panic!("another verb") };
        let RuntimeAction::Add(add) = runtime.action else { panic!("another action") };
        match &add.backend {
            AddBackend::Docker(args) => docker(args),
            AddBackend::Swarm(args) => swarm(args),
            AddBackend::Ssh(args) => ssh(args),
            AddBackend::Other(words) => Err(no_backend(words)),
        }
        .unwrap()
    }

    /// Every field of a backend has a flag.
    #[test]
    fn each_field_has_its_flag_and_they_are_in_the_order_of_the_file() {
        let daemon = "--endpoint tcp://h:1 --tls-dir /t --harness local --image i --run-arg --init --name-prefix p --cpus 4 --memory \
                      8G --default-request cpus=1,memory=2G --lease 2m --workdir /w --fallback docker:a,ssh:b";
        let docker = format!(
            "docker x {daemon} --container c --exec-user 1:2 --exec-env A=b --exec-wrapper nice --exec-wrapper -n5 --runtime nvidia \
             --gpus 0,GPU-1 --gpu-memory 80G --max-containers 2"
        );
        let swarm = format!(
            "swarm x {daemon} --gpu-memory 80G --gpu-resource GPU --constraint node.role==worker --max-tasks 3 --node a=far --node b=me@b:22"
        );
        let ssh = "ssh x --host h --alias a --user u --port 22 --identity-file ~/.ssh/id --proxy-jump j --option Compression=yes \
                   --config /c --harness local --workdir /w --fallback docker:a";
        for (backend, words) in [(Backend::Docker, docker.as_str()), (Backend::Swarm, &swarm), (Backend::Ssh, ssh)] {
            let fields = fields(words);
            assert_eq!(fields.keys().map(String::as_str).collect::<Vec<_>>(), RuntimeSpec::fields(backend), "{backend}");
            insta::assert_json_snapshot!(format!("fields_of_{backend}"), fields);
        }
        assert_eq!(
            fields("docker x --cpus 0.5 --memory 1024"),
            *serde_json::json!({"cpus": 0.5, "memory": 1024}).as_object().unwrap()
        );
        assert_eq!(fields("docker x"), Map::new());
    }

    #[test]
    fn another_backend_is_told_what_there_is() {
        let said = |word: &str| no_backend(&[word.into()]).message;
        assert_eq!(said("podman"), "'podman' is not a runtime backend: ssh, docker, swarm, apple-container, slurm");
        assert_eq!(said("slurm"), "runtimes of slurm are not supported yet");
    }
}
