//! The life of a box on a real daemon.

mod common;

use common::{Corner, HANG, IMAGE, docker, inspect, until, up, want};
use futures::StreamExt as _;
use hmz_drivers::docker::{DockerDriver, DockerIdentity};
use hmz_drivers::{BoxEvent, BoxState, Driver, DriverError, Purpose, RemoveOutcome};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn corner() -> Corner {
    Corner::new(Default::default())
}

#[tokio::test]
async fn probe_says_what_the_daemon_has() {
    let c = corner();
    let facts = c.driver().probe(&c.target).await.unwrap();
    assert_eq!(facts.version, docker(&["version", "--format", "{{.Server.Version}}"]));
    assert_eq!(facts.cpus.to_string(), docker(&["info", "--format", "{{.NCPU}}"]));
    assert_eq!(facts.memory.bytes().to_string(), docker(&["info", "--format", "{{.MemTotal}}"]));
    assert_eq!(facts.endpoint, "unix:///var/run/docker.sock");
    assert!(facts.runtimes.contains(&"runc".to_owned()) && facts.now.is_some());
}

#[tokio::test]
async fn a_box_from_admission_to_removal() {
    let c = corner();
    let driver = c.driver();
    std::fs::write(c.work().join("tell"), "").unwrap();
    let key = c.key("box");
    let spec = hmz_drivers::BoxSpec { lease: Some(Duration::from_secs(77)), ..c.spec(&key) };
    let started = up(&driver, &c.target, &spec).await;
    assert!(started.name.starts_with(&format!("humanize-{}-box-", c.target.runtime.provider())), "{}", started.name);
    assert_eq!(inspect(&started.id, "{{.State.Pid}}"), started.pid.to_string());
    assert_eq!(inspect(&started.id, "{{.HostConfig.CpuQuota}} {{.HostConfig.CpuPeriod}}"), "50000 100000");
    assert_eq!(inspect(&started.id, "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}}"), format!("{0} {0}", 64 << 20));
    assert_eq!(inspect(&started.id, "{{.HostConfig.AutoRemove}} {{.HostConfig.PidsLimit}}"), "true 4096");
    assert_eq!(inspect(&started.id, "{{.Config.Hostname}}"), started.id[..12]);
    assert_eq!(c.left(), std::slice::from_ref(&started.id), "the hold is gone");

    let told = c.work().join("told");
    until("the first process has told", async || told.exists()).await;
    let told = std::fs::read_to_string(told).unwrap();
    let uid = rustix::process::getuid().as_raw();
    for line in [
        "arg /.hmz/hmz".to_owned(),
        "arg guest".into(),
        "arg /.hmz/run/g.sock".into(),
        "arg 77".into(),
        "pid 1".into(),
        "env HOME=/tmp".into(),
        "NoNewPrivs: 1".into(),
        format!("Uid: {uid} {uid} {uid} {uid}"),
    ] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }

    let listed = driver.list(&c.target).await.unwrap();
    let mine: Vec<_> = listed.iter().filter(|b| b.provider == c.target.runtime.provider()).collect();
    assert_eq!(mine.len(), 1);
    assert_eq!((mine[0].purpose, mine[0].key.as_ref(), mine[0].run), (Purpose::Box, Some(&key), spec.run));
    assert_eq!(mine[0].state, BoxState::Running(started.pid));
    assert_eq!(mine[0].program.as_ref(), Some(&spec.guest.program));

    assert_eq!(driver.start(&c.target, &spec).await.unwrap(), started, "started again, it is adopted");
    assert_eq!(driver.remove(&c.target, &key).await.unwrap(), RemoveOutcome::Removed);
    assert_eq!(driver.remove(&c.target, &key).await.unwrap(), RemoveOutcome::Absent);
    assert_eq!(c.left(), Vec::<String>::new());
}

