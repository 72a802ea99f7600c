//! Admission on a real daemon: races, stale locks, aging holds.
//!
//! CPUs count across everybody who shares the daemon, so a test that needs an exact number asks for thousandths on top
//! of what others hold, and takes a round again when that changed meanwhile.

#![allow(clippy::unwrap_used, clippy::panic)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, HANG, docker, others, want, want_millis};
use futures::future::join_all;
use hmz_api::kinds::{Endpoint, RuntimeSpec};
use hmz_api::{Cpus, Memory};
use hmz_drivers::docker::Limits;
use hmz_drivers::{Admitted, Driver, DriverError, Purpose, RemoveOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_want_two_thirds_exactly_one_is_admitted() {
    let (a, mut b) = (Corner::new(RuntimeSpec::default()), Corner::new(RuntimeSpec::default()));
    b.target.runtime = a.target.runtime.clone();
    let (one, two) = (a.driver(), b.driver());
    let (mut rounds, mut tries) = (0, 0);
    while rounds < 20 {
        tries += 1;
        assert!(tries < 400, "others on this daemon never hold still");
        let before = others(&one, &a.target).await;
        let mut target = a.target.clone();
        target.spec.cpus = Some(Cpus::from_millis(before.cpus.unwrap_or_default().millis() + 30));
        target.spec.memory = Some(Memory::from_bytes(1 << 50));
        let (ka, kb) = (a.key("box"), b.key("box"));
        let (wa, wb) = ([want_millis(&ka, 20)], [want_millis(&kb, 20)]);
        let (ra, rb) = tokio::join!(one.admit(&target, &wa), two.admit(&target, &wb));
        let same = before == others(&one, &a.target).await;
        let got = [ra.unwrap(), rb.unwrap()].iter().filter(|r| matches!(r, Admitted::Held(_))).count();
        let removed = [one.remove(&target, &ka).await.unwrap(), two.remove(&target, &kb).await.unwrap()];
        assert!(a.left().is_empty() && b.left().is_empty());
        if same {
            assert_eq!(got, 1);
            assert_eq!(removed.iter().filter(|r| **r == RemoveOutcome::Removed).count(), 1);
            rounds += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_is_held_whole_or_not_at_all() {
    let spec = RuntimeSpec { max_containers: Some(3), ..Default::default() };
    let (a, mut b) = (Corner::new(spec.clone()), Corner::new(spec));
    b.target.runtime = a.target.runtime.clone();
    let (one, two) = (a.driver(), b.driver());
    for _ in 0..20 {
        let (wa, wb) = ([want(&a.key("x")), want(&a.key("y"))], [want(&b.key("x")), want(&b.key("y"))]);
        let (ra, rb) = tokio::join!(one.admit(&a.target, &wa), two.admit(&a.target, &wb));
        let (ra, rb) = (ra.unwrap(), rb.unwrap());
        let left = (a.left().len(), b.left().len());
        match (&ra, &rb) {
            (Admitted::Held(_), Admitted::Short(s)) => {
                assert_eq!((left, s.could_fit), ((2, 0), true));
                let at = a.target.runtime.at();
                assert_eq!(s.message, format!("{at} runs 2 of the 3 containers it may, and 'x' and 'y' ask for 2"));
            }
            (Admitted::Short(_), Admitted::Held(_)) => assert_eq!(left, (0, 2)),
            _ => panic!("{ra:?} {rb:?}"),
        }
        for w in wa {
            one.remove(&a.target, &w.key).await.unwrap();
        }
        for w in wb {
            two.remove(&a.target, &w.key).await.unwrap();
        }
    }
    assert!(a.left().is_empty() && b.left().is_empty());
}

#[tokio::test]
async fn asking_for_more_than_there_is_is_refused_in_words() {
    let c = Corner::new(RuntimeSpec { cpus: Some(Cpus::whole(0)), memory: Some(Memory::from_bytes(1)), ..Default::default() });
    let mut w = want_millis(&c.key("box"), 8000);
    w.gpus = Some(1);
    let Admitted::Short(short) = c.driver().admit(&c.target, &[w]).await.unwrap() else { panic!() };
    let at = c.target.runtime.at();
    assert!(short.message.starts_with(&format!("{at} has 0 of 0 CPUs free, and 'box' asks for 8")), "{}", short.message);
    assert!(short.message.contains(&format!("; {at} has 0 of 0 GPUs free, and 'box' asks for 1")), "{}", short.message);
    assert!(!short.could_fit && c.left().is_empty());
}

#[tokio::test]
async fn admitting_again_keeps_the_one_hold() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(1), ..Default::default() });
    let (driver, w) = (c.driver(), [want(&c.key("box"))]);
    let began = Instant::now();
    driver.admit(&c.target, &w).await.unwrap();
    println!("one admission: {:?}", began.elapsed());
    let first = c.left();
    assert_eq!(first.len(), 1);
    let began = Instant::now();
    assert!(matches!(driver.admit(&c.target, &w).await.unwrap(), Admitted::Held(_)));
    println!("the same again: {:?}", began.elapsed());
    assert_eq!(c.left(), first);
    driver.renew(&c.target, &[w[0].key.clone()]).await.unwrap();
    let renewed = c.left();
    assert!(renewed.len() == 1 && renewed != first, "{renewed:?}");
}

#[tokio::test]
async fn a_hold_ages_out_and_cannot_be_renewed() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(1), ..Default::default() });
    // a machine may be too slow to ask again within the first of these
    let mut ages = [4, 16, 64].into_iter();
    let (driver, old, new) = loop {
        let hold_age = Duration::from_secs(ages.next().expect("the second is asked for while the first counts"));
        let driver = c.with_limits(Limits { hold_age, ..Limits::default() });
        let (old, new) = (c.key("old"), c.key("new"));
        let began = Instant::now();
        assert!(matches!(driver.admit(&c.target, &[want(&old)]).await.unwrap(), Admitted::Held(_)));
        let admitted = driver.admit(&c.target, &[want(&new)]).await.unwrap();
        // the daemon tells of times in whole seconds
        if began.elapsed() + Duration::from_secs(2) < hold_age {
            assert!(matches!(admitted, Admitted::Short(_)), "{admitted:?}");
            break (driver, old, new);
        }
        driver.remove(&c.target, &old).await.unwrap();
        driver.remove(&c.target, &new).await.unwrap();
    };
    common::until("the hold ages out", async || {
        matches!(driver.admit(&c.target, &[want(&new)]).await.unwrap(), Admitted::Held(_))
    })
    .await;
    let error = driver.renew(&c.target, std::slice::from_ref(&old)).await.unwrap_err();
    assert_eq!(error, DriverError::Transient(format!("{} no longer holds the share of 'old'", c.target.runtime.at())));
    // a box of an aged hold does not come to be either
    assert!(driver.start(&c.target, &c.spec(&old)).await.is_err());
    driver.remove(&c.target, &new).await.unwrap();
    assert!(c.left().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_came_to_be_when_its_share_was_another_s_is_not_started() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(1), ..Default::default() });
    let driver = c.with_limits(Limits { hold_age: Duration::from_secs(2), ..Limits::default() });
    // whoever makes the box dies while the daemon has yet to do it
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let socket = common::between(&c, move |line| {
        if line.starts_with("POST") && line.contains("/containers/create?name=") && !line.contains("-hold-") {
            let _ = tell.send(());
            let _ = gate.lock().unwrap().recv();
        }
    });
    let mut target = c.target.clone();
    target.spec.endpoint = Endpoint::Unix(socket);
    let (old, new) = (c.key("box"), c.key("box"));
    assert!(matches!(driver.admit(&c.target, &[want(&old)]).await.unwrap(), Admitted::Held(_)));
    let (late, spec) = (c.driver(), c.spec(&old));
    let dies = tokio::spawn(async move { late.start(&target, &spec).await });
    told.recv().await.expect("it is asked for");
    dies.abort();
    common::until("the hold ages out", async || {
        matches!(driver.admit(&c.target, &[want(&new)]).await.unwrap(), Admitted::Held(_))
    })
    .await;
    let before = c.left().len();
    drop(go_on);
    common::until("the daemon has made it", async || c.left().len() > before).await;
    let error = driver.start(&c.target, &c.spec(&old)).await.unwrap_err();
    assert_eq!(error, DriverError::Transient(format!("{} no longer holds the share of 'box'", c.target.runtime.at())));
    driver.remove(&c.target, &new).await.unwrap();
    assert!(c.left().is_empty(), "nothing of it is left");
    // and when it has its share again, it starts
    common::up(&driver, &c.target, &c.spec(&old)).await;
    driver.remove(&c.target, &old).await.unwrap();
}

