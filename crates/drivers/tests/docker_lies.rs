//! Daemons that do not answer or answer oddly, played by a socket of the test's own.

mod common;

use common::Corner;
use hmz_api::kinds::Endpoint;
use hmz_drivers::docker::Limits;
use hmz_drivers::{Driver, DriverError};
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
    let listener = UnixListener::bind(c.dir.path().join("d.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 65536];
                let n = stream.read(&mut buffer).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&buffer[..n]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                match answers(&path) {
                    Some(body) => {
                        let head = format!("HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: {}\r\n\r\n", body.len());
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
async fn a_daemon_elsewhere_is_refused_in_one_sentence() {
    let mut c = at("d.sock");
    c.target.spec.endpoint = Endpoint::Other("tcp://gpubox:2376".into());
    let error = c.driver().probe(&c.target).await.unwrap_err();
    let words =
        format!("{} is at 'tcp://gpubox:2376': a daemon reached over tcp or ssh is not supported yet", c.target.runtime.at());
    assert_eq!(error, DriverError::Refused(words));
}
