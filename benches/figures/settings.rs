//! A settings.yaml of 200 runtimes: how long it takes to read it anew, and to follow it.

use crate::http;
use crate::rounds::{compared, median, take_turns};
use crate::table::{Aim, Figure, Unit};
use crate::world::World;
use hmz_manifest::Context;
use hmz_manifest::settings::{self, file};
use std::path::Path;
use std::time::Instant;

/// Runtimes in the file.
const RUNTIMES: usize = 200;
/// Readings of a round.
const TIMES: usize = 5;

/// The file; the last runtime hands out so many CPUs.
fn text(cpus: usize) -> String {
    let mut text = String::from("# measured\nruntimes:\n  docker:\n");
    for n in 0..RUNTIMES {
        let cpus = if n + 1 == RUNTIMES { cpus } else { 4 };
        text.push_str(&format!(
            "    box-{n}:   # number {n}\n      endpoint: 'unix:///nowhere/{n}.sock'\n      harness: local\n      image: python:3.12-slim\n      \
             cpus: {cpus}\n      memory: 8G\n      max_containers: 2\n      workdir: /srv/p{n}\n      lease: 2m\n"
        ));
    }
    text
}

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let path = world.home.root().join("measured.yaml");
    std::fs::write(&path, text(4)).expect("a file");
    let context = Context::new("/", Some("/root".into()));
    let reread = |_| {
        let began = Instant::now();
        let text = file::read_text(&path).expect("it can be read").expect("it is there");
        let read = settings::read(&text, "measured.yaml", &context).expect("it is YAML");
        let took = began.elapsed().as_secs_f64();
        assert_eq!(read.runtimes.iter().filter(|(_, entry)| entry.is_ok()).count(), RUNTIMES);
        took
    };
    let (a, b) = take_turns(rounds * TIMES, reread, |_| plain(&path));
    let read = compared("200 runtimes reread", Unit::Seconds, &a, "parsed", &b, Aim::Value(20e-3));
    let followed: Vec<f64> = (0..rounds).map(|round| followed(&world, 5 + round)).collect();
    vec![read, Figure::alone("200 runtimes saved, until the daemon has them", Unit::Seconds, median(&followed), Aim::Told)]
}

/// The file read and parsed by the parser underneath, into a plain tree.
fn plain(path: &Path) -> f64 {
    let began = Instant::now();
    let text = std::fs::read_to_string(path).expect("it can be read");
    let tree: serde_json::Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let took = began.elapsed().as_secs_f64();
    assert_eq!(tree["runtimes"]["docker"].as_object().map(serde_json::Map::len), Some(RUNTIMES));
    took
}

/// From a save until the last runtime is as it says.
fn followed(world: &World, cpus: usize) -> f64 {
    let name = format!("docker:box-{}", RUNTIMES - 1);
    let changes = http::stream(&world.socket(), &format!("/v1/Runtime?watch=true&name={name}"));
    let began = Instant::now();
    world.home.settings(&text(cpus));
    for line in changes {
        if line["object"]["spec"]["cpus"].as_u64() == Some(cpus as u64) {
            return began.elapsed().as_secs_f64();
        }
    }
    panic!("the daemon ended before it had the settings")
}
