//! What there is to declare, and what happened: `explain`, `schema`, `api-resources`, `events`, and the events of `describe`.

use crate::Place;
use crate::support::{LIMIT, eventually};

#[test]
fn fields_and_kinds_are_explained_without_a_daemon() {
    let place = Place::make();
    let told = place.hmz("explain run.spec.environments").ok().out();
    assert!(told.starts_with("KIND:     Run\nFIELD:    spec.environments <mapping of "), "{told}");
    assert!(told.contains("Role → where it is put."), "{told}");
    let _ = place.hmz("explain envs.spec.restart").ok().says("ONE OF:\n  never\n");
    let _ = place.hmz("explain settings.runtimes.docker.gpubox.lease").ok().says("FIELD:    runtimes.docker.gpubox.lease");
    let _ = place.hmz("explain runtime --recursive").ok().says("    default_request <");
    let _ = place
        .hmz("explain run.spec.environmets")
        .expect_code(2)
        .says("Run.spec has no field 'environmets'; did you mean 'environments'?");
    let _ = place.hmz("explain pods").expect_code(2).says("'pods' is not a kind");
    let told = place.hmz("api-resources").ok().out();
    assert!(told.contains("\nenvironments   env,envs     hmz/v1       Environment\n"), "{told}");
    assert_eq!(place.hmz("api-resources -o name").ok().out(), "environments\nflows\nruns\nruntimes\n");
    let schemas = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    for (line, file) in [("schema", "manifest.json"), ("schema envs", "environment.json"), ("schema settings", "settings.json")] {
        assert!(place.hmz(line).ok().out() == std::fs::read_to_string(schemas.join(file)).unwrap(), "{line} is not {file}");
    }
    let _ = place.hmz("schema rnu").expect_code(2).says("there is no schema 'rnu'; did you mean 'run'?");
    assert!(place.home.processes().is_empty(), "a daemon was started");
}

#[test]
fn what_happened_is_told_counted_and_outlives_the_daemon() {
    let place = Place::make();
    let _ = place.hmz("events --for env/box").ok().says("no events found");
    let mut watch = place.home.hmz(["events", "-w", "--for", "env/box"]).start();
    place.environment("box.yaml", "box", "");
    drop(place.hmz("apply -f box.yaml --wait").ok());
    watch.wait_for("  Ready is True");
    let told = watch.stdout();
    let reasons = told.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2));
    // whether the guest is there at the first look is chance
    let reasons: Vec<&str> = reasons.filter(|reason| *reason != "NotAnswering").collect();
    assert_eq!(reasons, ["Declared", "Held", "Present", "Started", "Answered", "Ready"], "{told}");
    // somebody removes it
    crate::support::docker::remove(&place.home.containers());
    watch.wait_for("RemovedByHand");
    drop(watch);
    let described = place.hmz("describe env box").ok().out();
    assert!(described.contains("\nEvents:\n  LAST") && described.contains("Warning   RemovedByHand"), "{described}");
    let json: serde_json::Value = serde_json::from_str(&place.hmz("events -o json").ok().out()).unwrap();
    assert!(json.as_array().unwrap().iter().any(|event| event["kind"] == "Environment" && event["reason"] == "Held"), "{json}");
    // the next daemon tells it too
    for pid in place.home.processes() {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    eventually("the daemon's end", LIMIT, || place.home.processes().is_empty().then_some(()));
    let _ = place.hmz("events --for env/box").ok().says("RemovedByHand");
    drop(place.hmz("delete env box").ok());
    let _ = place.hmz("events --for env/box").ok().says("Deleted");
    let _ = place.hmz("events --for box").expect_code(2).says("write it as kind/name");
}