#[tokio::test]
async fn a_box_is_found_among_others_by_its_key_whatever_its_container_is() {
    let c = corner();
    let (driver, key, other, third) = (c.driver(), c.key("box"), c.key("box"), c.key("box"));
    let started = up(&driver, &c.target, &c.spec(&key)).await;
    let beside = up(&driver, &c.target, &c.spec(&other)).await;
    let find = async |key, id: &str| driver.find(&c.target, key, id).await.unwrap();
    for id in [started.id.as_str(), "0123456789ab", &beside.id] {
        assert_eq!(find(&key, id).await, Some(BoxState::Running(started.pid)), "{id}");
    }
    assert_eq!(find(&third, &started.id).await, None);
    docker(&["rm", "-f", &started.id]);
    assert_eq!(find(&key, &started.id).await, None);
    assert_eq!(find(&other, &beside.id).await, Some(BoxState::Running(beside.pid)));
    driver.remove(&c.target, &other).await.unwrap();
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn a_box_runs_as_whom_it_is_told_with_few_rights() {
    for (uid, bounding) in [(0, "00000000000004fb"), (12345, "0000000000000000")] {
        let c = corner();
        std::fs::set_permissions(c.work(), std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::write(c.work().join("tell"), "").unwrap();
        let driver = DockerDriver::new(DockerIdentity { uid, gid: uid, ..c.identity() });
        up(&driver, &c.target, &c.spec(&c.key("box"))).await;
        let told = c.work().join("told");
        until("the first process has told", async || told.exists()).await;
        assert_eq!(std::fs::metadata(&told).unwrap().uid(), uid);
        let told = std::fs::read_to_string(told).unwrap();
        let effective = if uid == 0 { bounding } else { "0000000000000000" };
        let user = if uid == 0 { "root" } else { "tester" };
        for line in [
            format!("Uid: {uid} {uid} {uid} {uid}"),
            format!("Gid: {uid} {uid} {uid} {uid}"),
            format!("CapBnd: {bounding}"),
            format!("CapEff: {effective}"),
            format!("env USER={user}"),
            format!("env LOGNAME={user}"),
        ] {
            assert!(told.lines().any(|l| l == line), "{line} in {told}");
        }
    }
}

#[tokio::test]
async fn nothing_of_this_environment_reaches_a_box() {
    let c = corner();
    let canary = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it for tests");
    std::fs::write(c.work().join("tell"), "").unwrap();
    let started = up(&c.driver(), &c.target, &c.spec(&c.key("box"))).await;
    let told = c.work().join("told");
    until("the first process has told", async || told.exists()).await;
    let told = std::fs::read_to_string(told).unwrap();
    let image = inspect(IMAGE, "{{join .Config.Env \"\\n\"}}");
    let ours = ["HOME=/tmp", "USER=tester", "LOGNAME=tester", "NVIDIA_VISIBLE_DEVICES=void"];
    let ours = ours.map(|l| if rustix::process::getuid().is_root() { l.replace("tester", "root") } else { l.to_owned() });
    for line in told.lines().filter_map(|l| l.strip_prefix("env ")) {
        let known = image.lines().any(|l| l == line) || ours.iter().any(|l| l == line);
        assert!(known || line == format!("HOSTNAME={}", &started.id[..12]), "{line}");
    }
    assert!(ours.iter().all(|l| told.contains(&format!("env {l}\n"))), "{told}");
    let env = inspect(&started.id, "{{json .Config.Env}}");
    assert!(!env.contains(&canary) && !told.contains("CARGO"), "{env}");
}

#[tokio::test]
async fn a_leased_box_that_ends_is_gone_and_another_says_how_it_ended() {
    let c = corner();
    let driver = c.driver();
    let leased = hmz_drivers::BoxSpec { lease: Some(Duration::from_secs(60)), ..c.spec(&c.key("leased")) };
    let one = up(&driver, &c.target, &leased).await;
    docker(&["kill", &one.id]);
    until("it removed itself", async || !c.left().contains(&one.id)).await;

    let stays = c.spec(&c.key("stays"));
    let two = up(&driver, &c.target, &stays).await;
    docker(&["kill", &two.id]);
    docker(&["wait", &two.id]);
    let listed = driver.list(&c.target).await.unwrap();
    let state = &listed.iter().find(|b| b.id == two.id).unwrap().state;
    let BoxState::Exited(exit) = state else { panic!("{state:?}") };
    assert_eq!((exit.code, exit.oom, exit.at.is_some()), (Some(137), false, true));

    // one that ended is not adopted but made anew
    let three = up(&driver, &c.target, &stays).await;
    assert_ne!(three.id, two.id);
    assert_eq!((three.name, c.left()), (two.name, vec![three.id]));
}

#[tokio::test]
async fn one_killed_for_memory_says_what_the_daemon_knows() {
    let c = corner();
    let driver = c.driver();
    let started = up(&driver, &c.target, &c.spec(&c.key("box"))).await;
    docker(&["kill", &started.id]);
    docker(&["wait", &started.id]);
    std::fs::write(c.work().join("eat"), "").unwrap();
    docker(&["start", &started.id]);
    docker(&["wait", &started.id]);
    let listed = driver.list(&c.target).await.unwrap();
    let state = &listed.iter().find(|b| b.id == started.id).unwrap().state;
    // not every kernel tells the daemon of it; what the daemon knows is what is said
    let oom = inspect(&started.id, "{{.State.OOMKilled}}") == "true";
    assert!(matches!(state, BoxState::Exited(exit) if exit.oom == oom && exit.code == Some(137)), "{state:?}");
}

#[tokio::test]
async fn one_that_ends_at_once_leaves_nothing() {
    let c = corner();
    std::fs::write(c.work().join("exit"), "3").unwrap();
    let (driver, spec) = (c.driver(), c.spec(&c.key("box")));
    driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    // it may be seen running for a moment; then it is started and ends, which a listing says
    match driver.start(&c.target, &spec).await {
        Err(DriverError::Refused(text)) => {
            let words =
                format!("could not start a container of {IMAGE} on unix:///var/run/docker.sock: its first process ended at once");
            assert_eq!((text, c.left()), (words, Vec::new()));
        }
        other => assert_eq!(c.left(), [other.unwrap().id]),
    }
}

#[tokio::test]
async fn a_missing_workdir_is_refused_and_not_made() {
    let c = corner();
    let driver = c.driver();
    let mut spec = c.spec(&c.key("box"));
    spec.workdir = c.dir.path().join("missing");
    driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    let text = driver.start(&c.target, &spec).await.unwrap_err().to_string();
    let (at, dir) = (c.target.runtime.at(), spec.workdir.display());
    assert_eq!(text, format!("{at} has no {dir} to run a container: no directory to give the container"));
    assert!(!spec.workdir.exists() && c.left().is_empty());
}

#[tokio::test]
async fn a_mount_that_is_missing_is_refused_in_dockers_words() {
    let c = corner();
    let driver = c.driver();
    let mut spec = c.spec(&c.key("box"));
    spec.guest.scratch = c.dir.path().join("missing");
    driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    let error = driver.start(&c.target, &spec).await.unwrap_err();
    assert!(matches!(&error, DriverError::Refused(t) if t.contains("bind source path does not exist")), "{error}");
    assert!(!spec.guest.scratch.exists() && c.left().is_empty());
}

#[tokio::test]
async fn an_image_that_is_nowhere_is_refused_in_dockers_words() {
    let c = corner();
    let driver = c.driver();
    let said = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let said = Arc::clone(&said);
        Arc::new(move |p: hmz_drivers::Progress| said.lock().unwrap().push(p.text))
    };
    driver.ensure_image(&c.target, IMAGE, sink.clone()).await.unwrap();
    assert!(said.lock().unwrap().is_empty(), "what is there is not pulled");
    let image = "127.0.0.1:1/hmz-test/nowhere:1";
    let has = async |image| driver.has_image(&c.target, image).await.unwrap();
    assert_eq!([has(IMAGE).await, has(image).await], [Some(true), Some(false)]);
    let pulled = Command::new("docker").args(["pull", image]).output().unwrap();
    let words = String::from_utf8(pulled.stderr).unwrap();
    let words = words.trim().strip_prefix("Error response from daemon: ").unwrap().to_owned();
    let error = driver.ensure_image(&c.target, image, sink).await.unwrap_err();
    let expected = format!("could not start a container of {image} on unix:///var/run/docker.sock: {words}");
    assert_eq!(error, DriverError::Refused(expected));
    assert_eq!(*said.lock().unwrap(), [format!("pulling {image}")]);
}

#[tokio::test]
async fn a_strangers_container_of_the_same_name_is_left_alone() {
    let c = corner();
    let driver = c.driver();
    let spec = c.spec(&c.key("box"));
    let mine = up(&driver, &c.target, &spec).await;
    driver.remove(&c.target, &spec.key).await.unwrap();
    let theirs = docker(&["create", "--name", &mine.name, "--label", &format!("hmz.instance={}", c.instance), IMAGE, "true"]);
    driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    let error = driver.start(&c.target, &spec).await.unwrap_err();
    assert!(matches!(&error, DriverError::Foreign(text) if text.contains(&mine.name)), "{error}");
    assert_eq!(driver.remove(&c.target, &spec.key).await.unwrap(), RemoveOutcome::Absent);
    assert_eq!(c.left(), [theirs]);
}

#[tokio::test]
async fn labels_copied_by_a_commit_make_nothing_ours() {
    let c = corner();
    let driver = c.driver();
    let spec = c.spec(&c.key("box"));
    let mine = up(&driver, &c.target, &spec).await;
    let image = format!("hmz-test-{}:1", c.target.runtime.provider());
    docker(&["commit", &mine.id, &image]);
    let copy = docker(&["create", "--name", &format!("copy-{}", mine.name), &image]);
    let listed = driver.list(&c.target).await.unwrap();
    let seen = listed.iter().find(|b| b.id == copy).map(|b| (b.purpose, b.key.clone()));
    let removed = driver.remove(&c.target, &spec.key).await;
    let left = c.left();
    docker(&["rm", "-f", &copy]);
    docker(&["rmi", &image]);
    assert_eq!(seen, Some((Purpose::Foreign, None)));
    assert_eq!((removed, left), (Ok(RemoveOutcome::Removed), vec![copy]));
}

#[tokio::test]
async fn a_start_whose_share_is_not_held_leaves_nothing() {
    let c = corner();
    let spec = c.spec(&c.key("box"));
    let error = c.driver().start(&c.target, &spec).await.unwrap_err();
    let words = format!("{} no longer holds the share of 'box'", c.target.runtime.at());
    assert_eq!((error, c.left()), (DriverError::Transient(words), Vec::new()));
}

#[tokio::test]
async fn removals_at_once_all_succeed() {
    let c = corner();
    let driver = c.driver();
    let spec = c.spec(&c.key("box"));
    up(&driver, &c.target, &spec).await;
    let (a, b, d) = tokio::join!(
        driver.remove(&c.target, &spec.key),
        driver.remove(&c.target, &spec.key),
        driver.remove(&c.target, &spec.key)
    );
    assert!([&a, &b, &d].iter().all(|r| r.is_ok()), "{a:?} {b:?} {d:?}");
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn starts_cut_off_anywhere_can_be_repeated() {
    let c = corner();
    let driver = c.driver();
    let spec = c.spec(&c.key("box"));
    for ms in [1, 5, 10, 20, 30, 50, 80, 150, 250] {
        let cut = async {
            driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
            driver.start(&c.target, &spec).await.unwrap();
        };
        let _ = tokio::time::timeout(Duration::from_millis(ms), cut).await;
    }
    driver.admit(&c.target, &[want(&spec.key)]).await.unwrap();
    let started = driver.start(&c.target, &spec).await.unwrap();
    until("only the box is left", async || c.left() == [started.id.clone()]).await;
    driver.remove(&c.target, &spec.key).await.unwrap();
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn events_say_whose_box_to_look_at_again() {
    let c = corner();
    let driver = c.driver();
    let mut events = driver.events(&c.target).await.unwrap();
    let spec = c.spec(&c.key("box"));
    up(&driver, &c.target, &spec).await;
    // the boxes of other tests on this daemon are told of too
    let own = async { while events.next().await.expect("more events").expect("an event") != BoxEvent::Of(spec.key.uid) {} };
    tokio::time::timeout(HANG, own).await.expect("an event of its own comes");
    driver.remove(&c.target, &spec.key).await.unwrap();
}
