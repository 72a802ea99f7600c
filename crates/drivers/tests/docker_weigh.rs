//! What a gang is told without being admitted is what an admission would answer, and nothing is made of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, granted, others, short, want};
use hmz_api::kinds::{RuntimeSpec, Share};
use hmz_api::{Cpus, Memory};
use hmz_drivers::docker::DockerDriver;
use hmz_drivers::{Admitted, BoxKey, Driver, Promised, Want};
use uuid::Uuid;

async fn weigh(driver: &DockerDriver, c: &Corner, wants: &[Want], promised: &[Promised], gone: &[BoxKey]) -> Admitted {
    driver.weigh(&c.target, wants, promised, gone).await.unwrap().expect("a daemon is always weighed")
}

/// What another of this home, on the same runtime, was told before.
fn promised(c: &Corner, role: &str, share: Share) -> Promised {
    Promised { key: c.key(role), name: format!("'{role}'"), provider: c.target.runtime.provider().to_owned(), share }
}

#[tokio::test]
async fn containers_are_weighed_as_they_are_admitted() {
    let c = Corner::new(RuntimeSpec { max_containers: Some(2), ..RuntimeSpec::default() });
    let (driver, keys) = (c.driver(), ["a", "b", "c"].map(|role| c.key(role)));
    let wants: Vec<Want> = keys.iter().map(want).collect();
    let weighed = async |wants: &[Want], promised: &[Promised], gone: &[BoxKey]| weigh(&driver, &c, wants, promised, gone).await;
    let held = |admitted| matches!(admitted, Admitted::Held(shares) if shares == [Share::default()]);
    assert!(held(weighed(&wants[..1], &[], &[]).await));
    let all = short(weighed(&wants, &[], &[]).await);
    assert_eq!(all, short(driver.admit(&c.target, &wants).await.unwrap()));
    let at = c.target.runtime.at();
    assert_eq!(all, format!("{at} runs 0 of the 2 containers it may, and 'a', 'b' and 'c' ask for 3"));
    assert!(c.left().is_empty());
    driver.admit(&c.target, &wants[..1]).await.unwrap();
    let there = c.left();
    // its own hold is no hindrance; what is promised counts as what is held, and what goes does not
    assert!(held(weighed(&wants[..1], &[], &[]).await));
    assert!(held(weighed(&wants[2..], &[], &[]).await));
    let b = [promised(&c, "b", Share::default())];
    assert_eq!(short(weighed(&wants[2..], &b, &[]).await), format!("{at} runs 2 of the 2 containers it may"));
    assert!(held(weighed(&wants[2..], &b, &keys[..1]).await));
    // one that is promised its share again is counted once
    let again = [Promised { key: keys[0].clone(), ..promised(&c, "a", Share::default()) }];
    assert!(held(weighed(&wants[2..], &again, &[]).await));
    // the containers of another runtime are not this one's
    let elsewhere = [Promised { provider: "another".into(), ..promised(&c, "d", Share::default()) }];
    assert!(held(weighed(&wants[2..], &elsewhere, &[]).await));
    assert_eq!(c.left(), there);
}

#[tokio::test]
async fn gpus_are_weighed_as_they_are_admitted_and_by_their_ids() {
    let ids: [String; 3] = std::array::from_fn(|n| format!("GPU-{n}-{}", Uuid::new_v4().simple()));
    let spec = RuntimeSpec { gpus: ids.to_vec(), ..RuntimeSpec::default() };
    let (c, other) = (Corner::new(spec.clone()), Corner::new(spec));
    let (driver, at) = (c.driver(), c.target.runtime.at());
    let ask = |key: &BoxKey, gpus| [Want { gpus: Some(gpus), ..want(key) }];
    let (a, b) = (c.key("a"), c.key("b"));
    // another home has the first
    let theirs = other.driver().admit(&other.target, &ask(&other.key("theirs"), 1)).await.unwrap();
    assert_eq!(granted(theirs), [[ids[0].clone()]]);
    let holder = common::inspect(&other.left()[0], "{{.Name}}").trim_start_matches('/').to_owned();
    let weighed = async |wants: &[Want], promised: &[Promised], gone: &[BoxKey]| weigh(&driver, &c, wants, promised, gone).await;
    assert_eq!(granted(weighed(&ask(&a, 2), &[], &[]).await), [[ids[1].clone(), ids[2].clone()]]);
    let three = short(weighed(&ask(&a, 3), &[], &[]).await);
    assert_eq!(three, short(driver.admit(&c.target, &ask(&a, 3)).await.unwrap()));
    assert_eq!(three, format!("{at} has 2 of 3 GPUs free, and 'a' asks for 3 (GPU {} held by {holder} on testhost)", ids[0]));
    assert!(c.left().is_empty());
    assert_eq!(granted(driver.admit(&c.target, &ask(&a, 1)).await.unwrap()), [[ids[1].clone()]]);
    let there = c.left();
    // it is told the one it has, and another the next
    assert_eq!(granted(weighed(&ask(&a, 1), &[], &[]).await), [[ids[1].clone()]]);
    assert_eq!(granted(weighed(&ask(&b, 1), &[], &[]).await), [[ids[2].clone()]]);
    let d = [promised(&c, "d", Share { gpus: vec![ids[2].clone()], ..Share::default() })];
    let full = short(weighed(&ask(&b, 1), &d, &[]).await);
    assert!(full.starts_with(&format!("{at} has 0 of 3 GPUs free, and 'b' asks for 1 (GPU ")), "{full}");
    assert!(full.ends_with(&format!("; GPU {} held by 'd' on testhost)", ids[2])), "{full}");
    assert_eq!(granted(weighed(&ask(&b, 1), &d, std::slice::from_ref(&a)).await), [[ids[1].clone()]]);
    assert_eq!(c.left(), there);
}

