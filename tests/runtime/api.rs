//! The same by the daemon's API.

use super::{daemon, file, text};
use crate::support::home::{SETTINGS, TestHome};
use crate::support::{LIMIT, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Status and body of the answer to one request.
fn call(home: &TestHome, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let dirs = std::fs::read_dir(home.root().join("run/hmz")).unwrap();
    let socket = dirs.flatten().map(|dir| dir.path().join("api.sock")).find(|socket| socket.exists()).expect("a daemon's socket");
    let mut stream = UnixStream::connect(socket).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: hmz\r\nConnection: close\r\nContent-Type: application/json");
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}")))
}

#[test]
fn a_runtime_is_added_asked_and_removed() {
    let mut home = TestHome::new();
    // it has to be there between the requests
    home.set("HMZ_IDLE", "600");
    let _ = home.hmz(["get", "runtimes"]).run().ok();
    let add = |fields: Value| {
        call(&home, "POST", "/v1/settings/runtimes", &json!({"runtime": "docker:api", "fields": fields, "detect": true}))
    };
    let (status, refused) = add(json!({"cpsu": 1}));
    assert_eq!((status, &refused["message"]), (422, &"unknown field 'cpsu', did you mean 'cpus'?".into()));
    let (status, added) = add(json!({"endpoint": "local", "memory": "1G"}));
    assert_eq!((status, &added["path"], &added["checked"]["state"]), (200, &file(&home).into(), &"Answers".into()), "{added}");
    let cpus = added["detected"]["cpus"].as_u64().unwrap();
    assert!(daemon().contains(&format!("; {cpus} CPUs, ")));
    assert_eq!(text(&home), format!("{SETTINGS}    api: {{endpoint: local, memory: 1G, cpus: {cpus}}}\n"));
    assert_eq!(add(json!({})).1["message"], "docker host 'api' already exists");
    // the daemon follows the file
    eventually("the runtime", LIMIT, || {
        home.hmz(["get", "runtimes", "-o", "name"]).run().ok().out().contains("runtime/docker:api\n").then_some(())
    });
    for name in ["api", "docker:api", "docker%2Fapi"] {
        let (status, checked) = call(&home, "POST", &format!("/v1/Runtime/{name}/check"), &json!({}));
        assert_eq!(
            (status, &checked["state"], &checked["has"]["cpus"]),
            (200, &"Answers".into(), &cpus.into()),
            "{name}: {checked}"
        );
    }
    assert_eq!(call(&home, "POST", "/v1/Runtime/docker:none/check", &json!({})).0, 404);
    let (status, removed) = call(&home, "DELETE", "/v1/settings/runtimes/docker:api", &Value::Null);
    assert_eq!((status, &removed["dangling"]), (200, &json!([])), "{removed}");
    assert_eq!(text(&home), SETTINGS);
    assert_eq!(call(&home, "DELETE", "/v1/settings/runtimes/docker:api", &Value::Null).0, 404);
}

#[test]
fn hosts_of_ssh_are_listed_and_imported() {
    let mut home = TestHome::new();
    home.set("HMZ_IDLE", "600");
    std::fs::create_dir(home.home().join(".ssh")).unwrap();
    std::fs::write(home.home().join(".ssh/config"), "Host one two\n").unwrap();
    let _ = home.hmz(["get", "runtimes"]).run().ok();
    let hosts = || call(&home, "GET", "/v1/settings/ssh-hosts", &Value::Null);
    assert_eq!(hosts(), (200, json!([{"alias": "one"}, {"alias": "two"}])));
    let import = |names: Value| call(&home, "POST", "/v1/settings/ssh-hosts", &json!({"names": names}));
    let (status, refused) = import(json!(["three"]));
    assert_eq!((status, &refused["message"]), (422, &"ssh config has no host three".into()));
    let (status, imported) = import(json!(["two"]));
    assert_eq!((status, &imported["hosts"], &imported["left"]), (200, &json!([["ssh:two", "created"]]), &json!([])));
    assert_eq!(hosts().1, json!([{"alias": "one"}, {"alias": "two", "saved": "ssh:two"}]));
}
