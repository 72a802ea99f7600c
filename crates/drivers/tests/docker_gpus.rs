//! GPUs by id on a real daemon. There are none on the machine of a test: their ids are made up, and nobody else has them.

#![allow(clippy::unwrap_used, clippy::panic)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, docker, granted, inspect, short, want};
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::{Cpus, Memory};
use hmz_drivers::{Admitted, BoxKey, Driver, DriverError, Want};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// Ids that only this test has.
fn ids<const N: usize>() -> [String; N] {
    std::array::from_fn(|n| format!("GPU-{n}-{}", Uuid::new_v4().simple()))
}

/// A runtime that hands those out; of the rest there is enough whoever else is on the daemon.
fn hands_out(ids: &[String]) -> RuntimeSpec {
    let (cpus, memory) = (Some(Cpus::whole(1 << 20)), Some(Memory::from_bytes(1 << 50)));
    RuntimeSpec { cpus, memory, gpus: ids.to_vec(), ..RuntimeSpec::default() }
}

fn wants(key: &BoxKey, gpus: u32) -> Want {
    Want { gpus: Some(gpus), ..want(key) }
}

#[tokio::test]
async fn a_gpu_is_handed_out_by_its_id_and_kept() {
    let ids = ids::<2>();
    let c = Corner::new(hands_out(&ids));
    let (driver, a, b, d) = (c.driver(), c.key("a"), c.key("b"), c.key("d"));
    let first = granted(driver.admit(&c.target, &[wants(&a, 1)]).await.unwrap());
    assert_eq!(first, [[ids[0].clone()]]);
    let label = |id: &str| inspect(id, "{{index .Config.Labels \"humanize.gpus\"}}");
    assert_eq!(label(&c.left()[0]), ids[0]);
    // asked again, alone or beside another, it keeps what it has
    let both = granted(driver.admit(&c.target, &[wants(&b, 1), wants(&a, 1)]).await.unwrap());
    assert_eq!(both, [[ids[1].clone()], [ids[0].clone()]]);
    driver.renew(&c.target, std::slice::from_ref(&a)).await.unwrap();
    let mut labels: Vec<String> = c.left().iter().map(|id| label(id)).collect();
    labels.sort();
    assert_eq!(labels, ids);
    let words = short(driver.admit(&c.target, &[wants(&d, 1)]).await.unwrap());
    assert!(words.starts_with(&format!("{} has 0 of 2 GPUs free, and 'd' asks for 1 (GPU ", c.target.runtime.at())), "{words}");
    assert!(ids.iter().all(|id| words.contains(&format!("GPU {id} held by "))), "{words}");
    driver.remove(&c.target, &a).await.unwrap();
    assert_eq!(granted(driver.admit(&c.target, &[wants(&d, 1)]).await.unwrap()), [[ids[0].clone()]]);
}

#[tokio::test]
async fn a_box_of_the_other_implementation_and_another_name_hold_their_gpus_too() {
    let ids = ids::<3>();
    let (one, mut two) = (Corner::new(hands_out(&ids)), Corner::new(hands_out(&ids)));
    let theirs =
        [("humanize", "1"), ("humanize.provider", "theirs"), ("humanize.host", "elsewhere"), ("humanize.gpus", ids[0].as_str())];
    let name = format!("theirs-{}", two.target.runtime.provider());
    let labels: Vec<String> = theirs.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mut run = vec!["run", "-d", "--rm", "--name", &name];
    labels.iter().for_each(|l| run.extend(["--label", l]));
    run.extend([common::IMAGE, "sleep", "600"]);
    let id = docker(&run);
    let other = granted(two.driver().admit(&two.target, &[wants(&two.key("box"), 1)]).await.unwrap());
    let last = granted(one.driver().admit(&one.target, &[wants(&one.key("box"), 1)]).await.unwrap());
    two.target.spec.gpus = vec![format!("nvidia.com/gpu={}", ids[0])];
    let words = short(two.driver().admit(&two.target, &[wants(&two.key("more"), 1)]).await.unwrap());
    docker(&["rm", "-f", &id]);
    assert_eq!((other, last), (vec![vec![ids[1].clone()]], vec![vec![ids[2].clone()]]));
    assert!(words.contains(&format!("GPU {} held by {name} on elsewhere", ids[0])), "{words}");
}

