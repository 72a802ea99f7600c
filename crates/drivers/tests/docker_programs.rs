//! A box that is to have a program is started only when its image has it, which its files tell before anything of it runs.

mod common;

use common::{Corner, Image, docker, inspect, up, want};
use hmz_drivers::{BoxSpec, Driver as _, DriverError};
use std::os::unix::fs::PermissionsExt as _;

fn programs(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_program_that_is_not_there_is_refused_and_nothing_is_left() {
    let c = Corner::new(Default::default());
    let driver = c.driver();
    // a box that ran would tell so
    std::fs::write(c.work().join("tell"), "").unwrap();
    let key = c.key("box");
    assert!(matches!(driver.admit(&c.target, &[want(&key)]).await.unwrap(), hmz_drivers::Admitted::Held(_)));
    let spec = BoxSpec { programs: programs(&["sh", "claude"]), ..c.spec(&key) };
    let refused = driver.start(&c.target, &spec).await.unwrap_err();
    assert_eq!(refused, DriverError::NoProgram { program: "claude".into(), image: common::IMAGE.into() });
    assert!(!refused.is_retryable());
    assert_eq!(c.left(), Vec::<String>::new());
    assert!(!c.work().join("told").exists(), "something of it ran");
}

#[tokio::test]
async fn one_that_is_there_is_found_behind_links_and_by_the_boxes_own_path() {
    // links that lead on, one of them nowhere, and a directory and a text of a program's name before the program
    let image = Image::new(
        "FROM busybox:latest\nENV PATH=/first:/second:/bin\nRUN mkdir -p /first/claude /second /opt && printf '#!/bin/sh\\n' \
         >/opt/real && chmod 755 /opt/real && ln -s ../opt/real /second/claude && ln -s /nowhere /second/lost && touch /second/text\n",
    );
    let c = Corner::new(Default::default());
    let driver = c.driver();
    let spec = |names: &[&str]| BoxSpec { image: image.0.clone(), programs: programs(names), ..c.spec(&c.key("box")) };
    let started = up(&driver, &c.target, &spec(&["claude", "sh"])).await;
    assert_eq!(inspect(&started.id, "{{.State.Running}}"), "true");
    for missing in ["lost", "text", "first", "no/such"] {
        let spec = spec(&[missing]);
        let held = driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
        assert!(matches!(held, hmz_drivers::Admitted::Held(_)));
        let refused = driver.start(&c.target, &spec).await.unwrap_err();
        assert_eq!(refused, DriverError::NoProgram { program: missing.into(), image: image.0.clone() });
    }
    assert_eq!(c.left(), std::slice::from_ref(&started.id));
    docker(&["rm", "-f", &started.id]);
}

#[tokio::test]
async fn a_path_that_the_runtime_sets_counts() {
    let mut c = Corner::new(Default::default());
    let tool = c.work().join("tool");
    std::fs::write(&tool, "").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let driver = c.driver();
    let spec = BoxSpec { programs: programs(&["tool"]), ..c.spec(&c.key("box")) };
    let held = driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    assert!(matches!(held, hmz_drivers::Admitted::Held(_)));
    assert!(matches!(driver.start(&c.target, &spec).await, Err(DriverError::NoProgram { .. })));
    c.target.spec.exec_env = vec![format!("PATH=/bin:{}", c.work().display())];
    let spec = BoxSpec { programs: programs(&["tool"]), ..c.spec(&c.key("box")) };
    let started = up(&driver, &c.target, &spec).await;
    docker(&["rm", "-f", &started.id]);
}

#[tokio::test]
async fn it_counts_in_a_container_that_runs_too() {
    let mut c = Corner::new(Default::default());
    let name = format!("hmz-test-{}", uuid::Uuid::new_v4().simple());
    let line = "mkdir /opt && touch /opt/tool && chmod 755 /opt/tool && exec sleep 100000";
    let id = docker(&["run", "-d", "--name", &name, "--label", "hmz-test=programs", "busybox", "sh", "-c", line]);
    while common::exec(&id, "test -x /opt/tool").is_err() {}
    c.target.spec.container = Some(name);
    let driver = c.driver();
    let spec = BoxSpec { programs: programs(&["tool"]), workdir: "/opt".into(), ..c.spec(&c.key("box")) };
    let before = driver.start(&c.target, &spec).await;
    c.target.spec.exec_env = vec!["PATH=/bin".into(), "PATH=/bin:/opt".into()];
    let after = driver.start(&c.target, &spec).await;
    docker(&["rm", "-fv", &id]);
    assert!(matches!(before, Err(DriverError::NoProgram { .. })), "{before:?}");
    assert_eq!(after.unwrap().id, id);
    assert_eq!(driver.remove(&c.target, &spec.key).await.unwrap(), hmz_drivers::RemoveOutcome::Removed);
}
