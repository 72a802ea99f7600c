//! Many environments: with faults, everything comes right; without, nothing is written once it has.

use crate::checks;
use crate::many::{EACH, Many};
use crate::number;
use hmz_api::kinds::Environment;
use hmz_controllers::environment::plan::key_of;
use hmz_drivers::{BoxState, Purpose};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Environments of a normal test run.
const ENVIRONMENTS: u64 = 600;

/// The seed, unless HMZ_SIM_SEED says another.
const SEED: u64 = 11;

fn checked(many: &Many) {
    for daemon in &many.daemons {
        daemon.check(&daemon.state());
        checks::never(&daemon.broken);
    }
}

async fn play(environments: u64, seed: u64) {
    let many = Many::new(seed, environments.div_ceil(EACH));
    let less = many.daemons.len() as u64 * EACH - environments;
    many.lies.store(true, Ordering::Relaxed);
    many.declare(less).await;
    let mut running = Some(many.start());
    for _ in 0..12 {
        tokio::time::sleep(many.dice.millis(8000)).await;
        checked(&many);
        let daemon = many.dice.pick(&many.daemons).unwrap();
        match many.dice.below(4) {
            0 => {
                many.fate.end_at(many.dice.below(5000));
                let _ = tokio::time::timeout(Duration::from_secs(5), many.fate.reached()).await;
                drop(running.take());
                many.fate.go_on();
                running = Some(many.start());
            }
            1 => {
                daemon.state().unreachable = true;
                daemon.hang_up();
            }
            2 => daemon.state().mute = true,
            _ => {
                let boxes = daemon.boxes_of("us");
                daemon.state().containers.retain(|name, _| !boxes.contains(name));
                daemon.tell();
            }
        }
    }
    many.lies.store(false, Ordering::Relaxed);
    for daemon in &many.daemons {
        daemon.state().unreachable = false;
        daemon.state().mute = false;
        daemon.tell();
    }
    many.settle().await;
    // what died young is not begun again at once, and a daemon that was away is listened to again some time
    tokio::time::sleep(Duration::from_secs(120)).await;
    many.settle().await;
    checked(&many);

    let mut wanted = BTreeSet::new();
    many.store.each::<Environment>(|env| wanted.extend([key_of(env, "us")])).await.unwrap();
    let (all, ready) = many.ready().await;
    assert_eq!((all as u64, ready as u64), (environments, environments));
    let mut found = BTreeSet::new();
    for daemon in &many.daemons {
        for one in daemon.state().containers.values() {
            assert!(one.seen.purpose == Purpose::Box && matches!(one.seen.state, BoxState::Running(_)), "leaked {:?}", one.seen);
            assert!(found.insert(one.seen.key.clone().unwrap()), "two of {:?}", one.seen.key);
        }
    }
    assert!(found == wanted, "what is there is not what is declared");
    assert_eq!(*many.files.there.lock().unwrap(), wanted);

    let before = many.store.revision().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(many.store.revision().await.unwrap(), before, "something is written while nothing happens");
    drop(running);
}

#[test]
fn many_environments_come_right_through_faults_and_are_left_alone_then() {
    let (environments, seed) = (number("HMZ_SIM_SCALE").unwrap_or(ENVIRONMENTS), number("HMZ_SIM_SEED").unwrap_or(SEED));
    eprintln!(
        "{environments} environments; the same again: HMZ_SIM_SCALE={environments} HMZ_SIM_SEED={seed} cargo test -p hmz-controllers --test sim many_environments"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(environments, seed));
}

#[test]
fn daemons_that_keep_theirs_waiting_hold_up_nobody_else() {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
        let many = Many::new(21, 5);
        let stuck = |is: bool| many.daemons[..2].iter().for_each(|daemon| daemon.state().stuck = is);
        stuck(true);
        many.declare(0).await;
        let running = many.start();
        // more are kept waiting than are worked on at once
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(many.ready().await, (500, 300));
        stuck(false);
        tokio::time::sleep(Duration::from_secs(900)).await;
        many.settle().await;
        assert_eq!(many.ready().await, (500, 500));
        checked(&many);
        drop(running);
    });
}