#[tokio::test]
async fn memory_of_a_gpu_is_compared() {
    let ids = ids::<1>();
    let c = Corner::new(RuntimeSpec { gpu_memory: Some(Memory::from_bytes(16 << 30)), ..hands_out(&ids) });
    let ask = |gib: u64| Want { gpu_memory: Some(Memory::from_bytes(gib << 30)), ..wants(&c.key("box"), 1) };
    let words = short(c.driver().admit(&c.target, &[ask(24)]).await.unwrap());
    assert_eq!(words, format!("{}'s GPUs have 16 GiB each, and 'box' asks for 24 GiB", c.target.runtime.at()));
    assert!(c.left().is_empty());
    assert_eq!(granted(c.driver().admit(&c.target, &[ask(16)]).await.unwrap()), [[ids[0].clone()]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_homes_that_race_for_one_gpu_exactly_one_has_it() {
    let ids = ids::<1>();
    // two homes that call one daemon by two names: a GPU is the daemon's
    let (a, b) = (Corner::new(hands_out(&ids)), Corner::new(hands_out(&ids)));
    let (one, two) = (a.driver(), b.driver());
    let (mut won, rounds) = ([0; 2], 25);
    for round in 0..rounds {
        let (ka, kb) = (a.key("box"), b.key("box"));
        let (wa, wb) = ([wants(&ka, 1)], [wants(&kb, 1)]);
        let (ra, rb) = tokio::join!(one.admit(&a.target, &wa), two.admit(&b.target, &wb));
        let got = [ra.unwrap(), rb.unwrap()].map(|r| matches!(r, Admitted::Held(_)));
        assert_eq!(got.iter().filter(|g| **g).count(), 1, "round {round}");
        let left = [a.left().len(), b.left().len()];
        assert_eq!(left, got.map(usize::from), "round {round}");
        won[usize::from(got[1])] += 1;
        one.remove(&a.target, &ka).await.unwrap();
        two.remove(&b.target, &kb).await.unwrap();
        assert!(a.left().is_empty() && b.left().is_empty(), "round {round}");
    }
    assert_eq!(won[0] + won[1], rounds);
}

#[tokio::test]
async fn the_create_request_asks_for_the_ids_that_were_granted() {
    let ids = ids::<2>();
    let mut c = Corner::new(hands_out(&ids));
    std::fs::create_dir_all(c.work()).unwrap();
    let key = c.key("box");
    let asked: Arc<Mutex<Vec<serde_json::Value>>> = Arc::default();
    let made = Arc::clone(&asked);
    let socket = common::between_requests(&c, move |request| {
        if request.starts_with("POST ") && request.contains("/containers/create") {
            let body = request.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            made.lock().unwrap().push(serde_json::from_str(body).unwrap());
        }
    });
    c.target.local_endpoint = Some(format!("unix://{socket}"));
    let driver = c.driver();
    let gpus = granted(driver.admit(&c.target, &[wants(&key, 1)]).await.unwrap()).remove(0);
    let mut spec = c.spec(&key);
    spec.share = Share { gpus: gpus.clone(), ..Share::default() };
    // a daemon without such a GPU refuses it at the start, in its own words, and nothing is left
    let error = driver.start(&c.target, &spec).await.unwrap_err();
    assert!(matches!(error, DriverError::Refused(_)), "{error}");
    assert!(c.left().is_empty());
    let asked = asked.lock().unwrap();
    // each way of asking whether it answers was tried, as the box would have it, and none says anything of it here
    let of = |purpose: &str| asked.iter().find(|body| body["Labels"]["hmz.purpose"] == purpose).unwrap();
    let (probe, box_made) = (of("probe"), of("box"));
    assert_eq!(probe["HostConfig"]["DeviceRequests"], box_made["HostConfig"]["DeviceRequests"]);
    assert_eq!((&probe["Image"], &probe["HostConfig"]["NetworkMode"]), (&box_made["Image"], &"none".into()));
    assert_eq!(box_made["HostConfig"]["DeviceRequests"][0]["DeviceIDs"], serde_json::json!([ids[0]]));
    assert_eq!(box_made["Labels"]["humanize.gpus"], ids[0].as_str());
}
