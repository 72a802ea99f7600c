//! Entries of settings.yaml that are new, go, or come from ssh's configuration.
#![cfg(test)]

mod held;

use hmz_api::{Error, RuntimeRef};
use hmz_manifest::Context;
use hmz_manifest::settings::edit::Edited;
use hmz_manifest::settings::read;
use hmz_manifest::settings::saved::{Fields, SshHost, add, import, remove};
use serde_json::{Value, json};

fn context() -> Context {
    Context::new("/nowhere", Some("/home/me".into()))
}

fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => panic!("{value} is no mapping"),
    }
}

fn runtime(text: &str) -> RuntimeRef {
    text.parse().unwrap()
}

/// The new text, or the error's message.
fn new(done: Result<Edited, Error>) -> Result<String, String> {
    match done {
        Ok(Edited::Changed(text)) => {
            held::assert_valid("settings.json", &text);
            Ok(text)
        }
        Ok(Edited::Unchanged) => Ok("unchanged".into()),
        Err(e) => Err(e.message),
    }
}

fn added(text: &str, name: &str, value: Value) -> Result<String, String> {
    new(add(text, "s.yaml", &runtime(name), &fields(value), &context()))
}

const FILE: &str = "# mine\r\nruntimes:   # all of them\r\n  docker:\r\n    here: {endpoint: local}  # this one\r\n";

#[test]
fn an_entry_is_added_and_every_other_byte_stays() {
    let all = json!({
        "endpoint": "unix:///run/d.sock", "harness": "local", "image": "python:3.12-slim", "cpus": 4, "memory": "8G", "gpus": [0, 1],
        "run_args": ["--cap-add=SYS_PTRACE"], "fallback": ["docker:here"], "default_request": {"cpus": 0.5}, "exec_user": "1000:10",
        "exec_env": ["A=b c"]
    });
    let text = added(FILE, "docker/gpubox", all).unwrap();
    let line = "    gpubox: {endpoint: unix:///run/d.sock, harness: local, image: python:3.12-slim, cpus: 4, memory: 8G, gpus: \
                [0, 1], run_args: [\"--cap-add=SYS_PTRACE\"], fallback: [docker:here], default_request: {cpus: 0.5}, exec_user: \
                \"1000:10\", exec_env: [A=b c]}\r\n";
    assert_eq!(text, format!("{FILE}{line}"));
    let spec = read(&text, "s.yaml", &context()).unwrap().get(&runtime("docker:gpubox")).cloned().unwrap().unwrap();
    assert_eq!((spec.gpus, spec.exec_user.as_deref()), (vec!["0".to_owned(), "1".into()], Some("1000:10")));
    // and goes again
    assert_eq!(new(remove(&text, "s.yaml", &runtime("docker:gpubox"), &context())), Ok(FILE.into()));
    // where there is nothing yet, and where a name has a dot
    assert_eq!(added("", "docker:a.b", json!({})), Ok("runtimes:\n  docker:\n    a.b: {}\n".into()));
    let both = added(FILE, "ssh:far", json!({"host": "far.example"})).unwrap();
    assert_eq!(both, format!("{FILE}  ssh:\r\n    far: {{host: far.example}}\r\n"));
}

#[test]
fn what_cannot_be_added_is_refused_in_the_words_of_reading() {
    let swarm = "runtimes: {swarm: {c: {}}, ssh: {far: {host: far}}, docker: {typo: {cpsu: 4}, nothing: }}\n";
    for (text, name, value, said) in [
        (FILE, "docker:here", json!({}), "docker host 'here' already exists"),
        (swarm, "swarm:c", json!({}), "docker swarm 'c' already exists"),
        (swarm, "ssh:far", json!({"host": "far"}), "ssh host 'far' already exists"),
        // one that cannot be read, or says nothing, is never written over
        (swarm, "docker:typo", json!({}), "docker host 'typo' already exists"),
        (swarm, "docker:nothing", json!({}), "docker host 'nothing' already exists"),
        (FILE, "docker", json!({}), "docker names no saved runtime"),
        (FILE, "slurm:p", json!({}), "runtimes of slurm are not supported yet"),
        (FILE, "docker:x", json!({"cpus": -1}), "x: CPUs cannot be negative: -1"),
        (FILE, "docker:x", json!({"cpsu": 1}), "unknown field 'cpsu', did you mean 'cpus'?"),
        (FILE, "docker:x", json!({"memory": "8X"}), "'8X' must be a number and unit, such as 64G or 512M"),
        (
            FILE,
            "docker:x",
            json!({"exec_user": "me", "image": "a b"}),
            "x: invalid image 'a b'\nx: exec user 'me' is not UID[:GID]",
        ),
        (FILE, "ssh:x", json!({}), "x: an ssh host requires a hostname or an alias"),
    ] {
        assert_eq!(added(text, name, value), Err(said.into()), "{name}");
    }
    let broken = "runtimes: [\n";
    let error = add(broken, "s.yaml", &runtime("docker:x"), &Fields::new(), &context()).unwrap_err();
    assert!(error.message.starts_with("s.yaml:"), "{error}");
    let gone = remove(FILE, "s.yaml", &runtime("docker:gone"), &context()).unwrap_err();
    assert_eq!(gone.message, "there is no runtimes.docker.gone in s.yaml");
}

#[test]
fn hosts_of_ssh_are_imported_by_their_alias() {
    let host = |alias: &str, config: Option<&str>| SshHost { alias: alias.into(), config: config.map(str::to_owned) };
    let imported = |text: &str, host: &SshHost| new(import(text, "s.yaml", host, &context()));
    let one = imported("", &host("web", None)).unwrap();
    assert_eq!(one, "runtimes:\n  ssh:\n    web: {alias: web, made: imported}\n");
    assert_eq!(imported(&one, &host("web", None)), Ok("unchanged".into()));
    // what was added to it since stays
    let more = one.replace("web: {alias: web, ", "web: {alias: web, workdir: /w, harness: local, ");
    let moved = imported(&more, &host("web", Some("/etc/far"))).unwrap();
    assert_eq!(moved, more.replace("imported}", "imported, config: /etc/far}"));
    assert_eq!(imported(&moved, &host("web", None)), Ok(more));
    // names
    let two = imported(&one, &host("a%b", None)).unwrap();
    assert!(two.ends_with("    a-b: {alias: \"a%b\", made: imported}\n"), "{two}");
    let cannot = |text: &str, alias: &str| imported(text, &host(alias, None)).unwrap_err();
    assert_eq!(cannot(&two, "a+b"), "a+b cannot be imported: a%b is imported as a-b");
    assert_eq!(cannot("", "__"), "__ cannot be imported: it has no name");
    let typed = "runtimes: {ssh: {web: {host: web.example}}}\n";
    assert_eq!(cannot(typed, "web"), "web cannot be imported: web was typed in, and an import does not write over it");
}
