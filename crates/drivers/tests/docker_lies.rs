//! Daemons that do not answer or answer oddly, played by a socket of the test's own.

#![allow(clippy::unwrap_used)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::Corner;
use hmz_api::kinds::Endpoint;
use hmz_api::{Cpus, Memory};
use hmz_drivers::docker::Limits;
use hmz_drivers::{Driver, DriverError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

fn at(socket: &str) -> Corner {
    let mut c = Corner::new(Default::default());
    c.target.spec.endpoint = Endpoint::Unix(c.dir.path().join(socket).display().to_string());
    c
}

fn quick() -> Limits {
    Limits { call: Duration::from_millis(300), ..Limits::default() }
}

/// Answers each request with `answers(path)`; a `None` is never answered.
fn play(c: &Corner, answers: impl Fn(&str) -> Option<&'static str> + Send + Sync + Copy + 'static) {
    play_whole(c, move |request| answers(request.split(' ').nth(1).unwrap_or_default()));
}

/// As [`play`], and `answers` is given the whole request.
fn play_whole(c: &Corner, answers: impl Fn(&str) -> Option<&'static str> + Send + Sync + Clone + 'static) {
    let listener = UnixListener::bind(c.dir.path().join("d.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answers = answers.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 65536];
                let n = stream.read(&mut buffer).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&buffer[..n]).into_owned();
                match answers(&request) {
                    Some(body) => {
                        let status = match body {
                            _ if body.contains("No such image") => "404 Not Found",
                            _ if body.contains("already in use") => "409 Conflict",
                            _ => "200 OK",
                        };
                        // only where ages matter
                        let date = if body.contains("/humanize-gpus-") { "Date: Tue, 01 Dec 2026 00:00:00 GMT\r\n" } else { "" };
                        let head =
                            format!("HTTP/1.1 {status}\r\nApi-Version: 1.41\r\n{date}Content-Length: {}\r\n\r\n", body.len());
                        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                    }
                    None => std::future::pending().await,
                }
            });
        }
    });
}

#[tokio::test]
async fn one_that_never_answers_is_unreachable() {
    let c = at("d.sock");
    play(&c, |_| None);
    let driver = c.with_limits(quick());
    let error = tokio::time::timeout(common::HANG, driver.probe(&c.target)).await.expect("it is bounded").unwrap_err();
    let DriverError::Unreachable { at, why } = &error else { panic!("{error}") };
    assert_eq!(*at, c.target.runtime.at());
    assert!(why.starts_with("could not ask unix://") && why.ends_with("what it has: no answer in 0.3 s"), "{why}");
}

#[tokio::test]
async fn one_that_stops_answering_is_unreachable() {
    let c = at("d.sock");
    play(&c, |path| (path == "/_ping").then_some("OK"));
    let driver = c.with_limits(quick());
    for error in [
        driver.probe(&c.target).await.unwrap_err(),
        driver.list(&c.target).await.unwrap_err(),
        driver.remove(&c.target, &c.key("box")).await.unwrap_err(),
        driver.start(&c.target, &c.spec(&c.key("box"))).await.unwrap_err(),
        driver.admit(&c.target, &[common::want(&c.key("box"))]).await.unwrap_err(),
    ] {
        assert!(matches!(error, DriverError::Unreachable { .. }), "{error}");
    }
}

#[tokio::test]
async fn what_it_has_is_asked_once_in_a_while_and_whether_it_answers_each_time() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static GONE: AtomicBool = AtomicBool::new(false);
    let c = at("d.sock");
    play(&c, |path| {
        if path.ends_with("/info") {
            ASKED.fetch_add(1, Ordering::SeqCst);
            return Some(r#"{"NCPU": 3, "MemTotal": 1024, "ServerVersion": "1.2.3", "SystemTime": "2026-11-30T00:00:00Z"}"#);
        }
        (!GONE.load(Ordering::SeqCst)).then_some("OK")
    });
    let driver = c.with_limits(quick());
    let first = driver.probe(&c.target).await.unwrap();
    assert_eq!((first.version.as_str(), first.memory.bytes()), ("1.2.3", 1024));
    let second = driver.probe(&c.target).await.unwrap();
    // its clock goes on meanwhile
    assert!(second.now > first.now);
    assert_eq!(hmz_drivers::Facts { now: first.now, ..second }, first);
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
    GONE.store(true, Ordering::SeqCst);
    assert!(matches!(driver.probe(&c.target).await, Err(DriverError::Unreachable { .. })));
}