/// Who asks for that many thousandths of a CPU, and as many MiB.
fn asks(key: &BoxKey, n: u64) -> [Want; 1] {
    let share = amount(n);
    [Want { cpus: share.cpus, memory: share.memory, ..want(key) }]
}

fn amount(n: u64) -> Share {
    Share { cpus: Some(Cpus::from_millis(n)), memory: Some(Memory::from_bytes(n << 20)), gpus: Vec::new() }
}

/// CPUs and memory count across everybody who shares the daemon: a round in which that changed is taken again.
#[tokio::test]
async fn cpus_and_memory_are_weighed_as_they_are_admitted() {
    // of which there is enough for the other home, whoever else is on the daemon
    let (cpus, memory) = (Some(Cpus::whole(1 << 20)), Some(Memory::from_bytes(1 << 50)));
    let other = Corner::new(RuntimeSpec { cpus, memory, ..RuntimeSpec::default() });
    let mut c = Corner::new(RuntimeSpec::default());
    let (driver, theirs, at) = (c.driver(), other.driver(), c.target.runtime.at());
    let (a, b, foreign) = (c.key("a"), c.key("b"), other.key("theirs"));
    for _ in 0..400 {
        let there = theirs.admit(&other.target, &asks(&foreign, 5)).await.unwrap();
        assert!(matches!(there, Admitted::Held(_)), "{there:?}");
        let before = others(&driver, &c.target).await;
        let (cpus, memory) = (before.cpus.unwrap_or_default().millis(), before.memory.unwrap_or_default().bytes());
        assert!(cpus >= 5 && memory >= 5 << 20, "another home's are there");
        c.target.spec.cpus = Some(Cpus::from_millis(cpus + 30));
        c.target.spec.memory = Some(Memory::from_bytes(memory + (30 << 20)));
        let first = driver.admit(&c.target, &asks(&a, 10)).await.unwrap();
        let there = c.left();
        let d = [promised(&c, "d", amount(15))];
        let fit = [
            weigh(&driver, &c, &asks(&b, 20), &[], &[]).await,
            // its own hold is no hindrance
            weigh(&driver, &c, &asks(&a, 30), &[], &[]).await,
            weigh(&driver, &c, &asks(&b, 5), &d, &[]).await,
            weigh(&driver, &c, &asks(&b, 30), &[], std::slice::from_ref(&a)).await,
            weigh(&driver, &c, &asks(&b, 15), &d, std::slice::from_ref(&a)).await,
        ];
        let do_not = [
            weigh(&driver, &c, &asks(&b, 21), &[], &[]).await,
            weigh(&driver, &c, &asks(&b, 6), &d, &[]).await,
            weigh(&driver, &c, &asks(&b, 16), &d, std::slice::from_ref(&a)).await,
        ];
        let admitted = driver.admit(&c.target, &asks(&b, 21)).await.unwrap();
        assert_eq!(c.left(), there, "nothing is made");
        if before != others(&driver, &c.target).await {
            driver.remove(&c.target, &a).await.unwrap();
            continue;
        }
        assert!(matches!(first, Admitted::Held(_)), "{first:?}");
        let shares = fit.map(|admitted| match admitted {
            Admitted::Held(shares) => shares,
            short => panic!("{short:?}"),
        });
        assert_eq!(shares, [20, 30, 5, 30, 15].map(|n| vec![amount(n)]));
        let words = do_not.map(short);
        assert_eq!(words[0], short(admitted));
        for (words, cpus_free, memory_free, asked) in
            [(&words[0], "0.02", "20 MiB", 21), (&words[1], "0.005", "5 MiB", 6), (&words[2], "0.015", "15 MiB", 16)]
        {
            let all = (c.target.spec.cpus.unwrap(), c.target.spec.memory.unwrap().in_words());
            let cpus = format!("{at} has {cpus_free} of {} CPUs free, and 'b' asks for 0.0{asked:02}", all.0);
            let memory = format!("; {at} has {memory_free} of {} of memory free, and 'b' asks for {asked} MiB", all.1);
            assert!(words.starts_with(&cpus) && words.contains(&memory), "{words}");
        }
        return;
    }
    panic!("others on this daemon never hold still");
}