/// Takes the lock as one that dies holding it.
fn leave_a_lock(c: &Corner) -> String {
    leave_a_lock_of(c, "")
}

/// The lock of a process, by the mark it has in the lock's labels.
fn leave_a_lock_of(c: &Corner, process: &str) -> String {
    let (label, process) = (format!("hmz.instance={}", c.instance), format!("hmz.holder.process={process}"));
    let mut make = vec!["create", "--name", "hmz-admission-lock", "--label", "hmz.purpose=lock", "--label", &label];
    make.extend(["--label", &process, "busybox:latest", "true"]);
    for _ in 0..2000 {
        let out = std::process::Command::new("docker").args(&make).output().unwrap();
        if out.status.success() {
            return String::from_utf8(out.stdout).unwrap().trim().to_owned();
        }
    }
    panic!("the lock is never free")
}

#[tokio::test]
async fn a_lock_whose_holder_is_gone_is_taken_over() {
    let c = Corner::new(RuntimeSpec::default());
    let lock = leave_a_lock(&c);
    let driver = c.with_limits(Limits { lock_stale: Duration::from_secs(2), ..Limits::default() });
    let key = c.key("box");
    assert!(matches!(driver.admit(&c.target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    assert!(!c.left().contains(&lock));
    driver.remove(&c.target, &key).await.unwrap();
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn a_young_lock_of_a_process_that_has_ended_is_taken_over() {
    let c = Corner::new(RuntimeSpec::default());
    let mut holder = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
    let mark = common::mark(holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let lock = leave_a_lock_of(&c, &mark);
    // by its age it would never be
    let driver = c.with_limits(Limits { lock_stale: Duration::from_secs(86400), ..Limits::default() });
    let key = c.key("box");
    assert!(matches!(driver.admit(&c.target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    assert!(!c.left().contains(&lock));
    driver.remove(&c.target, &key).await.unwrap();
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn a_young_lock_is_waited_for() {
    let c = Corner::new(RuntimeSpec::default());
    let lock = leave_a_lock(&c);
    let (driver, key) = (c.driver(), c.key("box"));
    let w = [want(&key)];
    let mut admission = driver.admit(&c.target, &w);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut admission).await.is_err(), "nobody gets past a young lock");
    docker(&["rm", &lock]);
    assert!(matches!(admission.await.unwrap(), Admitted::Held(_)));
}

#[tokio::test]
async fn those_who_wait_for_room_are_told_without_the_lock() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(1), ..RuntimeSpec::default() });
    // whoever asks for the lock while somebody has it waits for longer than the test
    let driver = c.with_limits(Limits { lock_stale: Duration::from_secs(86400), call: HANG * 2, ..Limits::default() });
    let (first, keys) = (c.key("first"), (0..30).map(|_| c.key("box")).collect::<Vec<_>>());
    assert!(matches!(driver.admit(&c.target, &[want(&first)]).await.unwrap(), Admitted::Held(_)));
    let (driver, target) = (&driver, &c.target);
    let ask = |key| async move { driver.admit(target, &[want(key)]).await.unwrap() };
    assert!(matches!(ask(&keys[0]).await, Admitted::Short(_)));
    let lock = leave_a_lock(&c);
    let told = tokio::time::timeout(HANG, join_all(keys.iter().map(ask))).await.expect("nobody waits for the lock");
    assert!(told.iter().all(|one| matches!(one, Admitted::Short(short) if short.could_fit)), "{told:?}");
    docker(&["rm", &lock]);
    // when there is room again all of them ask, and one has it
    driver.remove(target, &first).await.unwrap();
    let told = join_all(keys.iter().map(ask)).await;
    assert_eq!(told.iter().filter(|one| matches!(one, Admitted::Held(_))).count(), 1, "{told:?}");
    for key in &keys {
        driver.remove(target, key).await.unwrap();
    }
    assert!(c.left().is_empty());
}

#[tokio::test]
async fn admissions_cut_off_anywhere_do_not_oversubscribe() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(1), ..Default::default() });
    let driver = c.with_limits(Limits { lock_stale: Duration::from_secs(2), ..Limits::default() });
    let mut keys = Vec::new();
    for ms in [2, 10, 20, 30, 40, 60] {
        let key = c.key("box");
        let w = [want(&key)];
        let _ = tokio::time::timeout(Duration::from_millis(ms), driver.admit(&c.target, &w)).await;
        keys.push(key);
    }
    let last = c.key("box");
    let admitted = driver.admit(&c.target, &[want(&last)]).await.unwrap();
    let holds = driver.list(&c.target).await.unwrap();
    let holds = holds.iter().filter(|b| b.purpose == Purpose::Hold && b.provider == c.target.runtime.provider()).count();
    assert_eq!(holds, 1, "{admitted:?}");
    for key in keys.iter().chain([&last]) {
        driver.remove(&c.target, key).await.unwrap();
    }
    assert!(matches!(driver.admit(&c.target, &[want(&last)]).await.unwrap(), Admitted::Held(_)));
}

#[tokio::test]
async fn a_holder_that_lost_its_lock_starts_over() {
    let mut c = Corner::new(RuntimeSpec { max_containers: Some(1), ..Default::default() });
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let socket = common::between(&c, move |line| {
        if line.contains("-hold-") && line.starts_with("POST") && count.fetch_add(1, Ordering::SeqCst) == 0 {
            docker(&["rm", "hmz-admission-lock"]);
        }
    });
    c.target.spec.endpoint = Endpoint::Unix(socket);
    let key = c.key("box");
    assert!(matches!(c.driver().admit(&c.target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    assert_eq!(made.load(Ordering::SeqCst), 2, "the first hold was given back");
    assert_eq!(c.left().len(), 1);
}

#[tokio::test]
async fn a_gang_that_fails_in_the_middle_leaves_nothing() {
    let c = Corner::new(RuntimeSpec::default());
    let driver = c.driver();
    let (a, b) = (c.key("a"), c.key("b"));
    driver.admit(&c.target, &[want(&b)]).await.unwrap();
    let hold = docker(&["inspect", "--format", "{{.Name}}", &c.left()[0]]).trim_start_matches('/').to_owned();
    driver.remove(&c.target, &b).await.unwrap();
    let theirs =
        docker(&["create", "--name", &hold, "--label", &format!("hmz.instance={}", c.instance), "busybox:latest", "true"]);
    let error = driver.admit(&c.target, &[want(&a), want(&b)]).await.unwrap_err();
    assert!(matches!(&error, DriverError::Foreign(text) if text.contains(&hold)), "{error}");
    assert_eq!(c.left(), [theirs]);
}

#[tokio::test]
async fn the_empty_image_is_made_when_it_is_missing() {
    let c = Corner::new(RuntimeSpec::default());
    let driver = c.driver();
    let key = c.key("box");
    driver.admit(&c.target, &[want(&key)]).await.unwrap();
    let first = docker(&["image", "ls", "-q", "--no-trunc", "hmz-empty:1"]);
    driver.remove(&c.target, &key).await.unwrap();
    // others may hold containers of it: then it only loses its name here
    docker(&["rmi", "-f", "hmz-empty:1"]);
    assert!(matches!(driver.admit(&c.target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    assert_eq!(docker(&["image", "ls", "-q", "--no-trunc", "hmz-empty:1"]), first, "it is the same image each time");
}