#[tokio::test]
async fn no_socket_is_unreachable() {
    let c = at("none.sock");
    let error = c.driver().probe(&c.target).await.unwrap_err();
    assert!(matches!(&error, DriverError::Unreachable { why, .. } if why.contains("No such file")), "{error}");
}

#[tokio::test]
async fn one_odd_container_does_not_cost_the_listing() {
    let c = at("d.sock");
    play(&c, |path| match path {
        "/_ping" => Some("OK"),
        p if p.contains("/containers/json") => Some(
            r#"[{"Id": null}, {"Id": "1", "Names": null}, {"Id": "2", "Names": ["/x"], "State": 7, "Created": "soon", "Labels": null},
                {"Id": "3", "Names": ["/y"], "State": "created", "Labels": {"humanize": "0", "humanize.cpus": "many"}, "New": {}}]"#,
        ),
        _ => Some(r#"{"State": {"Status": "unheard-of", "ExitCode": null}}"#),
    });
    let listed = c.driver().list(&c.target).await.unwrap();
    assert_eq!(listed.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
}

#[tokio::test]
async fn a_port_nobody_listens_at_says_so() {
    let mut c = at("d.sock");
    c.target.spec.endpoint = "tcp://127.0.0.1:1".parse().unwrap();
    let error = c.driver().probe(&c.target).await.unwrap_err();
    let words = format!(
        "could not connect to {}: could not ask tcp://127.0.0.1:1 what it has: 127.0.0.1:1: Connection refused (os error 111)",
        c.target.runtime.at()
    );
    assert_eq!(error.to_string(), words);
}

#[tokio::test]
async fn certificates_that_are_not_there_are_named() {
    let mut c = at("d.sock");
    c.target.spec.endpoint = "tcp://127.0.0.1:1".parse().unwrap();
    c.target.spec.tls_dir = Some("/no/such".into());
    let error = c.driver().probe(&c.target).await.unwrap_err();
    assert!(matches!(&error, DriverError::Refused(text) if text.contains("/no/such/ca.pem")), "{error}");
}

#[tokio::test]
async fn a_host_or_context_that_is_not_there_is_named() {
    for (endpoint, words) in
        [("ssh:gone", "ssh:gone: ssh host 'gone' not found"), ("context:gone", "docker context 'gone' not found")]
    {
        let mut c = at("d.sock");
        c.target.spec.endpoint = endpoint.parse().unwrap();
        let error = c.driver().probe(&c.target).await.unwrap_err();
        assert_eq!(error, DriverError::Refused(format!("{}: {words}", c.target.runtime.at())));
    }
}

#[tokio::test]
async fn ssh_that_cannot_connect_says_why_itself() {
    let mut c = at("d.sock");
    // nothing of this machine's configuration or keys is used
    c.target.spec.endpoint = "ssh:far".parse().unwrap();
    let hosts = common::Hosts::of("far", |spec| {
        spec.host = Some("127.0.0.1".into());
        spec.port = Some(1);
        spec.config = Some("/dev/null".into());
    });
    let driver = hmz_drivers::docker::DockerDriver::new(hmz_drivers::docker::DockerIdentity { hosts, ..c.identity() });
    let error = driver.probe(&c.target).await.unwrap_err();
    assert!(matches!(error, DriverError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("could not ask ssh:far what it has: ssh to 127.0.0.1 ended"), "{text}");
    assert!(text.ends_with("ssh: connect to host 127.0.0.1 port 1: Connection refused"), "{text}");
}

/// A registry that has the image, as the daemon tells of it; everything that was asked.
async fn pulled(c: &Corner, lines: &'static str) -> (Result<(), DriverError>, Vec<String>, Vec<String>) {
    let (asked, said) = (Arc::new(Mutex::new(Vec::<String>::new())), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&asked);
    play_whole(c, move |request| {
        let mut seen = seen.lock().unwrap();
        let pulled = seen.iter().any(|r| r.starts_with("POST"));
        seen.push(request.to_owned());
        match request {
            r if r.starts_with("POST") => Some(lines),
            r if r.contains("/images/") && !pulled => Some(r#"{"message": "No such image: x"}"#),
            _ => Some("{}"),
        }
    });
    let sink = {
        let said = Arc::clone(&said);
        Arc::new(move |p: hmz_drivers::Progress| said.lock().unwrap().push(p.text))
    };
    let result = c.driver().ensure_image(&c.target, "h.example:5000/me/x", sink).await;
    let asked = asked.lock().unwrap().clone();
    let said = said.lock().unwrap().clone();
    (result, asked, said)
}

#[tokio::test]
async fn a_pull_is_told_of_and_signed_in() {
    let c = at("d.sock");
    let config = c.dir.path().join("docker-config");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(config.join("config.json"), r#"{"auths": {"h.example:5000": {"auth": "bWU6c2VjcmV0"}}}"#).unwrap();
    let lines = concat!(
        r#"{"status": "Pulling from me/x", "id": "latest"}"#,
        "\r\n",
        r#"{"status": "Downloading", "progressDetail": {"current": 12582912, "total": 47185920}, "id": "a"}"#,
        "\r\n",
        r#"{"status": "Download complete", "progressDetail": {}, "id": "a"}"#,
        "\r\n",
    );
    let (result, asked, said) = pulled(&c, lines).await;
    assert_eq!(result, Ok(()));
    let image = "h.example:5000/me/x";
    let expected = ["", ": 12 MiB of 45 MiB", ": 45 MiB of 45 MiB"].map(|t| format!("pulling {image}{t}"));
    assert_eq!(said, expected);
    let post = asked.iter().find(|r| r.starts_with("POST")).unwrap();
    assert!(post.contains("fromImage=h.example%3A5000%2Fme%2Fx&tag=latest"), "{post}");
    // {"username":"me","password":"secret","serveraddress":"h.example:5000"}
    let auth = "eyJ1c2VybmFtZSI6Im1lIiwicGFzc3dvcmQiOiJzZWNyZXQiLCJzZXJ2ZXJhZGRyZXNzIjoiaC5leGFtcGxlOjUwMDAifQ==";
    assert!(post.to_ascii_lowercase().contains(&format!("x-registry-auth: {auth}").to_ascii_lowercase()), "{post}");
}

#[tokio::test]
async fn a_pull_that_fails_on_the_way_is_refused_in_dockers_words() {
    let c = at("d.sock");
    let lines = r#"{"errorDetail": {"message": "no basic auth credentials"}, "error": "no basic auth credentials"}"#;
    let (result, ..) = pulled(&c, lines).await;
    let address = c.target.spec.endpoint.to_string();
    let words = format!("could not start a container of h.example:5000/me/x on {address}: no basic auth credentials");
    assert_eq!(result, Err(DriverError::Refused(words)));
}

#[tokio::test]
async fn a_daemon_too_old_says_so() {
    let c = at("d.sock");
    let listener = UnixListener::bind(c.dir.path().join("d.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nApi-Version: 1.40\r\nContent-Length: 2\r\n\r\nOK").await;
        }
    });
    let error = c.driver().probe(&c.target).await.unwrap_err().to_string();
    assert!(error.ends_with("it speaks API 1.40, and 1.41 (docker 20.10) or newer is needed"), "{error}");
}

/// What is asked of a daemon whose admission lock is a young one of that process; once the lock is removed there is no answer.
async fn asked_for_the_lock(mark: &str) -> (Result<(), DriverError>, Vec<String>) {
    let mut c = at("d.sock");
    (c.target.spec.cpus, c.target.spec.memory) = (Some(Cpus::whole(1)), Some(Memory::from_bytes(1)));
    let there = format!(
        r#"{{"Id": "lock1", "Name": "/hmz-admission-lock", "State": {{"Status": "created"}}, "Created": "2026-11-30T00:00:00Z",
        "Config": {{"Labels": {{"humanize": "1", "hmz.purpose": "lock", "hmz.holder.process": "{mark}"}}}}}}"#
    );
    let there: &'static str = there.leak();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let requests = Arc::clone(&seen);
    play_whole(&c, move |request| {
        requests.lock().unwrap().push(request.to_owned());
        match request.split(' ').next() {
            Some("POST") => Some(r#"{"message": "the name is already in use"}"#),
            Some("DELETE") => None,
            _ if request.contains("/_ping") => Some(""),
            _ => Some(there),
        }
    });
    let limits = Limits { call: Duration::from_secs(2), ..Limits::default() };
    let answer = c.with_limits(limits).admit(&c.target, &[common::want(&c.key("box"))]).await;
    let seen = seen.lock().unwrap().clone();
    (answer.map(drop), seen)
}

#[tokio::test]
async fn a_lock_is_left_to_a_process_that_lives_and_to_one_that_cannot_be_seen() {
    let here = common::mark(std::process::id());
    let elsewhere = format!("another-boot/{}", here.split_once('/').unwrap().1);
    for mark in [here.as_str(), &elsewhere, ""] {
        let (answer, seen) = asked_for_the_lock(mark).await;
        let Err(DriverError::Transient(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains("stays taken"), "{text}");
        let asked = |method: &str| seen.iter().filter(|request| request.starts_with(method)).count();
        assert!(asked("POST") > 0 && asked("GET") > 0 && asked("DELETE") == 0, "{mark}: {seen:?}");
        // it says who it is itself
        let own = format!(r#""hmz.holder.process":"{here}""#);
        assert!(seen.iter().filter(|r| r.starts_with("POST")).all(|r| r.contains(&own)), "{seen:?}");
    }
}

#[tokio::test]
async fn a_young_lock_is_removed_by_its_id_when_its_process_has_ended() {
    let mut holder = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
    let mark = common::mark(holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let (answer, seen) = asked_for_the_lock(&mark).await;
    assert!(matches!(answer, Err(DriverError::Unreachable { .. })), "{answer:?}");
    assert!(seen.iter().any(|r| r.starts_with("DELETE ") && r.contains("/containers/lock1?")), "{seen:?}");
}

#[tokio::test]
async fn what_asks_a_gpu_and_cannot_be_killed_holds_nobody_up_and_stays_alone() {
    let mut c = at("d.sock");
    c.target.spec.gpus = vec!["0".into(), "1".into()];
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    play_whole(&c, move |request| {
        let (method, path) = request.split_once(' ').unwrap_or_default();
        let path = path.split(' ').next().unwrap_or_default();
        match path {
            "/_ping" => Some("OK"),
            _ if method == "DELETE" && path.contains("/containers/stuck") => None,
            _ if path.ends_with("/info") => Some(r#"{"ServerVersion": "28.5.2", "NCPU": 1, "MemTotal": 1}"#),
            _ if path.contains("/containers/json") => Some(
                r#"[{"Id": "stuck", "Names": ["/humanize-gpus-1"], "State": "running", "Created": 1,
                "Labels": {"humanize": "1", "hmz.purpose": "probe", "hmz.asks": "0"}}]"#,
            ),
            _ if path.contains("/containers/create") => {
                count.fetch_add(1, Ordering::SeqCst);
                Some(r#"{"Id": "n"}"#)
            }
            _ if path.ends_with("/wait") => Some(r#"{"StatusCode": 6}"#),
            _ if path.contains("/logs") => Some("No devices were found"),
            _ => Some("{}"),
        }
    });
    let driver = c.with_limits(Limits { gpu_answers: Duration::from_secs(1), ..Limits::default() });
    for image in ["a:1", "b:1", "a:1"] {
        let answers = tokio::time::timeout(common::HANG, driver.gpus(&c.target, image)).await.expect("it is bounded").unwrap();
        assert_eq!(answers.silent, ["1".to_owned()].into());
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
    // nor does a sweep wait for it
    tokio::time::timeout(common::HANG, driver.tidy(&c.target)).await.expect("it is bounded").unwrap();
}
