//! What a plan asks of daemons, in a world where nobody else asks them anything.

use super::{manifests, simulated};
use crate::many::Many;
use hmz_api::rest::{ApplyRequest, Effect, Planned};
use hmz_controllers::declare::plan;
use std::time::Duration;
use tokio::time::Instant;

/// So many environments on each of two runtimes of one daemon.
fn request(each: usize) -> ApplyRequest {
    let mut texts = vec![manifests::runtime("docker:x", "d0", ""), manifests::runtime("docker:y", "d0", "")];
    for n in 0..each {
        for runtime in ["x", "y"] {
            texts.push(manifests::environment(&format!("{runtime}{n}"), &format!("docker:{runtime}"), ", cpus: 0.1"));
        }
    }
    manifests::of(&texts.join("---\n"))
}

/// The plan, and how often its daemon was asked for it.
async fn planned(many: &Many, each: usize) -> (Vec<Planned>, u64) {
    let before = many.daemons[0].state().asked;
    let planned = plan(&many.world, &request(each)).await.unwrap();
    (planned, many.daemons[0].state().asked - before)
}

#[test]
fn a_daemon_that_never_answers_is_waited_for_once() {
    simulated(async {
        let many = Many::new(5, 1);
        many.daemons[0].state().stuck = true;
        let began = Instant::now();
        let (planned, asked) = planned(&many, 10).await;
        assert_eq!(asked, 1);
        assert!(began.elapsed() < Duration::from_secs(700), "{:?}", began.elapsed());
        let waits: Vec<String> = planned
            .iter()
            .flat_map(|one| &one.effects)
            .map(|effect| match effect {
                Effect::Wait { why } => why.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        let of = |at: &str| waits.iter().filter(|why| *why == &format!("could not connect to {at}: it took too long")).count();
        assert_eq!((of("docker@x"), of("docker@y"), waits.len()), (10, 10, 20), "{waits:#?}");
    });
}

#[test]
fn a_daemon_is_asked_for_many_as_often_as_for_one() {
    simulated(async {
        let many = Many::new(5, 1);
        let starts = |planned: &[Planned]| {
            planned.iter().flat_map(|one| &one.effects).filter(|effect| matches!(effect, Effect::Start { .. })).count()
        };
        let (one, asked) = planned(&many, 1).await;
        assert_eq!(starts(&one), 2);
        let (several, again) = planned(&many, 20).await;
        assert_eq!((starts(&several), again), (40, asked));
    });
}

#[test]
fn who_wants_the_same_is_named_and_the_rest_of_them_counted() {
    simulated(async {
        let many = Many::new(5, 1);
        // all but two have room
        let texts: Vec<String> = std::iter::once(manifests::runtime("docker:x", "d0", ""))
            .chain((0..12).map(|n| manifests::environment(&format!("e{n:02}"), "docker:x", ", cpus: 10")))
            .collect();
        let planned = plan(&many.world, &manifests::of(&texts.join("---\n"))).await.unwrap();
        let unsure = |one: &Planned| {
            let whys = one.effects.iter().filter_map(|effect| match effect {
                Effect::Unsure { why } => Some(why.clone()),
                _ => None,
            });
            whys.collect::<Vec<_>>().join("; ")
        };
        let whys: Vec<String> = planned[1..].iter().map(unsure).collect();
        let told = |names: &str| format!("docker@x has no room for all of {names}, and 3 others, and who asks first has it");
        for (n, why) in whys.iter().enumerate() {
            assert!(why.contains(&format!("env/e{n:02}")) && why.matches("env/").count() <= 8, "{why}");
        }
        let first: Vec<String> = (0..8).map(|n| format!("env/e{n:02}")).collect();
        assert_eq!(whys[0], told(&first.join(", ")));
        assert_eq!(whys[11], told(&[&first[..7], &["env/e11".to_owned()]].concat().join(", ")));
    });
}
